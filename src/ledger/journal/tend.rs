//! What is done for a journal every now and then: it is brought to the disk, its file is looked for, and where there is none it is made.

use std::io;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::Journal;
use super::file::JournalFile;
use crate::failpoints::fault;

impl Journal {
    /// What has to be done every now and then ([`FLUSH_EVERY`](super::FLUSH_EVERY)): brings the journal to the disk, or makes it when there
    /// was none. One that was full takes calls again once it has room. One whose file was deleted or replaced takes no calls from then on
    /// until the file is back; and once no call stands in it, another is made. One that was closed is left alone. Blocks.
    pub fn tend(&self) {
        if self.closed.load(Ordering::Relaxed) {
            return;
        }
        let Some(file) = self.file.load_full() else {
            return self.make();
        };
        self.look_for(&file);
        // Calls may go elsewhere for as long as it says that it is full, so that none of them finds the room.
        if self.full.load(Ordering::Relaxed) && !self.is_moved() && file.make_room().is_ok() {
            self.has_room();
        }
        // Linux takes pages for written of which it has told an error: it would say now that all is on the disk.
        let dirty = match self.unflushed.load(Ordering::Relaxed) {
            true => file.dirty(),
            false => Ok(()),
        };
        let flushed = fault("journal-flush").and_then(|()| file.flush());
        self.flushed(dirty.and(flushed));
    }

    /// Tells that calls can be written again, where the journal was full.
    pub(super) fn has_room(&self) {
        if self.full.swap(false, Ordering::Relaxed) {
            log::warn!("the journal takes calls again");
        }
    }

    /// Whether the file was not in its place when it was last looked for.
    pub(super) fn is_moved(&self) -> bool {
        self.moved.load(Ordering::Relaxed)
    }

    /// Tells once that the file is not in its place, and once that it is again.
    fn look_for(&self, file: &JournalFile) {
        let looked = file.look_for_file();
        let before = self.moved.swap(looked.is_err(), Ordering::Relaxed);
        match (before, looked) {
            (false, Err(why)) => {
                log::error!(
                    "MONEY: {why}; paid calls are refused, and those that run are lost if this process is killed: put the file back, or \
                     wait until they have ended"
                );
                self.says_why(why);
            }
            (true, Ok(())) => {
                log::warn!("{} is the journal again", file.path().display());
                self.says_why(String::new());
            }
            // It has taken no call since it was missed, and needs no file any more.
            (true, Err(_)) if file.in_use() == 0 => self.make(),
            (true, Err(_)) | (false, Ok(())) => {}
        }
    }

    /// Why calls are refused, or that they are not.
    fn says_why(&self, why: String) {
        *self.why.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Tells once that the disk refuses the journal, and once that it takes it again.
    fn flushed(&self, flushed: io::Result<()>) {
        let before = self.unflushed.swap(flushed.is_err(), Ordering::Relaxed);
        match (before, flushed) {
            (false, Err(error)) => {
                log::error!(
                    "MONEY: the journal cannot be brought to the disk, a machine that dies now loses calls: {error}"
                );
            }
            (true, Ok(())) => log::warn!("the journal can be brought to the disk again"),
            (true, Err(_)) | (false, Ok(())) => {}
        }
    }
}
