//! The one event by which a stream tells its client that the upstream failed. The upstream's own words are not in it.

use bytes::{BufMut, BytesMut};
use serde::Serialize;

use super::reading::Identity;

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
    // Strings and integers always serialise; were it otherwise, the stream would still end as it must.
    if let Ok(json) = serde_json::to_vec(&chunk) {
        out.put_slice(b"data: ");
        out.put_slice(&json);
        out.put_slice(b"\n\n");
    }
    out.put_slice(DONE_EVENT);
}
