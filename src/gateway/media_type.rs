//! The media types that are asked for, and answered.

use http::HeaderValue;

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(crate) const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
pub(crate) const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
