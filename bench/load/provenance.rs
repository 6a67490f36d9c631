//! Which program was measured, and when: the commit and the date of a run.

use std::{process::Command, time::SystemTime};

use serde::Serialize;
use time::OffsetDateTime;

use crate::process;

/// What makes figures comparable.
#[derive(Serialize)]
pub(crate) struct Provenance {
    /// The commit that the tree was at, and whether its files differ from it. None outside a repository.
    pub(crate) commit: Option<String>,
    /// In UTC, to the minute.
    pub(crate) date: String,
    pub(crate) command: String,
}

impl Provenance {
    /// Of this moment, this directory and this command line.
    pub(crate) fn look(command: String) -> Self {
        Self {
            commit: commit(),
            date: date(SystemTime::now().into()),
            command,
        }
    }

    /// A line for the report.
    pub(crate) fn text(&self) -> String {
        let commit = self.commit.as_deref().unwrap_or("unknown");
        format!("Commit {commit}, {}", self.date)
    }
}

fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(arguments);
        process::run(command).ok()
    };
    let commit = git(&["rev-parse", "HEAD"])?;
    // What the bench itself writes is no change of the program.
    let changes = git(&[
        "status",
        "--porcelain",
        "--untracked-files=no",
        "--",
        ".",
        ":!bench/figures",
    ])?;
    let dirty = if changes.trim().is_empty() { "" } else { " with changes" };
    Some(format!("{}{dirty}", commit.trim()))
}

/// As `2026-11-25 09:30 UTC`.
pub(crate) fn date(at: OffsetDateTime) -> String {
    let (date, hour, minute) = (at.date(), at.hour(), at.minute());
    let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}
