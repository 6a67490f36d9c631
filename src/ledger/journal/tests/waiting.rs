//! A journal that meets a ledger without its accounts: another one that shares the folder by mistake, or a new one in the place of its own.

use super::*;
use crate::ledger::tests::logged::logged;

/// The lines that somebody has to look at.
fn told(work: impl FnOnce()) -> Vec<String> {
    let mut lines = logged(work);
    lines.retain(|line| line.starts_with("ERROR") || line.starts_with("WARN"));
    lines
}

#[test]
fn a_journal_waits_for_the_ledger_that_has_its_accounts_and_that_is_told_once() {
    let mut rig = Rig::new();
    let folder = rig.folder.path().to_owned();
    let mut hold = rig.call(1);
    hold.pass(CompletionTokens(5), None);
    die(vec![hold]);
    rig.process = None;
    let [path, prompts] = ["journal", "prompts"].map(|extension| rig.files(extension).remove(0));
    let other = Embedded::open(&folder.join("other.db"), Clock::manual(NOW)).unwrap();
    let other = Ledger::Embedded(other);
    let own = Journal::open(&folder);
    let mut report = RecoverReport::default();
    let lines = told(|| report = recover::recover_others(&own, &other));
    let money = format!(
        "ERROR MONEY: {}: calls of accounts or keys that are not in this ledger: 1, such as one of acme; ",
        path.display()
    );
    let is_of_journal = |line: &&String| line.starts_with(&money);
    assert_eq!(lines.iter().filter(is_of_journal).count(), 1, "{lines:?}");
    assert_eq!((report.journals, report.settled, report.refused.len()), (1, 0, 1));
    for _ in 0..2 {
        let mut again = RecoverReport::default();
        let lines = told(|| again = recover::recover_others(&own, &other));
        assert_eq!((lines, again), (Vec::new(), RecoverReport::default()));
    }
    other.close();
    own.close();
    assert_eq!(recover::waiting(&folder), 1);
    assert_eq!(recover::put_aside(&folder), Vec::<PathBuf>::new());
    assert!(path.exists() && prompts.exists());

    rig.start("0");
    let report = &rig.process().recovered;
    assert_eq!((report.settled, report.refused.len()), (1, 0));
    assert_eq!(rig.spent(), cost(8, 5));
    rig.process().ledger.close();
    assert!(!path.exists());
}

/// It has the account's name from somebody else: a test's ledger and the real one often have the same names.
#[test]
fn an_account_of_the_same_name_in_another_ledger_is_billed_nothing() {
    let mut rig = Rig::new();
    let folder = rig.folder.path().to_owned();
    let mut hold = rig.call(1);
    hold.pass(CompletionTokens(5), None);
    die(vec![hold]);
    rig.process = None;
    let other = Embedded::open(&folder.join("other.db"), Clock::manual(NOW)).unwrap();
    let other = Ledger::Embedded(other);
    let theirs = caller_of(&other, "acme", "10", Default::default());
    let own = Journal::open(&folder);
    let report = recover::recover_others(&own, &other);
    assert_eq!((report.journals, report.settled, report.refused.len()), (1, 0, 1));
    let Figures { balance, .. } = block_on(theirs.figures()).unwrap();
    assert_eq!(balance, credits("10"));
    own.close();
    // Who restored a backup of before its key was made can say so.
    let copy = tempfile::tempdir().unwrap();
    for extension in ["journal", "prompts"] {
        let file = rig.files(extension).remove(0);
        std::fs::copy(&file, copy.path().join(file.file_name().unwrap())).unwrap();
    }
    let report = recover::recover_with(copy.path(), &other, UnknownKeys::Bill);
    assert_eq!((report.settled, report.refused.len()), (1, 0));
    let Figures { balance, .. } = block_on(theirs.figures()).unwrap();
    assert_eq!(credits("10").saturating_sub(balance), cost(8, 5));
    other.close();
    rig.start("0");
    assert_eq!(rig.process().recovered.settled, 1);
    assert_eq!(rig.spent(), cost(8, 5));
}

/// Nor in an upgrade, in which the journals that lie there are read as those of the process before.
#[test]
fn an_upgrade_bills_nothing_to_an_account_of_the_same_name_in_another_ledger() {
    let (rig, ..) = damage::three_calls();
    let folder = rig.folder.path();
    let store = Embedded::open(&folder.join("other.db"), Clock::manual(NOW)).unwrap();
    let other = Ledger::Embedded(Arc::clone(&store));
    let theirs = caller_of(&other, "acme", "10", Default::default());
    let own = Journal::open(folder);
    follow::hold_for_predecessors(folder, &other);
    let held = block_on(theirs.figures()).unwrap().held;
    follow::follow_predecessors(folder, &store, own.own().as_deref(), &mut Default::default());
    let Figures { balance, .. } = block_on(theirs.figures()).unwrap();
    assert_eq!((balance, held), (credits("10"), Credits::ZERO));
    audit_is_clean(&other);
    other.close();
    own.close();
}

#[test]
fn the_other_calls_of_a_journal_that_waits_are_billed() {
    let mut rig = Rig::new();
    let process = rig.process();
    let path = process.journal.own().unwrap();
    let mut known = process.call(1, PROMPT);
    known.pass(CompletionTokens(5), None);
    let account = "bolt".parse().unwrap();
    let intent = Intent {
        account: &account,
        ..process.intent(request(2, "1").id)
    };
    drop(process.journal.begin(&intent, PROMPT).unwrap());
    die(vec![known]);
    let report = rig.restart().recovered.clone();
    assert_eq!((report.settled, report.released, report.refused.len()), (1, 0, 1));
    assert_eq!(rig.spent(), cost(8, 5));
    rig.process().ledger.close();
    assert!(path.exists(), "one of its calls waits");

    let process = rig.restart();
    assert_eq!((process.recovered.settled, process.recovered.already), (0, 0));
    caller_of(&process.ledger, "bolt", "0", Default::default());
    let report = recover(rig.folder.path(), &rig.process().ledger);
    assert_eq!((report.released, report.refused.len()), (1, 0));
    rig.process().ledger.close();
    assert!(!path.exists());
    assert_eq!(recover::put_aside(rig.folder.path()), Vec::<PathBuf>::new());
}
