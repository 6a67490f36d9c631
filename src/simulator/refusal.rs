//! Error answers in OpenAI's shape, `{"error":{"message","type","param","code"}}`. Called by every step of an exchange before its first byte.

use http::Method;
use serde_json::{Value, json};

/// An error answer. Constructors are named by what went wrong.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) retry_after_seconds: Option<u64>,
    pub(super) allow: Option<Method>,
    kind: &'static str,
    param: Option<&'static str>,
    code: Option<&'static str>,
    message: String,
}

impl Refusal {
    /// 400: the request is not what the API takes.
    pub(super) fn invalid(param: impl Into<Option<&'static str>>, message: impl Into<String>) -> Self {
        Refusal {
            param: param.into(),
            ..Refusal::new(400, "invalid_request_error", message.into())
        }
    }

    /// 400: a body that is not JSON, or whose fields have wrong types.
    pub(super) fn unreadable(error: &serde_json::Error) -> Self {
        Refusal::invalid(
            None,
            format!("We could not parse the JSON body of your request: {error}"),
        )
    }

    /// 401: no Authorization header.
    pub(super) fn no_key() -> Self {
        let message = "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth.";
        Refusal::new(401, "invalid_request_error", message.to_owned())
    }

    /// 401: another key than the configured credential.
    pub(super) fn wrong_key() -> Self {
        Refusal {
            code: Some("invalid_api_key"),
            ..Refusal::new(401, "invalid_request_error", "Incorrect API key provided.".to_owned())
        }
    }

    /// 404: a model that is not served.
    pub(super) fn unknown_model(model: &str) -> Self {
        let message = format!(
            "The model `{model}` does not exist or you do not have access to it. This is a simulated provider. {}",
            HELP
        );
        Refusal {
            code: Some("model_not_found"),
            ..Refusal::new(404, "invalid_request_error", message)
        }
    }

    /// 404: no such endpoint.
    pub(super) fn unknown_path(method: &Method, path: &str) -> Self {
        let message = format!(
            "Invalid URL ({method} {path}). This is a simulated provider; it serves POST /v1/chat/completions, POST /v1/embeddings and \
             GET /v1/models. {}",
            HELP
        );
        Refusal::new(404, "invalid_request_error", message)
    }

    /// 405: the endpoint takes another method.
    pub(super) fn wrong_method(method: &Method, allowed: Method) -> Self {
        let message = format!("Not allowed to {method} here: only {allowed}.");
        Refusal {
            allow: Some(allowed),
            ..Refusal::new(405, "invalid_request_error", message)
        }
    }

    /// 413: the body is over the limit.
    pub(super) fn too_large(bytes_max: usize) -> Self {
        Refusal::new(
            413,
            "invalid_request_error",
            format!("The request body is larger than {bytes_max} bytes."),
        )
    }

    /// The error that a script asked for, in the words of a real provider.
    pub(super) fn simulated(status: u16, retry_after_seconds: Option<u64>) -> Self {
        let (kind, code, message) = match status {
            401 => (
                "invalid_request_error",
                Some("invalid_api_key"),
                "Incorrect API key provided: sk-simul*****ated.",
            ),
            403 => (
                "invalid_request_error",
                Some("unsupported_country_region_territory"),
                "Country not supported.",
            ),
            404 => (
                "invalid_request_error",
                Some("model_not_found"),
                "The model does not exist.",
            ),
            429 => (
                "requests",
                Some("rate_limit_exceeded"),
                "Rate limit reached for organization org-simulated.",
            ),
            400..=499 => ("invalid_request_error", None, "The request was refused."),
            503 => (
                "server_error",
                Some("overloaded"),
                "The engine is currently overloaded, please try again later.",
            ),
            _ => (
                "server_error",
                None,
                "The server had an error while processing your request. Sorry about that!",
            ),
        };
        let retry_after_seconds = retry_after_seconds.or((status == 429).then_some(RETRY_AFTER_SECONDS));
        Refusal {
            code,
            retry_after_seconds,
            ..Refusal::new(status, kind, format!("{message} (simulated {status})"))
        }
    }

    /// The error object of a stream or a 200 that goes wrong after its first byte.
    pub(super) fn mid_stream() -> Self {
        Refusal::simulated(500, None)
    }

    pub(super) fn body(&self) -> Value {
        json!({"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}})
    }

    fn new(status: u16, kind: &'static str, message: String) -> Self {
        Refusal {
            status,
            retry_after_seconds: None,
            allow: None,
            kind,
            param: None,
            code: None,
            message,
        }
    }
}

const RETRY_AFTER_SECONDS: u64 = 1;

/// What error texts tell about faults on request.
pub(super) const HELP: &str = "A model named `simulate:WORD`, or a message that begins with it, chooses a fault. WORD is one of a status \
    400 to 599 (429=SECONDS), stall (=EVENTS), cut (=EVENTS), error-event (=EVENTS), slow (=MILLISECONDS), no-usage, bad-usage, no-done, \
    tokens (=COUNT); several are joined with `+`.";
