//! Connections: one a runtime and server, made by the runtime that uses it, so that no call wakes another thread. What waits for a replica
//! has others.

mod own;

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::runtime::{Handle, Id};

use self::own::{OwnLink, OwnLinks};
use super::script::Script;
use super::shards::{Of, Shard};
use super::slots::Elsewhere;
use super::url::{Address, Connection};
use crate::ledger::StoreError;

/// One runtime's way to Redis: a line to each of its servers.
#[derive(Debug, Default)]
pub(super) struct Link {
    first: Line,
    /// Those of the shards from number 1 on.
    others: Mutex<Vec<Option<Arc<Line>>>>,
}

/// One runtime's way to one server.
#[derive(Debug, Default)]
pub(super) struct Line {
    current: Mutex<Current>,
    #[expect(
        clippy::disallowed_types,
        reason = "a connection is made within its time-out, or not at all"
    )]
    connecting: tokio::sync::Mutex<()>,
    own: OwnLinks,
}

#[derive(Debug, Default)]
struct Current {
    connection: Option<Connection>,
    /// Counts the connections made, so that only the one that failed is given up.
    number: u64,
    /// How often the master had been replaced when the connection was begun.
    replaced: u64,
}

/// A call without an answer.
#[derive(Debug)]
pub(super) struct Unanswered {
    pub(super) error: StoreError,
    /// Whether Redis may have run it all the same.
    pub(super) sent: bool,
    /// Where it is to be sent: this server did not run it.
    pub(super) elsewhere: Option<Elsewhere>,
}

/// How a call is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// As it is.
    Plain,
    /// To a server that takes over the slot of its key.
    Asking,
    /// The same, once: not again where the connection breaks.
    AskingOnce,
}

/// A call: its command, and the script behind it when it is one.
pub(super) struct Call {
    pub(super) command: Cmd,
    pub(super) script: Option<&'static Script>,
}

impl From<Unanswered> for StoreError {
    fn from(unanswered: Unanswered) -> StoreError {
        unanswered.error
    }
}

impl Link {
    /// The link of this ledger on the current runtime.
    pub(super) fn of_runtime(ledger: u64) -> Arc<Link> {
        let runtime = Handle::current().id();
        LINKS.with_borrow_mut(|links| {
            let found = links.iter().find(|(l, r, _)| (*l, *r) == (ledger, runtime));
            if let Some((_, _, link)) = found {
                return Arc::clone(link);
            }
            if links.len() >= LINKS_MAX {
                links.remove(0);
            }
            let link = Arc::new(Link::default());
            links.push((ledger, runtime, Arc::clone(&link)));
            link
        })
    }

    /// Forgets the links of a ledger that this thread has.
    pub(super) fn forget_ledger(ledger: u64) {
        let forgotten = LINKS.try_with(|links| links.borrow_mut().retain(|(l, _, _)| *l != ledger));
        if forgotten.is_err() {
            log::trace!("the thread is ending, and its links with it");
        }
    }

    /// The line to a shard.
    pub(super) fn line(&self, shard: &Shard) -> Of<'_, Line> {
        let Some(place) = shard.number.checked_sub(1) else {
            return Of::First(&self.first);
        };
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if others.len() <= place {
            others.resize_with(place.saturating_add(1), || None);
        }
        let line = match others.get_mut(place) {
            Some(line) => Arc::clone(line.get_or_insert_default()),
            None => Arc::default(),
        };
        Of::Other(line)
    }
}

impl Line {
    /// Sends a call and waits for its answer, at most for `within`. A connection that turns out to be broken is made anew once, and the call
    /// sent again, though Redis may have run it: every call is one that may be sent twice, but for what counts how often it was sent
    /// ([`Sent::AskingOnce`]). What would be another act the second time has a text by which it knows what it has done itself
    /// ([`nonce`](super::nonce::nonce)). Without one are a refusal, which counts in its window again, events that are claimed, which then wait
    /// for their lease, how many expired holds are said to be released, and what a repair says that it mended.
    ///
    /// # Errors
    /// When Redis cannot be reached, does not answer in time, or answers an error.
    pub(super) async fn ask(
        &self,
        shard: &Shard,
        call: &Call,
        how: Sent,
        within: Duration,
    ) -> Result<Value, Unanswered> {
        let mut sent = false;
        let pass = shard.guard.enter().map_err(|error| Unanswered {
            error,
            sent,
            elsewhere: None,
        })?;
        match tokio::time::timeout(within, self.attempt(&shard.address, call, how, &mut sent)).await {
            Ok(Ok(value)) => {
                pass.answered();
                Ok(value)
            }
            Ok(Err(error)) => {
                if is_answer(&error) {
                    pass.answered();
                } else {
                    pass.failed(&error.to_string());
                }
                Err(Unanswered {
                    elsewhere: shard.elsewhere(&error),
                    error: StoreError::Unavailable(error.to_string()),
                    sent,
                })
            }
            Err(_) => {
                self.give_up_any();
                let why = format!("no answer from {:?} within {} ms", shard.address, within.as_millis());
                pass.failed(&why);
                Err(Unanswered {
                    error: StoreError::Unavailable(why),
                    sent,
                    elsewhere: None,
                })
            }
        }
    }

