//! An incremental JSON scanner: it is given a document in pieces of any size and tells a [`Reading`] of the values
//! that it has a role for.
//!
//! Its memory is fixed whatever the document's size: a stack of bits, a few known containers, one short value. It takes
//! every valid document; of an invalid one it may take more than a strict parser would (such as Python's `NaN` and `-Infinity`), and stops
//! where brackets, commas or quotes make no sense. The taps call it.

use super::accumulator::{Choices, Reading};
use super::schema::{Node, Role};

mod closing;
mod escapes;
mod literals;
mod raw;

/// The scanner of one document.
#[derive(Debug)]
pub(super) struct Scanner {
    state: State,
    /// What the value at hand is.
    role: Role,
    /// The string at hand is a key.
    in_key: bool,
    /// One bit a container that is open, the innermost lowest: 1 is an object.
    objects: u128,
    depth: u32,
    /// The nodes of the outermost `known` containers; those within are [`Node::Other`].
    nodes: [Node; NODES_MAX],
    known: usize,
    /// The key, string or literal at hand as far as it is kept.
    kept: Vec<u8>,
    /// Bytes of the document that were scanned.
    offset: usize,
    string_start: usize,
    string_escaped: bool,
    /// The first half of a surrogate pair whose second half must be the next escape.
    high: Option<u16>,
    /// The depth within the container at hand whose bytes are text as they stand; 0 outside of one.
    raw_depth: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Value,
    /// A value, or the end of an array that has none.
    ValueOrEnd,
    Key,
    /// A key, or the end of an object that has none.
    KeyOrEnd,
    Colon,
    String,
    Escape,
    /// So many hexadecimal digits of `\u` were seen, and their value.
    Unicode(u8, u16),
    /// A word, by its first byte and the number of bytes seen, or a number, by the last byte seen.
    Literal(u8, u8),
    /// A comma, or the end of the container.
    AfterValue,
    Complete,
    Broken,
}

/// Containers deeper than this are not looked into; the deepest text of an answer stands at 9.
const NODES_MAX: usize = 12;
/// Deeper nesting is refused: the same limit as that of `serde_json`.
const DEPTH_MAX: u32 = 127;
/// Keys, identifiers and figures are kept up to this length; a longer one is none that the taps know.
const KEPT_BYTES_MAX: usize = 256;
/// Room that is taken for them at first: an answer's id is the longest that is usual.
const KEPT_BYTES_AT_FIRST: usize = 64;

impl Scanner {
    pub(super) fn new() -> Self {
        Scanner {
            state: State::Value,
            role: Role::Root,
            in_key: false,
            objects: 0,
            depth: 0,
            nodes: [Node::Other; NODES_MAX],
            known: 0,
            kept: Vec::new(),
            offset: 0,
            string_start: 0,
            string_escaped: false,
            high: None,
            raw_depth: 0,
        }
    }

    /// Back to the start of a document.
    pub(super) fn reset(&mut self) {
        let kept = std::mem::take(&mut self.kept);
        *self = Scanner { kept, ..Scanner::new() };
        self.kept.clear();
    }

    /// One whole value was read, and nothing but space after it.
    pub(super) fn is_complete(&self) -> bool {
        self.state == State::Complete
    }

    /// Nothing but white space was scanned.
    pub(super) fn is_blank(&self) -> bool {
        self.state == State::Value && self.depth == 0
    }

    /// It stopped within a container or a string.
    pub(super) fn is_cut(&self) -> bool {
        let in_string = matches!(self.state, State::String | State::Escape | State::Unicode(..));
        !self.is_broken() && (self.depth > 0 || in_string)
    }

    /// It is no JSON.
    pub(super) fn is_broken(&self) -> bool {
        self.state == State::Broken
    }

    /// So many bytes pass before the document that are none of it. They count for the places that are told.
    pub(super) fn skip(&mut self, bytes: usize) {
        self.offset = self.offset.saturating_add(bytes);
    }

