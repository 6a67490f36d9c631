//! Credit entries whose write fails, or seems to: memory and the file agree all the same.

use std::collections::BTreeMap;

use super::*;
use crate::clock::monotonic;
use crate::ledger::admin::accounts::AccountOp;
use crate::ledger::admin::credits::{CreditKind, CreditOp, CreditPost, Posted};
use crate::ledger::admin::operators::OperatorOp;
use crate::ledger::admin::{AdminError, KeyRef};
use crate::ledger::embedded::load::take_lock;
use crate::ledger::embedded::shared::Shared;
use crate::ledger::terms::{AccountStatus, TermsChange};
use crate::pure::ids::KeyId;
use crate::pure::limits::LimitOverrides;
use crate::pure::operator::{Role, token};

/// A file to which no entry can be added.
const FULL: &str = "CREATE TRIGGER full BEFORE INSERT ON topups BEGIN SELECT RAISE(FAIL, 'full'); END";

pub(super) struct Thread {
    _folder: tempfile::TempDir,
    pub(super) shared: Arc<Shared>,
    pub(super) committer: Committer,
    pub(super) path: std::path::PathBuf,
}

/// A ledger with 10 credits, whose thread is this one.
pub(super) fn thread() -> Thread {
    thread_of(rig(), 0, Clock::manual(NOW))
}

/// The same over a ledger that is there, which keeps receipts for so many days.
pub(super) fn thread_of(rig: Rig, receipt_days: u32, clock: Clock) -> Thread {
    rig.store.close();
    let path = rig.folder.path().join("other.db");
    std::fs::copy(rig.folder.path().join("ledger.db"), &path).unwrap();
    let mut database = Database::open(&path).unwrap();
    let bounds = ReceiptBounds::days(receipt_days);
    database.keep_receipts(bounds, clock.now().day()).unwrap();
    let shared = Arc::new(Shared::load(&database, clock, take_lock(&path).unwrap()).unwrap());
    let (_commands, inbox) = std::sync::mpsc::channel();
    let committer = Committer::new(Arc::clone(&shared), database, path.clone(), inbox).unwrap();
    Thread {
        _folder: rig.folder,
        shared,
        committer,
        path,
    }
}

impl Thread {
    fn post(&mut self, amount: &str, reference: &str) -> Result<Posted, AdminError> {
        let post = CreditPost {
            kind: CreditKind::Correction,
            ..CreditPost::top_up("acme".parse().unwrap(), credits(amount), reference.to_owned())
        };
        match self.committer.execute(AdminOp::Credit(CreditOp::Post(post)))? {
            AdminReply::Posted(posted) => Ok(posted),
            other => panic!("{other:?}"),
        }
    }

    /// In memory, which is what the file has.
    fn balance(&self) -> Credits {
        let (balance, stored) = self.balances();
        assert_eq!(balance, stored, "memory and file");
        balance
    }

    /// In memory, and in the file.
    fn balances(&self) -> (Credits, Credits) {
        let cell = Arc::clone(&self.shared.accounts.read().unwrap()[&"acme".parse().unwrap()]);
        let balance = cell.state().balance();
        let stored = self.committer.database.accounts().unwrap().remove(0);
        (balance, stored.kept.balance)
    }

    /// No entry can be written from now on.
    fn fill(&self) -> rusqlite::Connection {
        let file = rusqlite::Connection::open(&self.path).unwrap();
        file.execute_batch(FULL).unwrap();
        file
    }
}

#[test]
fn a_post_that_failed_and_was_durable_counts() {
    let mut thread = thread();
    for (amount, balance) in [("-3", "7"), ("2", "9")] {
        thread.committer.database.fails_after_commit = true;
        assert!(thread.post(amount, amount).unwrap().added);
        assert_eq!(thread.balance(), credits(balance));
        assert!(!thread.post(amount, amount).unwrap().added);
        assert_eq!(thread.balance(), credits(balance));
    }
}

/// The write fails, and the file does not say whether it has the entry: the next post finds that it has.
#[test]
fn a_post_that_was_doubtful_counts_once_it_is_known() {
    let mut thread = thread();
    for (amount, balance) in [("-3", "7"), ("2", "9")] {
        thread.committer.database.fails_after_commit = true;
        thread.committer.database.fails_to_look = true;
        assert!(matches!(thread.post(amount, amount), Err(AdminError::Store(_))));
        let again = thread.post(amount, amount).unwrap();
        assert_eq!((again.added, again.balance), (false, credits(balance)));
        assert_eq!(thread.balance(), credits(balance));
    }
    assert!(thread.post("1", "other").unwrap().added);
    assert_eq!(thread.balance(), credits("10"));
}

