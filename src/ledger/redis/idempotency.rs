//! Idempotency keys in Redis: one script for each step. What nobody waits for, how a call under a key ended, is told by the ledger's thread.
//!
//! A key that is taken expires within a minute, so a process that dies before it has sent anything blocks it no longer. From "sent" on it is
//! known for 24 hours, and the call's hold says whether it runs.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use redis::Value;
use tokio::sync::Notify;

use super::account::{Account, idempotency_of_key};
use super::link::{Call, Link};
use super::script::{self, EvalMode};
use super::shared::Shared;
use super::{RedisLedger, reply};
use crate::failpoints::point;
use crate::ledger::StoreError;
use crate::ledger::idempotency::{Found, KeyEnd, KeyedCall};
use crate::pure::idempotency::{Answer, Fingerprint, KEPT_MS, Owner, Record, State, TAKEN_MS};
use crate::pure::ids::RequestId;

/// How calls under a key ended, which Redis has yet to hear.
#[derive(Debug, Default)]
pub(super) struct KeyEnds {
    waiting: Mutex<VecDeque<Ended>>,
    wake: Notify,
    is_closed: AtomicBool,
}

#[derive(Debug)]
struct Ended {
    account: Arc<Account>,
    call: KeyedCall,
    end: KeyEnd,
    /// By the ledger's monotonic clock.
    queued_ms: u64,
}

impl RedisLedger {
    /// See [`Caller::take_key`](crate::ledger::Caller::take_key).
    pub(in crate::ledger) async fn take_key(
        &self,
        account: &Arc<Account>,
        call: &KeyedCall,
    ) -> Result<Found, StoreError> {
        let shared = &self.shared;
        let [name, _] = account.keys();
        let of_key = idempotency_of_key(account.id(), &call.key);
        let [records, order, answers, stored] = &of_key;
        let mut command = script::KEY_TAKE.call(EvalMode::Hash, &[name, records, order, answers, stored]);
        command
            .arg(shared.now_text())
            .arg(call.name.as_bytes())
            .arg(call.fingerprint.as_bytes())
            .arg(call.request.as_bytes())
            .arg(call.limits.keys_per_key_max)
            .arg(TAKEN_MS);
        let asked = Call {
            command,
            script: Some(&script::KEY_TAKE),
        };
        // Whoever gives up on this may have taken the key.
        let mut doubt = Doubt {
            ledger: self,
            account,
            call,
            is_over: false,
        };
        let answered = shared.ask(&shared.link(), &asked).await;
        let found = found(&answered?)?;
        doubt.is_over = true;
        Ok(found)
    }

    /// See [`Hold::send_under_key`](crate::ledger::Hold::send_under_key).
    pub(in crate::ledger) async fn send_under_key(
        &self,
        account: &Arc<Account>,
        call: &KeyedCall,
    ) -> Result<(), StoreError> {
        let shared = &self.shared;
        let link = shared.link();
        let of_key = idempotency_of_key(account.id(), &call.key);
        let mut command = script::KEY_SENT.call(EvalMode::Hash, &of_key.each_ref().map(String::as_str));
        command
            .arg(shared.now_text())
            .arg(call.name.as_bytes())
            .arg(call.request.as_bytes())
            .arg(KEPT_MS);
        let asked = Call {
            command,
            script: Some(&script::KEY_SENT),
        };
        point("idempotency-sent", "before");
        let answered = shared.ask(&link, &asked).await?;
        if reply::text(&answered)? != "sent" {
            return Err(StoreError::Unavailable("Redis has lost an idempotency key".to_owned()));
        }
        // A fail-over must not forget it while the call runs.
        let [records, ..] = &of_key;
        let confirmed = shared.confirm(&link, &[records]).await;
        confirmed.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        point("idempotency-sent", "after");
        Ok(())
    }

    /// A call under a key is over. Never waits.
    pub(in crate::ledger) fn end_key(&self, account: &Arc<Account>, call: &KeyedCall, end: KeyEnd) {
        let queued_ms = self.shared.now_ms();
        self.shared.key_ends.push(Ended {
            account: Arc::clone(account),
            call: call.clone(),
            end,
            queued_ms,
        });
    }
}

/// A key that may have been taken by a call which does not go on.
struct Doubt<'a> {
    ledger: &'a RedisLedger,
    account: &'a Arc<Account>,
    call: &'a KeyedCall,
    is_over: bool,
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.ledger.end_key(self.account, self.call, KeyEnd::Freed);
        }
    }
}

