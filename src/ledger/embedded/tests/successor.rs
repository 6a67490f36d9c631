//! What is asked of a ledger that another process has by now: its answers are that process', which listens on the control socket.

use std::time::Duration;

use super::handover::terms;
use super::spending::{ask, caller, debit_of, limited};
use super::*;
use crate::config::SuspendedStreams;
use crate::ledger::admin::AccountView;
use crate::ledger::admin::events::EventOp;
use crate::ledger::cover::Uncovered;
use crate::ledger::journal::LiveHold;
use crate::ledger::query::{EndUserQuery, EndUserUsage};
use crate::ledger::terms::AccountStatus;
use crate::ledger::{Hold, StoreError, control};
use crate::pure::account::{Denial, Extended, Spent};
use crate::pure::error::AccountStop;
use crate::pure::estimate::HoldRange;
use crate::pure::receipt::CallDetails;
use crate::pure::spend::Reset;
use crate::pure::time::Days;

/// The process that has the ledger from now on.
fn hand_over(rig: &Rig) -> Arc<Embedded> {
    rig.store.hand_over().unwrap();
    let successor = open(&rig.folder);
    control::listen(&successor).unwrap();
    successor
}

fn reserve(caller: &Caller, n: u64, wanted: &str, user: &str) -> Result<Hold, Denial> {
    block_on(caller.reserve(&ask(caller, n, wanted, user))).unwrap()
}

/// A call of this end user, from its hold to its debit.
fn call(caller: &Caller, n: u64, cost: &str, user: &str) {
    let details = CallDetails {
        end_user: Some(user.into()),
        ..CallDetails::default()
    };
    let hold = reserve(caller, n, cost, user).unwrap();
    hold.settle(Debit {
        details: Some(Box::new(details)),
        ..debit_of(caller, cost)
    });
}

fn run(store: &Arc<Embedded>, op: AdminOp) -> AdminReply {
    block_on(Embedded::run(store, op)).unwrap()
}

fn shown(store: &Arc<Embedded>) -> AccountView {
    let account = "acme".parse().unwrap();
    match run(store, AdminOp::AccountShow { account }) {
        AdminReply::Account(view) => view,
        other => panic!("{other:?}"),
    }
}

#[test]
fn figures_usage_and_receipts_are_the_successors() {
    let rig = rig();
    let before = limited(&rig);
    call(&before, 1, "0.7", "anna");
    let successor = hand_over(&rig);
    let after = caller(&successor, rig.key);
    call(&after, 2, "0.3", "bob");
    let account = after.account.id.clone();
    let add = AdminOp::CreditsAdd {
        account: account.clone(),
        amount: credits("5"),
        reference: "B".into(),
    };
    run(&rig.store, add);

    let figures = block_on(before.figures()).unwrap();
    assert_eq!((figures.balance, figures.monthly_used), (credits("14"), credits("1")));
    assert_eq!(figures, block_on(after.figures()).unwrap());
    let spent = block_on(before.key_spent(Reset::Daily)).unwrap();
    let held = Credits::ZERO;
    assert_eq!(
        spent,
        Spent {
            spent: credits("1"),
            held
        }
    );

    let ledger = Ledger::Embedded(Arc::clone(&rig.store));
    let rows = block_on(ledger.usage(&account, None, Period::All)).unwrap();
    assert_eq!((rows.len(), rows[0].requests, rows[0].cost), (1, 2, credits("1")));
    let query = EndUserQuery {
        account: account.clone(),
        key: None,
        days: Days::of_month(NOW.day()),
    };
    let EndUserUsage::Sums(sums) = block_on(ledger.end_users(query)).unwrap() else {
        panic!("no sums");
    };
    let sums: Vec<_> = sums.iter().map(|row| (row.end_user.as_deref(), row.cost)).collect();
    let expected = [("anna", "0.7"), ("bob", "0.3")].map(|(name, sum)| (Some(name), credits(sum).into()));
    assert_eq!(sums, expected);
    let page = block_on(ledger.receipts(ReceiptQuery::newest(&account, 10))).unwrap();
    let costs: Vec<_> = page.receipts.iter().map(|receipt| receipt.billed.cost).collect();
    assert_eq!(costs, [credits("0.3"), credits("0.7")]);
}