/// What may be taken in the file is spent by no call: it was given back to memory at once.
#[test]
fn what_a_doubtful_post_takes_stays_taken_until_the_file_says_that_it_has_it_not() {
    for (next, balance) in [("-3", "7"), ("1", "11")] {
        let mut thread = thread();
        let file = thread.fill();
        thread.committer.database.fails_to_look = true;
        assert!(matches!(thread.post("-3", "-3"), Err(AdminError::Store(_))));
        assert_eq!(thread.balances(), (credits("7"), credits("10")));
        file.execute_batch("DROP TRIGGER full").unwrap();
        assert!(thread.post(next, next).unwrap().added, "{next}");
        assert_eq!(thread.balance(), credits(balance), "{next}");
    }
    // The file has it.
    let mut thread = thread();
    thread.committer.database.fails_after_commit = true;
    thread.committer.database.fails_to_look = true;
    assert!(matches!(thread.post("-3", "-3"), Err(AdminError::Store(_))));
    assert_eq!(thread.balance(), credits("7"));
    assert!(!thread.post("-3", "-3").unwrap().added);
    assert_eq!(thread.balance(), credits("7"));
}

/// Its successor takes the balance from the file.
#[test]
fn a_ledger_changes_hands_though_the_file_does_not_say_whether_it_has_an_entry() {
    let mut thread = thread();
    thread.committer.database.fails_after_commit = true;
    thread.committer.database.fails_to_look = true;
    assert!(matches!(thread.post("2", "2"), Err(AdminError::Store(_))));
    thread.committer.database.fails_to_look = true;
    thread.committer.hand_over().unwrap();
    assert_eq!(thread.balances(), (credits("10"), credits("12")));
}

/// The customer could not use it until somebody posted another entry to the same account.
#[test]
fn the_file_is_asked_for_a_doubtful_entry_without_another_post() {
    let mut thread = thread();
    let file = thread.fill();
    thread.committer.database.fails_to_look = true;
    assert!(matches!(thread.post("-3", "-3"), Err(AdminError::Store(_))));
    file.execute_batch("DROP TRIGGER full").unwrap();
    // It does not say: it is asked again later.
    thread.committer.database.fails_to_look = true;
    let asked = monotonic();
    thread.committer.do_what_is_due();
    assert_eq!(thread.balances(), (credits("7"), credits("10")));
    let due_at = &mut thread.committer.doubtful.due_at;
    assert!(due_at.replace(monotonic()).is_some_and(|at| at > asked));
    thread.committer.do_what_is_due();
    assert_eq!(thread.balance(), credits("10"));
    assert_eq!(thread.committer.doubtful.due_at, None);
    // A ledger that is audited asks before that. The file has this one: from then on the end of the credit is told again.
    let cell = Arc::clone(&thread.shared.accounts.read().unwrap()[&"acme".parse().unwrap()]);
    let denial = cell.state().reserve(&request(1, "100"), NOW).unwrap_err();
    let tells = || cell.told.to_tell(&denial, credits("100"), NOW).is_some();
    assert_eq!([tells(), tells()], [true, false]);
    thread.committer.database.fails_after_commit = true;
    thread.committer.database.fails_to_look = true;
    assert!(matches!(thread.post("2", "2"), Err(AdminError::Store(_))));
    assert_eq!(thread.balances(), (credits("10"), credits("12")));
    thread.committer.commit_and_resolve().unwrap();
    assert_eq!(thread.balance(), credits("12"));
    assert_eq!([tells(), tells()], [true, false]);
}

/// What the file has under the reference is another entry: that is not what could not be written.
#[test]
fn another_entry_with_the_reference_is_not_the_one_whose_write_failed() {
    let mut thread = thread();
    let post = |amount| CreditPost::top_up("acme".parse().unwrap(), credits(amount), "A".to_owned());
    for (amount, is_there) in [("10", true), ("11", false)] {
        thread.committer.database.fails_after_commit = true;
        assert_eq!(thread.committer.write(&post(amount)).is_ok(), is_there, "{amount}");
    }
}

#[test]
fn a_post_that_cannot_be_written_changes_nothing() {
    let mut thread = thread();
    let file = thread.fill();
    for amount in ["-3", "2"] {
        let failed = thread.post(amount, amount);
        assert!(
            matches!(&failed, Err(AdminError::Store(text)) if text.contains("full")),
            "{failed:?}"
        );
        assert_eq!(thread.balance(), credits("10"));
    }
    file.execute_batch("DROP TRIGGER full").unwrap();
    assert!(thread.post("-3", "-3").unwrap().added);
    assert_eq!(thread.balance(), credits("7"));
}