impl KeyEnds {
    /// No more come: what waits is told for a moment yet.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    fn push(&self, ended: Ended) {
        self.lock().push_back(ended);
        self.wake.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Ended>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells Redis how calls under a key ended, until [`KeyEnds::close`]. What Redis does not take within [`TRIED_MS`] is dropped: the key then
/// says that its call's answer is not there.
pub(super) async fn run(shared: Arc<Shared>) {
    let link = Link::default();
    let ends = &shared.key_ends;
    loop {
        let Some(ended) = ends.lock().pop_front() else {
            if ends.is_closed.load(Ordering::Acquire) {
                return;
            }
            ends.wake.notified().await;
            continue;
        };
        let name = match ended.end {
            KeyEnd::Billed(_) => "idempotency-ended",
            KeyEnd::Freed => "idempotency-freed",
        };
        point(name, "before");
        let told = tell(&shared, &link, &ended).await;
        point(name, "after");
        if let Err(error) = told {
            if shared.now_ms().saturating_sub(ended.queued_ms) > TRIED_MS {
                log::warn!(
                    "request {}: its idempotency key was not told how it ended: {error}",
                    ended.call.request
                );
                continue;
            }
            ends.lock().push_back(ended);
            tokio::time::sleep(PAUSE).await;
        }
    }
}

async fn tell(shared: &Shared, link: &Link, ended: &Ended) -> Result<(), StoreError> {
    let Ended { account, call, end, .. } = ended;
    let of_key = idempotency_of_key(account.id(), &call.key);
    let mut command = script::KEY_END.call(EvalMode::Hash, &of_key.each_ref().map(String::as_str));
    command.arg(call.name.as_bytes()).arg(call.request.as_bytes());
    match end {
        KeyEnd::Freed => command.arg("free").arg(""),
        KeyEnd::Billed(None) => command.arg("billed").arg(""),
        KeyEnd::Billed(Some(answer)) => {
            let mut text = Vec::with_capacity(answer.body.len().saturating_add(1));
            text.push(if answer.streamed { EVENTS } else { JSON });
            text.extend_from_slice(&answer.body);
            command.arg("billed").arg(text)
        }
    };
    command.arg(call.limits.bytes_per_key_max);
    let asked = Call {
        command,
        script: Some(&script::KEY_END),
    };
    reply::text(&shared.ask(link, &asked).await?).map(drop)
}

/// Reads the answer to a taking.
fn found(value: &Value) -> Result<Found, StoreError> {
    let Value::Array(parts) = value else {
        return match reply::text(value)? {
            "taken" => Ok(Found::Nothing),
            "full" => Ok(Found::Full),
            other => Err(reply::corrupt(&format!("{other:?} says nothing of an idempotency key"))),
        };
    };
    let [Value::BulkString(record), missing, Value::BulkString(answer)] = parts.as_slice() else {
        return Err(reply::corrupt("an idempotency key has other parts than it should"));
    };
    let unreadable = || reply::corrupt("an idempotency key's record is unreadable");
    let (state, rest) = record.split_first().ok_or_else(unreadable)?;
    let (fingerprint, request) = rest.split_at_checked(32).ok_or_else(unreadable)?;
    let missing = reply::integer(missing)?;
    let state = match (state, u64::try_from(missing)) {
        (b't', _) => State::Taken,
        (b's', Err(_)) => State::Sent(Owner::Runs),
        (b's', Ok(since)) => State::Sent(Owner::Missing(since)),
        (b'd', _) => stored(answer),
        (b'g', _) => State::NotStored,
        _ => return Err(unreadable()),
    };
    Ok(Found::Known(Record {
        fingerprint: Fingerprint::from_bytes(fingerprint.try_into().map_err(|_| unreadable())?),
        request: RequestId::from_bytes(request.try_into().map_err(|_| unreadable())?),
        state,
    }))
}

/// The answer of a record; none where it was not asked for, by another call.
fn stored(answer: &[u8]) -> State {
    match answer.split_first() {
        Some((kind @ (&EVENTS | &JSON), body)) => State::Stored(Answer {
            streamed: *kind == EVENTS,
            body: Bytes::copy_from_slice(body),
        }),
        _ => State::NotStored,
    }
}

const EVENTS: u8 = b'e';
const JSON: u8 = b'j';
/// For how long how a call ended is told again, in milliseconds.
const TRIED_MS: u64 = 60_000;
/// The pause after what Redis did not take.
const PAUSE: Duration = Duration::from_millis(50);
