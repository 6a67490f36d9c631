//! Connections: one a runtime, made by the runtime that uses it, so that no call wakes another thread.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::runtime::{Handle, Id};

use super::address::{Address, Connection};
use super::guard::Guard;
use super::script::Script;
use crate::store::StoreError;

/// One runtime's way to Redis.
#[derive(Debug, Default)]
pub(super) struct Link {
    current: Mutex<Current>,
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Current {
    connection: Option<Connection>,
    /// Counts the connections made, so that only the one that failed is given up.
    number: u64,
}

/// A call without an answer.
#[derive(Debug)]
pub(super) struct Unanswered {
    pub(super) error: StoreError,
    /// Whether Redis may have run it all the same.
    pub(super) sent: bool,
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

    /// Sends a call and waits for its answer, at most for `within`. A connection that turns out to be broken is made anew once;
    /// every call is one that may be sent twice.
    ///
    /// # Errors
    /// When Redis cannot be reached, does not answer in time, or answers an error.
    pub(super) async fn ask(
        &self,
        address: &Address,
        guard: &Guard,
        call: &Call,
        within: Duration,
    ) -> Result<Value, Unanswered> {
        let mut sent = false;
        let pass = guard.enter().map_err(|error| Unanswered { error, sent })?;
        match tokio::time::timeout(within, self.attempt(address, call, &mut sent)).await {
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
                let error = StoreError::Unavailable(error.to_string());
                Err(Unanswered { error, sent })
            }
            Err(_) => {
                let number = self.lock().number;
                self.give_up(number);
                let why = format!("no answer from Redis within {} ms", within.as_millis());
                pass.failed(&why);
                let error = StoreError::Unavailable(why);
                Err(Unanswered { error, sent })
            }
        }
    }

    async fn attempt(&self, address: &Address, call: &Call, sent: &mut bool) -> RedisResult<Value> {
        let (mut connection, number) = self.connection(address).await?;
        *sent = true;
        match evaluate(&mut connection, call).await {
            Err(error) if needs_another(&error) => {
                self.give_up(number);
                let (mut connection, _) = self.connection(address).await?;
                evaluate(&mut connection, call).await
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
        let connection = address.connect().await?;
        let mut current = self.lock();
        current.number = current.number.saturating_add(1);
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

    fn found(&self) -> Option<(Connection, u64)> {
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

async fn evaluate(connection: &mut Connection, call: &Call) -> RedisResult<Value> {
    match (connection.send(&call.command).await, call.script) {
        (Err(error), Some(script)) if is_unknown_script(&error) => {
            connection.send(&script.by_text(&call.command)).await
        }
        (answer, _) => answer,
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
    matches!(error.kind(), ErrorKind::Server(kind) if !matches!(
        kind,
        ServerErrorKind::BusyLoading
            | ServerErrorKind::ReadOnly
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::TryAgain
    ))
}

thread_local! {
    static LINKS: RefCell<Vec<(u64, Id, Arc<Link>)>> = const { RefCell::new(Vec::new()) };
}

/// Links that a thread keeps. A thread has one runtime and a process one ledger; more are met only in tests.
const LINKS_MAX: usize = 16;
