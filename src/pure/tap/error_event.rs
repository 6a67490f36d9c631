//! The events by which a stream is ended before its upstream has ended it: one that says that something failed, without the upstream's
//! own words, and one that says that the answer has reached its maximum.

use bytes::{BufMut, BytesMut};
use serde::Serialize;

use super::accumulator::Identity;

/// The last event of every stream.
pub(super) const DONE_EVENT: &[u8] = b"data: [DONE]\n\n";

#[derive(Serialize)]
struct ErrorChunk<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: [Choice; 1],
    error: Error<'a>,
}

#[derive(Serialize)]
struct LengthChunk<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: Vec<Ended>,
}

#[derive(Serialize)]
struct Ended {
    index: u64,
    delta: Empty,
    finish_reason: &'static str,
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
struct Choice {
    index: u8,
    delta: Delta,
    finish_reason: &'static str,
}

#[derive(Serialize)]
struct Delta {
    content: &'static str,
}

#[derive(Serialize)]
struct Error<'a> {
    code: u16,
    message: &'a str,
    #[serde(rename = "type")]
    error_type: &'a str,
}

/// Writes the error event and `[DONE]`. The stream must stand between two events.
pub(super) fn write(out: &mut BytesMut, identity: &Identity, message: &str, error_type: &str, code: u16) {
    let chunk = ErrorChunk {
        id: identity.id.as_deref().unwrap_or_default(),
        object: "chat.completion.chunk",
        created: identity.created.unwrap_or_default(),
        model: identity.model.as_deref().unwrap_or_default(),
        choices: [Choice {
            index: 0,
            delta: Delta { content: "" },
            finish_reason: "error",
        }],
        error: Error {
            code,
            message,
            error_type,
        },
    };
    write_event(out, &chunk);
    out.put_slice(DONE_EVENT);
}

/// Writes the event that ends so many choices (at most [`CHOICES_MAX`]) for the reason `length`. The stream must stand between two events.
pub(super) fn write_length(out: &mut BytesMut, identity: &Identity, choices: u64) {
    let ended = |index| Ended {
        index,
        delta: Empty {},
        finish_reason: "length",
    };
    let chunk = LengthChunk {
        id: identity.id.as_deref().unwrap_or_default(),
        object: "chat.completion.chunk",
        created: identity.created.unwrap_or_default(),
        model: identity.model.as_deref().unwrap_or_default(),
        choices: (0..choices.clamp(1, CHOICES_MAX)).map(ended).collect(),
    };
    write_event(out, &chunk);
}

fn write_event(out: &mut BytesMut, chunk: &impl Serialize) {
    // Strings and integers always serialise; were it otherwise, the stream would still end as it must.
    if let Ok(json) = serde_json::to_vec(chunk) {
        out.put_slice(b"data: ");
        out.put_slice(&json);
        out.put_slice(b"\n\n");
    }
}

/// Most choices that one event ends.
const CHOICES_MAX: u64 = 128;
