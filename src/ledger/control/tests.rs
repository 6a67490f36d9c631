//! How the owner answers, and what is asked again of the next one.

use super::*;
use crate::ledger::admin::credits::{CreditKind, CreditPost};
use crate::ledger::admin::operators::{Actor, OperatorOp};
use crate::ledger::admin::{Acted, KeyRef};
use crate::ledger::tests::redis_server::until;
use crate::ledger::tests::rig::key_create;
use crate::pure::ids::{AccountId, KeyDigest, KeyId, Tier};
use crate::pure::operator::Role;

/// What an owner with so many reads under way answers.
fn answered(store: &Arc<Embedded>, under_way: usize, op: &AdminOp) -> Result<AdminReply, AdminError> {
    let (asking, asked) = UnixStream::pair().unwrap();
    let mut text = serde_json::to_vec(op).unwrap();
    text.push(b'\n');
    (&asking).write_all(&text).unwrap();
    let reads = AtomicUsize::new(under_way);
    answer(&asked, &Arc::downgrade(store), &reads).unwrap();
    assert_eq!(reads.into_inner(), under_way);
    said(asking)
}

fn said(asking: UnixStream) -> Result<AdminReply, AdminError> {
    let mut line = String::new();
    BufReader::new(asking).read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

#[test]
fn reads_have_a_bound_and_acts_do_not_wait_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(&folder.path().join("ledger.db"), Clock::System).unwrap();
    let read = AdminOp::AccountList;
    assert!(answered(&store, 0, &read).is_ok());
    assert!(answered(&store, READS_MAX - 1, &read).is_ok());
    for under_way in [READS_MAX, READS_MAX + 1] {
        assert_eq!(answered(&store, under_way, &read), busy());
        let act = AdminOp::Maintenance { on: true };
        assert_eq!(
            answered(&store, under_way, &act),
            Ok(AdminReply::Maintenance { on: true })
        );
    }
}

/// It held up all others for half a minute.
#[test]
fn who_connects_and_says_nothing_holds_up_nobody_and_there_is_a_bound() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let store = Embedded::open(&path, Clock::System).unwrap();
    listen(&store).unwrap();
    let connected = || connect(&socket_path(&path)).unwrap();
    let mut silent = vec![connected()];
    let began = monotonic();
    let act = AdminOp::Maintenance { on: true };
    assert_eq!(ask_owner(&path, &act), Ok(AdminReply::Maintenance { on: true }));
    assert!(began.elapsed() < WAIT_MAX);
    // One more than there are places for; which of them is refused depends on when the one before had gone.
    silent.extend((0..CONNECTIONS_MAX).map(|_| connected()));
    for stream in &silent {
        stream.set_nonblocking(true).unwrap();
    }
    let is_told = |mut stream: &UnixStream| matches!(stream.read(&mut [0; 1]), Ok(1));
    until("one is told that too much is asked", || silent.iter().any(is_told));
}

/// They were hung up on: a command that had written its line was told that it is not known whether it was done.
#[test]
fn whoever_asks_an_owner_that_has_gone_is_told_that_nothing_was_done() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let store = Embedded::open(&path, Clock::System).unwrap();
    let weak = Arc::downgrade(&store);
    listen(&store).unwrap();
    let socket = socket_path(&path);
    store.close();
    drop(store);
    until("nobody has the ledger", || weak.strong_count() == 0);
    let asking: Vec<UnixStream> = (0..3).flat_map(|_| connect(&socket)).collect();
    let mut line = serde_json::to_vec(&AdminOp::Maintenance { on: true }).unwrap();
    line.push(b'\n');
    // Those that come later may find nobody.
    let told = asking.into_iter().filter_map(|stream| {
        (&stream).write_all(&line).ok()?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).ok()?;
        serde_json::from_str::<Result<AdminReply, AdminError>>(&line).ok()
    });
    let told: Vec<_> = told.collect();
    assert!(!told.is_empty());
    let stopped = Err(AdminError::Store(STOPPED.to_owned()));
    assert!(told.iter().all(|told| *told == stopped), "{told:?}");
}

