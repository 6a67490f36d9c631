//! The checks that any bytes must pass, for the fuzz targets and for the tests. They compare the scanner with serde_json.

use std::num::NonZeroU64;

use bytes::Bytes;
use serde_json::Value;

use super::scan::Scanner;
use super::{BodyError, Edit, Endpoint, FieldRules, MaximumField, RequestBody, ResponseMode, StreamUsage};

/// Panics when a body is read otherwise than serde_json reads it, or when its edit changes more than it names.
pub fn fuzz_body(data: &[u8]) {
    check_grammar(data);
    for endpoint in [Endpoint::Chat, Endpoint::ChatStream, Endpoint::Embeddings] {
        check_request(data, endpoint);
    }
}

/// The scanner accepts what serde_json accepts as a value, and nothing else.
fn check_grammar(data: &[u8]) {
    let ours = validate(data);
    match serde_json::from_slice::<Value>(data) {
        Ok(_) => assert!(ours.is_ok(), "refused valid JSON: {ours:?}"),
        // A number that no float holds is still JSON: the upstream's business.
        Err(error) if error.to_string().starts_with("number out of range") => {}
        Err(error) => assert!(ours.is_err(), "accepted invalid JSON: {error}"),
    }
    if ours.is_ok() {
        assert!(
            serde_json::from_slice::<serde::de::IgnoredAny>(data).is_ok(),
            "accepted invalid JSON"
        );
    }
}

fn validate(data: &[u8]) -> Result<(), BodyError> {
    std::str::from_utf8(data).map_err(|error| BodyError::NotUtf8 {
        at: error.valid_up_to(),
    })?;
    let mut scan = Scanner::new(data);
    scan.value().and_then(|_| scan.finish()).map_err(|fault| *fault)
}

fn check_request(data: &[u8], endpoint: Endpoint) {
    let Ok(body) = RequestBody::parse(Bytes::copy_from_slice(data), endpoint) else {
        return;
    };
    assert!(validate(data).is_ok(), "a request that is no JSON was accepted");
    assert!(!body.model().is_empty(), "a model without a name was accepted");
    let mut text_bytes = 0_u64;
    body.visit_text(&mut |text| text_bytes = text_bytes.saturating_add(super::prompt::count(text.len())));
    assert!(body.prompt_bytes() >= text_bytes, "the text is longer than its bound");
    let allowing_all = FieldRules::allowing(["session_id", "store", "metadata", "usage"]).unwrap_or_default();
    for edit in [
        Edit {
            model: "m\"\\\n",
            maximum: MaximumField::MaxCompletionTokens,
            cap: None,
            rules: FieldRules::default(),
            stream_usage: StreamUsage::Ask,
        },
        Edit {
            model: "m",
            maximum: MaximumField::MaxTokens,
            cap: Some(NonZeroU64::MIN),
            rules: FieldRules::default(),
            stream_usage: StreamUsage::Unasked,
        },
        Edit {
            model: "m",
            maximum: MaximumField::MaxCompletionTokens,
            cap: Some(NonZeroU64::MIN),
            rules: allowing_all,
            stream_usage: StreamUsage::Ask,
        },
    ] {
        let edited = body.edit(&edit);
        check_edited(&body, &edit, &edited, endpoint);
    }
}

/// The edited body reads as the edit says, and editing it again changes nothing.
fn check_edited(body: &RequestBody, edit: &Edit<'_>, edited: &Bytes, endpoint: Endpoint) {
    let again = match RequestBody::parse(edited.clone(), endpoint) {
        Ok(again) => again,
        Err(error) => panic!("the edited body is refused: {error}"),
    };
    assert_eq!(again.model(), edit.model);
    assert_eq!(again.mode(), body.mode());
    assert_eq!(again.choices(), body.choices());
    assert_eq!(again.images(), body.images());
    assert_eq!(again.message_count(), body.message_count());
    assert!(
        again.withheld(edit.rules).iter().all(Option::is_none),
        "a withheld field is sent"
    );
    match edit.stream_usage {
        StreamUsage::Ask if body.mode() == ResponseMode::Stream => {
            assert!(again.asks_usage(), "a stream without usage");
        }
        StreamUsage::Ask => {}
        StreamUsage::Unasked => assert!(again.stream_options.member.is_none(), "a stream is asked for its usage"),
    }
    match edit.cap {
        Some(cap) => {
            assert!(endpoint == Endpoint::Embeddings || again.max_tokens().is_some_and(|max| max <= cap))
        }
        None => assert_eq!(again.max_tokens(), body.max_tokens()),
    }
    assert_eq!(&again.edit(edit), edited, "a second edit changes the body");
}
