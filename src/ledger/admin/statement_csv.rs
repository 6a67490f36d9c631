//! A statement as CSV (RFC 4180), for spreadsheets: one table whose amounts add up from the opening to the closing balance.

use super::credits::Statement;

impl Statement {
    /// The statement as CSV with a header line. `row` says what a line is: `opening`, `entry`, `debit` or `closing`; the amount of a debit is
    /// below zero, so that the opening balance and all amounts are the closing balance. A text that a spreadsheet would take for a formula
    /// has an apostrophe in front.
    ///
    /// # Errors
    /// When a row cannot be written.
    pub fn csv(&self) -> Result<String, String> {
        let mut writer = csv::WriterBuilder::new()
            .terminator(csv::Terminator::CRLF)
            .from_writer(Vec::new());
        let failed = |error: csv::Error| error.to_string();
        writer.write_record(COLUMNS).map_err(failed)?;
        let day = |day: crate::pure::time::Day| day.to_string();
        let balance = |row: &str, at: String, balance: String| {
            let mut cells = vec![row.to_owned(), at, String::new(), String::new(), balance];
            cells.resize(COLUMNS.len(), String::new());
            cells
        };
        let opening = balance("opening", day(self.from), self.opening.to_string());
        writer.write_record(opening).map_err(failed)?;
        for entry in &self.entries {
            let mut cells = vec![
                "entry".to_owned(),
                entry.at.to_string(),
                entry.kind.name().to_owned(),
                entry.amount.to_string(),
                entry.balance.map(|balance| balance.to_string()).unwrap_or_default(),
                plain(&entry.reference),
                plain(entry.note.as_deref().unwrap_or_default()),
            ];
            cells.resize(COLUMNS.len(), String::new());
            writer.write_record(cells).map_err(failed)?;
        }
        for debit in &self.debits {
            let cost = i128::from(debit.cost.pico());
            let amount = crate::ledger::clamped(-cost).to_string();
            let none = String::new;
            writer
                .write_record([
                    "debit".to_owned(),
                    day(debit.day),
                    "usage".to_owned(),
                    amount,
                    none(),
                    none(),
                    none(),
                    plain(&debit.model),
                    debit.requests.to_string(),
                    debit.prompt_tokens.to_string(),
                    debit.completion_tokens.to_string(),
                ])
                .map_err(failed)?;
        }
        let closing = balance("closing", day(self.to), self.closing.to_string());
        writer.write_record(closing).map_err(failed)?;
        let bytes = writer.into_inner().map_err(|error| error.to_string())?;
        String::from_utf8(bytes).map_err(|error| error.to_string())
    }
}

/// A text that no spreadsheet takes for a formula: nor what follows a semicolon in it, where that parts cells, as in many countries.
fn plain(text: &str) -> String {
    let (mut plain, mut begins) = (String::with_capacity(text.len()), true);
    for character in text.chars() {
        if begins && FORMULAS.contains(&character) {
            plain.push('\'');
        }
        plain.push(character);
        // Blanks and quotes in front of a formula do not help.
        begins = character == ';' || (begins && (character.is_whitespace() || character == '"'));
    }
    plain
}

/// What formulas begin with, also in the width of Chinese letters, which some spreadsheets read alike.
const FORMULAS: [char; 10] = ['=', '+', '-', '@', '\t', '\r', '＝', '＋', '－', '＠'];

const COLUMNS: [&str; 11] = [
    "row",
    "time",
    "kind",
    "amount",
    "balance",
    "reference",
    "note",
    "model",
    "requests",
    "prompt_tokens",
    "completion_tokens",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::admin::credits::{CreditEntry, CreditKind, DebitRow};
    use crate::pure::money::Credits;
    use crate::pure::time::{Day, Timestamp};

    fn begins_formula(cell: &str) -> bool {
        let cell = cell.trim_start_matches(|c: char| c.is_whitespace() || c == '"');
        cell.starts_with(['=', '+', '-', '@', '＝', '＋', '－', '＠'])
    }

    #[test]
    fn an_apostrophe_stands_before_formulas_alone() {
        for (text, written) in [
            ("=1", "'=1"),
            (" \"=1", " \"'=1"),
            ("a =1", "a =1"),
            ("a\"=1", "a\"=1"),
            ("a;=1", "a;'=1"),
            ("a; \"=1", "a; \"'=1"),
            ("a;b=1", "a;b=1"),
        ] {
            assert_eq!(plain(text), written);
        }
    }

    /// Any text stands in its cell as it is, and the amounts add up to the last digit.
    #[test]
    fn it_reads_back_and_adds_up() {
        let texts = [
            "plain",
            "a,b \"c\"\r\nd",
            "=HYPERLINK(\"x\")",
            "-1+1",
            "@x",
            "\u{1f4b6}",
            " =1+1",
            "＝1+1",
            "a;=HYPERLINK(\"x\");b",
            "a; \"+1",
            "1-1",
            "",
        ];
        let entry = |n: usize, note: &str| CreditEntry {
            at: Timestamp(1_795_132_800_000),
            kind: CreditKind::Correction,
            amount: Credits::from_pico(if n.is_multiple_of(2) { 3 } else { -1_000_000_000_007 }),
            reference: format!("R {n}"),
            note: Some(note.to_owned()),
            balance: None,
        };
        let debit = |model: &str| DebitRow {
            day: Day(20_777),
            model: model.to_owned(),
            requests: 2,
            prompt_tokens: 3,
            completion_tokens: 4,
            cost: Credits::from_pico(9_007_199_254_740_993),
        };
        let statement = Statement::ending_with(
            77,
            &"acme".parse().unwrap(),
            (Day(20_777), Day(20_778)),
            (
                texts.iter().enumerate().map(|(n, note)| entry(n, note)).collect(),
                vec![debit("a/m"), debit("=b/m")],
            ),
        )
        .unwrap();
        let text = statement.csv().unwrap();
        let mut reader = csv::ReaderBuilder::new().flexible(false).from_reader(text.as_bytes());
        assert_eq!(reader.headers().unwrap().iter().collect::<Vec<_>>(), COLUMNS);
        let rows: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().unwrap();
        assert_eq!(rows.len(), texts.len() + 4);
        for (row, written) in rows.iter().skip(1).zip(texts) {
            assert_eq!(row[6].replace('\'', ""), written);
            assert!(!begins_formula(&row[6]), "{row:?}");
        }
        // Where semicolons part cells, none of those that they make is a formula either.
        let mut reader = csv::ReaderBuilder::new()
            .flexible(true)
            .has_headers(false)
            .delimiter(b';')
            .quoting(false)
            .from_reader(text.as_bytes());
        for row in reader.records() {
            let row = row.unwrap();
            assert!(!row.iter().any(begins_formula), "{row:?}");
        }
        let pico = |cell: &str| cell.parse::<Credits>().unwrap().pico();
        let amounts = rows
            .iter()
            .map(|row| row[3].to_owned())
            .filter(|amount| !amount.is_empty());
        let sum: i64 = amounts.map(|amount| pico(&amount)).sum();
        let [first, .., last] = rows.as_slice() else {
            panic!("{rows:?}")
        };
        assert_eq!((&first[0], &last[0]), ("opening", "closing"));
        assert_eq!(pico(&first[4]) + sum, pico(&last[4]));
        assert_eq!(pico(&last[4]), 77);
        assert_eq!(
            text.matches("\r\n").count(),
            rows.len() + 2,
            "lines end as RFC 4180 says, with one within a cell"
        );
    }
}