/// A successor has the ledger before it listens.
#[test]
fn who_asks_before_the_successor_listens_waits_for_it() {
    let rig = rig();
    let before = caller(&rig.store, rig.key);
    let ledger = Ledger::Embedded(Arc::clone(&rig.store));
    assert!(!ledger.is_handed_over());
    rig.store.hand_over().unwrap();
    assert!(ledger.is_handed_over());
    std::thread::scope(|scope| {
        let figures = scope.spawn(|| block_on(before.figures()));
        let hold = scope.spawn(|| reserve(&before, 1, "1", "anna"));
        let successor = open(&rig.folder);
        control::listen(&successor).unwrap();
        assert_eq!(figures.join().unwrap().unwrap().balance, credits("10"));
        assert!(hold.join().unwrap().is_ok());
    });
}

/// What it opens may be large; once it serves, one that does not listen has ended.
#[test]
fn a_call_waits_for_a_successor_for_as_long_as_that_may_take_to_serve() {
    let rig = rig();
    for _ in 0..2 {
        rig.store.hand_over().unwrap();
        assert!(rig.store.shared.successor_wait() > SERVES_WITHIN);
        rig.store.stays_handed_over();
        assert!(rig.store.shared.successor_wait() < SERVES_WITHIN);
        rig.store.take_back(|| {}).unwrap();
    }
}

/// One account's calls at both processes hold the credit of one account.
#[test]
fn a_call_holds_at_the_successor_and_is_refused_there() {
    let rig = rig();
    let before = caller(&rig.store, rig.key);
    let successor = hand_over(&rig);
    let after = caller(&successor, rig.key);
    let hold = block_on(before.reserve(&request(1, "6"))).unwrap().unwrap();
    assert_eq!(block_on(after.figures()).unwrap().held, credits("6"));
    let events = || match run(&successor, AdminOp::Event(EventOp::Count)) {
        AdminReply::EventCount(count) => count,
        other => panic!("{other:?}"),
    };
    let none = events();
    for (n, caller) in [(2, &after), (3, &before)] {
        let denied = block_on(caller.reserve(&request(n, "11"))).unwrap().unwrap_err();
        assert!(matches!(denied, Denial::Credit { .. }), "{denied:?}");
    }
    assert_eq!(shown(&rig.store).figures.held, credits("6"));
    assert_ne!(events(), none, "the operator is told of it");
    // Should the successor end, its predecessor holds what its own calls hold.
    drop((after, successor));
    rig.store.take_back(|| {}).unwrap();
    assert_eq!(block_on(before.figures()).unwrap().held, credits("6"));
    hold.settle(debit("4"));
    assert_eq!(block_on(before.figures()).unwrap().balance, credits("6"));
    assert!(audit(&rig.store).findings.is_empty());
}

fn raise(hold: &mut Hold, wanted: &str, at_least: &str) -> Result<Extended, StoreError> {
    let range = HoldRange {
        wanted: credits(wanted),
        at_least: credits(at_least),
    };
    let extended = block_on(hold.extension(range, Credits::MAX));
    if let Ok(Extended::To(amount)) = extended {
        hold.extended(amount);
    }
    extended
}

/// A process takes over a call that runs, and its hold has to be raised then.
#[test]
fn a_hold_is_raised_at_the_successor_as_often_as_it_is_asked_and_given_back_whole() {
    let rig = rig();
    let before = caller(&rig.store, rig.key);
    let mut hold = block_on(before.reserve(&request(1, "2"))).unwrap().unwrap();
    let mut ended = block_on(before.reserve(&request(2, "1"))).unwrap().unwrap();
    rig.store.hand_over().unwrap();
    let successor = open(&rig.folder);
    successor.hold_for_predecessor(&LiveHold {
        id: hold.id(),
        account: before.account.id.clone(),
        key: before.key.id.clone(),
        end_user: None,
        amount: hold.amount(),
    });
    control::listen(&successor).unwrap();
    let after = caller(&successor, rig.key);
    let held = || block_on(after.figures()).unwrap().held;
    for _ in 0..2 {
        assert_eq!(raise(&mut hold, "4", "4"), Ok(Extended::To(credits("4"))));
        assert_eq!((hold.amount(), held()), (credits("4"), credits("4")));
    }
    let other = block_on(after.reserve(&request(3, "3"))).unwrap().unwrap();
    assert_eq!(raise(&mut hold, "9", "7.000000000001"), Ok(Extended::Refused));
    assert_eq!(raise(&mut hold, "9", "7"), Ok(Extended::To(credits("7"))));
    assert_eq!(held(), credits("10"));
    // One that the successor does not hold, for it has ended there.
    assert_eq!(raise(&mut ended, "2", "2"), Ok(Extended::Gone));
    assert_eq!(ended.amount(), credits("1"));
    // With the call's end all of it is given back, also where the answer to a wish was lost.
    successor.predecessors_ended();
    assert_eq!(held(), credits("3"));
    other.release();
    // Should the successor end, its predecessor holds what its call has.
    drop((after, successor));
    while rig.store.take_back(|| {}).is_err() {
        std::thread::yield_now(); // The control socket's thread has it for a moment more.
    }
    ended.release();
    assert_eq!(block_on(before.figures()).unwrap().held, credits("7"));
    hold.settle(debit("6.5"));
    let figures = block_on(before.figures()).unwrap();
    assert_eq!((figures.balance, figures.held), (credits("3.5"), Credits::ZERO));
    assert!(audit(&rig.store).findings.is_empty());
}

