//! Whose call a body says that it is: `user`, or `metadata.user_id`.

use std::borrow::Cow;

use super::RequestBody;
use super::scan::{Fault, Kind, Scanner, Value};
use super::text;
use crate::pure::spend::END_USER_BYTES_MAX;

/// Why a body's end user cannot be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndUserError {
    /// It is neither a string nor null.
    #[error("The end user (user, or metadata.user_id) must be a string.")]
    NotText,
    /// It is too long.
    #[error("The end user (user, or metadata.user_id) has more than {END_USER_BYTES_MAX} bytes.")]
    TooLong,
    /// It stands there twice, and which one counts would be a guess.
    #[error("The end user (user, or metadata.user_id) stands in the body more than once.")]
    Twice,
}

/// Where a body may say whose call it is, as it was read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EndUserFields {
    user: Option<Value>,
    metadata: Option<Value>,
    /// Whether `user` stands in the body more than once.
    is_repeated: bool,
}

impl EndUserFields {
    /// Notes the value of `user`.
    pub(super) fn note_user(&mut self, user: Value) {
        self.is_repeated |= self.user.replace(user).is_some();
    }

    /// Notes the value of `metadata`, which stands in a body once.
    pub(super) fn note_metadata(&mut self, metadata: Value) {
        self.metadata = Some(metadata);
    }
}

impl RequestBody {
    /// The end user: `user`, or else `metadata.user_id`; an empty one is none. Reads these fields once more.
    ///
    /// # Errors
    /// When it is no string, longer than [`END_USER_BYTES_MAX`], or stands there more than once.
    pub fn end_user(&self) -> Result<Option<Cow<'_, str>>, EndUserError> {
        let fields = self.names.as_deref().map(|names| names.end_user).unwrap_or_default();
        if fields.is_repeated {
            return Err(EndUserError::Twice);
        }
        let mut of_metadata = Vec::new();
        if let Some(metadata) = fields.metadata {
            let mut scan = Scanner::at(self.bytes(), metadata.span.start);
            // It was read before: nothing of it can be wrong.
            if user_ids(&mut scan, self.bytes(), &mut of_metadata).is_err() {
                return Ok(None);
            }
        }
        let user = self.only(fields.user.as_slice())?;
        let of_metadata = self.only(&of_metadata)?;
        Ok(user.or(of_metadata))
    }

    fn only(&self, named: &[Value]) -> Result<Option<Cow<'_, str>>, EndUserError> {
        let value = match named {
            [] => return Ok(None),
            [value] => *value,
            _ => return Err(EndUserError::Twice),
        };
        let name = match value.text() {
            Some(name) => text::unescape(name, self.bytes()),
            None if value.kind == Kind::Null => return Ok(None),
            None => return Err(EndUserError::NotText),
        };
        if name.len() > END_USER_BYTES_MAX {
            return Err(EndUserError::TooLong);
        }
        Ok(Some(name).filter(|name| !name.is_empty()))
    }
}

/// Reads the value that comes next: the members `user_id`, if it is an object.
fn user_ids(scan: &mut Scanner<'_>, bytes: &[u8], found: &mut Vec<Value>) -> Result<(), Fault> {
    if scan.peek() != Some(b'{') {
        return scan.value().map(drop);
    }
    let mut metadata = scan.open_object()?;
    while let Some(key) = scan.next_key(&mut metadata)? {
        let value = scan.value()?;
        if text::is(key, bytes, "user_id") {
            found.push(value);
        }
    }
    Ok(())
}

/// The field that names the end user.
pub(super) const USER: &str = "user";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::request_body::Endpoint;

    fn end_user(fields: &str) -> Result<Option<String>, EndUserError> {
        let text = format!(r#"{{"model":"a/b","messages":[{{"role":"user","content":"x"}}]{fields}}}"#);
        let body = RequestBody::parse(text.into(), Endpoint::Chat).unwrap();
        let name = body.end_user()?;
        Ok(name.map(Cow::into_owned))
    }

    #[test]
    fn the_end_user_is_found_where_clients_write_it() {
        let is = |fields, name: &str| assert_eq!(end_user(fields), Ok(Some(name.to_owned())), "{fields}");
        is(r#","user":"anna""#, "anna");
        is(r#","us\u0065r":"\u00e4nna""#, "änna");
        is(r#","metadata":{"a":{"user_id":"x"},"user_id":"bob"}"#, "bob");
        is(r#","metadata":{"user_id":"bob"},"user":"anna""#, "anna");
        is(r#","metadata":{"user_id":"bob"},"user":null"#, "bob");
        is(r#","met\u0061data":{"a":[{}],"user_id" : "b\u00e4b"}"#, "bäb");
        for none in [
            "",
            r#","user":"""#,
            r#","user":null"#,
            r#","metadata":[{"user_id":"x"}]"#,
            r#","other":{"user":"x"}"#,
        ] {
            assert_eq!(end_user(none), Ok(None), "{none}");
        }
        assert_eq!(end_user(r#","user":7"#), Err(EndUserError::NotText));
        for twice in [
            r#","user":"a","user":"b""#,
            r#","metadata":{"user_id":"a","user_id":"a"}"#,
        ] {
            assert_eq!(end_user(twice), Err(EndUserError::Twice), "{twice}");
        }
        let long = |n: usize| end_user(&format!(r#","user":"{}""#, "x".repeat(n)));
        assert_eq!(long(257), Err(EndUserError::TooLong));
        assert!(long(256).is_ok());
    }
}
