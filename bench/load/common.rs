//! What every part of the bench uses: its result, and a line of progress.

use std::io::{self, Write};

/// Errors here are told to the user and not told apart.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A line of progress. A closed stderr is no reason to stop measuring.
pub(crate) fn say(line: &str) {
    writeln!(io::stderr(), "{line}").ok();
}
