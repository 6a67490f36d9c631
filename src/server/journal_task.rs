//! The journal's thread: started with the ledger, and waited for at a stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::ledger::Ledger;
use crate::ledger::journal::{self, Journal};

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
