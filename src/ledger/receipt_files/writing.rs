//! How receipts get to the files of their days, and these to the disk.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Result, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::{PREFIX, SUFFIX, State, Writing};
use crate::failpoints::fault;
use crate::ledger::folder::{give_to_owner, make_for_unmapped};
use crate::pure::receipt::Receipt;
use crate::pure::time::Day;

/// What was written and is not on the disk yet.
#[derive(Default)]
struct Round {
    /// A day each.
    files: BTreeMap<Day, File>,
    /// Some of them may be new: the folder has to be brought to the disk, too.
    are_new: bool,
    /// How many receipts are in them.
    count: usize,
}

impl State {
    /// Writes all, each to the file of its day, and brings that to the disk. What cannot be written, or not be brought there, is kept for the
    /// next time.
    pub(super) fn write(&self, writing: &mut Writing) {
        let mut round = Round::default();
        let written = self.write_out(writing, &mut round);
        let synced = self.sync(&round);
        match synced {
            Ok(()) => drop(writing.receipts.drain(..round.count)),
            // After such an error what was written may be lost, and the next sync say nothing of it: all is written once more.
            Err(_) => writing.day = None,
        }
        let folder = self.folder.display();
        let before = writing.is_torn;
        match synced.and(written) {
            Ok(()) => {
                writing.is_torn = false;
                if before {
                    log::warn!("receipts can be written to {folder} again");
                }
            }
            Err(error) => {
                writing.is_torn = true;
                if !before {
                    log::error!("receipts cannot be written to {folder}, and wait: {error}");
                }
            }
        }
    }

    fn write_out(&self, writing: &mut Writing, round: &mut Round) -> Result<()> {
        while let Some(day) = writing.receipts.get(round.count).map(|receipt| receipt.resolved.day()) {
            if !round.files.contains_key(&day) {
                let file = self.begin(day, writing, round)?;
                round.files.insert(day, file);
            }
            let Some(mut file) = round.files.get(&day) else {
                return Ok(());
            };
            let left = writing.receipts.get(round.count..).unwrap_or_default();
            let is_other = |receipt: &Receipt| receipt.resolved.day() != day;
            let count = left.iter().position(is_other).unwrap_or(left.len()).min(AT_ONCE);
            let mut text = Vec::new();
            for receipt in left.iter().take(count) {
                match serde_json::to_writer(&mut text, receipt) {
                    Ok(()) => text.push(b'\n'),
                    Err(error) => log::error!(
                        "the receipt of request {} cannot be written: {error}",
                        receipt.billed.id
                    ),
                }
            }
            file.write_all(&text)?;
            round.count = round.count.saturating_add(count);
        }
        Ok(())
    }

    /// The day's file, at the beginning of a line. It is opened each time: whoever ships it may have moved it away.
    fn begin(&self, day: Day, writing: &mut Writing, round: &mut Round) -> Result<File> {
        let is_another = writing.day != Some(day);
        let is_torn = writing.is_torn || (is_another && self.ends_within_a_line(day));
        let (mut file, is_new) = self.open(day)?;
        writing.day = Some(day);
        // Another process that made it may have died before it brought the folder to the disk.
        round.are_new |= is_new || is_another;
        if is_torn {
            file.write_all(b"\n")?;
        }
        if writing.is_torn {
            // Else a disk that refuses each sync would have all receipts written each time, for as long as there is room.
            synced(&file)?;
        }
        Ok(file)
    }

    /// Whether the day's file ends within a line, as that of a process that found the disk full does. In doubt it does: an empty line does
    /// no harm.
    fn ends_within_a_line(&self, day: Day) -> bool {
        let path = self.folder.join(format!("{PREFIX}{day}{SUFFIX}"));
        let ends_with_a_line = || -> Result<bool> {
            let about = std::fs::metadata(&path)?;
            // A pipe is not read, for that could wait.
            if !about.is_file() || about.len() == 0 {
                return Ok(true);
            }
            let mut file = File::open(&path)?;
            let mut last = [0u8];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            Ok(last == *b"\n")
        };
        match ends_with_a_line() {
            Ok(ends) => !ends,
            Err(error) => error.kind() != ErrorKind::NotFound,
        }
    }

    /// The day's file, and whether it was made for that.
    pub(super) fn open(&self, day: Day) -> Result<(File, bool)> {
        let path = self.folder.join(format!("{PREFIX}{day}{SUFFIX}"));
        let mut options = OpenOptions::new();
        options.append(true).mode(0o600);
        let open = || -> Result<(File, bool)> {
            match options.clone().create_new(true).open(&path) {
                Ok(made) => {
                    // Of a command that root runs: the gateway goes on with it.
                    give_to_owner(&made, &path);
                    Ok((made, true))
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok((options.open(&path)?, false)),
                Err(error) => Err(error),
            }
        };
        match open() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                make_for_unmapped(&self.folder)?;
                open()
            }
            opened => opened,
        }
    }

    /// Brings what a round has written to the disk.
    fn sync(&self, round: &Round) -> Result<()> {
        round.files.values().try_for_each(synced)?;
        match round.are_new {
            true => folder_synced(&self.folder),
            false => Ok(()),
        }
    }
}

/// Brings a file or a folder to the disk. A pipe, and what else has no disk, is left alone.
fn synced(file: &File) -> Result<()> {
    fault("receipts-sync")?;
    if file.metadata()?.is_file() {
        return file.sync_data();
    }
    match file.sync_all() {
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::ReadOnlyFilesystem) => Ok(()),
        synced => synced,
    }
}

fn folder_synced(folder: &Path) -> Result<()> {
    match File::open(folder) {
        // One may be written and not be read.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        opened => synced(&opened?),
    }
}

/// The most receipts of one write: about half a megabyte.
const AT_ONCE: usize = 1_000;
