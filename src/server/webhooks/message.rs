//! What a webhook is sent.

use serde::Serialize;
use serde_json::Value;

use crate::ledger::admin::events::{Event, EventKind};

/// An event as every webhook gets it, at each attempt.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) id: String,
    pub(super) kind: EventKind,
    pub(super) body: Vec<u8>,
}

#[derive(Serialize)]
struct Body<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: EventKind,
    timestamp: String,
    data: &'a Value,
}

impl Message {
    pub(super) fn of(event: &Event) -> Message {
        let body = Body {
            id: &event.id,
            kind: event.kind,
            timestamp: event.at.to_string(),
            data: &event.data,
        };
        Message {
            id: event.id.clone(),
            kind: event.kind,
            // A JSON value can always be written.
            body: serde_json::to_vec(&body).unwrap_or_default(),
        }
    }
}
