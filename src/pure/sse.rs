//! Framing of server-sent events: which bytes of a body are event data, and where each event ends.
//!
//! The [`Framer`] keeps no bytes, so it needs no bound: it hands out slices of what it is given, and only remembers
//! where in a line it stands. It takes LF, CRLF and CR as line ends, a byte order mark, comments, `data:` with and
//! without its space, and cuts at any byte. It never fails; what is no event has no data. The stream tap calls it.

/// The incremental framer of one stream.
#[derive(Clone, Debug)]
pub struct Framer {
    line: Line,
    /// The last byte was a CR that ended a line: an LF that follows belongs to it.
    after_cr: bool,
    /// Bytes were seen since the last event ended.
    open: bool,
    /// A line of the event ended that is no comment.
    fields: bool,
    /// Lines of data that ended in this event.
    data_lines: u32,
    /// The event's name is `error`.
    name_is_error: bool,
}

/// What [`Framer::take`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Some of the event's data. The pieces of one event, in a row, are its data: the LF that joins the lines of
    /// multi-line data is a piece of its own.
    Data(&'a [u8]),
    /// A line of data ended.
    DataLineEnd,
    /// A comment line before the event's first field ended: it is of no event, and the next line begins one.
    Comment,
    /// The blank line that ends an event, all of it consumed but for an LF that may still follow a CR.
    EventEnd,
}

/// Where the input so far leaves the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Between two events, or after a comment that is of none.
    BetweenEvents,
    /// In an event, at the start of a line.
    LineStart,
    /// In a line.
    Line,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// So many bytes of a byte order mark were seen at the start of the stream.
    Mark(usize),
    /// Nothing of the line was seen.
    Start,
    /// So many bytes of the field's name were seen.
    Name(Field, usize),
    /// The colon was seen; a space that follows is not of the value.
    Colon(Field),
    /// In the value of a `data` line.
    Data,
    /// In the value of an `event` line, which is `error` so far, for so many bytes.
    ErrorName(usize),
    Comment,
    Ignored,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Data,
    Event,
}

impl Default for Framer {
    fn default() -> Self {
        Framer {
            line: Line::Mark(0),
            after_cr: false,
            open: false,
            fields: false,
            data_lines: 0,
            name_is_error: false,
        }
    }
}

impl Framer {
    /// A framer at the start of a stream.
    pub fn new() -> Self {
        Framer::default()
    }

    /// Takes bytes from the front of `input` up to and with the next piece; `None` when all is consumed.
    pub fn take<'a>(&mut self, input: &mut &'a [u8]) -> Option<Piece<'a>> {
        self.take_line_feed(input);
        while let Some((&byte, rest)) = input.split_first() {
            if !self.open {
                (self.open, self.fields, self.data_lines, self.name_is_error) = (true, false, 0, false);
            }
            if self.line == Line::Colon(Field::Data) || (self.line == DATA_NAME_ONLY && is_line_end(byte)) {
                if byte == b' ' {
                    *input = rest;
                }
                self.line = Line::Data;
                if self.data_lines > 0 {
                    return Some(Piece::Data(b"\n"));
                }
                continue;
            }
            if is_line_end(byte) {
                match self.end_line(input) {
                    Some(piece) => return Some(piece),
                    None => continue,
                }
            }
            match self.line {
                Line::Data => return Some(Piece::Data(take_line(input))),
                Line::Comment | Line::Ignored => _ = take_line(input),
                Line::Mark(0) if byte != MARK[0] => self.line = Line::Start,
                Line::Start if input.starts_with(b"data:") => {
                    *input = input.get(5..).unwrap_or_default();
                    self.line = Line::Colon(Field::Data);
                }
                line => {
                    *input = rest;
                    self.line = line.after(byte);
                }
            }
        }
        None
    }

    /// Takes the LF of a CRLF whose CR was the last byte before: it is of the line, and of the event, that the CR
    /// ended. True when there was one. [`Framer::take`] does this by itself.
    pub fn take_line_feed(&mut self, input: &mut &[u8]) -> bool {
        let Some((&byte, rest)) = input.split_first() else {
            return false;
        };
        let taken = std::mem::take(&mut self.after_cr) && byte == b'\n';
        if taken {
            *input = rest;
        }
        taken
    }

    /// Where the input so far leaves the stream.
    pub fn position(&self) -> Position {
        match self.line {
            _ if !self.open => Position::BetweenEvents,
            Line::Start | Line::Mark(0) => Position::LineStart,
            _ => Position::Line,
        }
    }

    /// Something of the stream has gone by elsewhere: a byte order mark would no longer be one.
    pub fn begin(&mut self) {
        if self.line == Line::Mark(0) {
            self.line = Line::Start;
        }
    }

    /// The next byte begins an event: not even an LF may be left of the last one.
    pub fn is_at_event(&self) -> bool {
        !self.open && !self.after_cr && self.line == Line::Start
    }

    /// The bytes that end an event which the stream left open: nothing, the blank line, or the line's end and the
    /// blank line.
    pub fn closing(&self) -> &'static [u8] {
        match self.position() {
            Position::BetweenEvents => b"",
            // An LF after a CR would only complete a CRLF.
            Position::LineStart if !self.after_cr => b"\n",
            Position::LineStart | Position::Line => b"\n\n",
        }
    }

    /// What goes before more data of the event at hand: nothing within a line of data, else the start of one.
    pub fn before_data(&self) -> &'static [u8] {
        match self.line {
            Line::Data => b"",
            Line::Start if !self.after_cr => b"data:",
            Line::Start | Line::Mark(_) | Line::Name(..) | Line::Colon(_) => b"\ndata:",
            Line::ErrorName(_) | Line::Comment | Line::Ignored => b"\ndata:",
        }
    }

    /// How many lines of data have ended in this event.
    pub fn data_lines(&self) -> u32 {
        self.data_lines
    }

    /// Whether the event, or the last one if none is open, is named `error`.
    pub fn name_is_error(&self) -> bool {
        self.name_is_error || self.line == Line::ErrorName(ERROR_NAME.len())
    }

    /// Consumes the line end that `input` begins with.
    fn end_line(&mut self, input: &mut &[u8]) -> Option<Piece<'static>> {
        let line = std::mem::replace(&mut self.line, Line::Start);
        if let Some((&byte, rest)) = input.split_first() {
            *input = rest;
            self.after_cr = byte == b'\r';
            self.take_line_feed(input);
        }
        match line {
            Line::Start | Line::Mark(0) => {
                self.open = false;
                return Some(Piece::EventEnd);
            }
            Line::Comment if !self.fields => {
                self.open = false;
                return Some(Piece::Comment);
            }
            Line::Data => {
                self.fields = true;
                self.data_lines = self.data_lines.saturating_add(1);
                return Some(Piece::DataLineEnd);
            }
            Line::ErrorName(matched) => self.name_is_error = matched == ERROR_NAME.len(),
            Line::Colon(Field::Event) | EVENT_NAME_ONLY => self.name_is_error = false,
            Line::Mark(_) | Line::Name(..) | Line::Colon(Field::Data) | Line::Comment | Line::Ignored => {}
        }
        self.fields = true;
        None
    }
}

