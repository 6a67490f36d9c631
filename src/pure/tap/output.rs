//! What of a chunk goes downstream, put together without a copy as long as it is one run of the chunk's own bytes.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};

use super::Forward;

/// The output of one chunk.
pub(super) struct Output<'a> {
    chunk: &'a Bytes,
    /// What goes before `run`: bytes of other chunks, and runs of this one that a gap follows.
    before: BytesMut,
    run: Range<usize>,
}

impl<'a> Output<'a> {
    pub(super) fn new(chunk: &'a Bytes) -> Self {
        Output {
            chunk,
            before: BytesMut::new(),
            run: 0..0,
        }
    }

    /// These bytes of the chunk pass. Ranges come in order.
    pub(super) fn pass(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        if self.run.end != range.start {
            self.end_run();
            self.run = range;
        } else {
            self.run.end = range.end;
        }
    }

    /// Bytes that are not of the chunk pass.
    pub(super) fn insert(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.end_run();
            self.before.put_slice(bytes);
        }
    }

    pub(super) fn finish(mut self) -> Forward {
        if !self.before.is_empty() {
            self.end_run();
            return Forward::Replace(self.before.freeze());
        }
        if self.run == (0..self.chunk.len()) {
            return Forward::Unchanged;
        }
        Forward::Replace(self.chunk.slice(self.run))
    }

    fn end_run(&mut self) {
        let run = self.chunk.get(self.run.clone()).unwrap_or_default();
        self.before.put_slice(run);
        self.run = self.run.end..self.run.end;
    }
}
