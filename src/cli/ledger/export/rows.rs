//! An export's lines, and of CSV its rows: of bounded length, each with the line where it begins.

use std::borrow::Cow;
use std::io::{BufRead, Read};

use super::ExportError;

/// Lines of bounded length, without the byte order mark.
pub(super) struct Lines<R> {
    input: R,
    /// The line that was read last, from 1.
    pub(super) line: u64,
    /// That line, when it is to be read once more.
    pub(super) given_back: Option<Vec<u8>>,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(input: R) -> Lines<R> {
        Lines {
            input,
            line: 0,
            given_back: None,
        }
    }

    /// Appends a line; false at the end.
    pub(super) fn append(&mut self, text: &mut Vec<u8>) -> Result<bool, ExportError> {
        if let Some(line) = self.given_back.take() {
            text.extend_from_slice(&line);
            return Ok(true);
        }
        let room = ROW_BYTES_MAX.saturating_sub(text.len()).saturating_add(1);
        let mut input = self.input.by_ref().take(u64::try_from(room).unwrap_or(u64::MAX));
        if input.read_until(b'\n', text)? == 0 {
            return Ok(false);
        }
        self.line = self.line.saturating_add(1);
        if self.line == 1 && text.starts_with(MARK) {
            text.drain(..MARK.len());
        }
        match text.len() > ROW_BYTES_MAX {
            true => Err(self.mistake(format!("the row is longer than {ROW_BYTES_MAX} bytes"))),
            false => Ok(true),
        }
    }

    pub(super) fn mistake(&self, mistake: impl Into<Cow<'static, str>>) -> ExportError {
        ExportError::Line {
            line: self.line.max(1),
            mistake: mistake.into(),
        }
    }
}

/// The rows of a CSV for its parser, one at a time, so that it is known where each begins. A parser takes broken quotes for something
/// else, and the rows up to the next quote for a cell: here they are an error.
pub(super) struct CsvRows<R> {
    lines: Lines<R>,
    row: Vec<u8>,
    /// How many bytes of it the parser has.
    given: usize,
    /// The line where it begins.
    pub(super) begins: u64,
}

/// Where in a row a byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quotes {
    CellBegins,
    Bare,
    Quoted,
    /// Behind a quote within quotes: it ends the cell, or another one follows.
    Closed,
    /// Behind a carriage return: the line ends.
    Ends,
}

impl Quotes {
    fn next(self, byte: u8) -> Result<Quotes, &'static str> {
        match (self, byte) {
            (Quotes::Quoted, b'"') => Ok(Quotes::Closed),
            (Quotes::Quoted, _) | (Quotes::CellBegins | Quotes::Closed, b'"') => Ok(Quotes::Quoted),
            (_, b'\n') => Ok(Quotes::CellBegins),
            (Quotes::Ends, _) => Err("a carriage return stands within the row"),
            (_, b'\r') => Ok(Quotes::Ends),
            (_, b',') => Ok(Quotes::CellBegins),
            (Quotes::Closed, _) => Err("a quoted cell goes on behind its closing quote"),
            (Quotes::Bare, b'"') => Err("a quote stands in a cell that does not begin with one"),
            (Quotes::CellBegins | Quotes::Bare, _) => Ok(Quotes::Bare),
        }
    }
}

impl<R: BufRead> CsvRows<R> {
    pub(super) fn new(lines: Lines<R>) -> CsvRows<R> {
        CsvRows {
            lines,
            row: Vec::new(),
            given: 0,
            begins: 0,
        }
    }

    /// Reads the next row; an empty one at the end.
    fn advance(&mut self) -> Result<(), ExportError> {
        self.given = 0;
        loop {
            self.row.clear();
            if !self.lines.append(&mut self.row)? {
                return Ok(());
            }
            if !self.row.trim_ascii().is_empty() {
                break;
            }
        }
        self.begins = self.lines.line;
        let (mut quotes, mut at) = (Quotes::CellBegins, 0);
        loop {
            for byte in self.row.iter().skip(at) {
                quotes = quotes.next(*byte).map_err(|mistake| self.lines.mistake(mistake))?;
            }
            at = self.row.len();
            if quotes != Quotes::Quoted {
                return Ok(());
            }
            if !self.lines.append(&mut self.row)? {
                return Err(ExportError::Line {
                    line: self.begins,
                    mistake: "a quote opens in this row and never closes".into(),
                });
            }
        }
    }
}

impl<R: BufRead> Read for CsvRows<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.given >= self.row.len() {
            self.advance().map_err(std::io::Error::other)?;
        }
        let mut rest = self.row.get(self.given..).unwrap_or_default();
        let read = rest.read(into)?;
        self.given = self.given.saturating_add(read);
        Ok(read)
    }
}

/// The most bytes of a row: answers may stand in JSON lines.
const ROW_BYTES_MAX: usize = 1 << 20;
const MARK: &[u8] = b"\xEF\xBB\xBF";
