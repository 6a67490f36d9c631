//! Refuses what Pingora takes in the framing of a chunked body and others do not: a line end within a chunk's size or extension that is
//! not CR LF (RFC 9112 section 7.1). Two parties that end such a line differently see two different messages; so do two of which one takes a line
//! without a size for the last. A size that no body has is refused, too: Pingora would wait for it. It begins where the head ends, which [`split_head`] finds.

/// Reads the raw bytes of one chunked body as they come.
#[derive(Debug)]
pub(crate) struct ChunkCheck {
    at: At,
    /// A line whose first byte is none of a size is left to whoever reads the body, who refuses it as well: only then is what came before it
    /// passed on. One that would be taken for the last is not left: see [`is_taken_for_last`].
    leaves_sizes: bool,
    /// Chunks whose line has come since [`ChunkCheck::take_lines`].
    lines: usize,
}

#[derive(Clone, Copy, Debug)]
enum At {
    /// Before a chunk's size.
    Begin,
    /// Within a chunk's size, which is this so far.
    Size(u64),
    /// Within its extension.
    Extension { is_last: bool, bytes: u64 },
    /// After the CR that ends the line.
    LineFeed { is_last: bool, bytes: u64 },
    /// Within its data and the CR LF after them: so many bytes are left.
    Data(u64),
    /// After the last chunk: nothing is looked at any more.
    Over,
}

/// A line of the framing ended with something other than CR LF, or says no size or one beyond [`SIZE_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Misframed;

impl ChunkCheck {
    /// At the body's first byte.
    pub(crate) fn new() -> ChunkCheck {
        ChunkCheck {
            at: At::Begin,
            leaves_sizes: false,
            lines: 0,
        }
    }

    /// The same of a provider's answer, of which what came before a line without a size is to be passed on.
    pub(crate) fn of_answer() -> ChunkCheck {
        ChunkCheck {
            leaves_sizes: true,
            ..ChunkCheck::new()
        }
    }

    /// Looks at the next bytes.
    ///
    /// # Errors
    /// [`Misframed`] for a line feed without a carriage return, a carriage return without a line feed, no size, or one that no body has.
    pub(crate) fn read(&mut self, mut bytes: &[u8]) -> Result<(), Misframed> {
        while let Some((&byte, rest)) = bytes.split_first() {
            if let At::Data(left) = self.at {
                let here = u64::try_from(bytes.len()).unwrap_or(u64::MAX).min(left);
                let skipped = usize::try_from(here).unwrap_or(usize::MAX);
                bytes = bytes.get(skipped..).unwrap_or_default();
                self.at = if here == left {
                    At::Begin
                } else {
                    At::Data(left.saturating_sub(here))
                };
                continue;
            }
            if let At::Begin = self.at
                && let Some((size, line)) = usual_line(bytes)
            {
                bytes = bytes.get(line..).unwrap_or_default();
                self.lines = self.lines.saturating_add(1);
                if size == 0 {
                    self.at = At::Over;
                    return Ok(());
                }
                self.at = At::Data(size.saturating_add(LINE_END));
                continue;
            }
            if self.leaves_sizes
                && matches!(self.at, At::Begin)
                && !byte.is_ascii_hexdigit()
                && !is_taken_for_last(byte)
            {
                self.at = At::Size(0);
            }
            self.at = self.at.after(byte)?;
            if matches!(self.at, At::Over) {
                return Ok(());
            }
            if matches!(self.at, At::Data(_)) {
                self.lines = self.lines.saturating_add(1);
            }
            bytes = rest;
        }
        Ok(())
    }

    /// How many chunks' lines have come since this was asked before.
    pub(super) fn take_lines(&mut self) -> usize {
        std::mem::take(&mut self.lines)
    }
}

/// Whether a line that begins so, and says no size, has the size 0 for the parser behind this one (httparse).
fn is_taken_for_last(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n' | b';' | b' ' | b'\t')
}

