//! Trace context on its way through: from the client's headers to a provider's.
//!
//! Where traces are made, a provider is told the span of the try that asks it; where none are, it gets the client's two headers as they
//! came. Malformed ones go nowhere. Nothing else of a client's head reaches a provider.

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use pingora::http::RequestHeader;

use super::context::{Call, Ctx};
use crate::pure::request_body::{RequestBody, ResponseMode};
use crate::pure::trace_context::{TraceContext, is_state};
use crate::telemetry::trace::{Parent, RequestParams};

static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
static TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Begins the request's trace, when traces are made.
pub(super) fn begin(request: &RequestHeader, ctx: &mut Ctx) {
    ctx.recorder().begin_trace(&request.method, || parent(&request.headers));
}

/// What an admitted call asks for.
pub(super) fn request_params(ctx: &mut Ctx, body: &RequestBody) {
    if let Some(trace) = ctx.recorder().trace() {
        trace.request_params(RequestParams {
            stream: body.mode() == ResponseMode::Stream,
            choices: body.choices(),
            max_tokens: body.max_tokens().map(|limit| limit.get()),
        });
    }
}

/// Writes what a provider is told of the trace; `client` is the head of the client's request. What the configuration says stands.
pub(super) fn pass_on(client: &HeaderMap, call: &mut Call, to: &mut HeaderMap) {
    let mut tell = |name: &HeaderName, value: HeaderValue| {
        to.entry(name).or_insert(value);
    };
    let told = match call.recorder().and_then(|recorder| recorder.trace()) {
        Some(trace) => {
            let (context, state) = trace.passed_on();
            let context = HeaderValue::from_str(&context.to_string()).ok();
            context.map(|context| (context, state.and_then(|state| HeaderValue::from_str(state).ok())))
        }
        None => context(client).map(|(_, value)| (value.clone(), state(client))),
    };
    let Some((context, state)) = told else { return };
    tell(&TRACEPARENT, context);
    if let Some(state) = state {
        tell(&TRACESTATE, state);
    }
}

/// A provider's connection failed, and another of the same target is tried.
pub(super) fn again(ctx: &mut Ctx, kind: &'static str) {
    if let Some(trace) = ctx.recorder().trace() {
        trace.failed(kind);
    }
}

/// The client's `traceparent`, read and as it came. Two of them are none.
fn context(headers: &HeaderMap) -> Option<(TraceContext, &HeaderValue)> {
    let value = headers.get(&TRACEPARENT)?;
    let others = headers.get_all(&TRACEPARENT).iter().skip(1);
    let context = TraceContext::parse(value.as_bytes()).filter(|_| others.count() == 0)?;
    Some((context, value))
}

/// The client's `tracestate` as one list, when it is one that can be passed on.
fn state(headers: &HeaderMap) -> Option<HeaderValue> {
    let values = headers.get_all(&TRACESTATE);
    if !is_state(values.iter().map(HeaderValue::as_bytes)) {
        return None;
    }
    let values: Vec<&[u8]> = values.iter().map(HeaderValue::as_bytes).collect();
    HeaderValue::from_bytes(&values.join(&b',')).ok()
}

fn parent(headers: &HeaderMap) -> Option<Parent> {
    let (context, _) = context(headers)?;
    let state = state(headers).and_then(|state| Some(state.to_str().ok()?.to_owned()));
    Some(Parent { context, state })
}