/// In an upgrade the old process asks the new one, and told an operator that the request was wrong.
#[test]
fn a_conflict_is_one_for_who_asks_by_the_socket_and_an_earlier_version_reads_it_as_invalid() {
    use crate::ledger::control_socket::read_reply;
    let text = || "no".to_owned();
    for error in [
        AdminError::Conflict(text()),
        AdminError::Invalid(text()),
        AdminError::NoKey,
    ] {
        let reply = Err(error);
        let line = String::from_utf8(reply_line(&reply).unwrap()).unwrap();
        assert_eq!(read_reply(&line).unwrap(), reply);
        let earlier: Result<AdminReply, AdminError> = serde_json::from_str(&line).unwrap();
        let expected = match reply {
            Err(AdminError::Conflict(text)) => Err(AdminError::Invalid(text)),
            reply => reply,
        };
        assert_eq!(earlier, expected);
    }
    let done = Ok(AdminReply::Done);
    let line = String::from_utf8(reply_line(&done).unwrap()).unwrap();
    assert_eq!(read_reply(&line).unwrap(), done);
}

/// They had the texts of what they made, and were gone before they knew that they had made it.
#[test]
fn what_was_made_for_somebody_who_has_gone_is_revoked_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(&folder.path().join("ledger.db"), Clock::System).unwrap();
    let account: AccountId = "acme".parse().unwrap();
    let create = AdminOp::AccountCreate {
        account: account.clone(),
        tier: Tier::Pro,
        quota_pico: None,
        terms: Default::default(),
    };
    store.run_blocking(create).unwrap();
    let [old, own, lost, new, token] = [1, 2, 3, 4, 5].map(|number| KeyDigest::from_bytes([number; 32]));
    for kept in [&old, &own] {
        store.run_blocking(key_create("acme", kept)).unwrap();
    }
    let actor = Actor {
        id: "cli".to_owned(),
        name: "root".to_owned(),
        role: Role::Admin,
        address: None,
    };
    let by_somebody = |op| {
        AdminOp::By(Box::new(Acted {
            actor: actor.clone(),
            op,
        }))
    };
    let rotate = AdminOp::KeyRotate {
        key: KeyRef::Id(KeyId::of(&old)),
        digest: new.to_hex(),
        overlap_ms: 3_600_000,
    };
    let operator = AdminOp::Operator(OperatorOp::Create {
        digest: token.to_hex(),
        name: "ann".to_owned(),
        role: Role::Read,
        expires_in_ms: None,
    });
    // The first as commands of before there was a log: nobody's.
    for op in [key_create("acme", &lost), by_somebody(rotate), by_somebody(operator)] {
        let (asking, asked) = UnixStream::pair().unwrap();
        let mut text = serde_json::to_vec(&op).unwrap();
        text.push(b'\n');
        (&asking).write_all(&text).unwrap();
        drop(asking);
        answer(&asked, &Arc::downgrade(&store), &AtomicUsize::new(0)).unwrap_err();
    }
    let AdminReply::Keys { keys, .. } = store.run_blocking(AdminOp::KeyList { account }).unwrap() else {
        panic!("no keys");
    };
    for (digest, is_revoked) in [(old, false), (own, false), (lost, true), (new, true)] {
        let id = KeyId::of(&digest);
        let key = keys.iter().find(|key| key.id == id).unwrap();
        assert_eq!(key.revoked.is_some(), is_revoked, "{key:?}");
    }
    let listed = store.run_blocking(AdminOp::Operator(OperatorOp::List)).unwrap();
    let AdminReply::Operators { operators } = listed else {
        panic!("{listed:?}");
    };
    assert!(operators.len() == 1 && operators[0].revoked.is_some(), "{operators:?}");
}

/// What a command is answered by an owner that gives these answers, none where it only hangs up, and then is gone; and how many commands
/// that got.
fn answered_by(
    path: &Path,
    op: &AdminOp,
    answers: Vec<Option<Result<AdminReply, AdminError>>>,
) -> (Result<AdminReply, AdminError>, usize) {
    const NO_MORE: &str = "no more\n";
    let mut listener = Some(UnixListener::bind(socket_path(path)).unwrap());
    let answer_all = move || {
        let last = answers.len();
        for (number, answer) in (1..).zip(answers) {
            let accept = || listener.as_ref().unwrap().accept().unwrap().0;
            let (mut stream, mut line) = (accept(), String::new());
            // A line that is empty is a probe.
            while BufReader::new(&stream).read_line(&mut line).unwrap() == 0 {
                stream = accept();
            }
            if line == NO_MORE {
                return number - 1;
            }
            if number == last {
                listener = None; // Whoever asks again finds nobody.
            }
            if let Some(answer) = answer {
                tell(&stream, &answer).unwrap();
            }
        }
        last
    };
    std::thread::scope(|scope| {
        let owner = scope.spawn(answer_all);
        let answer = LedgerAccess::to_embedded(path).unwrap().run(op.clone());
        if let Ok(mut waits) = connect(&socket_path(path)) {
            waits.write_all(NO_MORE.as_bytes()).unwrap();
        }
        let commands = owner.join().unwrap();
        std::fs::remove_file(socket_path(path)).unwrap();
        (answer, commands)
    })
}

