//! Calls of the process before this one that have ended: nobody is refused for them, what they owe is taken, and those that may run keep what
//! they hold.

use super::*;
use crate::ledger::admin::events::EventOp;
use crate::ledger::admin::{AdminOp, AdminReply};
use crate::ledger::control;
use crate::ledger::remote::{RemoteReply, RemoteReserve};
use crate::ledger::tests::logged::logged;
use crate::pure::account::{Denial, Extended, ReserveRequest, Scope};
use crate::pure::estimate::HoldRange;
use crate::pure::limits::Limits;

/// A process that has handed its ledger over, and the one that has it. No thread follows the first there.
struct Upgrade {
    old: Process,
    new: Process,
    store: Arc<Embedded>,
}

impl Upgrade {
    fn of(rig: &mut Rig) -> Upgrade {
        let old = rig.process.take().unwrap();
        Upgrade::from(rig, old)
    }

    /// The next one, after a process that has the ledger.
    fn from(rig: &Rig, old: Process) -> Upgrade {
        let folder = rig.folder.path().to_owned();
        let Ledger::Embedded(store) = &old.ledger else { panic!() };
        store.hand_over().unwrap();
        let store = Embedded::open(&folder.join("ledger.db"), Clock::manual(NOW)).unwrap();
        let (ledger, journal) = (Ledger::Embedded(Arc::clone(&store)), Journal::open(&folder));
        follow::hold_for_predecessors(&folder, &ledger);
        follow::read_when_asked(&journal, &store);
        let new = Process {
            caller: caller_of(&ledger, "acme", "0", Default::default()),
            ledger,
            journal,
            recovered: RecoverReport::default(),
        };
        Upgrade { old, new, store }
    }

    fn reserve(&self, request: &ReserveRequest) -> Result<Hold, Denial> {
        block_on(self.new.caller.reserve(request)).unwrap()
    }

