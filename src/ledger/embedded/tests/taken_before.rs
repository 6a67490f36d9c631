//! Calls that a journal still has and that were taken before: by a process of before, or from a journal that was read while its process lived.

use std::sync::mpsc;

use super::posts::{Thread, thread};
use super::*;
use crate::ledger::Orphan;
use crate::ledger::journal::{Intent, Journal};
use crate::ledger::tests::rig::request_id;
use crate::pure::ids::KeyId;
use crate::pure::money::{ListPrice, Markup, Pricing, ProviderPrice};
use crate::pure::request_body::{Endpoint, PromptLimits};

impl Thread {
    /// The ledger, and what its thread is told, which is this one.
    fn store(&self) -> (Embedded, mpsc::Receiver<Command>) {
        let (commands, told) = mpsc::channel();
        let store = Embedded {
            shared: Arc::clone(&self.shared),
            commands: Mutex::new(commands),
            reports: Reports::open(&self.path).unwrap(),
            receipts: ReceiptBounds::days(0),
            opened: NOW.day(),
            forgetting: Default::default(),
            thread: Mutex::new(None),
            path: self.path.clone(),
        };
        (store, told)
    }

    fn cell(&self) -> Arc<EmbeddedAccount> {
        Arc::clone(&self.shared.accounts.read().unwrap()[&"acme".parse().unwrap()])
    }
}

/// A journal, and where its files are.
struct Kept {
    folder: tempfile::TempDir,
    journal: Arc<Journal>,
}

impl Kept {
    fn new() -> Kept {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path());
        Kept { folder, journal }
    }

    /// The entry of a call that has its debit.
    fn entry(&self, number: CallNumber) -> Entry {
        let free: ListPrice = "0".parse::<ProviderPrice>().unwrap().with_markup(Markup::default());
        let intent = Intent {
            id: request_id(1),
            account: &"acme".parse().unwrap(),
            key: &KeyId::from("key_x".to_owned()),
            model: "a/m",
            pricing: Pricing {
                prompt: free,
                completion: free,
            },
            limits: PromptLimits {
                image_tokens_each: 1000,
                context_length: 8192,
            },
            text_bytes: 0,
            endpoint: Endpoint::Chat,
            end_user: None,
        };
        let mut entry = self.journal.begin(&intent, b"{}").unwrap();
        entry.owe(&debit("1"), number);
        entry
    }

    /// Whether something stands in it: else closing it deletes its files.
    fn stands(&self) -> bool {
        self.journal.close();
        std::fs::read_dir(self.folder.path()).unwrap().count() > 0
    }
}

fn owed(number: CallNumber) -> Orphan {
    Orphan::Owed {
        debit: debit("1"),
        number: Some(number),
    }
}

/// The file has it, and may lose it when the machine dies.
#[test]
fn a_debit_that_the_file_has_keeps_its_place_until_that_is_on_the_disk() {
    let mut thread = thread();
    let ((store, told), kept, cell) = (thread.store(), Kept::new(), thread.cell());
    let number = store.next_number(&cell);
    assert_eq!(
        store.take_over(&cell, request_id(1), owed(number), Entry::none()),
        Ok(true)
    );
    thread.committer.commit().unwrap();
    thread.committer.sync(true).unwrap();
    thread.committer.sync_at = None;
    assert!(told.try_iter().all(|command| matches!(command, Command::Commit)));

    let entry = kept.entry(number);
    assert_eq!(store.take_over(&cell, request_id(1), owed(number), entry), Ok(false));
    assert!(kept.stands());
    assert!(matches!(told.try_recv(), Ok(Command::Commit)), "nothing else follows");
    thread.committer.commit().unwrap();
    assert!(kept.stands());
    assert!(thread.committer.sync_at.is_some());
    thread.committer.sync(true).unwrap();
    assert!(!kept.stands());
    assert_eq!(store.figures(&cell).balance, credits("9"));
}

/// It was read in the journal of a process that lived then, and waits to be written.
#[test]
fn a_debit_that_waits_to_be_written_keeps_its_place_until_it_is() {
    let mut thread = thread();
    let ((store, _told), kept, cell) = (thread.store(), Kept::new(), thread.cell());
    let number = store.next_number(&cell);
    store.take_from_predecessor(&"acme".parse().unwrap(), request_id(1), debit("1"), number);
    let entry = kept.entry(number);
    assert_eq!(store.take_over(&cell, request_id(1), owed(number), entry), Ok(false));
    let file = rusqlite::Connection::open(&thread.path).unwrap();
    file.execute_batch("CREATE TRIGGER full BEFORE UPDATE ON accounts BEGIN SELECT RAISE(FAIL, 'full'); END")
        .unwrap();
    thread.committer.commit().unwrap_err();
    thread.committer.sync(true).unwrap();
    assert!(kept.stands());
    file.execute_batch("DROP TRIGGER full").unwrap();
    thread.committer.commit().unwrap();
    assert!(kept.stands());
    thread.committer.sync(true).unwrap();
    assert!(!kept.stands());
}

/// Its call came to nothing, and it was told before: in an older copy of the journal it may stand with something to pay.
#[test]
fn a_call_that_was_given_back_before_keeps_its_place_until_that_is_on_the_disk() {
    let mut thread = thread();
    let ((store, _told), kept, cell) = (thread.store(), Kept::new(), thread.cell());
    let number = store.next_number(&cell);
    store.release(&cell, request_id(1), Some(number), Entry::none());
    store.release(&cell, request_id(1), Some(number), kept.entry(number));
    assert!(kept.stands());
    thread.committer.commit().unwrap();
    thread.committer.sync(true).unwrap();
    assert!(!kept.stands());
}

/// A successor wrote it and died before it was on the disk.
#[test]
fn a_debit_that_a_successor_took_keeps_its_place_until_that_is_on_the_disk() {
    let mut thread = thread();
    let (kept, cell) = (Kept::new(), thread.cell());
    let number = CallNumber::new(thread.shared.producer.current(), 1);
    let queue = |entry| {
        let queued = super::thread::queued(&cell, number, debit("1"));
        thread
            .shared
            .queue
            .lock()
            .unwrap()
            .push(QueuedDebit { entry, ..queued });
    };
    queue(Entry::none());
    thread.committer.commit().unwrap();
    queue(kept.entry(number));
    thread.shared.read_anew(&thread.committer.database).unwrap();
    assert!(thread.shared.queue.lock().unwrap().is_empty());
    assert!(kept.stands());
    thread.committer.commit().unwrap();
    thread.committer.sync(true).unwrap();
    assert!(!kept.stands());
    let balance = cell.state().balance();
    assert_eq!(balance, credits("9"));
}
