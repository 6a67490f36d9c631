//! Events of keys that expire soon. There may be very many: they drop no others.

use std::collections::HashMap;

use rusqlite::OptionalExtension;

use super::raise_new;
use crate::ledger::StoreError;
use crate::ledger::admin::events::Event;
use crate::ledger::events::OPEN_WITH_KEYS_MAX;
use crate::ledger::sqlite::Database;
use crate::pure::ids::AccountId;
use crate::pure::time::Timestamp;

impl Database {
    /// Keeps those of the events whose ids were not raised before: some now, the others when it is called again. An account that has many open
    /// events waits.
    pub(in crate::ledger) fn raise_new(&mut self, events: &[Event], now: Timestamp) -> Result<(), StoreError> {
        let mut new = Vec::new();
        let mut open: HashMap<&str, u32> = HashMap::new();
        for event in events {
            let known: Option<i64> = self
                .connection
                .prepare_cached("SELECT until FROM event_ids WHERE id = ?1")?
                .query_row([&event.id], |row| row.get(0))
                .optional()?;
            if known.is_some() || new.len() >= RAISED_AT_ONCE {
                continue;
            }
            let account = event.account.as_ref().map_or("", AccountId::as_str);
            let count: u32 = match open.get(account) {
                Some(count) => *count,
                None => self
                    .connection
                    .prepare_cached("SELECT count(*) FROM events WHERE account = ?1")?
                    .query_row([account], |row| row.get(0))?,
            };
            if count < OPEN_WITH_KEYS_MAX {
                new.push(event);
            }
            open.insert(account, count.saturating_add(1));
        }
        if new.is_empty() {
            return Ok(());
        }
        let now = self.event_times(now);
        self.durably(|t| new.into_iter().try_for_each(|event| raise_new(t, event, now)))
    }
}

/// Events of keys that are raised in one transaction.
const RAISED_AT_ONCE: usize = 1_000;