    /// More of the document.
    pub(super) fn feed(&mut self, bytes: &[u8], reading: &mut Reading) {
        self.offset = self.offset.saturating_add(bytes.len());
        let mut rest = bytes;
        while let Some((&byte, after)) = rest.split_first() {
            let from = rest;
            rest = match self.state {
                State::String => self.string(rest, reading),
                State::Literal(first, seen) => self.literal(rest, first, seen, reading),
                State::Escape | State::Unicode(..) => {
                    self.escape(byte, reading);
                    after
                }
                State::Broken => return,
                _ => {
                    if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                        self.structure(byte, self.offset - after.len(), reading);
                    }
                    if matches!(self.state, State::Literal(..)) {
                        rest
                    } else {
                        after
                    }
                }
            };
            if self.raw_depth != 0 {
                self.raw(from, rest, reading);
            }
        }
    }

    /// A byte outside of strings and literals; `offset` is that of the byte after it.
    fn structure(&mut self, byte: u8, offset: usize, reading: &mut Reading) {
        // Any value makes the array of choices one that is not empty, not only an object.
        if self.role == Role::Choice && matches!(self.state, State::Value | State::ValueOrEnd) && byte != b']' {
            reading.seen.choices = Choices::Some;
        }
        self.state = match (self.state, byte) {
            (State::Key | State::KeyOrEnd, b'"') => {
                self.in_key = true;
                self.start_string(offset)
            }
            (State::Value | State::ValueOrEnd, b'"') => {
                self.in_key = false;
                self.note_no_object(reading);
                self.start_string(offset)
            }
            (State::Value | State::ValueOrEnd, b'{') => {
                match (self.role, self.depth) {
                    (Role::Usage, 1) => reading
                        .spans
                        .start_usage(offset.saturating_sub(1), reading.counter.bytes()),
                    (Role::Usage, _) => reading
                        .spans
                        .start_other_usage(offset.saturating_sub(1), reading.counter.bytes()),
                    _ => {}
                }
                self.open(true, self.role.object(), reading)
            }
            (State::Value | State::ValueOrEnd, b'[') => {
                self.note_no_object(reading);
                self.open(false, self.role.array(), reading)
            }
            (State::Value | State::ValueOrEnd, b'-' | b'0'..=b'9' | b'a'..=b'z' | b'I' | b'N') => {
                self.kept.clear();
                self.note_no_object(reading);
                State::Literal(byte, 0)
            }
            (State::Colon, b':') => State::Value,
            (State::AfterValue, b',') if self.in_object() => State::Key,
            (State::AfterValue, b',') => {
                self.role = self.node().element();
                State::Value
            }
            (State::KeyOrEnd | State::AfterValue, b'}') if self.in_object() => {
                let node = self.node();
                let depth = self.depth;
                let state = self.close(node, reading);
                match (depth, node) {
                    (1, Node::Answer) => reading.spans.end = offset,
                    (2, Node::Usage) => reading.end_usage(offset),
                    (_, Node::Usage) => reading.spans.end_other_usage(offset),
                    _ => {}
                }
                state
            }
            (State::ValueOrEnd | State::AfterValue, b']') if !self.in_object() => {
                let node = self.node();
                if node == Node::Choices {
                    reading.spans.choices_end = offset;
                }
                self.close(node, reading)
            }
            _ => State::Broken,
        };
    }

    /// A value begins that is no object.
    fn note_no_object(&self, reading: &mut Reading) {
        if self.role == Role::Usage && self.depth == 1 {
            reading.spans.usage_is_none = true;
        }
    }

    fn start_string(&mut self, offset: usize) -> State {
        self.kept.clear();
        self.string_start = offset;
        self.string_escaped = false;
        State::String
    }

    fn open(&mut self, object: bool, node: Node, reading: &mut Reading) -> State {
        if self.depth >= DEPTH_MAX {
            return State::Broken;
        }
        let node = reading.open(self.role, node);
        let within_known = usize::try_from(self.depth).is_ok_and(|depth| depth == self.known);
        if let (true, Some(slot)) = (within_known && node != Node::Other, self.nodes.get_mut(self.known)) {
            *slot = node;
            self.known += 1;
        }
        self.depth += 1;
        self.objects = self.objects << 1 | u128::from(object);
        if self.role == Role::Arguments {
            self.begin_raw(reading);
        }
        self.role = if object { Role::Skip } else { self.node().element() };
        if object { State::KeyOrEnd } else { State::ValueOrEnd }
    }

    fn close(&mut self, node: Node, reading: &mut Reading) -> State {
        self.depth = self.depth.saturating_sub(1);
        self.objects >>= 1;
        self.known = self.known.min(usize::try_from(self.depth).unwrap_or(usize::MAX));
        self.role = Role::Skip;
        reading.close(node);
        self.after_value()
    }

    fn after_value(&self) -> State {
        if self.depth == 0 {
            State::Complete
        } else {
            State::AfterValue
        }
    }

    fn in_object(&self) -> bool {
        self.depth > 0 && self.objects & 1 == 1
    }

    /// The node of the innermost container.
    fn node(&self) -> Node {
        if usize::try_from(self.depth).is_ok_and(|depth| depth == self.known) {
            self.nodes
                .get(self.known.wrapping_sub(1))
                .copied()
                .unwrap_or(Node::Other)
        } else {
            Node::Other
        }
    }

    /// Inside a string: all up to its end, or to an escape.
    fn string<'a>(&mut self, rest: &'a [u8], reading: &mut Reading) -> &'a [u8] {
        let length = memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
        let start = self.offset - rest.len();
        let (run, rest) = rest.split_at_checked(length).unwrap_or((rest, b""));
        if self.in_key && start == self.string_start && rest.first() == Some(&b'"') {
            // Most keys are whole: they need not be kept to be known.
            self.role = self.node().member(run);
            return self.end_key(rest.get(1..).unwrap_or_default());
        }
        if !run.is_empty() {
            self.end_lone_surrogate(reading);
            self.keep(run, reading);
        }
        let Some((&byte, after)) = rest.split_first() else {
            return rest;
        };
        if byte == b'\\' {
            self.string_escaped = true;
            self.state = State::Escape;
        } else {
            self.end_lone_surrogate(reading);
            self.end_string(self.offset - after.len() - 1, reading);
        }
        after
    }

    /// A key ended, and its role is known. The colon mostly follows at once.
    fn end_key<'a>(&mut self, rest: &'a [u8]) -> &'a [u8] {
        match rest.split_first() {
            Some((b':', after)) => {
                self.state = State::Value;
                after
            }
            _ => {
                self.state = State::Colon;
                rest
            }
        }
    }

    fn end_string(&mut self, end: usize, reading: &mut Reading) {
        if self.in_key {
            self.role = self.node().member(&self.kept);
            self.state = State::Colon;
            return;
        }
        let role = std::mem::replace(&mut self.role, Role::Skip);
        match role {
            Role::Skip => {}
            _ if role.is_kept() => {
                let cut = self.kept.len() > KEPT_BYTES_MAX;
                reading.string(role, if cut { None } else { Some(&self.kept) });
            }
            _ => reading.text(role, self.string_start..end, self.string_escaped),
        }
        self.state = self.after_value();
    }

    /// More of the string at hand, unescaped.
    fn keep(&mut self, bytes: &[u8], reading: &mut Reading) {
        if !self.in_key
            && let Some(kind) = self.role.text()
        {
            return reading.counter.part(kind, bytes);
        }
        let wanted = if self.in_key {
            self.node() != Node::Other
        } else {
            self.role.is_kept()
        };
        if wanted {
            self.keep_bytes(bytes);
        }
    }

    /// Keeps as much as there is room for.
    fn keep_bytes(&mut self, bytes: &[u8]) {
        if self.kept.capacity() == 0 {
            // To grow costs more than all that is kept.
            self.kept.reserve_exact(KEPT_BYTES_AT_FIRST);
        }
        let room = (KEPT_BYTES_MAX + 1).saturating_sub(self.kept.len());
        self.kept.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }
}
