//! Escapes in strings: what stands behind a backslash, and halves of surrogate pairs.

use super::{Scanner, State};
use crate::pure::tap::accumulator::Reading;

impl Scanner {
    /// The byte after a backslash, or a digit of `\u`.
    pub(super) fn escape(&mut self, byte: u8, reading: &mut Reading) {
        let State::Unicode(digits, value) = self.state else {
            if byte == b'u' {
                self.state = State::Unicode(0, 0);
                return;
            }
            let meant = match byte {
                b'n' => b'\n',
                b't' => b'\t',
                b'r' => b'\r',
                b'b' => 0x08,
                b'f' => 0x0C,
                b'"' | b'\\' | b'/' => byte,
                _ => {
                    self.state = State::Broken;
                    return;
                }
            };
            self.end_lone_surrogate(reading);
            self.state = State::String;
            self.keep(&[meant], reading);
            return;
        };
        let Some(digit) = char::from(byte)
            .to_digit(16)
            .and_then(|digit| u16::try_from(digit).ok())
        else {
            self.state = State::Broken;
            return;
        };
        let value = value << 4 | digit;
        if digits < 3 {
            self.state = State::Unicode(digits + 1, value);
            return;
        }
        self.state = State::String;
        self.unit(value, reading);
    }

    /// A whole `\u` escape: a character, or half of one.
    fn unit(&mut self, unit: u16, reading: &mut Reading) {
        let pair = self.high.map(|high| [high, unit]);
        if let Some(Some(Ok(character))) = pair.map(|pair| char::decode_utf16(pair).next()) {
            self.high = None;
            return self.keep(character.encode_utf8(&mut [0; 4]).as_bytes(), reading);
        }
        self.end_lone_surrogate(reading);
        match char::from_u32(u32::from(unit)) {
            Some(character) => self.keep(character.encode_utf8(&mut [0; 4]).as_bytes(), reading),
            None => self.high = Some(unit),
        }
    }

    /// Half a pair that stands alone reads as the replacement character.
    pub(super) fn end_lone_surrogate(&mut self, reading: &mut Reading) {
        if self.high.take().is_some() {
            self.keep("\u{FFFD}".as_bytes(), reading);
        }
    }
}
