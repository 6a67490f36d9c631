//! Reads a provider's export, row by row: CSV with a header line, or JSON lines. A row that cannot be read whole is an error with its
//! line; none is skipped.

mod rows;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::io::BufRead;

use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, Visitor};

use self::rows::{CsvRows, Lines};
use crate::pure::reconcile::ExportRow;
use crate::pure::usage::{CompletionTokens, PromptTokens, Usage};

/// What is wrong with an export, and where.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExportError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] std::io::Error),
    /// A line is not what it should be.
    #[error("{mistake}")]
    Line {
        /// From 1.
        line: u64,
        mistake: Cow<'static, str>,
    },
}

/// What the comparison needs of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Column {
    Id,
    Prompt,
    Completion,
}

/// Reads an export to its end. `each` may refuse a row, for whatever reason.
pub(super) fn read(
    input: impl BufRead,
    mut each: impl FnMut(ExportRow) -> Result<(), Cow<'static, str>>,
) -> Result<(), ExportError> {
    let mut lines = Lines::new(input);
    let mut first = Vec::new();
    while first.trim_ascii().is_empty() {
        first.clear();
        if !lines.append(&mut first)? {
            return Err(lines.mistake("the export is empty: not even a header line is there"));
        }
    }
    let begins_with = first.trim_ascii_start().first().copied();
    lines.given_back = Some(first);
    match begins_with {
        Some(b'{') => read_json(lines, &mut each),
        Some(b'[') => Err(lines.mistake("a JSON array begins here: JSON lines have an object a line")),
        _ => read_csv(lines, &mut each),
    }
}

type Each<'e> = &'e mut dyn FnMut(ExportRow) -> Result<(), Cow<'static, str>>;

fn read_csv(lines: Lines<impl BufRead>, each: Each<'_>) -> Result<(), ExportError> {
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .from_reader(CsvRows::new(lines));
    let mut record = csv::StringRecord::new();
    let mut header: Option<(csv::StringRecord, [usize; 3])> = None;
    while reader
        .read_record(&mut record)
        .map_err(|error| csv_error(error, &reader))?
    {
        let line = reader.get_ref().begins;
        let mistake = |mistake: Cow<'static, str>| ExportError::Line { line, mistake };
        let Some((titles, places)) = &header else {
            let places = places(&record).map_err(mistake)?;
            header = Some((std::mem::take(&mut record), places));
            continue;
        };
        if record == *titles {
            return Err(mistake("the header stands here again".into()));
        }
        if record.len() != titles.len() {
            let (cells, titles) = (record.len(), titles.len());
            return Err(mistake(
                format!("the row has another number of cells ({cells}) than the header ({titles})").into(),
            ));
        }
        let [id, prompt, completion] = places.map(|at| record.get(at).unwrap_or_default());
        let usage = usage(number(prompt, "prompt"), number(completion, "completion"));
        each(ExportRow {
            id: checked_id(id).map_err(mistake)?,
            usage: usage.map_err(mistake)?,
            line,
        })
        .map_err(mistake)?;
    }
    Ok(())
}

/// In which columns id, prompt and completion stand.
fn places(titles: &csv::StringRecord) -> Result<[usize; 3], Cow<'static, str>> {
    let mut found: BTreeMap<Column, usize> = BTreeMap::new();
    for (at, title) in titles.iter().enumerate() {
        let Some(column) = Column::of(title) else { continue };
        if let Some(other) = found.insert(column, at) {
            let other = titles.get(other).unwrap_or_default();
            return Err(column.twice(other, title));
        }
    }
    let place = |column: Column| found.get(&column).copied().ok_or_else(|| column.absent("column"));
    Ok([place(Column::Id)?, place(Column::Prompt)?, place(Column::Completion)?])
}

fn csv_error(error: csv::Error, reader: &csv::Reader<CsvRows<impl BufRead>>) -> ExportError {
    let line = reader.get_ref().begins;
    match error.into_kind() {
        csv::ErrorKind::Io(error) => match error.downcast::<ExportError>() {
            Ok(mistake) => mistake,
            Err(error) => ExportError::Read(error),
        },
        csv::ErrorKind::Utf8 { .. } => ExportError::Line {
            line,
            mistake: NOT_UTF8.into(),
        },
        _ => ExportError::Line {
            line,
            mistake: "the row cannot be read".into(),
        },
    }
}

fn read_json(mut lines: Lines<impl BufRead>, each: Each<'_>) -> Result<(), ExportError> {
    let mut text = Vec::new();
    while lines.append(&mut text)? {
        if !text.trim_ascii().is_empty() {
            let row: JsonRow = serde_json::from_slice(&text).map_err(|error| lines.mistake(json_mistake(&error)))?;
            let row = row.checked(lines.line).map_err(|mistake| lines.mistake(mistake))?;
            each(row).map_err(|mistake| lines.mistake(mistake))?;
        }
        text.clear();
    }
    Ok(())
}

