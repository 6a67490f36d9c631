//! Recovery: what processes that died have left in their journals is billed or given back.
//!
//! Nothing here can bill twice: what a call owes goes to the store under the number that the call had before anything of its answer was
//! passed on, so a store that has heard of it before says so, however old the journal is. A debit that has to be made is written into the
//! dead process' journal before the store hears of it. So a recovery that is killed itself is continued by the next.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::file::{EXTENSION, JournalFile, KEPT_EXTENSION};
pub use super::left::{acknowledged, kept, kept_but, put_aside, waiting};
use super::listing::{is_nobodys, journals};
use super::slot::{Found, FoundStage, NumberedDebit};
use super::told::{Recovered, Told, refuse};
use super::waits::{Places, Waiting};
use super::{Entry, FLUSH_EVERY, Journal, Stage, UnknownKeys, Written};
use crate::clock::monotonic;
use crate::ledger::admin::RecoverReport;
use crate::ledger::folder::is_out_of_files;
use crate::ledger::{AccountHandle, Debit, Ledger, Orphan, StoreError};
use crate::pure::money::Credits;
use crate::pure::prompt_count::{counted_prompt, estimated_prompt};
use crate::pure::receipt::CallDetails;
use crate::pure::request_body::{Endpoint, RequestBody};
use crate::pure::usage::{CompletionTokens, PromptTokens, Usage};

/// Resolves every journal in the folder whose owner is dead. Blocks. What the store acknowledges later is freed then; a journal is deleted
/// once nothing stands in it, and put aside when something in it could not be believed. One with calls of accounts or keys that the ledger does
/// not have stays as it is, for the ledger that has them; so does one with calls of whose keys the store does not say whether it has them, to be
/// asked again. A debit that the store acknowledged a short while ago stays, also beyond the end of this process ([`kept`]).
pub fn recover(folder: &Path, ledger: &Ledger) -> RecoverReport {
    recover_with(folder, ledger, UnknownKeys::Wait)
}

/// The same, where somebody says what becomes of calls whose keys the ledger does not have.
pub fn recover_with(folder: &Path, ledger: &Ledger, keys: UnknownKeys) -> RecoverReport {
    recover_by_hand(folder, ledger, keys).0
}

/// The same, with the journals that stay, for calls in them wait for another ledger, or for the store to say whether it has their keys.
pub fn recover_by_hand(folder: &Path, ledger: &Ledger, keys: UnknownKeys) -> (RecoverReport, HashSet<PathBuf>) {
    let mut told = Told::default();
    let report = recover_beside(folder, ledger, (None, keys), &mut told).told_as_died();
    (report, told.waiting.into_iter().chain(told.unasked).collect())
}

/// The same for a process that has a journal itself. It tells once of each journal that waits for another ledger.
pub(crate) fn recover_others(journal: &Journal, ledger: &Ledger) -> RecoverReport {
    recover_but_own(journal, ledger).told_as_died()
}

/// The same in a process that follows those before it. That one of them has ended with all of its calls is the end of an upgrade.
pub(super) fn recover_followed(journal: &Journal, ledger: &Ledger) -> RecoverReport {
    let follows = ledger.embedded().is_some_and(|embedded| embedded.has_predecessors());
    let recovered = recover_but_own(journal, ledger);
    match follows && recovered.is_in_order() {
        true => recovered.told_as_ended(),
        false => recovered.told_as_died(),
    }
}

fn recover_but_own(journal: &Journal, ledger: &Ledger) -> Recovered {
    let mut told = journal.told_waiting.lock().unwrap_or_else(PoisonError::into_inner);
    let own = journal.own();
    recover_beside(&journal.folder, ledger, (own.as_deref(), UnknownKeys::Wait), &mut told)
}

