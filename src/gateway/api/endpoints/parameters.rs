//! Parameters in a request's query.

use std::borrow::Cow;

use pingora::protocols::http::ServerSession;

use crate::config::nearest;
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

/// The query of a path that has these parameters and no others. One that is misspelt would be answered with what nobody asked for.
pub(super) fn known_query(session: &ServerSession, known: &[&str]) -> Result<Vec<(String, String)>, ApiError> {
    let query = query(session);
    if let Some((name, _)) = query.iter().find(|(name, _)| !known.contains(&name.as_str())) {
        let message = match name.len() > QUOTED_MAX {
            true => "There is no parameter with so long a name.".to_owned(),
            false => format!(
                "There is no parameter {name:?}{}.",
                nearest(name, known.iter().copied())
            ),
        };
        return Err(ApiError::BadRequest(message));
    }
    Ok(query)
}

/// What stands in the request's query, in its order.
pub(super) fn query(session: &ServerSession) -> Vec<(String, String)> {
    let text = session.req_header().uri.query().unwrap_or("");
    let owned = |text: Cow<'_, str>| text.into_owned();
    form_urlencoded::parse(text.as_bytes())
        .map(|(key, value)| (owned(key), owned(value)))
        .collect()
}

/// Bytes of a name that is told.
const QUOTED_MAX: usize = 64;
