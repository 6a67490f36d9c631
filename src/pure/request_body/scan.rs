//! A strict JSON scanner (RFC 8259) over bytes that are already known to be UTF-8. It yields spans and copies nothing.
//!
//! It is pulled: the caller opens an object or an array, asks for one member or element after the other, and reads or skips each
//! value. What the caller does not look into is still validated to the last byte. It never recurses on what it skips, so hostile
//! nesting costs a bit a level and not stack.

use super::BodyError;

/// Levels of nesting that a body may have; the outermost object is the first. serde_json and several upstream parsers stop there.
pub(super) const DEPTH_MAX: u32 = 127;

/// Why a scan stopped. Boxed, so that what succeeds fits in registers.
pub(super) type Fault = Box<BodyError>;

/// A range of the scanned bytes. Half the size of two `usize`, and as long as a body may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) end: u32,
}

impl Span {
    pub(super) fn len(self) -> usize {
        wide(self.end.saturating_sub(self.start))
    }

    pub(super) fn new(start: u32, end: u32) -> Span {
        Span { start, end }
    }

    /// The bytes of the span; empty when it does not lie in `bytes`.
    #[inline]
    pub(super) fn of(self, bytes: &[u8]) -> &[u8] {
        bytes.get(wide(self.start)..wide(self.end)).unwrap_or_default()
    }
}

/// An offset as an index.
#[inline]
pub(super) fn wide(offset: u32) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

/// A string, without its quotes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text {
    pub(super) span: Span,
    pub(super) spelling: Spelling,
}

/// Whether a string's bytes are its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    Plain,
    Escaped,
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text(Spelling),
    Number,
    True,
    False,
    Null,
    Object,
    Array,
}

/// A value that was read to its end; the span of a string holds its quotes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value {
    pub(super) kind: Kind,
    pub(super) span: Span,
}

impl Value {
    /// The string without its quotes, if it is one.
    pub(super) fn text(self) -> Option<Text> {
        let Kind::Text(spelling) = self.kind else { return None };
        let span = Span::new(self.span.start.saturating_add(1), self.span.end.saturating_sub(1));
        Some(Text { span, spelling })
    }
}

/// Where a walk over members or elements stands. One for each object or array that is opened.
#[derive(Default)]
pub(super) struct Walk {
    begun: bool,
}