fn json_mistake(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let mistake = text.strip_suffix(&place).unwrap_or(&text);
    match error.is_data() {
        true => mistake.to_owned(),
        false => format!("not a JSON object ({mistake} at column {})", error.column()),
    }
}

/// A row of JSON lines, as far as it is needed.
#[derive(Debug, Default)]
struct JsonRow {
    id: Option<(String, String)>,
    prompt: Option<(String, Count)>,
    completion: Option<(String, Count)>,
}

/// A number as JSON has it, or its digits in quotes.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Count {
    Number(u64),
    Text(String),
    Other(IgnoredAny),
}

impl JsonRow {
    fn checked(self, line: u64) -> Result<ExportRow, Cow<'static, str>> {
        let (_, id) = self.id.ok_or_else(|| Column::Id.absent("field"))?;
        let (_, prompt) = self.prompt.ok_or_else(|| Column::Prompt.absent("field"))?;
        let (_, completion) = self.completion.ok_or_else(|| Column::Completion.absent("field"))?;
        Ok(ExportRow {
            id: checked_id(&id)?,
            usage: usage(prompt.number("prompt"), completion.number("completion"))?,
            line,
        })
    }
}

impl Count {
    fn number(&self, what: &str) -> Result<u64, Cow<'static, str>> {
        match self {
            Count::Number(number) => Ok(*number),
            Count::Text(text) => number(text, what),
            Count::Other(_) => Err(format!("the {what} tokens are not a whole number").into()),
        }
    }
}

impl<'de> Deserialize<'de> for JsonRow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<JsonRow, D::Error> {
        deserializer.deserialize_map(JsonFields)
    }
}

struct JsonFields;

impl<'de> Visitor<'de> for JsonFields {
    type Value = JsonRow;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonRow, A::Error> {
        let mut row = JsonRow::default();
        while let Some(name) = map.next_key::<String>()? {
            match Column::of(&name) {
                None => drop(map.next_value::<IgnoredAny>()?),
                Some(Column::Id) => put(&mut row.id, Column::Id, name, map.next_value()?)?,
                Some(Column::Prompt) => put(&mut row.prompt, Column::Prompt, name, map.next_value()?)?,
                Some(Column::Completion) => put(&mut row.completion, Column::Completion, name, map.next_value()?)?,
            }
        }
        Ok(row)
    }
}

fn put<T, E: de::Error>(place: &mut Option<(String, T)>, column: Column, name: String, value: T) -> Result<(), E> {
    if let Some((other, _)) = place {
        return Err(E::custom(column.twice(other, &name)));
    }
    *place = Some((name, value));
    Ok(())
}

impl Column {
    /// What a title or a field's name means, in whatever case, with blanks or dashes for underscores.
    fn of(title: &str) -> Option<Column> {
        let name = title.trim().to_ascii_lowercase().replace([' ', '-'], "_");
        [Column::Id, Column::Prompt, Column::Completion]
            .into_iter()
            .find(|column| column.names().contains(&name.as_str()))
    }

    fn names(self) -> &'static [&'static str] {
        match self {
            Column::Id => &["id", "request_id", "completion_id", "generation_id"],
            Column::Prompt => &[
                "prompt",
                "prompt_tokens",
                "input_tokens",
                "tokens_prompt",
                "native_tokens_prompt",
            ],
            Column::Completion => &[
                "completion",
                "completion_tokens",
                "output_tokens",
                "tokens_completion",
                "native_tokens_completion",
            ],
        }
    }

    fn absent(self, what: &str) -> Cow<'static, str> {
        format!("no {what} is named {}", self.names().join(", ")).into()
    }

    fn twice(self, one: &str, other: &str) -> Cow<'static, str> {
        let (one, other, name) = (
            one.escape_debug(),
            other.escape_debug(),
            self.names().first().copied().unwrap_or_default(),
        );
        format!("{one} and {other} both say the {name}: leave one of them").into()
    }
}

fn checked_id(text: &str) -> Result<String, Cow<'static, str>> {
    let id = text.trim();
    match id.len() {
        0 => Err("the id is empty".into()),
        1..=ID_BYTES_MAX => Ok(id.to_owned()),
        _ => Err(format!("the id is longer than {ID_BYTES_MAX} bytes").into()),
    }
}

fn number(text: &str, what: &str) -> Result<u64, Cow<'static, str>> {
    let digits = text.trim();
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    match digits.parse() {
        Ok(number) if is_number => Ok(number),
        _ => Err(format!("the {what} tokens are not a whole number").into()),
    }
}

fn usage(
    prompt: Result<u64, Cow<'static, str>>,
    completion: Result<u64, Cow<'static, str>>,
) -> Result<Usage, Cow<'static, str>> {
    Ok(Usage {
        prompt: PromptTokens(prompt?),
        completion: CompletionTokens(completion?),
    })
}

const ID_BYTES_MAX: usize = 256;
const NOT_UTF8: &str = "the row is not UTF-8";

#[cfg(test)]
mod tests;
