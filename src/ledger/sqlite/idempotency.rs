//! Idempotency keys in the ledger's file. A key's record is there before its call is sent; its answer comes beside it.
//!
//! Records are written in the order in which they expire, so the oldest are those with the lowest `seq`. What they come to for each API
//! key, and in all, stands in `idempotency_sums`.

use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::{Database, corrupt};
use crate::ledger::StoreError;
use crate::ledger::idempotency::call::{FreedKey, KeyEnd, KeyTimes, KeyWrite, KeyedCall};
use crate::pure::idempotency::{Answer, Fingerprint, KEPT_MS, Owner, Record, State};
use crate::pure::ids::{KeyId, RequestId};
use crate::pure::time::Timestamp;

/// Adds what files of earlier versions do not have. Those versions do not look at it.
pub(super) fn complete_schema(connection: &Connection) -> Result<(), StoreError> {
    connection.execute_batch(SCHEMA)?;
    Ok(())
}

impl Database {
    /// What is known of the key of a call, of those that have not expired at `known`. A call that was sent counts as gone: whoever owns the
    /// file knows those that run. The answer is read for the same call only.
    pub(in crate::ledger) fn key_record(
        &self,
        call: &KeyedCall,
        known: Timestamp,
    ) -> Result<Option<Record>, StoreError> {
        let sql =
            "SELECT fingerprint, request, state, streamed, CASE WHEN fingerprint = ?4 THEN answer END FROM idempotency
                   WHERE key = ?1 AND name = ?2 AND expires > ?3";
        let row = |row: &Row<'_>| {
            let (fingerprint, request): ([u8; 32], [u8; 16]) = (row.get(0)?, row.get(1)?);
            let (state, streamed): (i64, bool) = (row.get(2)?, row.get(3)?);
            Ok((fingerprint, request, state, streamed, row.get::<_, Option<Vec<u8>>>(4)?))
        };
        let (name, fingerprint) = (call.name.as_bytes(), call.fingerprint.as_bytes());
        let found = self
            .connection
            .prepare_cached(sql)?
            .query_row(params![call.key.as_str(), name, known.0, fingerprint], row)
            .optional()?;
        let Some((fingerprint, request, state, streamed, answer)) = found else {
            return Ok(None);
        };
        let state = match (state, answer) {
            (SENT, _) => State::Sent(Owner::Gone),
            (STORED, Some(answer)) => State::Stored(Answer {
                streamed,
                body: answer.into(),
            }),
            (STORED | NOT_STORED, _) => State::NotStored,
            (other, _) => return Err(corrupt(format!("an idempotency key has the state {other}"))),
        };
        Ok(Some(Record {
            fingerprint: Fingerprint::from_bytes(fingerprint),
            request: RequestId::from_bytes(request),
            state,
        }))
    }

    /// How many keys of an API key are known; those that expire meanwhile may still be among them.
    pub(in crate::ledger) fn keys_known(&self, key: &KeyId) -> Result<u64, StoreError> {
        let sums = sums(&self.connection, key.as_str())?;
        u64::try_from(sums.0).map_err(corrupt)
    }

    /// Writes a group in one transaction, and deletes what has expired. When a call is among it that is about to be sent, it is on the
    /// disk before this returns. Which of them could be written: not a call whose key is another's.
    pub(in crate::ledger) fn write_keys(
        &mut self,
        writes: &[KeyWrite<'_>],
        times: KeyTimes,
    ) -> Result<Vec<bool>, StoreError> {
        let write = |t: &Transaction<'_>| {
            let mut written = Vec::with_capacity(writes.len());
            for write in writes {
                written.push(match write {
                    KeyWrite::Sent(call) => sent(t, call, times)?,
                    KeyWrite::Ended(call, KeyEnd::Freed | KeyEnd::Unsent) => free(t, &FreedKey::of(call))?,
                    KeyWrite::Freed(freed) => free(t, freed)?,
                    KeyWrite::Ended(call, KeyEnd::Billed(answer)) => billed(t, call, answer.as_ref())?,
                });
            }
            let most = i64::try_from(writes.len()).unwrap_or(i64::MAX).saturating_mul(2);
            delete_expired(t, times.known, most.saturating_add(EXPIRED_MORE))?;
            Ok(written)
        };
        if writes.iter().any(|write| matches!(write, KeyWrite::Sent(_))) {
            return self.durably(write);
        }
        let transaction = self.connection.transaction()?;
        let written = write(&transaction)?;
        transaction.commit()?;
        Ok(written)
    }

    /// Deletes some of what has expired at `known`, and says whether records are left.
    pub(in crate::ledger) fn delete_expired_keys(&mut self, known: Timestamp) -> Result<bool, StoreError> {
        let transaction = self.connection.transaction()?;
        delete_expired(&transaction, known, EXPIRED_AT_ONCE)?;
        let (left, _) = sums(&transaction, ALL)?;
        transaction.commit()?;
        Ok(left > 0)
    }

    /// Whether records are left that have expired at `known`.
    pub(in crate::ledger) fn has_expired_keys(&self, known: Timestamp) -> Result<bool, StoreError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM idempotency WHERE expires <= ?1)";
        let found = self
            .connection
            .prepare_cached(sql)?
            .query_row([known.0], |row| row.get(0))?;
        Ok(found)
    }

    /// What time it was when the file's owner last kept it; else when the newest key was sent, or the newest event happened. None in a file
    /// without keys and events.
    pub(in crate::ledger) fn known_time(&self) -> Result<Option<Timestamp>, StoreError> {
        if let Some(kept) = self.setting(KNOWN_TIME)? {
            return Ok(Some(Timestamp(kept.parse().map_err(corrupt)?)));
        }
        let newest: Option<i64> = self
            .connection
            .query_row("SELECT max(expires) FROM idempotency", [], |row| row.get(0))?;
        match newest {
            Some(expires) => Ok(Some(Timestamp(expires).plus_millis(-KEPT_MS))),
            None => self.newest_event(),
        }
    }

    /// Keeps what time it is, as far as that is known, for the next start. It need not be on the disk.
    pub(in crate::ledger) fn keep_known_time(&self, known: Timestamp) -> Result<(), StoreError> {
        let sql = "INSERT INTO settings (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2";
        self.connection
            .prepare_cached(sql)?
            .execute(params![KNOWN_TIME, known.0.to_string()])?;
        Ok(())
    }
}

