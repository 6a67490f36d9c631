//! Whose call a body says that it is: `user`, or `metadata.user_id`.

use std::borrow::Cow;

use super::RequestBody;
use super::scan::{Fault, Kind, Scanner, Span, Value};
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

/// Where a body says whose call it is, as it was read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EndUserFields {
    user: Option<Value>,
    /// `user_id` of `metadata`.
    user_id: Option<Value>,
    /// Whether one of them stands there more than once.
    is_repeated: bool,
}

impl EndUserFields {
    /// Notes the value of `user`.
    pub(super) fn note_user(&mut self, user: Value) {
        self.is_repeated |= self.user.replace(user).is_some();
    }

    /// Reads the value of `metadata`, which stands in a body once, and notes its member `user_id`.
    pub(super) fn read_metadata(&mut self, scan: &mut Scanner<'_>, bytes: &[u8]) -> Result<Value, Fault> {
        if scan.peek() != Some(b'{') {
            return scan.value();
        }
        let start = scan.offset();
        let mut members = scan.open_object()?;
        while let Some(key) = scan.next_key(&mut members)? {
            let value = scan.value()?;
            if text::is(key, bytes, USER_ID) {
                self.is_repeated |= self.user_id.replace(value).is_some();
            }
        }
        Ok(Value {
            kind: Kind::Object,
            span: Span::new(start, scan.offset()),
        })
    }
}

impl RequestBody {
    /// The end user: `user`, or else `metadata.user_id`; an empty one is none. Reads no more of the body than these two.
    ///
    /// # Errors
    /// When it is no string, longer than [`END_USER_BYTES_MAX`], or stands there more than once.
    pub fn end_user(&self) -> Result<Option<Cow<'_, str>>, EndUserError> {
        let fields = self.names.as_deref().map(|names| names.end_user).unwrap_or_default();
        if fields.is_repeated {
            return Err(EndUserError::Twice);
        }
        match self.end_user_of(fields.user)? {
            Some(user) => Ok(Some(user)),
            None => self.end_user_of(fields.user_id),
        }
    }

    fn end_user_of(&self, named: Option<Value>) -> Result<Option<Cow<'_, str>>, EndUserError> {
        let Some(value) = named else { return Ok(None) };
        let name = match value.text() {
            // It may be megabytes, which are not unescaped to be counted.
            Some(name) if name.span.len() > WRITTEN_BYTES_MAX => return Err(EndUserError::TooLong),
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

/// The field that names the end user.
pub(super) const USER: &str = "user";
/// The member of `metadata` that names it.
const USER_ID: &str = "user_id";
/// Bytes of the longest end user when all of it is written with escapes.
const WRITTEN_BYTES_MAX: usize = END_USER_BYTES_MAX * text::ESCAPE_BYTES_MAX;

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
        is(r#","metadata":{"user_id":7},"user":"anna""#, "anna");
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
        assert_eq!(
            end_user(r#","user":"","metadata":{"user_id":7}"#),
            Err(EndUserError::NotText)
        );
        for twice in [
            r#","user":"a","user":"b""#,
            r#","metadata":{"user_id":"a","user_id":"a"}"#,
            r#","user":"a","metadata":{"user_id":"a","us\u0065r_id":null}"#,
        ] {
            assert_eq!(end_user(twice), Err(EndUserError::Twice), "{twice}");
        }
        for letter in ["x", "\\u0078"] {
            let long = |n: usize| end_user(&format!(r#","user":"{}""#, letter.repeat(n)));
            for longer in [257, 100_000] {
                assert_eq!(long(longer), Err(EndUserError::TooLong), "{letter}");
            }
            assert_eq!(long(256), Ok(Some("x".repeat(256))), "{letter}");
        }
    }

    /// It may be megabytes, and is asked for on the thread that passes streams on.
    #[test]
    fn metadata_is_not_read_again_for_the_end_user() {
        let text = r#"{"model":"a/b","messages":[{"role":"user","content":"x"}],"metadata":{"a":[1],"user_id":"bob"}}"#;
        let mut body = RequestBody::parse(text.into(), Endpoint::Chat).unwrap();
        body.bytes = text.replace(r#"{"a":[1],"#, "!!!!!!!!!").into();
        assert_eq!(body.bytes.len(), text.len());
        assert_eq!(body.end_user().unwrap().as_deref(), Some("bob"));
    }
}
