//! An error as it goes over the wire.

use serde::Serialize;
use serde_json::json;

/// An error as it goes over the wire.
#[derive(Clone, Debug, PartialEq)]
pub struct WireError {
    /// HTTP status, equal to `error.code` in the body.
    pub status: u16,
    /// `error.type`.
    pub kind: &'static str,
    /// `error.message`.
    pub message: String,
    /// `error.param`: the field of the request that is at fault, where a provider named it.
    pub param: Option<Box<str>>,
    /// `error.metadata` as JSON text, when there is any: text, so that amounts keep all their digits.
    pub metadata: Option<String>,
    /// `Retry-After` in seconds.
    pub retry_after_secs: Option<u64>,
    /// `x-should-retry`: whether a retry can help. None where OpenAI's clients know it by the status.
    pub should_retry: Option<bool>,
    /// `Allow`.
    pub allow: Option<&'static str>,
}

impl WireError {
    pub(in crate::pure) const CONFLICT: u16 = 409;

    pub(in crate::pure) fn new(status: u16, kind: &'static str, message: impl Into<String>) -> WireError {
        let message = message.into();
        WireError {
            status,
            kind,
            message,
            param: None,
            metadata: None,
            retry_after_secs: None,
            should_retry: None,
            allow: None,
        }
    }

    pub(in crate::pure) fn retry_after(mut self, secs: u64) -> WireError {
        self.retry_after_secs = Some(secs.max(1));
        self
    }

    pub(in crate::pure) fn final_answer(mut self) -> WireError {
        self.should_retry = Some(false);
        self
    }

    /// For a status that OpenAI's clients do not retry by themselves; they do 408, 409, 429 and from 500 on.
    pub(in crate::pure) fn asking_for_retry(mut self) -> WireError {
        self.should_retry = Some(true);
        self
    }

    pub(in crate::pure) fn with(mut self, metadata: &impl Serialize) -> WireError {
        self.metadata = serde_json::to_string(metadata).ok();
        self
    }

    /// The body: `{"error":{"code":…,"message":…,"type":…}}`, with `param` and `metadata` when there are any.
    pub fn body(&self) -> Vec<u8> {
        let (message, kind) = (json!(self.message), json!(self.kind));
        let param = self
            .param
            .as_ref()
            .map(|param| format!(",\"param\":{}", json!(param)))
            .unwrap_or_default();
        let metadata = self
            .metadata
            .as_ref()
            .map(|text| format!(",\"metadata\":{text}"))
            .unwrap_or_default();
        format!(
            "{{\"error\":{{\"code\":{},\"message\":{message},\"type\":{kind}{param}{metadata}}}}}",
            self.status
        )
        .into_bytes()
    }
}
