//! The scanner's scalars: strings, numbers and literals.
//!
//! Nearly all bytes of a body lie in strings, so that skipping plain text is what counts.

use super::scan::{Fault, Kind, Scanner, Span, Spelling, Text};
use crate::pure::json_text::skip_plain;

impl Scanner<'_> {
    pub(super) fn literal(&mut self, word: &[u8], kind: Kind) -> Result<Kind, Fault> {
        let Some(tail) = self.rest.strip_prefix(word) else {
            return Err(self.fault("a value"));
        };
        self.rest = tail;
        Ok(kind)
    }

    pub(super) fn number(&mut self) -> Result<(), Fault> {
        if self.rest.first() == Some(&b'-') {
            self.step();
        }
        match self.rest.first() {
            Some(b'0') => self.step(),
            _ => self.digits()?,
        }
        if self.rest.first() == Some(&b'.') {
            self.step();
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.rest.first() {
            self.step();
            if let Some(b'+' | b'-') = self.rest.first() {
                self.step();
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Fault> {
        let count = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count == 0 {
            return Err(self.fault("a digit"));
        }
        self.rest = self.rest.get(count..).unwrap_or_default();
        Ok(())
    }

    /// Reads a string whose opening quote was read.
    #[inline]
    pub(super) fn string(&mut self) -> Result<Text, Fault> {
        let start = self.offset();
        let mut spelling = Spelling::Plain;
        loop {
            self.rest = skip_plain(self.rest);
            match self.rest.first() {
                Some(b'"') => {
                    let end = self.offset();
                    self.step();
                    return Ok(Text {
                        span: Span::new(start, end),
                        spelling,
                    });
                }
                Some(b'\\') => {
                    spelling = Spelling::Escaped;
                    self.escape()?;
                }
                Some(_) => return Err(self.fault("no control character in a string")),
                None => return Err(self.fault("the closing quote of a string")),
            }
        }
    }

    /// Reads one escape; a surrogate must be half of a pair, for no text holds one alone.
    fn escape(&mut self) -> Result<(), Fault> {
        match self.rest.get(1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.rest = self.rest.get(2..).unwrap_or_default();
                Ok(())
            }
            Some(b'u') => match self.code_unit()? {
                0xd800..=0xdbff if self.rest.starts_with(b"\\u") => match self.code_unit()? {
                    0xdc00..=0xdfff => Ok(()),
                    _ => Err(self.fault("the second half of a surrogate pair before this")),
                },
                0xd800..=0xdfff => Err(self.fault("no lone surrogate before this")),
                _ => Ok(()),
            },
            _ => Err(self.fault("a valid escape")),
        }
    }

    /// Reads `\uXXXX`.
    fn code_unit(&mut self) -> Result<u32, Fault> {
        let Some(unit) = self.rest.get(2..6).and_then(hex4) else {
            return Err(self.fault("four hexadecimal digits"));
        };
        self.rest = self.rest.get(6..).unwrap_or_default();
        Ok(unit)
    }
}

/// The value of four hexadecimal digits.
pub(super) fn hex4(digits: &[u8]) -> Option<u32> {
    digits
        .iter()
        .try_fold(0, |unit: u32, &byte| Some((unit << 4) | char::from(byte).to_digit(16)?))
}
