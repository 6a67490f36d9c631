//! How far long work is.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use super::output::counted;
use crate::clock::monotonic;

/// How far long work is, on a line of the terminal that is gone when it is done.
pub(super) struct Progress {
    is_shown: bool,
    last: Option<Instant>,
}

impl Progress {
    pub(super) fn new() -> Progress {
        Progress {
            is_shown: std::io::stderr().is_terminal(),
            last: None,
        }
    }

    pub(super) fn show(&mut self, count: u64, what: &str) {
        if !self.is_shown || self.last.is_some_and(|last| last.elapsed() < PROGRESS_EVERY) {
            return;
        }
        self.last = Some(monotonic());
        self.write(&format!("{} read", counted(count, what)));
    }

    fn write(&mut self, text: &str) {
        // What comes next starts at the line's beginning, over what is erased. Nobody misses it where it cannot be written.
        let mut terminal = std::io::stderr().lock();
        self.is_shown = write!(terminal, "\r\x1b[K{text}\r")
            .and_then(|()| terminal.flush())
            .is_ok();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown && self.last.is_some() {
            self.write("");
        }
    }
}

const PROGRESS_EVERY: Duration = Duration::from_millis(200);
