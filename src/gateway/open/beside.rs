//! Opening the ledger, and the thread that tends the journal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::config::Config;
use crate::ledger;
use crate::ledger::journal;
use crate::ledger::journal::Journal;
use crate::ledger::{Ledger, StoreError};

/// A command may own the embedded ledger for a moment, also while it changes hands.
pub(super) fn open_ledger(config: &Config) -> Result<Ledger, StoreError> {
    let started = crate::clock::monotonic();
    loop {
        match ledger::open(config) {
            Err(StoreError::Owned(_)) if started.elapsed() < OWNED_MAX => std::thread::sleep(OWNED_PAUSE),
            opened => return opened,
        }
    }
}

/// The thread that tends the journal.
pub(super) struct JournalTask {
    stopped: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl JournalTask {
    pub(super) fn start(journal: &Arc<Journal>, ledger: &Ledger) -> std::io::Result<JournalTask> {
        let stopped = Arc::new(AtomicBool::new(false));
        let (journal, ledger, told) = (Arc::clone(journal), ledger.clone(), Arc::clone(&stopped));
        let keep = move || journal::recover::keep(&journal, &ledger, &told);
        let thread = std::thread::Builder::new().name("journal".to_owned()).spawn(keep)?;
        Ok(JournalTask {
            stopped,
            thread: Some(thread),
        })
    }

    /// Ends the thread, so that it hands nothing more to the ledger.
    pub(super) fn stop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            if thread.join().is_err() {
                log::error!("the journal's thread panicked");
            }
        }
    }
}

/// How long another process may own the ledger before that is an error.
const OWNED_MAX: std::time::Duration = std::time::Duration::from_secs(2);
const OWNED_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);
