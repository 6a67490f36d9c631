//! A ledger that comes back while its successor is asked, and what is kept of the process before.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};

use super::spending::{caller, limited};
use super::*;
use crate::ledger::admin::accounts::AccountQuery;
use crate::ledger::admin::events::EventOp;
use crate::ledger::admin::operators::Actor;
use crate::ledger::admin::{Acted, RecoverReport, accounts::AccountOp};
use crate::ledger::journal::LiveHold;
use crate::ledger::remote::{RemoteReply, RemoteReserve};
use crate::ledger::{Orphan, control, control_socket};
use crate::pure::spend::Reset;

/// Hands the ledger over to a successor that does this with each connection, once it has read its command.
fn succeeded_by(store: &Arc<Embedded>, mut act: impl FnMut(&Arc<Embedded>, UnixStream) + Send + 'static) {
    store.hand_over().unwrap();
    let listener = UnixListener::bind(control_socket::socket_path(store.path())).unwrap();
    let store = Arc::downgrade(store);
    let serve = move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            let Some(store) = store.upgrade() else { return };
            act(&store, stream);
        }
    };
    std::thread::Builder::new().spawn(serve).unwrap();
}

fn tell(mut stream: &UnixStream, answer: &Result<AdminReply, AdminError>) {
    writeln!(stream, "{}", serde_json::to_string(answer).unwrap()).unwrap();
}

/// Ends the connection only once the ledger is back: whoever asked knows nothing yet.
fn gives_back(store: &Arc<Embedded>, stream: UnixStream) {
    store.take_back(|| {}).unwrap();
    drop(stream);
}

fn show() -> AdminOp {
    AdminOp::AccountShow {
        account: "acme".parse().unwrap(),
    }
}

fn set() -> AdminOp {
    AdminOp::AccountSet {
        account: "acme".parse().unwrap(),
        tier: Some(Tier::Lite),
        quota_pico: None,
        terms: Default::default(),
    }
}

#[test]
fn what_only_reads_is_answered_here_when_the_ledger_comes_back() {
    let rig = rig();
    succeeded_by(&rig.store, gives_back);
    let answer = block_on(rig.store.run(show()));
    assert!(matches!(answer, Ok(AdminReply::Account(_))), "{answer:?}");
}

#[test]
fn what_writes_and_was_sent_is_not_done_again_when_the_ledger_comes_back() {
    let rig = rig();
    succeeded_by(&rig.store, gives_back);
    let answer = block_on(rig.store.run(set()));
    assert!(matches!(answer, Err(AdminError::Store(_))), "{answer:?}");
    let Ok(AdminReply::Account(view)) = block_on(rig.store.run(show())) else {
        panic!("no account");
    };
    assert_eq!(view.record.tier, Tier::Pro, "nobody knows whether the successor did it");
}

#[test]
fn an_answer_of_the_successor_counts_though_the_ledger_comes_back() {
    let rig = rig();
    succeeded_by(&rig.store, |store, stream| {
        store.take_back(|| {}).unwrap();
        tell(&stream, &Ok(AdminReply::Done));
    });
    assert_eq!(block_on(rig.store.run(show())), Ok(AdminReply::Done));
}

#[test]
fn figures_and_what_a_key_spent_are_this_process_own_when_the_ledger_comes_back() {
    let rig = rig();
    let before = limited(&rig);
    let hold = block_on(before.reserve(&super::spending::ask(&before, 1, "0.5", "anna")));
    hold.unwrap().unwrap().settle(super::spending::debit_of(&before, "0.5"));
    succeeded_by(&rig.store, gives_back);
    assert_eq!(block_on(before.figures()).unwrap().balance, credits("9.5"));
    let again = rig_again(&rig);
    succeeded_by(&again, gives_back);
    let before = caller(&again, rig.key);
    assert_eq!(block_on(before.key_spent(Reset::Daily)).unwrap().spent, credits("0.5"));
}

/// Another ledger over a copy of the file of one.
fn rig_again(rig: &Rig) -> Arc<Embedded> {
    rig.store.close();
    let path = rig.folder.path().join("again.db");
    std::fs::copy(rig.store.path(), &path).unwrap();
    Embedded::open(&path, Clock::manual(NOW)).unwrap()
}

/// A refusal is an answer: nothing of it is made up here.
#[test]
fn an_account_that_the_successor_has_not_has_no_figures() {
    let rig = rig();
    let before = limited(&rig);
    succeeded_by(&rig.store, |_, stream| {
        tell(&stream, &Err(AdminError::NoAccount("acme".parse().unwrap())));
    });
    let figures = block_on(before.figures());
    assert!(matches!(figures, Err(StoreError::Unavailable(_))), "{figures:?}");
    let spent = block_on(before.key_spent(Reset::Daily));
    assert!(matches!(spent, Err(StoreError::Unavailable(_))), "{spent:?}");
}