    async fn attempt(&self, address: &Address, call: &Call, how: Sent, sent: &mut bool) -> RedisResult<Value> {
        self.give_up_replaced(address);
        let (mut connection, number) = self.connection(address).await?;
        *sent = true;
        match evaluate(&mut connection, call, how).await {
            Err(error) if needs_another(&error) => {
                self.give_up(number);
                if how == Sent::AskingOnce {
                    return Err(error);
                }
                let (mut connection, _) = self.connection(address).await?;
                evaluate(&mut connection, call, how).await
            }
            answered => answered,
        }
    }

    /// The connection and its number; made now when there is none.
    pub(super) async fn connection(&self, address: &Address) -> RedisResult<(Connection, u64)> {
        if let Some(found) = self.found() {
            return Ok(found);
        }
        let _only_one_connects = self.connecting.lock().await;
        if let Some(found) = self.found() {
            return Ok(found);
        }
        let replaced = address.replaced();
        let connection = address.connect().await?;
        let mut current = self.lock();
        current.number = current.number.saturating_add(1);
        current.replaced = replaced;
        current.connection = Some(connection.clone());
        Ok((connection, current.number))
    }

    /// Gives the connection of this number up; a later one stays.
    pub(super) fn give_up(&self, number: u64) {
        let mut current = self.lock();
        if current.number == number {
            current.connection = None;
        }
    }

    /// Gives the connection up that there is now.
    pub(super) fn give_up_any(&self) {
        self.lock().connection = None;
    }

    /// Gives the connection up that leads to a master which the Sentinels have replaced: it may go on by itself, and answer.
    pub(super) fn give_up_replaced(&self, address: &Address) {
        let replaced = address.replaced();
        if replaced != 0 {
            let mut current = self.lock();
            if current.replaced != replaced {
                current.connection = None;
            }
        }
    }

    /// A link to this server that is one call's alone, for what waits for a replica.
    ///
    /// # Errors
    /// When too many calls have one, and none of them is done within `within`.
    pub(super) async fn own(&self, within: Duration) -> Result<OwnLink<'_>, StoreError> {
        self.own.take(within).await
    }

    /// The connection that there is, and its number.
    pub(super) fn found(&self) -> Option<(Connection, u64)> {
        let current = self.lock();
        current
            .connection
            .clone()
            .map(|connection| (connection, current.number))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn evaluate(connection: &mut Connection, call: &Call, how: Sent) -> RedisResult<Value> {
    match (send(connection, &call.command, how).await, call.script) {
        (Err(error), Some(script)) if is_unknown_script(&error) => {
            send(connection, &script.by_text(&call.command), how).await
        }
        (answer, _) => answer,
    }
}

async fn send(connection: &mut Connection, command: &Cmd, how: Sent) -> RedisResult<Value> {
    match how {
        Sent::Plain => connection.send(command).await,
        Sent::Asking | Sent::AskingOnce => connection.send_asking(command).await,
    }
}

/// Whether the server does not know a script's hash: it has restarted, or it is a replica that became the master.
pub(super) fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Whether only another connection can help: this one is broken, or it leads to a server that is the master no more.
pub(super) fn needs_another(error: &RedisError) -> bool {
    let demoted = matches!(
        error.kind(),
        ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
    );
    demoted || error.is_unrecoverable_error() || error.is_connection_dropped()
}

/// Whether Redis serves, although this call failed.
fn is_answer(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Server(kind) => !matches!(
            kind,
            ServerErrorKind::BusyLoading
                | ServerErrorKind::ReadOnly
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ClusterDown
        ),
        // Of the codes that the client has no kind for, others (OOM, MISCONF, NOREPLICAS, BUSY) are about the server, and not about one key.
        ErrorKind::Extension => error.code() == Some(WRONG_TYPE),
        _ => false,
    }
}

thread_local! {
    static LINKS: RefCell<Vec<(u64, Id, Arc<Link>)>> = const { RefCell::new(Vec::new()) };
}

/// The code of an answer to a command for another type of value than the key has.
const WRONG_TYPE: &str = "WRONGTYPE";

/// Links that a thread keeps. A thread has one runtime and a process one ledger; more are met only in tests.
const LINKS_MAX: usize = 16;

#[cfg(test)]
mod tests;
