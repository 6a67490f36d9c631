//! Fields that Tollgate does not know: they pass, but for what some upstreams would take out of them.

use super::Reader;
use crate::pure::request_body::scan::{Fault, Scanner, Text};
use crate::pure::request_body::{Endpoint, controls, fields, fold, text};

impl Reader<'_> {
    /// A field that Tollgate does not know.
    pub(super) fn unknown(&mut self, scan: &mut Scanner<'_>, key: Text) -> Result<(), Fault> {
        let name = text::name(key, self.bytes);
        fold::check_field(&name)?;
        let nested = matches!(scan.peek(), Some(b'{' | b'['));
        if nested && *name == *TEMPLATE_VALUES {
            let mut has_template = false;
            let value = scan.value_with_keys(&mut |key| {
                has_template |= text::is(key, self.bytes, CHAT_TEMPLATE);
                Ok(())
            })?;
            self.add_other_bytes(value);
            if let (true, Some(field)) = (has_template, fields::find(CHAT_TEMPLATE.as_bytes())) {
                self.refused.insert(field);
            }
            return Ok(());
        }
        if !nested || name.is_one_of(&SCHEMAS) {
            return self.other(scan);
        }
        let value = fold::value_without_maximum(scan, self.bytes)?;
        self.add_other_bytes(value);
        match self.endpoint {
            Endpoint::Embeddings => Ok(()),
            _ if controls::is_clients_own(&name) => Ok(()),
            Endpoint::Chat | Endpoint::ChatStream => self.note_controls(value),
        }
    }
}

/// The values of a template. Some upstreams take the template itself from there too.
const TEMPLATE_VALUES: &[u8] = b"chat_template_kwargs";
const CHAT_TEMPLATE: &str = "chat_template";
/// Fields that hold a schema: the keys in them are the client's own.
const SCHEMAS: [&str; 7] = [
    "response_format",
    "guided_json",
    "structured_outputs",
    "json_schema",
    "schema",
    "format",
    "text",
];
