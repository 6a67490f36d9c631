//! How a document that was cut off is made whole: so that the client of a stream that died can read what it has.

use super::{Scanner, State};

impl Scanner {
    /// What makes a whole document of the part that was scanned; `None` if nothing can, or nothing was.
    pub(in crate::pure::tap) fn closing(&self) -> Option<Vec<u8>> {
        if self.offset == 0 {
            return None;
        }
        let mut closing: Vec<u8> = match self.state {
            State::Complete | State::AfterValue | State::ValueOrEnd | State::KeyOrEnd => Vec::new(),
            State::Value => b"null".to_vec(),
            State::Key => b"\"\":null".to_vec(),
            State::Colon => b":null".to_vec(),
            State::Literal(byte, seen) => literal_rest(byte, usize::from(seen)).to_vec(),
            State::String if self.high.is_some() => SECOND_HALF.to_vec(),
            State::String => Vec::new(),
            State::Escape if self.high.is_some() => SECOND_HALF.get(1..).unwrap_or_default().to_vec(),
            State::Escape => b"\\".to_vec(),
            State::Unicode(digits, value) => self.unit_rest(usize::from(digits), value),
            State::Broken => return None,
        };
        if matches!(self.state, State::String | State::Escape | State::Unicode(..)) {
            closing.extend_from_slice(if self.in_key { b"\":null" } else { b"\"" });
        }
        closing.extend((0..self.depth).map(|level| if self.objects >> level & 1 == 1 { b'}' } else { b']' }));
        Some(closing)
    }

    /// What makes a whole escape of `\u` with so many digits, and a whole pair of half of one.
    fn unit_rest(&self, digits: usize, value: u16) -> Vec<u8> {
        if self.high.is_some() {
            return SECOND_HALF.get(2 + digits..).unwrap_or_default().to_vec();
        }
        let missing = 4usize.saturating_sub(digits);
        let mut rest = vec![b'0'; missing];
        if (0xD800..0xDC00).contains(&(u32::from(value) << (4 * missing))) {
            rest.extend_from_slice(SECOND_HALF);
        }
        rest
    }
}

/// The second half of a surrogate pair.
const SECOND_HALF: &[u8] = b"\\udc00";

/// What makes a whole literal of one that was cut; see [`State::Literal`].
fn literal_rest(byte: u8, seen: usize) -> &'static [u8] {
    match byte {
        b't' => b"true".get(seen..).unwrap_or_default(),
        b'f' => b"false".get(seen..).unwrap_or_default(),
        b'n' => b"null".get(seen..).unwrap_or_default(),
        b'0'..=b'9' => b"",
        // A sign, a point or an exponent needs a digit.
        _ => b"0",
    }
}