/// The size that a line without extension says, and the line's length, when all of it is there: nearly every line.
fn usual_line(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut size = 0_u64;
    for (length, &byte) in bytes.iter().take(USUAL_DIGITS_MAX.saturating_add(1)).enumerate() {
        let digit = match byte {
            b'0'..=b'9' => byte.wrapping_sub(b'0'),
            b'a'..=b'f' => byte.wrapping_sub(b'a').wrapping_add(10),
            b'A'..=b'F' => byte.wrapping_sub(b'A').wrapping_add(10),
            b'\r' if length > 0 && bytes.get(length.wrapping_add(1)) == Some(&b'\n') => {
                return Some((size, length.wrapping_add(2)));
            }
            _ => return None,
        };
        size = size.wrapping_shl(4) | u64::from(digit);
    }
    None
}

impl At {
    /// Where one byte of a line leads.
    fn after(self, byte: u8) -> Result<At, Misframed> {
        Ok(match (self, byte) {
            // Without a digit it says no size; some take that for 0.
            (At::Begin, byte) => match char::from(byte).to_digit(16) {
                Some(digit) => At::Size(u64::from(digit)),
                None => return Err(Misframed),
            },
            (At::Size(_) | At::Extension { .. }, b'\n') => return Err(Misframed),
            (At::Size(bytes), b'\r') => At::LineFeed {
                is_last: bytes == 0,
                bytes,
            },
            (At::Size(bytes), byte) => match char::from(byte).to_digit(16) {
                Some(digit) => At::Size(with_digit(bytes, digit)?),
                None => At::Extension {
                    is_last: bytes == 0,
                    bytes,
                },
            },
            (At::Extension { is_last, bytes }, b'\r') => At::LineFeed { is_last, bytes },
            (At::LineFeed { is_last: true, .. }, b'\n') => At::Over,
            (At::LineFeed { bytes, .. }, b'\n') => At::Data(bytes.saturating_add(LINE_END)),
            (At::LineFeed { .. }, _) => return Err(Misframed),
            (at, _) => at,
        })
    }
}

/// A size with one more digit.
fn with_digit(size: u64, digit: u32) -> Result<u64, Misframed> {
    let larger = size.saturating_mul(16).saturating_add(u64::from(digit));
    if larger > SIZE_MAX {
        return Err(Misframed);
    }
    Ok(larger)
}

/// The first head in raw bytes, to its end, and what follows it, by the rule of the parser that takes it (httparse): empty lines before
/// it are skipped, a line ends with LF or CR LF, and the first empty line ends the head. None when its end is not there.
pub(super) fn split_head(raw: &[u8]) -> Option<(&[u8], &[u8])> {
    let begin = raw.iter().position(|byte| !matches!(byte, b'\r' | b'\n'))?;
    let message = raw.get(begin..)?;
    memchr::memchr_iter(b'\n', message).find_map(|line_end| {
        let next = message.get(line_end.saturating_add(1)..)?;
        let body = next.strip_prefix(b"\n").or_else(|| next.strip_prefix(b"\r\n"))?;
        message.split_at_checked(message.len().saturating_sub(body.len()))
    })
}

