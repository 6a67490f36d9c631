//! How answers look: tables for people, one line of JSON for programs.

use serde::Serialize;

use super::failure::{Failure, without_keys};
use super::made::Made;

/// What the operator wants to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Format {
    #[default]
    Text,
    Json,
}

/// What a command has to say. Problems and warnings go to standard error; the first make the exit status 1.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) problems: Vec<String>,
    pub(super) warnings: Vec<String>,
    /// What has its secret in `text` and nowhere else.
    pub(super) made: Option<Box<Made>>,
}

/// Something to show. JSON comes from its `Serialize`, never by way of `serde_json::Value`, which would round amounts.
pub(super) trait Show: Serialize {
    /// For people; whole lines.
    fn text(&self) -> String;

    /// What is wrong, a sentence each.
    fn problems(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Where the cells of a column stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
    /// Decimal points under each other.
    Point,
}

/// Rows under a heading, aligned. A first cell that would make a line longer than [`LINE_MAX`] gets a line of its own.
pub(super) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Answer {
    pub(super) fn of(shown: &impl Show, format: Format) -> Result<Answer, Failure> {
        let text = match format {
            Format::Text => shown.text(),
            Format::Json => json_line(shown)?,
        };
        Ok(Answer {
            text,
            problems: shown.problems(),
            ..Answer::default()
        })
    }
}

pub(super) fn json_line(shown: &impl Serialize) -> Result<String, Failure> {
    let mut text = serde_json::to_string(shown)?;
    text.push('\n');
    Ok(text)
}

/// An error, as it stands on standard error.
pub(super) fn error_line(problem: &str, format: Format) -> String {
    let message = without_keys(problem);
    match format {
        Format::Text => format!("error: {message}\n"),
        Format::Json => format!("{}\n", serde_json::json!({ "error": { "message": message } })),
    }
}

/// A warning, in the same form; nothing of nothing.
pub(super) fn warning_line(warning: &str, format: Format) -> String {
    if warning.is_empty() {
        return String::new();
    }
    let message = without_keys(warning);
    match format {
        Format::Text => format!("warning: {message}\n"),
        Format::Json => format!("{}\n", serde_json::json!({ "warning": { "message": message } })),
    }
}

/// `name  value` lines with the values under each other; each value is a line, written as by [`plain`].
pub(super) fn facts(facts: &[(&str, String)]) -> String {
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in facts {
        line(&mut text, format_args!("{name:width$}  {}", plain(value)));
    }
    text
}

/// Appends a line without blanks at its end.
pub(super) fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.push_str(&arguments.to_string());
    text.truncate(text.trim_end_matches(' ').len());
    text.push('\n');
}

/// The text with every character written out that a terminal would obey, or by which it turns the order of what follows: what somebody
/// sent must not steer a terminal.
pub(super) fn plain(text: &str) -> String {
    text.chars()
        .flat_map(|c| match c {
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => c.escape_default().collect(),
            c if c.is_control() => c.escape_default().collect::<Vec<char>>(),
            c => vec![c],
        })
        .collect()
}

/// The text as one word of a shell, for lines to paste.
pub(super) fn shell_word(text: &str) -> String {
    let means_itself =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+' | ':' | '@' | '=');
    match !text.is_empty() && text.chars().all(means_itself) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// `1 call`, `2 calls`.
pub(super) fn counted(number: u64, one: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ => format!("{number} {one}s"),
    }
}