#[test]
fn what_only_reads_is_asked_again_when_a_connection_ends_without_an_answer() {
    let rig = rig();
    let mut asked = 0;
    succeeded_by(&rig.store, move |_, stream| {
        asked += 1;
        if asked > 2 {
            tell(&stream, &Ok(AdminReply::Done));
        }
    });
    assert_eq!(block_on(rig.store.run(show())), Ok(AdminReply::Done));
}

#[test]
fn a_ledger_that_stays_handed_over_keeps_no_socket_to_step_back_to() {
    let rig = rig();
    control::listen(&rig.store).unwrap();
    let aside = rig.store.path().with_extension("control.before");
    rig.store.hand_over().unwrap();
    assert!(aside.exists());
    rig.store.stays_handed_over();
    assert!(!aside.exists());
}

#[test]
fn a_process_before_is_known_as_long_as_it_runs() {
    let rig = rig();
    assert!(!rig.store.has_predecessors());
    rig.store.hold_for_predecessor(&LiveHold {
        key: "key_x".to_owned().into(),
        end_user: None,
        id: request(1, "1").id,
        account: "acme".parse().unwrap(),
        amount: credits("1"),
    });
    assert!(rig.store.has_predecessors());
    rig.store.predecessors_ended();
    assert!(!rig.store.has_predecessors());
}

/// It was refused when it asked first, with an entry in the journal that is gone, and asks once more while the journals are read.
#[test]
fn a_call_of_the_process_before_that_asks_once_more_keeps_what_it_is_granted() {
    let rig = rig();
    let id = request(1, "1").id;
    rig.store.hold_for_predecessor(&LiveHold {
        key: "key_x".to_owned().into(),
        end_user: None,
        id,
        account: "acme".parse().unwrap(),
        amount: Credits::ZERO,
    });
    let held = || rig.store.place(&"acme".parse().unwrap()).unwrap().state().held();
    let reading = rig.store.begin_reading();
    let reserve = RemoteReserve::of("acme".parse().unwrap(), &request(1, "1"));
    let reply = rig.store.run_blocking(AdminOp::Reserve(reserve));
    assert!(
        matches!(reply, Ok(AdminReply::Reserved(RemoteReply::Granted { .. }))),
        "{reply:?}"
    );
    rig.store.predecessors_ended_of(reading, &Default::default());
    assert_eq!(held(), credits("1"), "it may have begun since its slot was looked at");
    let reading = rig.store.begin_reading();
    rig.store.predecessors_ended_of(reading, &[id].into());
    assert_eq!(held(), credits("1"), "it runs");
    rig.store.predecessors_ended_of(reading, &Default::default());
    assert_eq!(held(), Credits::ZERO);
    assert!(!rig.store.has_predecessors());
}

/// Whoever hears that the process is ready again may give a command at once.
#[test]
fn a_ledger_that_comes_back_is_found_before_it_is_said_to_be_here() {
    let rig = rig();
    control::listen(&rig.store).unwrap();
    let socket = control_socket::socket_path(rig.store.path());
    rig.store.hand_over().unwrap();
    assert!(!socket.exists());
    // While this is held nobody hears that the ledger is not away any more, and whoever takes it back waits to say so.
    let away = rig.store.shared.away_since.lock().unwrap();
    std::thread::scope(|scope| {
        let back = scope.spawn(|| rig.store.take_back(|| {}));
        let began = crate::clock::monotonic();
        while !socket.exists() && began.elapsed() < Duration::from_secs(30) {
            std::thread::yield_now();
        }
        let is_found = socket.exists();
        drop(away);
        back.join().unwrap().unwrap();
        assert!(is_found);
    });
}

/// Whoever follows it pauses for a second while nothing is known to run there.
#[test]
fn the_first_call_of_a_process_before_wakes_who_follows_that() {
    let rig = rig();
    rig.store.predecessors_followed_by(std::thread::current());
    // Takes what may have woken this thread before.
    std::thread::park_timeout(Duration::ZERO);
    rig.store.hold_for_predecessor(&LiveHold {
        key: "key_x".to_owned().into(),
        end_user: None,
        id: request(1, "1").id,
        account: "acme".parse().unwrap(),
        amount: credits("1"),
    });
    let (began, pause) = (crate::clock::monotonic(), Duration::from_secs(10));
    std::thread::park_timeout(pause);
    assert!(began.elapsed() < pause);
}