/// Digits of a size that are read at once: such a size is far below [`SIZE_MAX`].
const USUAL_DIGITS_MAX: usize = 8;
/// Most bytes of a chunk: more than any body has.
const SIZE_MAX: u64 = 1 << 40;
/// Bytes of the line end after a chunk's data.
const LINE_END: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of a body, whole and byte by byte.
    fn check(body: &[u8]) -> Result<(), Misframed> {
        let whole = ChunkCheck::new().read(body);
        let mut check = ChunkCheck::new();
        let pieces = body.iter().try_for_each(|byte| check.read(&[*byte]));
        assert_eq!(whole, pieces, "{body:?}");
        whole
    }

    #[test]
    fn bodies_that_are_framed_right_pass_whatever_their_data() {
        for body in [
            b"5\r\nhello\r\n0\r\n\r\n".as_slice(),
            b"5\r\na\nb\nc\r\n0\r\n\r\n",
            b"A;name=value\r\n0123456789\r\n0\r\n\r\n",
            b"0000000A\r\n0123456789\r\n00000000b\r\n0123456789+\r\n0\r\n\r\n",
            b"000a ; x=\"y\"\r\n0123456789\r\n00;last\r\nTrailer: a\nb\r\n\r\n",
        ] {
            assert_eq!(check(body), Ok(()));
        }
    }

    #[test]
    fn a_line_that_does_not_end_with_cr_lf_is_refused() {
        for body in [
            b"5\nhello\r\n0\r\n\r\n".as_slice(),
            b"5;a\nhello\r\n0\r\n\r\n",
            b"5;a\n\r\nhello\r\n0\r\n\r\n",
            b"5;a\rb\r\nhello\r\n0\r\n\r\n",
            b"5\r\nhello\r\n0;a\n\r\n\r\n",
        ] {
            assert_eq!(check(body), Err(Misframed));
        }
    }

    #[test]
    fn a_line_without_a_size_is_refused() {
        for line in ["\r\n", ";x\r\n", " \r\n", " 0\r\n", "x\r\n", "-0\r\n"] {
            assert_eq!(check(line.as_bytes()), Err(Misframed), "{line:?}");
            let left = matches!(line, "x\r\n" | "-0\r\n");
            assert_eq!(ChunkCheck::of_answer().read(line.as_bytes()).is_ok(), left, "{line:?}");
            assert_eq!(
                check(format!("5\r\nhello\r\n{line}\r\n").as_bytes()),
                Err(Misframed),
                "{line:?}"
            );
        }
    }

    #[test]
    fn a_size_that_no_body_has_is_refused() {
        assert_eq!(check(b"00000000000010000000000\r\n"), Ok(()));
        for size in ["10000000001", "8000000000000000", "fffffffffffffffff"] {
            assert_eq!(check(format!("{size}\r\n").as_bytes()), Err(Misframed), "{size}");
        }
    }

    #[test]
    fn the_lines_of_all_chunks_are_counted_however_they_are_cut() {
        const BODY: &[u8] = b"1\r\n\n\r\n1;a\r\nb\r\n0000000001\r\nc\r\n4\r\n1\r\n1\r\n0\r\n\r\n";
        for cut in 0..BODY.len() {
            let (first, second) = BODY.split_at(cut);
            let mut check = ChunkCheck::new();
            check.read(first).unwrap();
            let lines = check.take_lines();
            check.read(second).unwrap();
            // That of the last chunk counts where it is there as a whole.
            assert!((4..=5).contains(&(lines + check.take_lines())), "cut at {cut}");
            assert_eq!(check.take_lines(), 0);
        }
    }

    /// Where httparse sees the end of a request's head. None: not yet.
    fn parsed_end(raw: &[u8]) -> Option<usize> {
        let mut fields = [httparse::EMPTY_HEADER; 4];
        match httparse::Request::new(&mut fields).parse(raw) {
            Ok(httparse::Status::Complete(end)) => Some(end),
            Ok(httparse::Status::Partial) => None,
            Err(error) => panic!("{error}: {raw:?}"),
        }
    }

    #[test]
    fn a_head_ends_where_its_parser_sees_its_end() {
        const BODY: &[u8] = b"5;a\nhello\r\n0\r\n\r\n\n\n";
        for before in ["", "\n", "\r\n", "\r\n\r\n", "\n\r\n\n"] {
            for [first, second, last] in [
                ["\r\n", "\r\n", "\r\n"],
                ["\n", "\n", "\n"],
                ["\r\n", "\n", "\r\n"],
                ["\n", "\r\n", "\n"],
            ] {
                let head = format!("{before}POST / HTTP/1.1{first}host: x{second}{last}");
                let raw = [head.as_bytes(), BODY].concat();
                assert_eq!(parsed_end(&raw), Some(head.len()), "{head:?}");
                let message = &head.as_bytes()[before.len()..];
                assert_eq!(split_head(&raw), Some((message, BODY)), "{head:?}");
                for cut in 0..head.len() {
                    assert_eq!(parsed_end(&raw[..cut]), None, "{head:?} at {cut}");
                    assert_eq!(split_head(&raw[..cut]), None, "{head:?} at {cut}");
                }
            }
        }
    }
}
