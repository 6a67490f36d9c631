//! The answer of a call with an `Idempotency-Key`, as it leaves to its client: kept to be given again.
//!
//! It is copied: a piece that is passed on is a view of a whole read of the connection, which it would keep alive.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use crate::config::Idempotency;
use crate::gateway::context::{Answer as Passing, Ctx};
use crate::pure::idempotency::Answer;

/// What has left of an answer.
pub(in crate::gateway) struct Capture {
    /// None once there was too much of it.
    kept: Option<Kept>,
    bytes_max: usize,
    has_ended: bool,
    /// Bytes that are allocated for all answers.
    all: &'static AtomicUsize,
}

/// Bytes, counted among those of all answers for as long as they live.
struct Kept {
    bytes: Vec<u8>,
    counted: usize,
    all: &'static AtomicUsize,
}

impl Capture {
    /// Nothing yet.
    pub(in crate::gateway) fn new(limits: &Idempotency) -> Capture {
        Capture::among(&CAPTURED, limits)
    }

    fn among(all: &'static AtomicUsize, limits: &Idempotency) -> Capture {
        Capture {
            kept: Some(Kept::among(all)),
            bytes_max: usize::try_from(limits.answer_bytes_max).unwrap_or(usize::MAX),
            has_ended: false,
            all,
        }
    }

    /// An answer begins; that of an earlier target was thrown away.
    pub(in crate::gateway) fn begins(&mut self) {
        (self.kept, self.has_ended) = (Some(Kept::among(self.all)), false);
    }

    /// Whether there may be an answer to keep at the end.
    pub(in crate::gateway) fn is_kept(&self) -> bool {
        self.kept.is_some()
    }

    fn take(&mut self, bytes: &[u8]) {
        let fits = self
            .kept
            .as_mut()
            .is_some_and(|kept| kept.bytes.len().saturating_add(bytes.len()) <= self.bytes_max && kept.add(bytes));
        if !fits {
            self.kept = None;
        }
    }

    /// The answer, when it came to its end and was kept.
    pub(in crate::gateway) fn whole(self, streamed: bool) -> Option<Answer> {
        let kept = self.kept.filter(|kept| self.has_ended && !kept.bytes.is_empty())?;
        Some(Answer {
            streamed,
            body: Bytes::from_owner(kept),
        })
    }
}

impl Kept {
    fn among(all: &'static AtomicUsize) -> Kept {
        Kept {
            bytes: Vec::new(),
            counted: 0,
            all,
        }
    }

    /// False when all answers together would take too much.
    fn add(&mut self, bytes: &[u8]) -> bool {
        let needed = self.bytes.len().saturating_add(bytes.len());
        if needed > self.bytes.capacity() {
            let capacity = needed.saturating_mul(2).max(ALLOCATED_AT_FIRST);
            let more = capacity.saturating_sub(self.counted);
            let all = self.all.fetch_add(more, Ordering::Relaxed).saturating_add(more);
            self.counted = self.counted.saturating_add(more);
            if all > CAPTURED_MAX {
                return false;
            }
            self.bytes.reserve_exact(capacity.saturating_sub(self.bytes.len()));
        }
        self.bytes.extend_from_slice(bytes);
        true
    }
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.all.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

/// A piece of an answer leaves; with `ends` its last.
#[inline]
pub(in crate::gateway) fn leaves(ctx: &mut Ctx, bytes: Option<&Bytes>, ends: bool) {
    // Asked with each piece, and nearly always not so.
    if ctx.admitted().is_some_and(|call| call.capture.is_some()) {
        keep(ctx, bytes, ends);
    }
}

fn keep(ctx: &mut Ctx, bytes: Option<&Bytes>, ends: bool) {
    let Some(call) = ctx.call() else { return };
    let Some(capture) = &mut call.capture else { return };
    if let Passing::Metered(_) = &call.answer {
        if let Some(bytes) = bytes {
            capture.take(bytes);
        }
        capture.has_ended |= ends || call.early_end.is_some();
    }
}

/// An answer that broke off is given this end: it was paid for, so that is what is given again. Without an end it is no answer.
pub(in crate::gateway) fn ends_with(ctx: &mut Ctx, tail: Option<&Bytes>) {
    if tail.is_some() {
        leaves(ctx, tail, true);
    }
}

/// Bytes that are allocated for the answers that are kept now, those included that wait for the store.
static CAPTURED: AtomicUsize = AtomicUsize::new(0);
/// The most: 256 MiB.
const CAPTURED_MAX: usize = 256 << 20;
const ALLOCATED_AT_FIRST: usize = 4 << 10;

#[cfg(test)]
mod tests;