fn sent(t: &Transaction<'_>, call: &KeyedCall, times: KeyTimes) -> Result<bool, StoreError> {
    let key = call.key.as_str();
    let (name, request) = (call.name.as_bytes(), call.request.as_bytes());
    let expired = t
        .prepare_cached("DELETE FROM idempotency WHERE key = ?1 AND name = ?2 AND expires <= ?3 RETURNING bytes")?
        .query_row(params![key, name, times.known.0], |row| row.get::<_, i64>(0))
        .optional()?;
    if let Some(bytes) = expired {
        count(t, key, -1, bytes.saturating_neg())?;
    }
    let expires = times.latest.plus_millis(KEPT_MS);
    let sql =
        "INSERT INTO idempotency (key, name, fingerprint, request, state, expires) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
               ON CONFLICT (key, name) DO NOTHING";
    let inserted = t.prepare_cached(sql)?.execute(params![
        key,
        name,
        call.fingerprint.as_bytes(),
        request,
        SENT,
        expires.0
    ])?;
    if inserted > 0 {
        count(t, key, 1, 0)?;
    }
    Ok(inserted > 0)
}

fn free(t: &Transaction<'_>, freed: &FreedKey) -> Result<bool, StoreError> {
    let sql = "DELETE FROM idempotency WHERE key = ?1 AND name = ?2 AND request = ?3 AND state = ?4";
    let (key, name, request) = (freed.key.as_str(), &freed.name, freed.request.as_bytes());
    let freed = t.prepare_cached(sql)?.execute(params![key, name, request, SENT])?;
    if freed > 0 {
        count(t, key, -1, 0)?;
    }
    Ok(freed > 0)
}

fn billed(t: &Transaction<'_>, call: &KeyedCall, answer: Option<&Answer>) -> Result<bool, StoreError> {
    let key = call.key.as_str();
    let (name, request) = (call.name.as_bytes(), call.request.as_bytes());
    let length = |answer: &Answer| i64::try_from(answer.body.len()).unwrap_or(i64::MAX);
    let max = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let limits = call.limits;
    let fits = |answer: &&Answer| length(answer) <= max(limits.bytes_per_key_max.min(limits.bytes_max));
    let Some(answer) = answer.filter(fits) else {
        let sql = "UPDATE idempotency SET state = ?4 WHERE key = ?1 AND name = ?2 AND request = ?3 AND state = ?5";
        let told = t.prepare_cached(sql)?;
        return Ok({ told }.execute(params![key, name, request, NOT_STORED, SENT])? > 0);
    };
    let bytes = length(answer);
    let sql = "UPDATE idempotency SET state = ?4, streamed = ?5, bytes = ?6, answer = ?7
               WHERE key = ?1 AND name = ?2 AND request = ?3 AND state = ?8";
    let stored = t.prepare_cached(sql)?.execute(params![
        key,
        name,
        request,
        STORED,
        answer.streamed,
        bytes,
        &*answer.body,
        SENT
    ])?;
    if stored == 0 {
        return Ok(false); // It has expired meanwhile.
    }
    count(t, key, 0, bytes)?;
    make_room(t, key, max(limits.bytes_per_key_max))?;
    make_room(t, ALL, max(limits.bytes_max))?;
    Ok(true)
}