    /// The same by the process before, whose call stands in its journal.
    fn reserve_there(&self, request: &ReserveRequest) -> RemoteReply {
        let asked = RemoteReserve::of(self.new.caller.account.id.clone(), request);
        match self.store.run_blocking(AdminOp::Reserve(asked)).unwrap() {
            AdminReply::Reserved(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    fn figures(&self) -> (Credits, Credits) {
        let figures = block_on(self.new.caller.figures()).unwrap();
        (figures.balance, figures.held)
    }

    fn open_events(&self) -> u64 {
        match self.store.run_blocking(AdminOp::Event(EventOp::Count)).unwrap() {
            AdminReply::EventCount(count) => count.open,
            other => panic!("{other:?}"),
        }
    }
}

fn settle(hold: Hold) {
    let debit = debit_of(&hold, 8, 5);
    hold.settle(debit);
}

/// Two calls at once are allowed.
fn of_two(n: u64) -> ReserveRequest {
    let far = request(n, "0.01");
    let limits = Limits {
        concurrency: 2,
        ..far.limits
    };
    ReserveRequest { limits, ..far }
}

#[test]
fn a_call_is_refused_for_those_of_the_process_before_that_run_and_for_none_that_has_ended() {
    let mut rig = Rig::new();
    let (settled, released) = (rig.call(1), rig.call(2));
    let upgrade = Upgrade::of(&mut rig);
    assert!(matches!(upgrade.reserve(&of_two(3)), Err(Denial::Concurrency(_))));
    settle(settled);
    let third = upgrade.reserve(&of_two(4)).unwrap();
    let fifth = upgrade.old.begin(5, PROMPT);
    assert!(matches!(upgrade.reserve_there(&of_two(5)), RemoteReply::Concurrency(_)));
    released.release();
    assert!(matches!(upgrade.reserve_there(&of_two(5)), RemoteReply::Granted { .. }));
    assert!(matches!(upgrade.reserve(&of_two(6)), Err(Denial::Concurrency(_))));
    third.release();
    let left = credits("10").saturating_sub(cost(8, 5));
    assert_eq!(upgrade.figures(), (left, credits("0.01")), "the fifth runs");
    drop(fifth);
    audit_is_clean(&upgrade.new.ledger);
}

/// The first decision of the two is not told, and counts once.
#[test]
fn a_call_that_is_decided_once_more_counts_as_one() {
    let mut rig = Rig::new();
    let ended = rig.call(1);
    let upgrade = Upgrade::of(&mut rig);
    let one = |n| {
        let mut asked = of_two(n);
        asked.limits.concurrency = 1;
        asked
    };
    let limits = one(1).limits;
    let left = || upgrade.new.caller.rate(&Scope::Account, limits).remaining_requests;
    let before = left();
    assert!(upgrade.reserve(&one(2)).is_err());
    assert_eq!(left(), before - 1);
    let third = upgrade.old.begin(3, PROMPT);
    assert!(matches!(upgrade.reserve_there(&one(3)), RemoteReply::Concurrency(_)));
    assert_eq!(left(), before - 2);
    settle(ended);
    let hold = upgrade.reserve(&one(4)).unwrap();
    assert_eq!((left(), hold.rate().remaining_requests), (before - 3, before - 3));
    hold.release();
    drop(third);
}

#[test]
fn credit_that_an_ended_call_held_is_there_and_no_event_tells_that_it_is_not() {
    let mut rig = Rig::new();
    let (process, all) = (rig.process(), request(1, "10"));
    let reserved = process.caller.reserve_journaled(&all, process.begin(1, PROMPT));
    let ends = block_on(reserved).unwrap().unwrap();
    let upgrade = Upgrade::of(&mut rig);
    let none = upgrade.open_events();
    settle(ends);
    let hold = upgrade.reserve(&request(2, "5")).unwrap();
    assert_eq!((hold.amount(), upgrade.open_events()), (credits("5"), none));
    // Of this one it is so.
    assert!(matches!(
        upgrade.reserve(&request(3, "11")),
        Err(Denial::Credit { held, .. }) if held == credits("5")
    ));
    assert_eq!(upgrade.open_events(), none + 1);
    hold.release();
}

/// Whose call stands in a slot that cannot be read is not known: it may be any of those that were not found.
#[test]
fn while_a_slot_cannot_be_read_debits_are_taken_and_nothing_is_given_back() {
    let mut rig = Rig::new();
    let (runs, settled, released) = (rig.call(1), rig.call(2), rig.call(3));
    let (each, path) = (runs.amount(), rig.files("journal").remove(0));
    let upgrade = Upgrade::of(&mut rig);
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    // In what the first of them is about to do, behind 4096 bytes of header.
    let (mut byte, at) = ([0], 4096 + 40);
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[!byte[0]], at).unwrap();
    settle(settled);
    released.release();
    upgrade.store.read_predecessors();
    let left = credits("10").saturating_sub(cost(8, 5));
    assert_eq!(upgrade.figures(), (left, each.saturating_add(each)));
    file.write_all_at(&byte, at).unwrap();
    upgrade.store.read_predecessors();
    assert_eq!(upgrade.figures(), (left, each));
    runs.release();
    upgrade.store.read_predecessors();
    assert_eq!(upgrade.figures(), (left, Credits::ZERO));
    audit_is_clean(&upgrade.new.ledger);
}

/// As a journal that was resolved and deleted since the folder was listed.
#[test]
fn a_journal_that_is_gone_keeps_nothing_of_the_others() {
    let mut rig = Rig::new();
    let released = rig.call(1);
    let upgrade = Upgrade::of(&mut rig);
    let gone = rig.folder.path().join(DEAD).with_extension("journal");
    std::os::unix::fs::symlink(rig.folder.path().join("nothing"), gone).unwrap();
    released.release();
    upgrade.store.read_predecessors();
    assert_eq!(upgrade.figures(), (credits("10"), Credits::ZERO));
}

/// What an operator put there as another user kept what every ended call held until the next start, and was told every two seconds.
#[test]
fn what_nobody_here_can_open_keeps_nothing_of_the_others_and_is_told_once() {
    let mut rig = Rig::new();
    let released = rig.call(1);
    let upgrade = Upgrade::of(&mut rig);
    let folder = rig.folder.path().join(DEAD).with_extension("journal");
    std::fs::create_dir(&folder).unwrap();
    released.release();
    upgrade.store.read_predecessors();
    assert_eq!(upgrade.figures(), (credits("10"), Credits::ZERO));
    let looks = |times: usize| {
        let lines = logged(|| {
            for _ in 0..times {
                recover::recover_others(&upgrade.new.journal, &upgrade.new.ledger);
            }
        });
        lines.iter().filter(|line| line.starts_with("ERROR MONEY: ")).count()
    };
    assert_eq!(looks(3), 1);
    std::fs::remove_dir(&folder).unwrap();
    std::fs::write(&folder, b"").unwrap();
    assert_eq!(looks(1), 1, "it can be opened, and is no journal");
}

/// It came to nothing in a process that writes nothing of it any more, and runs on.
#[test]
fn a_call_that_is_given_back_after_its_answer_had_begun_holds_nothing_from_then_on() {
    let mut rig = Rig::new();
    let (mut released, mut runs) = (rig.call(1), rig.call(2));
    for hold in [&mut released, &mut runs] {
        hold.pass(CompletionTokens(0), None);
    }
    let each = runs.amount();
    let upgrade = Upgrade::of(&mut rig);
    assert!(matches!(upgrade.reserve(&of_two(3)), Err(Denial::Concurrency(_))));
    released.release();
    let third = upgrade.reserve(&of_two(4)).unwrap();
    assert!(matches!(upgrade.reserve(&of_two(5)), Err(Denial::Concurrency(_))));
    third.release();
    assert_eq!(upgrade.figures(), (credits("10"), each), "the other one runs");
    // At the end of that process its name is closed as well.
    let Upgrade { old, new, .. } = upgrade;
    die(vec![runs]);
    drop(old);
    let report = recover::recover_others(&new.journal, &new.ledger);
    assert_eq!((report.settled, report.released), (1, 1));
    let figures = block_on(new.caller.figures()).unwrap();
    let left = credits("10").saturating_sub(cost(8, 0));
    assert_eq!((figures.balance, figures.held), (left, Credits::ZERO));
    audit_is_clean(&new.ledger);
}

/// It is known there all the same: who brings its idempotency key before that is told to be free hears that the call runs.
#[test]
fn a_call_that_was_given_back_holds_nothing_at_the_third_process_either() {
    let mut rig = Rig::new();
    let mut released = rig.call(1);
    released.pass(CompletionTokens(0), None);
    let Upgrade { old: _first, new, .. } = Upgrade::of(&mut rig);
    released.release();
    let last = Upgrade::from(&rig, new);
    assert_eq!(last.figures(), (credits("10"), Credits::ZERO));
    last.store.read_predecessors();
    assert_eq!(last.store.holds_of_predecessors(), [request(1, "1").id].into());
}

/// The answer to its call is taken in later, with the stream's next piece.
#[test]
fn a_hold_that_was_raised_just_before_is_held_whole_by_the_process_after() {
    let mut rig = Rig::new();
    let hold = rig.call(1);
    assert_eq!(raise(&hold), Extended::To(credits("8")));
    let upgrade = Upgrade::of(&mut rig);
    assert_eq!(upgrade.figures(), (credits("10"), credits("8")));
    assert!(matches!(upgrade.reserve(&request(2, "3")), Err(Denial::Credit { .. })));
    hold.release();
}

#[test]
fn a_hold_that_was_raised_at_the_second_process_is_held_whole_by_the_third() {
    let mut rig = Rig::new();
    let hold = rig.call(1);
    let Upgrade {
        old: _first,
        new,
        store,
    } = Upgrade::of(&mut rig);
    control::listen(&store).unwrap();
    assert_eq!(raise(&hold), Extended::To(credits("8")));
    let last = Upgrade::from(&rig, new);
    assert_eq!(last.figures(), (credits("10"), credits("8")));
    hold.release();
}

fn raise(hold: &Hold) -> Extended {
    let amount = credits("8");
    let range = HoldRange {
        wanted: amount,
        at_least: amount,
    };
    block_on(hold.extension(range, Credits::MAX)).unwrap()
}

/// What an operator may be alarmed by, of a process before whose journal is looked for once it has ended.
#[test]
fn a_process_before_that_ends_with_its_calls_is_no_warning_and_one_that_dies_with_one_is() {
    for is_cut in [false, true] {
        let mut rig = Rig::new();
        let (owes, mut released, mut last) = (rig.call(1), rig.call(2), rig.call(3));
        released.pass(CompletionTokens(0), None);
        last.pass(CompletionTokens(5), None);
        let Upgrade { old, new, store } = Upgrade::of(&mut rig);
        settle(owes);
        released.release();
        store.read_predecessors();
        let debit = debit_of(&last, 8, 5);
        match is_cut {
            true => die(vec![last]),
            false => last.settle(debit),
        }
        drop(old);
        let mut report = RecoverReport::default();
        let lines = logged(|| report = recover::recover_followed(&new.journal, &new.ledger));
        let told = match is_cut {
            true => {
                "WARN recovered 1 journals of dead processes: 1 debits taken, 1 known before, 1 holds given back, 0 refused"
            }
            false => {
                "INFO closed 1 journals of processes before this one that have ended: 1 debits taken, 1 known before, \
                 1 holds given back"
            }
        };
        assert_eq!(lines.iter().filter(|line| *line == told).count(), 1, "{lines:?}");
        assert_eq!(lines.iter().any(|line| line.starts_with("WARN")), is_cut, "{lines:?}");
        assert_eq!((report.settled, report.already, report.released), (1, 1, 1));
    }
}

/// The first of three processes drains still: its journal has what the second has billed since, and the third reads it.
#[test]
fn what_an_owner_between_has_billed_is_held_by_nobody() {
    let mut rig = Rig::new();
    let (ended, runs) = (rig.call(1), rig.call(2));
    let each = runs.amount();
    let Upgrade {
        old: _first,
        new,
        store,
    } = Upgrade::of(&mut rig);
    settle(ended);
    store.read_predecessors();
    let figures = |caller: &Caller| {
        let figures = block_on(caller.figures()).unwrap();
        (figures.balance, figures.held)
    };
    let (balance, held) = figures(&new.caller);
    assert_eq!(held, each, "the other one runs");
    let last = Upgrade::from(&rig, new);
    last.store.read_predecessors();
    assert_eq!(last.figures(), (balance, each));
    settle(runs);
    last.store.read_predecessors();
    assert_eq!(last.figures().1, Credits::ZERO);
}