fn store_failed(why: &str) -> Result<AdminReply, AdminError> {
    Err(AdminError::Store(why.to_owned()))
}

#[test]
fn a_command_that_its_owner_has_not_begun_is_given_to_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let (act, read) = (AdminOp::Maintenance { on: true }, AdminOp::AccountList);
    let done = || Ok(AdminReply::Maintenance { on: true });
    let listed = || Ok(AdminReply::Accounts { accounts: Vec::new() });
    let stopped = || Some(store_failed(STOPPED));
    let answers = vec![stopped(), stopped(), Some(done())];
    assert_eq!(answered_by(&path, &act, answers), (done(), 3));
    let unread = store_failed(&StoreError::Unavailable(STOPPED.to_owned()).to_string());
    let answers = vec![Some(unread), None, Some(listed())];
    assert_eq!(answered_by(&path, &read, answers), (listed(), 3));
    assert_eq!(answered_by(&path, &read, vec![Some(busy())]), (busy(), 1));
    // Nobody has it any more: the command does.
    drop(Embedded::open(&path, Clock::System).unwrap());
    assert_eq!(answered_by(&path, &act, vec![stopped()]), (done(), 1));
    assert_eq!(answered_by(&path, &read, vec![None]), (listed(), 1));
    // But for what takes credit, which may be gone by what its calls have left in the journal.
    let takes = AdminOp::Credit(CreditOp::Post(CreditPost {
        account: "acme".parse().unwrap(),
        amount: Credits::from_pico(-1),
        reference: "typo".to_owned(),
        kind: CreditKind::Correction,
        note: None,
        allow_negative: false,
        as_available: false,
        is_payment: false,
    }));
    let actor = Actor {
        id: "cli".to_owned(),
        name: "root".to_owned(),
        role: Role::Admin,
        address: None,
    };
    let act = AdminOp::By(Box::new(Acted { actor, op: takes }));
    let stopped = || store_failed(STOPPED);
    assert_eq!(answered_by(&path, &act, vec![Some(stopped())]), (stopped(), 1));
}

#[test]
fn an_act_that_was_sent_and_not_answered_is_sent_once_and_said_to_be_unknown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let act = AdminOp::Maintenance { on: true };
    let (answer, commands) = answered_by(&path, &act, vec![None]);
    let says =
        "; it is not known whether it was done: look, and run it again where it was not; a reference counts once";
    assert!(
        matches!(&answer, Err(AdminError::Store(why)) if why.ends_with(says)),
        "{answer:?}"
    );
    assert_eq!(commands, 1);
}

#[test]
fn a_ledger_that_is_being_made_is_waited_for_and_one_that_is_not_there_is_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let path = data.join("ledger.db");
    assert!(matches!(LedgerAccess::to_existing(&path), Ok(None)));
    assert!(!data.exists());
    std::fs::create_dir(&data).unwrap();
    let lock = std::fs::File::create(path.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    let refused = LedgerAccess::to_existing(&path);
    assert!(matches!(refused, Err(StoreError::Owned(_))), "{refused:?}");
    lock.unlock().unwrap();
    assert!(matches!(LedgerAccess::to_existing(&path), Ok(None)));
    drop(Embedded::open(&path, Clock::System).unwrap());
    let found = LedgerAccess::to_existing(&path);
    assert!(matches!(found, Ok(Some(LedgerAccess::Own(_)))), "{found:?}");
}

#[test]
fn a_socket_that_cannot_be_removed_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let store = Embedded::open(&path, Clock::System).unwrap();
    std::fs::create_dir_all(socket_path(&path).join("full")).unwrap();
    let told = listen(&store).unwrap_err().to_string();
    let begins = format!("cannot listen on the control socket {}", socket_path(&path).display());
    assert!(told.contains(&begins) && told.contains("directory"), "{told}");
}
