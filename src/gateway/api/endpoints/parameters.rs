//! Parameters in a request's query.

use std::borrow::Cow;

use pingora::protocols::http::ServerSession;

use crate::pure::error::ApiError;

/// A positive integer up to `max`.
pub(super) fn positive(query: &[(String, String)], name: &str, default: u64, max: u64) -> Result<u64, ApiError> {
    let Some(text) = parameter(query, name)? else {
        return Ok(default);
    };
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let value = if digits { text.parse::<u64>().ok() } else { None };
    value.filter(|value| (1..=max).contains(value)).ok_or_else(|| {
        let range = if max == u64::MAX {
            "a positive integer".to_owned()
        } else {
            format!("an integer from 1 to {max}")
        };
        ApiError::BadRequest(format!("{name} must be {range}."))
    })
}

/// A parameter's value; one that stands twice is refused, for which one counts would be a guess.
pub(super) fn parameter<'a>(query: &'a [(String, String)], name: &str) -> Result<Option<&'a str>, ApiError> {
    let mut values = query
        .iter()
        .filter(|(key, _)| key == name)
        .map(|(_, value)| value.as_str());
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        _ => Err(ApiError::BadRequest(format!(
            "{name} stands in the query more than once."
        ))),
    }
}

/// The query of a path that has these parameters. One of them that is misspelt is refused, for it would be answered with what nobody asked for;
/// any other name means nothing here.
pub(super) fn known_query(session: &ServerSession, known: &[&str]) -> Result<Vec<(String, String)>, ApiError> {
    let query = query(session);
    let others = query.iter().filter(|(name, _)| !known.contains(&name.as_str()));
    for (name, _) in others {
        if let Some(meant) = known.iter().find(|known| is_misspelt(name, known)) {
            return Err(ApiError::BadRequest(format!(
                "There is no parameter {name:?} (did you mean {meant}?)."
            )));
        }
    }
    Ok(query)
}

/// Whether a name is one that is known but for case, `_` and `-`, or, where that is no short one, but for one letter.
fn is_misspelt(name: &str, known: &str) -> bool {
    let plain = |name: &str| name.replace(['_', '-'], "").to_ascii_lowercase();
    if name.len() > known.len().saturating_add(2) {
        return false;
    }
    plain(name) == plain(known) || (known.len() >= DISTANT_FROM && strsim::damerau_levenshtein(name, known) == 1)
}

/// What stands in the request's query, in its order.
pub(super) fn query(session: &ServerSession) -> Vec<(String, String)> {
    let text = session.req_header().uri.query().unwrap_or("");
    let owned = |text: Cow<'_, str>| text.into_owned();
    form_urlencoded::parse(text.as_bytes())
        .map(|(key, value)| (owned(key), owned(value)))
        .collect()
}

/// Letters of a name of which one may be wrong.
const DISTANT_FROM: usize = 4;