impl Table {
    pub(super) fn new(columns: &[(&'static str, Align)]) -> Table {
        Table {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; it has as many cells as there are columns.
    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.iter().map(|cell| plain(cell)).collect());
    }

    pub(super) fn text(&self) -> String {
        let rows = self.pointed();
        let mut widths: Vec<usize> = Vec::with_capacity(self.columns.len());
        for (at, (title, _)) in self.columns.iter().enumerate() {
            let cells = rows
                .iter()
                .filter_map(|row| row.get(at))
                .map(|cell| cell.chars().count());
            widths.push(cells.max().unwrap_or(0).max(title.chars().count()));
        }
        if let Some((first, others)) = widths.split_first_mut() {
            let rest: usize = others.iter().map(|width| width + GAP.len()).sum();
            let title = self.columns.first().map_or(0, |(title, _)| title.len());
            *first = (*first).min(LINE_MAX.saturating_sub(rest).max(title).max(FIRST_MIN));
        }
        let mut text = String::new();
        let titles: Vec<String> = self.columns.iter().map(|(title, _)| (*title).to_owned()).collect();
        self.write_row(&mut text, &titles, &widths);
        for row in &rows {
            self.write_row(&mut text, row, &widths);
        }
        text
    }

    fn write_row(&self, text: &mut String, cells: &[String], widths: &[usize]) {
        let mut out = String::new();
        for (at, ((cell, width), (_, align))) in cells.iter().zip(widths).zip(&self.columns).enumerate() {
            if at > 0 {
                out.push_str(GAP);
            } else if cell.chars().count() > *width {
                line(text, format_args!("{cell}"));
                out.push_str(&" ".repeat(*width));
                continue;
            }
            out.push_str(&match align {
                Align::Left => format!("{cell:width$}"),
                Align::Right | Align::Point => format!("{cell:>width$}"),
            });
        }
        line(text, format_args!("{out}"));
    }

    /// The rows, with the cells of point columns filled up so that their points meet when they are set flush right.
    fn pointed(&self) -> Vec<Vec<String>> {
        let decimals = |cell: &String| cell.split_once('.').map_or(0, |(_, decimals)| decimals.len() + 1);
        let mut rows = self.rows.clone();
        for (at, (_, align)) in self.columns.iter().enumerate() {
            if *align != Align::Point {
                continue;
            }
            let most = rows
                .iter()
                .filter_map(|row| row.get(at))
                .map(decimals)
                .max()
                .unwrap_or(0);
            for cell in rows.iter_mut().filter_map(|row| row.get_mut(at)) {
                let missing = most.saturating_sub(decimals(cell));
                cell.push_str(&" ".repeat(missing));
            }
        }
        rows
    }
}

const GAP: &str = "  ";
const LINE_MAX: usize = 80;
const FIRST_MIN: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_does_not_steer_the_terminal() {
        let mut table = Table::new(&[("A", Align::Left), ("B", Align::Right)]);
        table.row(vec!["\u{1b}[2Jx".into(), "\u{9b}1\r\n".into()]);
        assert_eq!(table.text(), "A                     B\n\\u{1b}[2Jx  \\u{9b}1\\r\\n\n");
    }

    /// A note of an account that turns the order of what follows, or clears the screen.
    #[test]
    fn neither_a_cell_nor_a_fact_turns_the_order_of_what_follows() {
        let note = "\u{202e}lamina\u{2069}";
        let mut table = Table::new(&[("A", Align::Left)]);
        table.row(vec![note.into()]);
        assert_eq!(table.text(), "A\n\\u{202e}lamina\\u{2069}\n");
        assert_eq!(
            facts(&[("note", format!("{note}\u{1b}[2J"))]),
            "note  \\u{202e}lamina\\u{2069}\\u{1b}[2J\n"
        );
    }

    #[test]
    fn a_word_of_a_shell_is_in_quotes_where_it_means_more_than_itself() {
        for (text, word) in [
            ("INVOICE-7", "INVOICE-7"),
            ("a b", "'a b'"),
            ("$(id)", "'$(id)'"),
            ("`id`\"", "'`id`\"'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(text), word);
        }
    }

    #[test]
    fn columns_meet_and_long_names_get_their_own_line() {
        let mut table = Table::new(&[("MODEL", Align::Left), ("CALLS", Align::Right), ("COST", Align::Point)]);
        table.row(vec!["a/b".into(), "1".into(), "10".into()]);
        table.row(vec!["m".repeat(70), "12".into(), "0.123".into()]);
        let long = "m".repeat(70);
        let first = 80 - (2 + 5) - (2 + 6);
        let expected = format!(
            "{:first$}  CALLS    COST\n{:first$}      1  10\n{long}\n{:first$}     12   0.123\n",
            "MODEL", "a/b", ""
        );
        assert_eq!(table.text(), expected);
    }
}
