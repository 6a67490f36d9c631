//! A number that a request carries to the simulated upstream, and its answer back: an answer to another request is known by it.

use std::ops::Range;

use memchr::memmem;

/// The number as it stands in an answer: always so many digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag([u8; TAG_DIGITS]);

impl Tag {
    pub(crate) fn of(mut number: u32) -> Self {
        let mut digits = [b'0'; TAG_DIGITS];
        for digit in digits.iter_mut().rev() {
            *digit += (number % 10) as u8;
            number /= 10;
        }
        Self(digits)
    }

    /// Its digits.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Where the tag of an event stands in its line, if it has one.
pub(crate) fn tag_place(line: &[u8]) -> Option<Range<usize>> {
    let start = memmem::find(line, TAG_BEFORE)? + TAG_BEFORE.len();
    (start + TAG_DIGITS <= line.len()).then_some(start..start + TAG_DIGITS)
}

/// What stands before it in an event: a field that is the same in all events of a real stream too.
pub(crate) const TAG_BEFORE: &[u8] = b"\"system_fingerprint\":\"fp_";
/// What stands in its place until it is known: as many bytes.
pub(crate) const TAG_MARK: &str = "@@@@@@@tag";
/// As many as the largest number has.
pub(crate) const TAG_DIGITS: usize = 10;
