//! The file of prompts: blocks that hold the texts of the calls that run, wiped when a call ends.

use std::io;
use std::os::unix::fs::FileExt;

use super::{Free, JournalFile, numbers};
use crate::ledger::journal::prompt_place::PromptPlace;

/// The blocks that hold a prompt, in order.
#[derive(Debug, Default)]
pub(in crate::ledger::journal) struct Blocks {
    pub(super) numbers: Vec<u32>,
    pub(super) bytes: usize,
}

impl JournalFile {
    /// Wipes a prompt and frees its place.
    pub(in crate::ledger::journal) fn release_prompt(&self, blocks: Blocks) {
        if !blocks.numbers.is_empty() {
            self.wipe(&blocks);
            self.free().blocks.extend(blocks.numbers.iter().rev());
        }
    }

    /// The prompt that was kept, when all of it is there and the disk can read it. It is read from the file: what the disk cannot read ends the
    /// process when it is met in a mapping.
    pub(in crate::ledger::journal) fn prompt(&self, place: PromptPlace) -> Option<Vec<u8>> {
        let bytes = usize::try_from(place.bytes)
            .ok()
            .filter(|bytes| *bytes <= PROMPT_BYTES_MAX)?;
        let mut prompt = Vec::with_capacity(bytes);
        let mut number = place.first_block;
        while prompt.len() < bytes {
            let index = u64::from(number).checked_sub(1)?;
            let at = index.checked_mul(u64::try_from(BLOCK_BYTES).ok()?)?;
            let mut block = [0; BLOCK_BYTES];
            let read = self.prompts.as_ref()?.file().read_exact_at(&mut block, at);
            if let Err(error) = read {
                log::debug!("a prompt of {} cannot be read: {error}", self.path.display());
                return None;
            }
            let wanted = (bytes - prompt.len()).min(BLOCK_TEXT_BYTES);
            let (next, text) = block.split_first_chunk::<4>()?;
            prompt.extend_from_slice(text.get(..wanted)?);
            number = u32::from_le_bytes(*next);
        }
        (crc32fast::hash(&prompt) == place.checksum && bytes > 0).then_some(prompt)
    }

    pub(super) fn grow_prompts(&self, free: &mut Free) -> io::Result<()> {
        let segment = free.prompt_segments;
        let none = || io::Error::new(io::ErrorKind::NotFound, "the journal has no prompts");
        self.prompts.as_ref().ok_or_else(none)?.grow(segment)?;
        free.prompt_segments += 1;
        // Block numbers count from 1.
        free.blocks
            .extend(numbers(segment * SEGMENT_BLOCKS + 1, SEGMENT_BLOCKS));
        Ok(())
    }

    /// None is no harm: without its prompt a call that dies is billed by an estimate of it.
    pub(super) fn take_blocks(&self, free: &mut Free, bytes: usize) -> Vec<u32> {
        if bytes > PROMPT_BYTES_MAX {
            return Vec::new();
        }
        let wanted = bytes.div_ceil(BLOCK_TEXT_BYTES);
        while free.blocks.len() < wanted {
            if self.grow_prompts(free).is_err() {
                return Vec::new();
            }
        }
        let from = free.blocks.len() - wanted;
        let mut numbers = free.blocks.split_off(from);
        numbers.reverse();
        numbers
    }

    pub(super) fn write_prompt(&self, numbers: &[u32], prompt: &[u8]) {
        let nexts = numbers.iter().skip(1).copied().chain([0]);
        for ((number, next), text) in numbers.iter().zip(nexts).zip(prompt.chunks(BLOCK_TEXT_BYTES)) {
            if let Some(block) = self.block(*number) {
                // SAFETY: `block` points to BLOCK_BYTES mapped bytes that belong to this claim alone, and `text` is at most
                // BLOCK_TEXT_BYTES long.
                unsafe {
                    std::ptr::copy_nonoverlapping(next.to_le_bytes().as_ptr(), block, 4);
                    std::ptr::copy_nonoverlapping(text.as_ptr(), block.add(4), text.len());
                }
            }
        }
    }

    fn wipe(&self, blocks: &Blocks) {
        let mut left = blocks.bytes;
        for number in &blocks.numbers {
            let used = left.min(BLOCK_TEXT_BYTES);
            if let Some(block) = self.block(*number) {
                // SAFETY: as in `write_prompt`.
                unsafe { std::ptr::write_bytes(block.add(4), 0, used) };
            }
            left -= used;
        }
    }

    fn block(&self, number: u32) -> Option<*mut u8> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        self.prompts.as_ref()?.at(index.checked_mul(BLOCK_BYTES)?, BLOCK_BYTES)
    }
}

pub(super) const BLOCK_BYTES: usize = 1024;
/// A block begins with the number of the next.
const BLOCK_TEXT_BYTES: usize = BLOCK_BYTES - 4;
/// 4 MiB of prompts; 64 of them are 256 MiB.
pub(super) const SEGMENT_BLOCKS: usize = 4096;
/// Longest prompt that is kept.
const PROMPT_BYTES_MAX: usize = 8 << 20;