/// As one of a version that knows no such wish.
#[test]
fn a_successor_that_knows_no_wish_to_raise_a_hold_has_raised_none() {
    let rig = rig();
    let before = caller(&rig.store, rig.key);
    let mut hold = block_on(before.reserve(&request(1, "2"))).unwrap().unwrap();
    rig.store.hand_over().unwrap();
    let unknown = AdminError::Invalid(format!("{}: unknown variant `extend`", control::UNKNOWN_COMMAND));
    answer_all(&rig.store, Err(unknown));
    let raised = raise(&mut hold, "4", "4");
    assert!(matches!(raised, Err(StoreError::Unavailable(_))), "{raised:?}");
    assert_eq!(hold.amount(), credits("2"));
    let cell = rig.store.place(&before.account.id).unwrap();
    assert_eq!(cell.state().held(), credits("2"));
}

/// Only a process that has the ledger knows that an account was stopped; a call that is to end then may run in the one before.
#[test]
fn a_call_that_runs_on_ends_when_the_successor_stops_its_account() {
    let rig = rig();
    let before = caller(&rig.store, rig.key);
    let reserve = |n, on_stop| {
        let request = request(n, "1");
        let reserved = block_on(before.reserve_until(&request, Entry::none(), on_stop));
        reserved.unwrap().unwrap()
    };
    let (ends, finishes) = (reserve(1, SuspendedStreams::End), reserve(2, SuspendedStreams::Finish));
    let successor = hand_over(&rig);
    run(&successor, terms(AccountStatus::Suspended));
    let ended = std::future::poll_fn(|context| ends.poll_uncovered(context));
    let ended = block_on(async { tokio::time::timeout(Duration::from_secs(30), ended).await });
    assert_eq!(ended, Ok(Uncovered::Stopped(AccountStop::Suspended)));
    assert_eq!(finishes.uncovered(), None);
    ends.release();
    finishes.release();
}

/// A successor that has one answer to everything.
fn answer_all(store: &Embedded, answer: Result<AdminReply, AdminError>) {
    let socket = crate::ledger::control_socket::socket_path(store.path());
    let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
    let serve = move || {
        use std::io::{BufRead, Write};
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            std::io::BufReader::new(&stream).read_line(&mut line).unwrap();
            let answer = serde_json::to_string(&answer).unwrap();
            // Whoever has gone needs no answer.
            let _sent = writeln!(stream, "{answer}");
        }
    };
    std::thread::Builder::new().spawn(serve).unwrap();
}

#[test]
fn what_a_successor_answers_that_is_no_answer_is_an_error() {
    let rig = rig();
    let before = limited(&rig);
    let mut hold = block_on(before.reserve(&request(2, "1"))).unwrap().unwrap();
    rig.store.hand_over().unwrap();
    answer_all(&rig.store, Ok(AdminReply::Done));
    fn is_corrupt<T>(answer: Result<T, StoreError>) -> bool {
        matches!(answer, Err(StoreError::Corrupt(_)))
    }
    let account = before.account.id.clone();
    let ledger = Ledger::Embedded(Arc::clone(&rig.store));
    assert!(is_corrupt(block_on(before.figures())));
    assert!(is_corrupt(block_on(before.key_spent(Reset::Daily))));
    assert!(is_corrupt(block_on(before.reserve(&request(1, "1")))));
    assert!(is_corrupt(raise(&mut hold, "2", "2")));
    assert!(is_corrupt(block_on(ledger.usage(&account, None, Period::All))));
    assert!(is_corrupt(block_on(
        ledger.receipts(ReceiptQuery::newest(&account, 10))
    )));
    let query = EndUserQuery {
        account,
        key: None,
        days: Days::of_month(NOW.day()),
    };
    assert!(is_corrupt(block_on(ledger.end_users(query))));
}