#[test]
fn the_first_refusal_of_a_call_of_the_process_before_is_told() {
    let rig = rig();
    let open = || match rig.store.run_blocking(AdminOp::Event(EventOp::Count)).unwrap() {
        AdminReply::EventCount(count) => count.open,
        other => panic!("{other:?}"),
    };
    let none = open();
    for n in [1, 2] {
        let reserve = RemoteReserve::of("acme".parse().unwrap(), &request(n, "50"));
        match rig.store.run_blocking(AdminOp::Reserve(reserve)).unwrap() {
            AdminReply::Reserved(RemoteReply::Granted { .. }) => panic!("granted"),
            AdminReply::Reserved(_) => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(open(), none + 1);
    }
}

/// A build that knows of no tries does not say which one it is: each of its refusals is told.
#[test]
fn a_first_try_of_a_call_of_the_process_before_is_not_told() {
    let rig = rig();
    let open = || match rig.store.run_blocking(AdminOp::Event(EventOp::Count)).unwrap() {
        AdminReply::EventCount(count) => count.open,
        other => panic!("{other:?}"),
    };
    let none = open();
    let first = ReserveRequest {
        is_last: false,
        ..request(1, "50")
    };
    let first = serde_json::to_value(RemoteReserve::of("acme".parse().unwrap(), &first)).unwrap();
    let mut unsaid = first.clone();
    unsaid.as_object_mut().unwrap().remove("is_last").unwrap();
    for (reserve, told) in [(first, 0), (unsaid, 1)] {
        let reserve = AdminOp::Reserve(serde_json::from_value(reserve).unwrap());
        let reply = rig.store.run_blocking(reserve).unwrap();
        assert!(
            matches!(reply, AdminReply::Reserved(RemoteReply::Credit { .. })),
            "{reply:?}"
        );
        assert_eq!(open(), none + told);
    }
}

/// A call that was numbered may stand in a copy of a journal with something to pay.
#[test]
fn a_number_whose_call_was_released_owes_nothing_later() {
    let rig = rig();
    let cell = rig.store.find_key(&rig.key).unwrap().place;
    let number = rig.store.next_number(&cell);
    let id = request(1, "1").id;
    rig.store.release(&cell, id, Some(number), Entry::none());
    for number in [number, rig.store.next_number(&cell)] {
        let owed = Orphan::Owed {
            debit: debit("2"),
            number: Some(number),
        };
        rig.store.take_over(&cell, id, owed, Entry::none()).unwrap();
    }
    assert_eq!(rig.store.figures(&cell).balance, credits("8"));
}

/// Whoever recovers is shown it, and the log of acts has nothing of that.
#[test]
fn what_the_start_recovered_is_shown_to_whoever_asks_and_not_logged() {
    let rig = rig();
    let report = RecoverReport {
        journals: 2,
        settled: 3,
        refused: vec!["a line".to_owned()],
        ..RecoverReport::default()
    };
    Ledger::Embedded(Arc::clone(&rig.store)).recovered(report.clone());
    let actor = Actor {
        id: "cli".to_owned(),
        name: "anna".to_owned(),
        role: crate::pure::operator::Role::Admin,
        address: None,
    };
    let op = AdminOp::Recover;
    for op in [AdminOp::Recover, AdminOp::By(Box::new(Acted { actor, op }))] {
        let shown = rig.store.run_blocking(op);
        assert_eq!(shown, Ok(AdminReply::Recovered(report.clone())));
    }
    rig.store.close();
    let file = rusqlite::Connection::open(rig.store.path()).unwrap();
    let acts: i64 = file
        .query_row("SELECT count(*) FROM acts", [], |row| row.get(0))
        .unwrap();
    assert_eq!(acts, 0);
}

#[test]
fn a_page_that_has_all_accounts_is_the_last() {
    let rig = rig();
    let create = AdminOp::AccountCreate {
        account: "other".parse().unwrap(),
        tier: Tier::Pro,
        quota_pico: None,
        terms: Default::default(),
    };
    rig.store.run_blocking(create).unwrap();
    for (limit, expected) in [(1, (1, Some("acme"))), (2, (2, None)), (3, (2, None))] {
        let query = AccountQuery {
            limit,
            ..AccountQuery::default()
        };
        let page = match rig
            .store
            .run_blocking(AdminOp::Account(AccountOp::Page(query)))
            .unwrap()
        {
            AdminReply::AccountPage(page) => page,
            other => panic!("{other:?}"),
        };
        let next = page.next.as_ref().map(|id| id.as_str());
        assert_eq!((page.accounts.len(), next), expected, "a limit of {limit}");
    }
}
