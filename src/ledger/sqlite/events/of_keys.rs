//! Events of keys that expire soon. There may be very many: they drop no others while there is time.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use rusqlite::{OptionalExtension, params};

use super::raise::{drop_old, forget_ids, is_new, keep, make_room, named_at};
use crate::ledger::StoreError;
use crate::ledger::admin::events::{Event, EventKind};
use crate::ledger::events::{OPEN_MAX, OPEN_PER_ACCOUNT_MAX, Room};
use crate::ledger::sqlite::Database;
use crate::pure::ids::AccountId;
use crate::pure::time::Timestamp;

/// How many events about an account are open.
#[derive(Clone, Copy, Debug)]
struct Open {
    all: u32,
    of_keys: u32,
}

impl Database {
    /// Keeps those of the events of keys whose ids were not raised before, in one transaction. An account that has many open events of keys waits,
    /// as does an event where an open one would go for it, unless room is to be made for it: answers which accounts have one that waits.
    pub(in crate::ledger) fn raise_new(
        &mut self,
        events: &[(Event, Room)],
        now: Timestamp,
    ) -> Result<BTreeSet<AccountId>, StoreError> {
        let (mut unknown, mut new, mut waiting) = (Vec::new(), Vec::new(), BTreeSet::new());
        for (event, room) in events {
            if !self.is_id_known(&event.id)? {
                unknown.push((event, *room));
            }
        }
        // Most often all are known, and how many events are open is not counted.
        if unknown.is_empty() {
            return Ok(waiting);
        }
        let (mut in_file, mut about) = (self.open_in_file()?, HashMap::new());
        for (event, room) in unknown {
            let account = event.account.as_ref().map_or("", AccountId::as_str);
            let open = match about.entry(account) {
                Entry::Occupied(found) => found.into_mut(),
                Entry::Vacant(unknown) => unknown.insert(self.open_about(account)?),
            };
            let is_full = in_file >= OPEN_MAX || open.all >= OPEN_PER_ACCOUNT_MAX;
            if open.of_keys >= room.open_of_keys_max() || (is_full && room == Room::Awaited) {
                waiting.extend(event.account.clone());
                continue;
            }
            for count in [&mut in_file, &mut open.all, &mut open.of_keys] {
                *count = count.saturating_add(1);
            }
            new.push((event, account, is_full));
        }
        if new.is_empty() {
            return Ok(waiting);
        }
        let now = self.event_times(now);
        self.durably(|t| {
            forget_ids(t, now)?;
            drop_old(t, now)?;
            for (event, account, is_full) in new {
                if !is_new(t, &event.id, now)? {
                    continue;
                }
                // How many are open is counted above, but for those that were too old.
                if is_full {
                    make_room(t, account)?;
                }
                let (named, at) = named_at(event, now);
                keep(t, named, account, &event.data, at)?;
            }
            Ok(())
        })?;
        Ok(waiting)
    }

    fn is_id_known(&self, id: &str) -> Result<bool, StoreError> {
        let known: Option<i64> = self
            .connection
            .prepare_cached("SELECT until FROM event_ids WHERE id = ?1")?
            .query_row([id], |row| row.get(0))
            .optional()?;
        Ok(known.is_some())
    }

    fn open_in_file(&self) -> Result<u32, StoreError> {
        let sql = "SELECT count(*) FROM events";
        Ok(self.connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
    }

    fn open_about(&self, account: &str) -> Result<Open, StoreError> {
        let open = self
            .connection
            .prepare_cached("SELECT count(*), count(CASE WHEN kind = ?2 THEN 1 END) FROM events WHERE account = ?1")?
            .query_row(params![account, EventKind::KeyExpiring.name()], |row| {
                Ok(Open {
                    all: row.get(0)?,
                    of_keys: row.get(1)?,
                })
            })?;
        Ok(open)
    }
}