impl Line {
    /// The line after one more byte that neither ends it nor is of a value that is handed out.
    fn after(self, byte: u8) -> Line {
        match self {
            Line::Mark(matched) if MARK.get(matched) == Some(&byte) => {
                if matched + 1 == MARK.len() {
                    Line::Start
                } else {
                    Line::Mark(matched + 1)
                }
            }
            Line::Start => match byte {
                b':' => Line::Comment,
                b'd' => Line::Name(Field::Data, 1),
                b'e' => Line::Name(Field::Event, 1),
                _ => Line::Ignored,
            },
            Line::Name(field, matched) => match field.name().get(matched) {
                Some(expected) if *expected == byte => Line::Name(field, matched + 1),
                None if byte == b':' => Line::Colon(field),
                Some(_) | None => Line::Ignored,
            },
            Line::Colon(Field::Event) if byte == b' ' => Line::ErrorName(0),
            Line::Colon(Field::Event) if ERROR_NAME.first() == Some(&byte) => Line::ErrorName(1),
            Line::ErrorName(matched) if ERROR_NAME.get(matched) == Some(&byte) => Line::ErrorName(matched + 1),
            // Another name than `error`: longer than any prefix of it that could still match.
            Line::Colon(Field::Event) | Line::ErrorName(_) => Line::ErrorName(ERROR_NAME.len() + 1),
            Line::Comment => Line::Comment,
            Line::Mark(_) | Line::Colon(Field::Data) | Line::Data | Line::Ignored => Line::Ignored,
        }
    }
}

impl Field {
    fn name(self) -> &'static [u8] {
        match self {
            Field::Data => b"data",
            Field::Event => b"event",
        }
    }
}

fn is_line_end(byte: u8) -> bool {
    byte == b'\n' || byte == b'\r'
}

/// Takes the rest of the line, without its end.
fn take_line<'a>(input: &mut &'a [u8]) -> &'a [u8] {
    let length = memchr::memchr2(b'\n', b'\r', input).unwrap_or(input.len());
    let (line, rest) = input.split_at_checked(length).unwrap_or((input, b""));
    *input = rest;
    line
}

/// The byte order mark that a stream may begin with.
pub(crate) const MARK: [u8; 3] = [0xEF, 0xBB, 0xBF];
const ERROR_NAME: &[u8] = b"error";
/// A `data` line that has no colon, at its end: its value is empty.
const DATA_NAME_ONLY: Line = Line::Name(Field::Data, 4);
/// The same of an `event` line.
const EVENT_NAME_ONLY: Line = Line::Name(Field::Event, 5);

#[cfg(test)]
mod tests;
