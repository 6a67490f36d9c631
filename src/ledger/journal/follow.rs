//! What the calls of the process before this one come to, which lives and has handed its ledger over: it stands in that process' journal.
//!
//! In an upgrade that process serves its last streams to their end. What they hold counts here, and what they owe is taken here. Nothing is
//! given back of a call that may still run: not while any part of a journal cannot be read.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::file::{EXTENSION, JournalFile};
use super::listing::{is_nobodys, journals_or_none};
use super::recover::owed_debit;
use super::slot::{Found, FoundStage, Refused, Slot};
use super::{FLUSH_EVERY, Journal, LiveHold};
use crate::clock::monotonic;
use crate::ledger::Ledger;
use crate::ledger::embedded::Embedded;
use crate::pure::ids::RequestId;
use crate::pure::money::Credits;

/// Holds, in the ledger that this process has taken over, what the calls of the processes before it hold.
pub(crate) fn hold_for_predecessors(folder: &Path, ledger: &Ledger) {
    let (paths, is_whole) = journals_or_none(folder, &[EXTENSION]);
    if !is_whole {
        log::error!(
            "MONEY: {}: its journals cannot all be listed: what running calls of the process before hold may be given to others",
            folder.display()
        );
    }
    for path in paths {
        let file = match JournalFile::peek(&path) {
            Ok(file) => file,
            Err(error) => {
                log::error!("{}: {error}", path.display());
                continue;
            }
        };
        for slot in (0..file.slots()).filter_map(|number| file.slot(number)) {
            let amount = slot.held();
            // What cannot be read is being written at this moment.
            let found = read(slot).ok().flatten();
            let place = |found: &Found| ledger.place(&found.account);
            if let Some(found) = found.filter(|found| place(found).is_ok_and(|place| place.has_key(&found.key))) {
                ledger.hold_for_predecessor(&LiveHold {
                    id: found.id,
                    account: found.account,
                    key: found.key,
                    end_user: found.end_user,
                    amount,
                });
            }
        }
    }
}

/// The same in a process that has no journal and has the ledger for a moment; and takes what those calls have come to owe.
pub(crate) fn read_once(folder: &Path, ledger: &Ledger) {
    hold_for_predecessors(folder, ledger);
    if let Some(embedded) = ledger.embedded() {
        follow_predecessors(folder, embedded, None, &mut Taken::new());
    }
}

/// From now on the ledger reads in the journals beside this process' own what has become of the calls of the processes before, whenever a
/// call would be refused for what they hold, and whenever it is asked to. To be called before the first of their calls asks here.
pub(crate) fn read_when_asked(journal: &Arc<Journal>, ledger: &Arc<Embedded>) {
    let (journal, of) = (Arc::clone(journal), Arc::downgrade(ledger));
    // Readings of one second leave out what was taken before: a predecessor's debits stand in its journal to its end.
    let kept = Mutex::new((monotonic(), Taken::new()));
    ledger.predecessors_read_by(Box::new(move || {
        let Some(ledger) = of.upgrade() else { return };
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.0.elapsed() >= FLUSH_EVERY {
            *kept = (monotonic(), Taken::new());
        }
        follow_predecessors(&journal.folder, &ledger, journal.own().as_deref(), &mut kept.1);
    }));
}

/// Calls of the process before this one whose debits were taken, or whose holds were given back.
type Taken = HashSet<RequestId>;

/// Takes what the process before this one, which lives and has handed its ledger over, has billed since, and gives back what its ended
/// calls held. What the calls in `taken` owe, or held, is not looked at; those that are looked at now are added.
pub(super) fn follow_predecessors(folder: &Path, ledger: &Embedded, own: Option<&Path>, taken: &mut Taken) {
    // A call that the process before makes from here on must not be taken for one that ended.
    let reading = ledger.begin_reading();
    let (paths, mut is_whole) = journals_or_none(folder, &[EXTENSION]);
    let (mut running, mut ended, mut given_back) = (HashSet::new(), Vec::new(), Vec::new());
    for path in paths.iter().filter(|path| Some(path.as_path()) != own) {
        let file = match JournalFile::peek(path) {
            Ok(file) => file,
            // Deleted a moment ago: all that stood there is resolved.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            // Whoever recovers tells of it.
            Err(error) if is_nobodys(&error) => continue,
            Err(_) => {
                is_whole = false;
                continue;
            }
        };
        for slot in (0..file.slots()).filter_map(|number| file.slot(number)) {
            match read(slot) {
                Ok(None) => {}
                // A journal of another ledger waits for that: an account of the same name is another one there.
                Ok(Some(found)) if !is_of(ledger, &found) => {}
                Ok(Some(found)) => {
                    running.insert(found.id);
                    match found.stage {
                        FoundStage::Owed(debit) => ended.push((found, debit, slot.held())),
                        // Of an answer that had begun and came to nothing: it stays there until its name is closed, when that process has
                        // ended. One that costs nothing is like that for the moment in which its answer begins, and holds nothing either.
                        FoundStage::Held { number: Some(_) } if slot.held() == Credits::ZERO => given_back.push(found),
                        FoundStage::Held { .. } | FoundStage::Answered { .. } => {}
                    }
                }
                // Whose call stands there is not known.
                Err(_) => is_whole = false,
            }
        }
    }
    for (found, numbered, held) in ended.into_iter().filter(|(found, ..)| taken.insert(found.id)) {
        let debit = owed_debit(&found, &numbered, Some(held).filter(|held| *held > Credits::ZERO));
        ledger.take_from_predecessor(&found.account, found.id, debit, numbered.number);
    }
    for found in given_back.into_iter().filter(|found| taken.insert(found.id)) {
        ledger.given_back_by_predecessor(&found.account, found.id);
    }
    if is_whole {
        ledger.predecessors_ended_of(reading, &running);
    }
}

/// Whether the ledger has the key under which a call was made.
fn is_of(ledger: &Embedded, found: &Found) -> bool {
    let place = ledger.place(&found.account);
    place.is_ok_and(|account| ledger.has_key(&account, &found.key))
}

/// Reads a slot of a process that lives. It may write there at this moment, which takes it less than a microsecond: then it is read again.
fn read(slot: &Slot) -> Result<Option<Found>, Refused> {
    // SAFETY: it is a journal of another process. Where that has died, a thread of this one that recovers it writes through a mapping of its
    // own, and the checks tell of that as well.
    let read_once = || unsafe { slot.read() };
    let mut found = read_once();
    for _ in 1..READS_MAX {
        if found.is_ok() {
            break;
        }
        std::thread::yield_now();
        found = read_once();
    }
    found
}

/// How often a slot is read that is being written.
const READS_MAX: u32 = 8;