/// Forgets the oldest answers of an API key, or of all, until what is left is within `most` bytes.
fn make_room(t: &Transaction<'_>, key: &str, most: i64) -> Result<(), StoreError> {
    while sums(t, key)?.1 > most {
        let of = if key == ALL { "" } else { "key = ?1 AND" };
        let sql = format!("SELECT seq, key, bytes FROM idempotency WHERE {of} bytes > 0 ORDER BY seq LIMIT 1");
        let row = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?));
        let mut oldest = t.prepare_cached(&sql)?;
        let oldest = match key {
            ALL => oldest.query_row([], row),
            key => oldest.query_row([key], row),
        };
        let Some((seq, owner, bytes)) = oldest.optional()? else {
            return Ok(());
        };
        t.prepare_cached("UPDATE idempotency SET state = ?2, bytes = 0, answer = NULL WHERE seq = ?1")?
            .execute(params![seq, NOT_STORED])?;
        count(t, &owner, 0, bytes.saturating_neg())?;
    }
    Ok(())
}

fn delete_expired(t: &Transaction<'_>, now: Timestamp, most: i64) -> Result<(), StoreError> {
    let row = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?));
    // Not by their order: a clock that was ahead for a while has left some that expire long after those behind them.
    let sql = "SELECT seq, key, bytes FROM idempotency WHERE expires <= ?2 ORDER BY expires LIMIT ?1";
    let mut expired = t.prepare_cached(sql)?;
    let expired = expired.query_map([most, now.0], row)?.collect::<Result<Vec<_>, _>>()?;
    let mut freed: i64 = 0;
    for (seq, key, bytes) in &expired {
        // To free a page it is read: debits would wait behind a step of very long answers.
        if freed > 0 && freed.saturating_add(*bytes) > EXPIRED_BYTES_AT_ONCE {
            break;
        }
        freed = freed.saturating_add(*bytes);
        t.prepare_cached("DELETE FROM idempotency WHERE seq = ?1")?
            .execute([seq])?;
        count(t, key, -1, bytes.saturating_neg())?;
    }
    Ok(())
}

/// Records and bytes of answers of an API key, or of all.
fn sums(connection: &Connection, key: &str) -> Result<(i64, i64), StoreError> {
    let found = connection
        .prepare_cached("SELECT known, bytes FROM idempotency_sums WHERE key = ?1")?
        .query_row([key], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    Ok(found.unwrap_or_default())
}

fn count(t: &Transaction<'_>, key: &str, known: i64, bytes: i64) -> Result<(), StoreError> {
    for key in [key, ALL] {
        t.prepare_cached(
            "INSERT INTO idempotency_sums (key, known, bytes) VALUES (?1, ?2, ?3)
             ON CONFLICT (key) DO UPDATE SET known = known + ?2, bytes = bytes + ?3",
        )?
        .execute(params![key, known, bytes])?;
        t.prepare_cached("DELETE FROM idempotency_sums WHERE key = ?1 AND known = 0")?
            .execute([key])?;
    }
    Ok(())
}

/// The row of the sums that counts all API keys.
const ALL: &str = "";
const SENT: i64 = 0;
const STORED: i64 = 1;
const NOT_STORED: i64 = 2;
/// The setting that says what time it was, in milliseconds since 1970.
const KNOWN_TIME: &str = "known time";
/// How many expired records a group of writes deletes, beside twice as many as it writes.
const EXPIRED_MORE: i64 = 10;
/// How many are deleted at once where nothing is written.
const EXPIRED_AT_ONCE: i64 = 1_000;
/// How many bytes of answers are deleted at once, and one record in any case.
const EXPIRED_BYTES_AT_ONCE: i64 = 16 * 1024 * 1024;

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS idempotency (
    seq INTEGER PRIMARY KEY, key TEXT NOT NULL, name BLOB NOT NULL, fingerprint BLOB NOT NULL, request BLOB NOT NULL,
    state INTEGER NOT NULL, expires INTEGER NOT NULL, streamed INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0, answer BLOB
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS idempotency_names ON idempotency (key, name);
CREATE INDEX IF NOT EXISTS idempotency_answers_of_key ON idempotency (key, seq) WHERE bytes > 0;
CREATE INDEX IF NOT EXISTS idempotency_answers ON idempotency (seq) WHERE bytes > 0;
CREATE INDEX IF NOT EXISTS idempotency_expires ON idempotency (expires);
CREATE TABLE IF NOT EXISTS idempotency_sums (key TEXT PRIMARY KEY, known INTEGER NOT NULL, bytes INTEGER NOT NULL) STRICT, WITHOUT ROWID;
";
