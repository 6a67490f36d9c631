//! Calls of dead processes that wait: those of accounts or keys that the ledger does not have, for their journal may be another ledger's, and
//! those of keys of which the store did not say whether it has them. An account of the same name is another one in another ledger, but no key
//! of it is the same.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::UnknownKeys;
use super::file::JournalFile;
use super::slot::{Found, FoundStage};
use super::told::{Told, refuse};
use crate::ledger::admin::RecoverReport;
use crate::ledger::redis::{KeyOfAccount, KnownCalls};
use crate::ledger::{AccountHandle, Ledger, StoreError};
use crate::pure::ids::AccountId;
use crate::pure::numbers::CallNumber;

/// Where the calls of a recovery are resolved. Of a call that owes something, the ledger has to have the key; Redis is asked for each key once.
pub(super) struct Places<'a> {
    ledger: &'a Ledger,
    keys: UnknownKeys,
    in_redis: BTreeMap<KeyOfAccount, Result<KnownCalls, StoreError>>,
}

/// Why a call waits.
pub(super) enum Waits {
    /// The ledger does not have its account or its key.
    Unknown,
    /// The store did not say whether it has its key.
    Unasked(String),
}

/// The calls that wait, by their journals.
#[derive(Default)]
pub(super) struct Waiting(BTreeMap<PathBuf, WaitingCalls>);

struct WaitingCalls {
    /// Those whose account or key the ledger does not have: how many, and the account of one.
    unknown: Option<(u64, AccountId)>,
    /// Those of whose key the store did not say whether it has it, and why not of one.
    unasked: Option<(u64, AccountId, String)>,
    /// The recovery's report has counted the journal.
    is_counted: bool,
}

impl<'a> Places<'a> {
    /// Asks Redis for the keys of these calls, where that is the ledger. Blocks.
    pub(super) fn of<'f>(
        (ledger, keys): (&'a Ledger, UnknownKeys),
        calls: impl Iterator<Item = &'f Found>,
    ) -> Places<'a> {
        let in_redis = match ledger {
            Ledger::Redis(store) if keys == UnknownKeys::Wait => {
                let mut asked: BTreeMap<KeyOfAccount, Vec<CallNumber>> = BTreeMap::new();
                for found in calls.filter(|found| owes(found)) {
                    let numbers = asked.entry(key_of(found)).or_default();
                    numbers.extend(number_of(found));
                }
                store.known_calls(asked)
            }
            Ledger::Redis(_) | Ledger::Embedded(_) => BTreeMap::new(),
        };
        Places { ledger, keys, in_redis }
    }

    /// Where this call is resolved.
    ///
    /// # Errors
    /// When it has to wait.
    pub(super) fn place(&self, found: &Found) -> Result<AccountHandle, Waits> {
        if self.keys == UnknownKeys::Wait && owes(found) && !self.has(found)? {
            return Err(Waits::Unknown);
        }
        self.ledger.place(&found.account).map_err(|_| Waits::Unknown)
    }

    /// Whether the ledger has the call's key, or has closed the call.
    fn has(&self, found: &Found) -> Result<bool, Waits> {
        match self.ledger {
            Ledger::Embedded(_) => {
                let place = self.ledger.place(&found.account);
                Ok(place.is_ok_and(|place| place.has_key(&found.key)))
            }
            Ledger::Redis(_) => match self.in_redis.get(&key_of(found)) {
                Some(Ok(KnownCalls::All)) => Ok(true),
                Some(Ok(KnownCalls::Closed(numbers))) => {
                    Ok(number_of(found).is_some_and(|number| numbers.contains(&number)))
                }
                Some(Err(error)) => Err(Waits::Unasked(error.to_string())),
                None => Err(Waits::Unasked("it was not asked".to_owned())),
            },
        }
    }
}

impl Waiting {
    /// A call of this account in this journal waits.
    pub(super) fn add(&mut self, file: &JournalFile, account: AccountId, why: Waits) {
        file.keep_waiting();
        let of_file = self.0.entry(file.path().to_owned());
        let calls = of_file.or_insert_with(|| WaitingCalls {
            unknown: None,
            unasked: None,
            is_counted: !file.is_kept(),
        });
        match why {
            Waits::Unknown => calls.unknown.get_or_insert((0, account)).0 += 1,
            Waits::Unasked(error) => calls.unasked.get_or_insert((0, account, error)).0 += 1,
        }
    }

    /// Tells once of each journal that waits for another ledger, and once in each outage of those that wait for an answer. One of which nothing
    /// is told was counted before.
    pub(super) fn tell(self, told: &mut Told, report: &mut RecoverReport) {
        let is_unasked = |path: &PathBuf| self.0.get(path).is_some_and(|calls| calls.unasked.is_some());
        told.unasked.retain(is_unasked);
        for (path, calls) in self.0 {
            let mut lines = Vec::new();
            if let Some((count, account)) = calls.unknown
                && told.waiting.insert(path.clone())
            {
                lines.push(format!(
                    "{}: calls of accounts or keys that are not in this ledger: {count}, such as one of {account}; the journal stays, and \
                     waits for the ledger that has them. Where a backup was restored: tollgate ledger recover --unknown-keys",
                    path.display()
                ));
            }
            if let Some((count, account, why)) = calls.unasked
                && told.unasked.insert(path.clone())
            {
                lines.push(format!(
                    "{}: the store did not say whether it has the keys of calls: {count}, such as one of {account}: {why}; the journal \
                     stays, and a gateway asks again, as does tollgate ledger recover",
                    path.display()
                ));
            }
            if lines.is_empty() && calls.is_counted {
                report.journals = report.journals.saturating_sub(1);
            }
            lines.into_iter().for_each(|line| refuse(report, line));
        }
    }
}

/// Whether a call is billed. One that is not needs no key.
fn owes(found: &Found) -> bool {
    !matches!(found.stage, FoundStage::Held { .. })
}

fn key_of(found: &Found) -> KeyOfAccount {
    (found.account.clone(), found.key.clone())
}

/// The number under which a call is billed, where it has one.
fn number_of(found: &Found) -> Option<CallNumber> {
    match &found.stage {
        FoundStage::Held { number } | FoundStage::Answered { number, .. } => *number,
        FoundStage::Owed(debit) => Some(debit.number),
    }
}