/// Terms, entries and their notes are there after a start, and a file that an earlier version has written in meanwhile opens.
#[test]
fn terms_and_entries_outlive_the_process() {
    let rig = rig();
    let change = TermsChange {
        status: Some(AccountStatus::Suspended),
        low_balance_pico: Some(Some(5)),
        metadata: [("a".to_owned(), Some("b".to_owned()))].into(),
    };
    let account: AccountId = "acme".parse().unwrap();
    let terms = AdminOp::Account(AccountOp::Terms {
        account: account.clone(),
        change,
    });
    let AdminReply::Account(view) = rig.store.run_blocking(terms).unwrap() else {
        panic!("no account");
    };
    let post = CreditPost {
        note: Some("a slip".to_owned()),
        kind: CreditKind::Refund,
        ..CreditPost::top_up(account.clone(), credits("-4"), "R".to_owned())
    };
    rig.store.run_blocking(AdminOp::Credit(CreditOp::Post(post))).unwrap();
    rig.store.close();
    let file = rusqlite::Connection::open(rig.folder.path().join("ledger.db")).unwrap();
    // As earlier versions write: columns by name, without those that they do not know.
    file.execute_batch(
        "INSERT INTO topups (account, reference, amount, at) VALUES ('acme', 'old ', 5, 7);
         UPDATE accounts SET balance = balance + 5 WHERE id = 'acme';
         INSERT INTO accounts (id, tier, quota, balance, month, month_used, created) VALUES ('old', 'free', NULL, 0, 0, 0, 1);",
    )
    .unwrap();
    drop(file);
    let Rig { folder, store, .. } = rig;
    drop(store);
    let store = open(&folder);
    let AdminReply::Account(after) = store
        .run_blocking(AdminOp::AccountShow {
            account: account.clone(),
        })
        .unwrap()
    else {
        panic!("no account");
    };
    assert_eq!(after.record, view.record);
    let list = CreditOp::List {
        account,
        limit: 9,
        before: None,
    };
    let AdminReply::CreditPage(page) = store.run_blocking(AdminOp::Credit(list)).unwrap() else {
        panic!("no entries");
    };
    let told: Vec<_> = page
        .entries
        .iter()
        .map(|entry| {
            (
                entry.reference.as_str(),
                entry.kind,
                entry.note.as_deref(),
                entry.balance,
            )
        })
        .collect();
    let expected = [
        ("R", CreditKind::Refund, Some("a slip"), Some(credits("6"))),
        ("A", CreditKind::TopUp, None, Some(credits("10"))),
        ("old ", CreditKind::TopUp, None, None),
    ];
    assert_eq!(told, expected);
    // No entry of this version is known by such a reference; that one counts once all the same.
    let post = |reference: &str| {
        let post = CreditPost::top_up("acme".parse().unwrap(), Credits::from_pico(5), reference.to_owned());
        store.run_blocking(AdminOp::Credit(CreditOp::Post(post)))
    };
    assert!(matches!(
        post("old "),
        Ok(AdminReply::Posted(Posted { added: false, .. }))
    ));
    assert!(matches!(post("new "), Err(AdminError::Invalid(_))));
    assert_eq!(audit(&store).findings, []);
}

fn create_key(number: u8) -> AdminOp {
    AdminOp::KeyCreate {
        digest: ApiKey::from_random("tg_", [number; 32]).digest().to_hex(),
        account: "acme".parse().unwrap(),
        tier: None,
        domains: Vec::new(),
        expires_in_ms: None,
        limits: LimitOverrides::default(),
        settings: Box::default(),
    }
}

/// The text of a key is shown with the command's answer alone: it is there, it is not, or the error says that nobody knows.
#[test]
fn a_key_whose_write_failed_is_made_when_the_file_has_it() {
    let mut thread = thread();
    thread.committer.database.fails_after_commit = true;
    let made = thread.committer.execute(create_key(11));
    let Ok(AdminReply::Key(key)) = made else {
        panic!("{made:?}")
    };
    let rotate = AdminOp::KeyRotate {
        key: KeyRef::Id(key.id.clone()),
        digest: ApiKey::from_random("tg_", [12; 32]).digest().to_hex(),
        overlap_ms: 0,
    };
    thread.committer.database.fails_after_commit = true;
    let rotated = thread.committer.execute(rotate);
    assert!(matches!(rotated, Ok(AdminReply::Key(_))), "{rotated:?}");
    let create = AdminOp::Operator(OperatorOp::Create {
        digest: token([3; 32]).digest().to_hex(),
        name: "anna".to_owned(),
        role: Role::Read,
        expires_in_ms: None,
    });
    thread.committer.database.fails_after_commit = true;
    let created = thread.committer.execute(create);
    assert!(matches!(created, Ok(AdminReply::Operator(_))), "{created:?}");
    thread.committer.database.fails_after_commit = true;
    thread.committer.database.fails_to_look = true;
    let unknown = thread.committer.execute(create_key(14));
    let Err(AdminError::Store(text)) = unknown else {
        panic!("{unknown:?}")
    };
    assert!(
        text.contains("whether the key key_") && text.contains("is not known, and nobody has its text"),
        "{text}"
    );
    // Memory and file agree on what there is.
    let path = thread.path.clone();
    let keys = |shared: &Shared| -> BTreeMap<KeyId, bool> {
        let keys = shared.keys.read().unwrap();
        keys.values()
            .map(|key| (key.record.id.clone(), key.record.revoked.is_some()))
            .collect()
    };
    let before = keys(&thread.shared);
    drop(thread.committer);
    drop(thread.shared.lock.lock().unwrap().take());
    let database = Database::open(&path).unwrap();
    let mut again = keys(&Shared::load(&database, Clock::manual(NOW), take_lock(&path).unwrap()).unwrap());
    assert_eq!(again.len(), before.len() + 1, "the one of which nobody knows");
    again.retain(|id, _| before.contains_key(id));
    assert_eq!(again, before);
    assert_eq!(before.get(&key.id), Some(&true));
}
