//! Values of refused fields that ask for nothing: null and false, an empty list of plugins or rewrites, an empty choice of providers, the model itself as the only
//! one. Clients of OpenRouter send them. They pass, and no upstream gets them unless its configuration allows the field.

use super::fields::Field;
use super::members::Member;
use super::scan::{Kind, Scanner, Span, Text, Value};
use super::text;

/// A member that asks for nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unasked {
    pub(super) field: Field,
    pub(super) member: Member,
    /// The only model of a list: the member asks for nothing if it is that of the request.
    model: Option<Text>,
}

impl Unasked {
    /// A member that asks for nothing in any request.
    pub(super) fn nothing(field: Field, key: Span, value: Span) -> Unasked {
        let member = Member { key, value };
        Unasked {
            field,
            member,
            model: None,
        }
    }

    /// The member, where it asks for nothing, as far as it can be told before the rest of the body was read.
    pub(super) fn of(field: Field, key: Span, value: Value, bytes: &[u8]) -> Option<Unasked> {
        let model = match (field.name, value.kind) {
            (
                "transforms" | "plugins" | "models" | "context_window_fallbacks" | "content_policy_fallbacks",
                Kind::Array,
            )
            | ("provider" | "providerOptions", Kind::Object)
                if is_empty(value, bytes) =>
            {
                None
            }
            ("models", Kind::Array) => Some(only_text(value, bytes)?),
            _ => return None,
        };
        let value = value.span;
        let member = Member { key, value };
        Some(Unasked { field, member, model })
    }

    /// Whether it asks for nothing in a request for `model`.
    pub(super) fn is_so_for(&self, model: Text, bytes: &[u8]) -> bool {
        self.model
            .is_none_or(|only| text::unescape(only, bytes) == text::unescape(model, bytes))
    }
}

/// Whether nothing stands between the brackets.
fn is_empty(value: Value, bytes: &[u8]) -> bool {
    let (start, end) = (value.span.start.saturating_add(1), value.span.end.saturating_sub(1));
    let within = Span::new(start, end).of(bytes);
    within.iter().all(|byte| matches!(byte, b' ' | b'\n' | b'\r' | b'\t'))
}

/// The text that is all of a list, which was read before.
fn only_text(list: Value, bytes: &[u8]) -> Option<Text> {
    let mut scan = Scanner::at(bytes, list.span.start);
    let mut walk = scan.open_array().ok()?;
    if !scan.next_element(&mut walk).ok()? {
        return None;
    }
    let only = scan.value().ok()?.text()?;
    let has_more = scan.next_element(&mut walk).ok()?;
    (!has_more).then_some(only)
}