/// The same beside this process' `own` journal. Of journals in `told` nothing is said again; those that wait from now on are added.
fn recover_beside(
    folder: &Path,
    ledger: &Ledger,
    (own, keys): (Option<&Path>, UnknownKeys),
    told: &mut Told,
) -> Recovered {
    let mut report = RecoverReport::default();
    let (mut dead, mut others_live) = (Vec::new(), false);
    let extensions: &[&str] = match ledger {
        // It keeps none: those are another ledger's, which has them.
        Ledger::Embedded(_) => &[EXTENSION],
        Ledger::Redis(_) => &[EXTENSION, KEPT_EXTENSION],
    };
    // What too many open files keep from being opened: it passes, and says nothing of what stands there.
    let mut unopened = None;
    let listed = journals(folder, extensions);
    let (paths, is_whole) = listed.unwrap_or_else(|error| {
        let line = format!("{}: {error}", folder.display());
        match is_out_of_files(&error) {
            true => unopened = Some(line),
            false => refuse(&mut report, line),
        }
        (Vec::new(), false)
    });
    for path in paths.iter().filter(|path| Some(path.as_path()) != own) {
        let adopted = JournalFile::adopt(path);
        if adopted.is_ok() {
            told.unopened.remove(path);
        }
        match adopted {
            Ok(None) => others_live |= path.exists(),
            Ok(Some(file)) => {
                report.journals += u64::from(!file.is_kept());
                dead.push(Arc::new(file));
            }
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                let aside = JournalFile::put_aside(path);
                let kept = aside.unwrap_or_else(|_| path.clone());
                refuse(
                    &mut report,
                    format!("{}: {error}; kept as {}", path.display(), kept.display()),
                );
            }
            Err(error) if is_out_of_files(&error) => {
                others_live = true;
                unopened = Some(format!("{}: {error}", path.display()));
            }
            Err(error) => {
                others_live |= !is_nobodys(&error);
                // Until it can be opened it is found by each look.
                if told.unopened.insert(path.clone()) {
                    refuse(&mut report, format!("{}: {error}", path.display()));
                }
            }
        }
    }
    let were_running = dead.iter().any(|file| file.has_running());
    resolve(&dead, (ledger, keys), told, &mut report);
    tell_unopened(folder, unopened, &mut told.waiting, &mut report);
    if is_whole && !others_live {
        ledger.predecessors_ended();
    }
    Recovered { report, were_running }
}

/// Tends the journal and looks for those of dead processes until told to stop. On a thread of its own.
pub fn keep(journal: &Journal, ledger: &Ledger, stopped: &AtomicBool) {
    let predecessors = || ledger.embedded().filter(|embedded| embedded.has_predecessors());
    if let Some(embedded) = ledger.embedded() {
        embedded.predecessors_followed_by(std::thread::current());
    }
    let (mut rounds, mut tended): (u32, _) = (0, monotonic());
    while !stopped.load(Ordering::Acquire) {
        let left = FLUSH_EVERY.saturating_sub(tended.elapsed());
        let pause = predecessors().map_or(left, |_| left.min(FOLLOW_EVERY));
        std::thread::park_timeout(pause);
        let is_round = tended.elapsed() >= FLUSH_EVERY || stopped.load(Ordering::Acquire);
        if is_round {
            journal.tend();
            tended = monotonic();
            rounds = rounds.wrapping_add(1);
        }
        if ledger.is_handed_over() {
            continue; // What is left by others is the successor's to resolve.
        }
        if let Some(embedded) = predecessors() {
            embedded.read_predecessors();
        }
        // Prompts beside a journal that is not in its place are taken for what a process left that died.
        if is_round && rounds.is_multiple_of(ADOPT_ROUNDS) && !journal.is_moved() {
            recover_followed(journal, ledger);
        }
    }
}

/// Resolves the calls of dead processes, in any order, but for those that wait.
fn resolve(
    files: &[Arc<JournalFile>],
    (ledger, keys): (&Ledger, UnknownKeys),
    told: &mut Told,
    report: &mut RecoverReport,
) {
    let (mut calls, mut waiting) = (Vec::new(), Waiting::default());
    for file in files {
        file.count_found(); // So that the file stays until its last call was looked at.
        for number in 0..file.slots() {
            // SAFETY: the journal is that of a process that has died, and its lock is this thread's.
            match file.slot(number).map(|slot| unsafe { slot.read() }) {
                None | Some(Ok(None)) => {}
                Some(Ok(Some(found))) => {
                    file.count_call(number);
                    calls.push((file, number, found));
                }
                Some(Err(error)) => {
                    file.keep_aside();
                    if !told.has(file.path()) {
                        refuse(report, format!("{}: call {number}: {error}", file.path().display()));
                    }
                }
            }
        }
    }
    let places = Places::of((ledger, keys), calls.iter().map(|(_, _, found)| found));
    for (file, number, found) in calls {
        let id = found.id;
        let place = match places.place(&found) {
            Ok(place) => place,
            Err(why) => {
                // It may be the journal of another ledger: this one knows of its calls neither that they are billed nor that they are not.
                waiting.add(file, found.account, why);
                file.forget_found();
                continue;
            }
        };
        if let Err(error) = resolve_call(file, number, found, &place, report) {
            file.keep_aside();
            file.forget_found();
            if !told.has(file.path()) {
                refuse(report, format!("{}: request {id}: {error}", file.path().display()));
            }
        }
    }
    files.iter().for_each(|file| file.forget_found());
    waiting.tell(told, report);
}

