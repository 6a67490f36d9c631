//! Idempotency keys in Redis: one script for each step. What nobody waits for, how a call under a key ended, is told by the ledger's thread.
//!
//! A key that is taken expires within a minute, so a process that dies before it has sent anything blocks it no longer. From "sent" on it is
//! known for 24 hours, and the call's hold says whether it runs.

use std::sync::Arc;

use bytes::Bytes;
use redis::Value;

use super::account::{Account, idempotency_of_key};
use super::key_ends::{EVENTS, Ended, JSON};
use super::link::Call;
use super::script::{self, EvalMode};
use super::{RedisLedger, reply};
use crate::failpoints::point;
use crate::ledger::StoreError;
use crate::ledger::idempotency::call::{Found, KeyEnd, KeyedCall};
use crate::pure::idempotency::{Answer, Fingerprint, KEPT_MS, Owner, Record, State, TAKEN_MS};
use crate::pure::ids::RequestId;

impl RedisLedger {
    /// See [`Caller::take_key`](crate::ledger::Caller::take_key).
    pub(in crate::ledger) async fn take_key(
        &self,
        account: &Arc<Account>,
        call: &KeyedCall,
    ) -> Result<Found, StoreError> {
        let shared = &self.shared;
        let mut asked = self.asks_for_key(account, call);
        asked.command.arg(TAKEN_MS);
        // Whoever gives up on this may have taken the key.
        let mut doubt = Doubt {
            ledger: self,
            account,
            call,
            is_over: false,
        };
        let answered = shared.ask(&shared.link(), &asked).await;
        doubt.is_over = matches!(&answered, Err(unanswered) if !unanswered.sent);
        let found = found(&answered?)?;
        doubt.is_over = true;
        Ok(found)
    }

    /// See [`Caller::known_key`](crate::ledger::Caller::known_key).
    pub(in crate::ledger) async fn known_key(
        &self,
        account: &Arc<Account>,
        call: &KeyedCall,
    ) -> Result<Option<Record>, StoreError> {
        let shared = &self.shared;
        let mut asked = self.asks_for_key(account, call);
        asked.command.arg(NOT_TAKEN);
        known(&shared.ask(&shared.link(), &asked).await?)
    }

    /// Asks what is known of a call's key; what is left to add is for how long it is taken.
    fn asks_for_key(&self, account: &Account, call: &KeyedCall) -> Call {
        let [name, _] = account.keys();
        let of_key = idempotency_of_key(account.id(), &call.key);
        let [records, order, answers, stored] = &of_key;
        let mut command = script::KEY_TAKE.call(EvalMode::Hash, &[name, records, order, answers, stored]);
        command
            .arg(self.shared.now_text())
            .arg(call.name.as_bytes())
            .arg(call.fingerprint.as_bytes())
            .arg(call.request.as_bytes())
            .arg(call.limits.keys_per_key_max);
        Call {
            command,
            script: Some(&script::KEY_TAKE),
        }
    }

    /// See [`Hold::send_under_key`](crate::ledger::Hold::send_under_key).
    pub(in crate::ledger) async fn send_under_key(
        &self,
        account: &Arc<Account>,
        call: &KeyedCall,
    ) -> Result<(), StoreError> {
        let shared = &self.shared;
        // Whatever comes after a WAIT on its connection waits with it: this call has one for itself meanwhile.
        let (link, shard) = (shared.link(), shared.shards.of(account));
        let line = link.line(&shard);
        let own = line.own(shared.options.timeout).await?;
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
        let answered = shared.ask(&own, &asked).await?;
        if reply::text(&answered)? != "sent" {
            return Err(StoreError::Unavailable("Redis has lost an idempotency key".to_owned()));
        }
        // A fail-over must not forget it while the call runs.
        let [records, ..] = &of_key;
        let confirmed = shared.confirm(&own, &[records]).await;
        confirmed.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        own.give_back();
        point("idempotency-sent", "after");
        Ok(())
    }

    /// A call under a key is over. Never waits.
    pub(in crate::ledger) fn end_key(&self, account: &Arc<Account>, call: &KeyedCall, end: KeyEnd) {
        let queued_ms = self.shared.now_ms();
        let ended = Ended {
            account: Arc::clone(account),
            call: call.clone(),
            end,
            queued_ms,
        };
        self.shared.key_ends.push(&self.shared.shards, ended);
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
            self.ledger.end_key(self.account, self.call, KeyEnd::Unsent);
        }
    }
}

/// Reads the answer to a taking.
fn found(value: &Value) -> Result<Found, StoreError> {
    match value {
        Value::Array(parts) => record(parts).map(Found::Known),
        text => match reply::text(text)? {
            "taken" => Ok(Found::Nothing),
            "full" => Ok(Found::Full),
            other => Err(says_nothing(other)),
        },
    }
}

/// Reads the answer to a question that takes nothing.
fn known(value: &Value) -> Result<Option<Record>, StoreError> {
    match value {
        Value::Array(parts) => record(parts).map(Some),
        text => match reply::text(text)? {
            "unknown" => Ok(None),
            other => Err(says_nothing(other)),
        },
    }
}

fn says_nothing(answer: &str) -> StoreError {
    reply::corrupt(&format!("{answer:?} says nothing of an idempotency key"))
}

/// Reads what is known of a key.
fn record(parts: &[Value]) -> Result<Record, StoreError> {
    let [Value::BulkString(record), missing, Value::BulkString(answer)] = parts else {
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
    Ok(Record {
        fingerprint: Fingerprint::from_bytes(fingerprint.try_into().map_err(|_| unreadable())?),
        request: RequestId::from_bytes(request.try_into().map_err(|_| unreadable())?),
        state,
    })
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

/// The life of a key that is not to be taken.
const NOT_TAKEN: &str = "";