/// The cursor.
pub(super) struct Scanner<'a> {
    pub(super) rest: &'a [u8],
    length: usize,
    depth: u32,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Scanner<'a> {
        Scanner {
            rest: bytes,
            length: bytes.len(),
            depth: 0,
        }
    }

    /// One that goes on at `offset`, where a value begins that was read before.
    pub(super) fn at(bytes: &'a [u8], offset: u32) -> Scanner<'a> {
        Scanner {
            rest: bytes.get(wide(offset)..).unwrap_or_default(),
            ..Scanner::new(bytes)
        }
    }

    /// Bytes read so far. The caller sees to it that a body is no longer than `u32::MAX` bytes.
    #[inline]
    pub(super) fn offset(&self) -> u32 {
        u32::try_from(self.length.wrapping_sub(self.rest.len())).unwrap_or(u32::MAX)
    }

    /// The first byte of what follows the white space.
    #[inline]
    pub(super) fn peek(&mut self) -> Option<u8> {
        while let Some((&byte, tail)) = self.rest.split_first() {
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
            self.rest = tail;
        }
        None
    }

    /// Opens the object that comes next.
    ///
    /// Errors when another kind of value comes next, or when it lies too deep.
    pub(super) fn open_object(&mut self) -> Result<Walk, Fault> {
        self.open(b'{', "an object")
    }

    /// Opens the array that comes next.
    ///
    /// Errors when another kind of value comes next, or when it lies too deep.
    pub(super) fn open_array(&mut self) -> Result<Walk, Fault> {
        self.open(b'[', "an array")
    }

    /// The key of the next member, its colon read; none when the object is closed. The caller then reads the value.
    pub(super) fn next_key(&mut self, walk: &mut Walk) -> Result<Option<Text>, Fault> {
        if !self.advance(walk, b'}', "`,` or `}`")? {
            return Ok(None);
        }
        self.key().map(Some)
    }

    /// Whether another element follows, which the caller then reads; false when the array is closed.
    pub(super) fn next_element(&mut self, walk: &mut Walk) -> Result<bool, Fault> {
        self.advance(walk, b']', "`,` or `]`")
    }

    /// Reads the next value to its end.
    #[inline]
    pub(super) fn value(&mut self) -> Result<Value, Fault> {
        self.value_with_keys(&mut |_| Ok(()))
    }

    /// The same, calling `found` with each key in it.
    ///
    /// Errors also when `found` does.
    #[inline]
    pub(super) fn value_with_keys(
        &mut self,
        found: &mut impl FnMut(Text) -> Result<(), Fault>,
    ) -> Result<Value, Fault> {
        let first = self.peek();
        let start = self.offset();
        let kind = match first {
            Some(b'{') => self.skip_nested(found).map(|()| Kind::Object)?,
            Some(b'[') => self.skip_nested(found).map(|()| Kind::Array)?,
            _ => self.scalar(first)?,
        };
        Ok(Value {
            kind,
            span: Span::new(start, self.offset()),
        })
    }

    /// Errors when anything but white space follows.
    pub(super) fn finish(&mut self) -> Result<(), Fault> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.fault("the end of the body")),
        }
    }

    /// The error that `expected` does not stand at the cursor.
    #[cold]
    #[inline(never)]
    pub(super) fn fault(&self, expected: &'static str) -> Fault {
        Box::new(BodyError::NotJson {
            at: wide(self.offset()),
            expected,
        })
    }

    #[cold]
    #[inline(never)]
    fn too_deep() -> Fault {
        Box::new(BodyError::TooDeep { max: DEPTH_MAX })
    }

    fn open(&mut self, bracket: u8, expected: &'static str) -> Result<Walk, Fault> {
        if self.peek() != Some(bracket) {
            return Err(self.fault(expected));
        }
        if self.depth >= DEPTH_MAX {
            return Err(Scanner::too_deep());
        }
        self.depth = self.depth.saturating_add(1);
        self.step();
        Ok(Walk::default())
    }

    #[inline]
    fn advance(&mut self, walk: &mut Walk, closing: u8, expected: &'static str) -> Result<bool, Fault> {
        let begun = std::mem::replace(&mut walk.begun, true);
        match self.peek() {
            Some(byte) if byte == closing => {
                self.step();
                self.depth = self.depth.saturating_sub(1);
                Ok(false)
            }
            Some(b',') if begun => {
                self.step();
                Ok(true)
            }
            Some(_) if !begun => Ok(true),
            _ => Err(self.fault(expected)),
        }
    }

    #[inline]
    pub(super) fn step(&mut self) {
        self.rest = self.rest.get(1..).unwrap_or_default();
    }

    #[inline]
    fn key(&mut self) -> Result<Text, Fault> {
        if self.peek() != Some(b'"') {
            return Err(self.fault("a key in quotes"));
        }
        self.step();
        let text = self.string()?;
        if self.peek() != Some(b':') {
            return Err(self.fault("`:`"));
        }
        self.step();
        Ok(text)
    }

    /// Skips the object or array at the cursor. The open brackets are kept as bits, an object's as 1.
    fn skip_nested(&mut self, found: &mut impl FnMut(Text) -> Result<(), Fault>) -> Result<(), Fault> {
        let base = self.depth;
        let mut depth = base;
        let mut kinds: u128 = 0;
        loop {
            let first = self.peek();
            match first {
                Some(bracket @ (b'{' | b'[')) => {
                    if depth >= DEPTH_MAX {
                        return Err(Scanner::too_deep());
                    }
                    depth = depth.saturating_add(1);
                    kinds = (kinds << 1) | u128::from(bracket == b'{');
                    self.step();
                    let next = self.peek();
                    if bracket == b'{' && next != Some(b'}') {
                        found(self.key()?)?;
                        continue;
                    }
                    if bracket == b'[' && next != Some(b']') {
                        continue;
                    }
                }
                _ => {
                    self.scalar(first)?;
                }
            }
            // A value has ended, or an empty object or array is about to.
            loop {
                let in_object = kinds & 1 == 1;
                match self.peek() {
                    Some(b',') => {
                        self.step();
                        if in_object {
                            found(self.key()?)?;
                        }
                        break;
                    }
                    Some(b'}') if in_object => {}
                    Some(b']') if !in_object => {}
                    _ if in_object => return Err(self.fault("`,` or `}`")),
                    _ => return Err(self.fault("`,` or `]`")),
                }
                self.step();
                kinds >>= 1;
                depth = depth.saturating_sub(1);
                if depth == base {
                    return Ok(());
                }
            }
        }
    }

    #[inline]
    fn scalar(&mut self, first: Option<u8>) -> Result<Kind, Fault> {
        match first {
            Some(b'"') => {
                self.step();
                Ok(Kind::Text(self.string()?.spelling))
            }
            Some(b'-' | b'0'..=b'9') => self.number().map(|()| Kind::Number),
            Some(b't') => self.literal(b"true", Kind::True),
            Some(b'f') => self.literal(b"false", Kind::False),
            Some(b'n') => self.literal(b"null", Kind::Null),
            _ => Err(self.fault("a value")),
        }
    }
}