fn resolve_call(
    file: &Arc<JournalFile>,
    number: u32,
    found: Found,
    place: &AccountHandle,
    report: &mut RecoverReport,
) -> Result<(), StoreError> {
    let (orphan, stage) = match found.stage {
        FoundStage::Held { number } => (Orphan::Held { number }, Stage::Held),
        FoundStage::Answered {
            delivered,
            prompt,
            number,
        } => {
            let debit = made_debit(file, &found, delivered, prompt)?;
            (Orphan::Owed { debit, number }, Stage::Answered)
        }
        FoundStage::Owed(numbered) => {
            let (debit, number) = (owed_debit(&found, &numbered, None), Some(numbered.number));
            (Orphan::Owed { debit, number }, Stage::Owed)
        }
    };
    let named = match &orphan {
        Orphan::Held { number } | Orphan::Owed { number, .. } => *number,
    };
    let entry = Entry(Some(Written {
        file: Arc::clone(file),
        slot: number,
        blocks: Default::default(),
        id: found.id,
        stage,
        number: named,
        delivered: CompletionTokens(0),
        prompt: None,
    }));
    let owes_nothing = matches!(orphan, Orphan::Held { .. });
    let new = place.take_over(found.id, orphan, entry)?;
    match (owes_nothing, new) {
        (true, _) => report.released += 1,
        (false, true) => report.settled += 1,
        (false, false) => report.already += 1,
    }
    Ok(())
}

/// What a slot says of its call beside the debit. When and how it ended, nobody knows; what it held has no check there.
fn details(found: &Found) -> CallDetails {
    CallDetails {
        endpoint: Some(found.endpoint),
        ..CallDetails::default()
    }
}

/// The exact debit of a call that was over. The slot has the usual prices of its model. Which of its prices were charged it does not say: kinds of
/// tokens, long prompts and tiers may have their own, and the provider's own cost or what was held may have been taken.
pub(super) fn owed_debit(found: &Found, numbered: &NumberedDebit, held: Option<Credits>) -> Debit {
    let usual = found.pricing.cost(numbered.usage);
    let is_usual = usual.is_ok_and(|cost| cost == numbered.cost);
    Debit {
        model: found.model.as_str().into(),
        key: found.key.clone(),
        usage: numbered.usage,
        cost: numbered.cost,
        held,
        end_user: found.end_user,
        details: Some(Box::new(CallDetails {
            pricing: is_usual.then_some(found.pricing),
            ..details(found)
        })),
    }
}

/// An answer that had begun costs its prompt and what was delivered.
fn made_debit(
    file: &JournalFile,
    found: &Found,
    delivered: CompletionTokens,
    reported: Option<PromptTokens>,
) -> Result<Debit, StoreError> {
    let counted = || {
        let text = file.prompt(found.place)?;
        let body = RequestBody::parse(text.into(), found.endpoint).ok()?;
        Some(counted_prompt(&body, &found.model, &found.limits))
    };
    // A text that the tokenizer cannot take must not stop a start.
    let counted = || std::panic::catch_unwind(AssertUnwindSafe(counted)).ok().flatten();
    let prompt = reported.or_else(counted).unwrap_or_else(|| {
        log::warn!(
            "request {}: its prompt was not kept; it is billed by a low estimate",
            found.id
        );
        let estimated = estimated_prompt(u64::from(found.place.bytes));
        match found.endpoint {
            Endpoint::Chat | Endpoint::ChatStream => estimated.min(PromptTokens(found.limits.context_length)),
            // Each of its inputs may be as long as that.
            Endpoint::Embeddings => estimated,
        }
    });
    let usage = Usage {
        prompt,
        completion: delivered,
    };
    // With a report of the prompt one of the completion may have come. Vectors have no text that is counted.
    let is_counted = reported.is_none() && found.endpoint != Endpoint::Embeddings;
    let cost = found
        .pricing
        .cost(usage)
        .map_err(|error| StoreError::Corrupt(error.to_string()))?;
    Ok(Debit {
        model: found.model.as_str().into(),
        key: found.key.clone(),
        usage,
        cost,
        held: None,
        end_user: found.end_user,
        details: Some(Box::new(CallDetails {
            pricing: Some(found.pricing),
            counted_completion: is_counted.then_some(delivered),
            ..details(found)
        })),
    })
}

/// Tells once that something could not be opened for too many open files, until all could be.
pub(super) fn tell_unopened(
    folder: &Path,
    unopened: Option<String>,
    told: &mut HashSet<PathBuf>,
    report: &mut RecoverReport,
) {
    match unopened {
        None => {
            told.remove(folder);
        }
        Some(what) if told.insert(folder.to_owned()) => {
            let line = format!("{what}: what processes that died have left here is looked for again");
            log::warn!("{line}");
            report.refused.push(line);
        }
        Some(_) => {}
    }
}

/// How long a call of the process before that has ended counts in figures as one that runs, at most: no call is refused for it. A reading goes
/// through the state of each slot in the mapped journal of that process, 4,096 of them or a few times as many, and in full through those of
/// its calls.
const FOLLOW_EVERY: Duration = Duration::from_millis(25);
/// How many flushes lie between two looks for dead processes' journals.
const ADOPT_ROUNDS: u32 = 2;
const _: () = assert!(FLUSH_EVERY.as_millis() * ADOPT_ROUNDS as u128 <= Duration::from_secs(10).as_millis());
