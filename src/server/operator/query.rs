//! The query of a request: which parameters it may have, and what they mean.

use std::str::FromStr;

use crate::config::nearest;
use crate::pure::error::operator::OperatorError;
use crate::pure::time::Day;

/// Parameters by their names, each once and each one that is known.
#[derive(Debug)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads what stands behind the question mark.
    ///
    /// # Errors
    /// 400 for a name that is unknown, or stands there twice: which one counts would be a guess.
    pub(super) fn read(text: &str, known: &[&str]) -> Result<Query, OperatorError> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            if !known.contains(&&*name) {
                if name.len() > QUOTED_MAX {
                    return Err(OperatorError::bad("There is no parameter with so long a name."));
                }
                let near = nearest(&name, known.iter().copied());
                return Err(OperatorError::bad(format!("There is no parameter {name:?}{near}.")));
            }
            if pairs.iter().any(|(other, _)| *other == *name) {
                return Err(OperatorError::bad(format!(
                    "{name} stands in the query more than once."
                )));
            }
            pairs.push((name.into_owned(), value.into_owned()));
        }
        Ok(Query(pairs))
    }

    /// A parameter's text.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let mut pairs = self.0.iter();
        pairs.find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// A parameter that names one thing, of so many bytes at most.
    ///
    /// # Errors
    /// 400 when it is empty or longer.
    pub(super) fn one_of(&self, name: &str, bytes_max: usize) -> Result<Option<String>, OperatorError> {
        match self.text(name) {
            Some(text) if text.is_empty() || text.len() > bytes_max => {
                Err(OperatorError::bad(format!("{name} is of 1 to {bytes_max} bytes.")))
            }
            text => Ok(text.map(str::to_owned)),
        }
    }

    /// A parameter that is read.
    ///
    /// # Errors
    /// 400 when it cannot be.
    pub(super) fn read_as<T: FromStr<Err: std::fmt::Display>>(&self, name: &str) -> Result<Option<T>, OperatorError> {
        let read = |text: &str| {
            if text.len() > QUOTED_MAX {
                return Err(OperatorError::bad(format!("{name} is of at most {QUOTED_MAX} bytes.")));
            }
            text.parse()
                .map_err(|error| OperatorError::bad(format!("{name}: {error}")))
        };
        self.text(name).map(read).transpose()
    }

    /// One that has to be there.
    ///
    /// # Errors
    /// 400 when it is missing or cannot be read.
    pub(super) fn needed<T: FromStr<Err: std::fmt::Display>>(&self, name: &str) -> Result<T, OperatorError> {
        self.read_as(name)?
            .ok_or_else(|| OperatorError::bad(format!("{name} is missing in the query.")))
    }

    /// How many entries a page has.
    ///
    /// # Errors
    /// 400 when that is not from 1 to `most`.
    pub(super) fn limit(&self, default: u32, most: u32) -> Result<u32, OperatorError> {
        let Some(text) = self.text("limit") else {
            return Ok(default);
        };
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let limit = if is_number { text.parse().ok() } else { None };
        limit
            .filter(|limit| (1..=most).contains(limit))
            .ok_or_else(|| OperatorError::bad(format!("limit must be an integer from 1 to {most}.")))
    }

    /// A UTC day.
    ///
    /// # Errors
    /// 400 when it is none.
    pub(super) fn day(&self, name: &str) -> Result<Option<Day>, OperatorError> {
        let read = |text| {
            Day::parse(text)
                .ok_or_else(|| OperatorError::bad(format!("{name} must be a day of UTC such as 2026-11-20.")))
        };
        self.text(name).map(read).transpose()
    }

    /// The pairs, as they stood there.
    pub(super) fn pairs(&self) -> &[(String, String)] {
        &self.0
    }
}

/// Most bytes of a request that are sent back in an error.
pub(super) const QUOTED_MAX: usize = 64;
