//! Answers of the operator's API: JSON, errors in the interface's shape, and what every answer carries.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use serde::Serialize;

use crate::gateway::media_type::JSON;
use crate::gateway::snapshot::to_json;
use crate::pure::error::ApiError;
use crate::pure::error::operator::OperatorError;

/// An answer before it is written.
#[derive(Debug)]
pub(in crate::server) struct Answer {
    pub(in crate::server) status: StatusCode,
    pub(in crate::server) headers: HeaderMap,
    pub(in crate::server) body: Vec<u8>,
}

impl Answer {
    /// 200 with JSON.
    pub(super) fn json(value: &impl Serialize) -> Answer {
        Answer::body(JSON, to_json(value))
    }

    /// 200 with a body of this type.
    pub(in crate::server) fn body(kind: HeaderValue, body: impl Into<Vec<u8>>) -> Answer {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, kind);
        Answer {
            status: StatusCode::OK,
            headers,
            body: body.into(),
        }
    }

    /// 204.
    pub(super) fn nothing() -> Answer {
        Answer {
            status: StatusCode::NO_CONTENT,
            headers: HeaderMap::new(),
            body: Vec::new(),
        }
    }

    /// The same as 201: something was made, which is at `path`.
    pub(super) fn created(mut self, path: &str) -> Answer {
        self.status = StatusCode::CREATED;
        self.with(header::LOCATION, path)
    }

    /// The same with a header. What cannot stand in one is left out.
    pub(in crate::server) fn with(mut self, name: HeaderName, value: &str) -> Answer {
        match HeaderValue::from_str(value) {
            Ok(value) => drop(self.headers.insert(name, value)),
            Err(error) => log::error!("an answer goes without its header {name}: {error}"),
        }
        self
    }

    /// A refusal.
    pub(super) fn refusal(error: &OperatorError) -> Answer {
        let wire = error.to_wire();
        let status = StatusCode::from_u16(wire.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut answer = Answer::body(JSON, wire.body());
        answer.status = status;
        if let Some(secs) = wire.retry_after_secs {
            answer.headers.insert(header::RETRY_AFTER, HeaderValue::from(secs));
        }
        if status == StatusCode::UNAUTHORIZED {
            answer.headers.insert(header::WWW_AUTHENTICATE, BEARER);
        }
        match error {
            OperatorError::MethodNotAllowed { allow } => answer.with(header::ALLOW, allow),
            _ => answer,
        }
    }

    /// As it is written, with what every answer carries; a HEAD gets its head alone.
    pub(super) fn finished(self, request_id: &str, is_head: bool) -> Response<Vec<u8>> {
        let mut answer = self.with(X_REQUEST_ID, request_id);
        let headers = &mut answer.headers;
        if answer.status != StatusCode::NO_CONTENT {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(answer.body.len()));
        }
        headers.entry(header::CACHE_CONTROL).or_insert(NO_STORE);
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, NOSNIFF);
        let body = if is_head { Vec::new() } else { answer.body };
        let mut response = Response::new(body);
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        response
    }
}

/// A fault of the gateway's own: the ledger answered one command with the reply of another.
pub(super) fn wrong_reply() -> OperatorError {
    log::error!("the ledger answered an operator's command with the reply of another");
    OperatorError::Api(ApiError::Internal)
}

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");
const BEARER: HeaderValue = HeaderValue::from_static("Bearer");
pub(super) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
