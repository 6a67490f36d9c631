//! A trace as OpenTelemetry's spans: one of the kind SERVER for the request, one of the kind CLIENT for each try at a provider.
//!
//! Names and values follow the semantic conventions: HTTP server spans 1.44, generative AI client spans as of 2026 (`gen_ai.provider.name`,
//! which has taken the place of `gen_ai.system`). What they have no name for begins with `tollgate.`. Tokens stand in the span of the try
//! that delivered, and only there, so that who adds them up counts them once. Never a key, a prompt or a completion.

use std::time::SystemTime;

use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{Array, InstrumentationScope, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use super::record::{Outcome, Record};
use super::trace::{Times, Trace, Traced, Try};
use crate::pure::trace_context;

/// The spans of one trace, the request's first.
pub(super) fn spans(traced: &Traced, scope: &InstrumentationScope) -> Vec<SpanData> {
    let Traced { record, trace, times } = traced;
    let maker = Maker { trace, scope };
    let began = trace.wall(times.started);
    let ended = began.checked_add(record.duration).unwrap_or(began);
    let mut spans = Vec::with_capacity(trace.spans());
    spans.push(server(&maker, record, (began, ended)));
    let last = trace.tries.len().checked_sub(1);
    for (number, one) in trace.tries.iter().enumerate() {
        let end = match (one.ended, times.last) {
            (Some(at), _) => trace.wall(at),
            (None, Some(last)) => trace.wall(last),
            (None, None) => ended,
        };
        let mut attributes = asked(record, trace, one, number);
        // What an answer said is known of the last try alone: no other follows one that was passed on.
        if Some(number) == last && trace.said.is_some() {
            attributes.extend(answered(record, trace, one, times));
        }
        spans.push(client(&maker, record, one, attributes, end));
    }
    spans
}

/// What all spans of a trace have in common.
struct Maker<'a> {
    trace: &'a Trace,
    scope: &'a InstrumentationScope,
}

/// What tells one span of a trace from another.
struct Made {
    id: trace_context::SpanId,
    parent: Option<trace_context::SpanId>,
    kind: SpanKind,
    name: String,
    between: (SystemTime, SystemTime),
    attributes: Vec<KeyValue>,
    status: Status,
}

impl Maker<'_> {
    fn span(&self, made: Made) -> SpanData {
        let parent = self.trace.parent.as_ref();
        let state = parent.and_then(|parent| parent.state.as_deref());
        let context = SpanContext::new(
            TraceId::from_bytes(self.trace.own.trace.to_bytes()),
            id(made.id),
            TraceFlags::SAMPLED,
            false,
            state.and_then(|state| state.parse().ok()).unwrap_or(TraceState::NONE),
        );
        let (start_time, end_time) = made.between;
        SpanData {
            span_context: context,
            parent_span_id: made.parent.map_or(SpanId::INVALID, id),
            parent_span_is_remote: made.kind == SpanKind::Server && parent.is_some(),
            span_kind: made.kind,
            name: made.name.into(),
            start_time,
            end_time: end_time.max(start_time),
            attributes: made.attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: made.status,
            instrumentation_scope: self.scope.clone(),
        }
    }
}

/// The request's own span.
fn server(maker: &Maker<'_>, record: &Record, between: (SystemTime, SystemTime)) -> SpanData {
    let trace = maker.trace;
    let mut attributes = vec![
        KeyValue::new("http.request.method", trace.method),
        KeyValue::new("tollgate.request_id", record.id.to_string()),
        KeyValue::new("tollgate.route", record.route.name()),
        KeyValue::new("tollgate.outcome", record.outcome.name()),
        KeyValue::new("tollgate.overhead_ms", millis(record.overhead)),
    ];
    let mut add = |name: &'static str, value: Option<Value>| {
        attributes.extend(value.map(|value| KeyValue::new(name, value)));
    };
    let path = trace.path.clone().filter(|path| !path.contains('{'));
    add("url.path", path.map(Value::from));
    add("http.route", trace.path.clone().map(Value::from));
    // 0: there was none.
    let status = Some(record.status).filter(|status| *status > 0);
    add(
        "http.response.status_code",
        status.map(|status| i64::from(status).into()),
    );
    add("tollgate.reason", record.reason.map(Value::from));
    if let Some((account, key)) = &record.caller {
        add("tollgate.account", Some(account.as_str().to_owned().into()));
        add("tollgate.key_id", Some(key.as_str().to_owned().into()));
    }
    let model = Some(&*record.target.model).filter(|id| !id.is_empty());
    add("tollgate.model", model.map(|model| model.to_owned().into()));
    add(
        "tollgate.attempts",
        Some(i64::from(record.attempts).into()).filter(|_| record.attempts > 0),
    );
    if let Some(billed) = &record.billed {
        add("tollgate.cost", Some(billed.cost.to_string().into()));
        add("tollgate.held", Some(billed.held.to_string().into()));
    }
    add(
        "tollgate.first_event_ms",
        record.first_event.map(|first| millis(first).into()),
    );
    let error = fault_of(record);
    let status = status_of(error.as_deref());
    add("error.type", error.map(Value::from));
    let name = match &trace.path {
        Some(path) => format!("{} {path}", trace.method),
        None => trace.method.to_owned(),
    };
    maker.span(Made {
        id: trace.own.span,
        parent: trace.parent.as_ref().map(|parent| parent.context.span),
        kind: SpanKind::Server,
        name,
        between,
        attributes,
        status,
    })
}

/// What went wrong in a request that is not its client's fault: only that makes a server's span an error.
fn fault_of(record: &Record) -> Option<String> {
    match record.outcome {
        Outcome::UpstreamFailed | Outcome::LedgerFailed | Outcome::Dropped if record.status < 500 => {
            Some(record.outcome.name().to_owned())
        }
        _ if record.status >= 500 => Some(record.status.to_string()),
        _ => None,
    }
}

/// One try at a provider.
fn client(maker: &Maker<'_>, record: &Record, one: &Try, mut attributes: Vec<KeyValue>, end: SystemTime) -> SpanData {
    // A status that says so is the provider's own word for what went wrong.
    let error = one
        .status
        .filter(|status| *status >= 400)
        .map(|status| status.to_string());
    let error = error.or(one.fault.map(str::to_owned));
    let status = status_of(error.as_deref());
    attributes.extend(error.map(|error| KeyValue::new("error.type", error)));
    maker.span(Made {
        id: one.span,
        parent: Some(maker.trace.own.span),
        kind: SpanKind::Client,
        name: format!("{} {}", record.route.operation(), one.model),
        between: (maker.trace.wall(one.began), end),
        attributes,
        status,
    })
}

/// What is known of a try from its beginning.
fn asked(record: &Record, trace: &Trace, one: &Try, number: usize) -> Vec<KeyValue> {
    let server = &one.server;
    let mut attributes = vec![
        KeyValue::new("gen_ai.operation.name", record.route.operation()),
        KeyValue::new("gen_ai.provider.name", provider(&server.address, &server.provider)),
        KeyValue::new("gen_ai.request.model", one.model.to_string()),
        KeyValue::new("server.address", server.address.clone()),
        KeyValue::new("server.port", i64::from(server.port)),
        KeyValue::new("http.request.method", "POST"),
        KeyValue::new("tollgate.provider", server.provider.to_string()),
        KeyValue::new("tollgate.model", record.target.model.to_string()),
    ];
    let status = one
        .status
        .map(|status| ("http.response.status_code", Value::from(i64::from(status))));
    let again = whole(number).filter(|number| *number > 0);
    let again = again.map(|number| ("http.request.resend_count", Value::from(number)));
    let request_params = trace.request_params;
    let streamed = request_params.filter(|request_params| request_params.stream);
    let streamed = streamed.map(|_| ("gen_ai.request.stream", Value::from(true)));
    let choices = request_params.filter(|request_params| request_params.choices != 1);
    let choices = choices.and_then(|request_params| {
        Some((
            "gen_ai.request.choice.count",
            Value::from(whole(request_params.choices)?),
        ))
    });
    let limit = request_params.and_then(|request_params| whole(request_params.max_tokens?));
    let limit = limit.map(|limit| ("gen_ai.request.max_tokens", Value::from(limit)));
    let more = [status, again, streamed, choices, limit].into_iter().flatten();
    attributes.extend(more.map(|(name, value)| KeyValue::new(name, value)));
    attributes
}

/// What is known of the try that answered.
fn answered(record: &Record, trace: &Trace, one: &Try, times: &Times) -> Vec<KeyValue> {
    let mut attributes = Vec::new();
    let mut add = |name: &'static str, value: Option<Value>| {
        attributes.extend(value.map(|value| KeyValue::new(name, value)));
    };
    if let Some(billed) = &record.billed {
        add(
            "gen_ai.usage.input_tokens",
            whole(billed.usage.prompt.0).map(Value::from),
        );
        let output = whole(billed.usage.completion.0).filter(|_| record.route.operation() == "chat");
        add("gen_ai.usage.output_tokens", output.map(Value::from));
    }
    if let Some(said) = &trace.said {
        add("gen_ai.response.id", said.id.clone().map(Value::from));
        add("gen_ai.response.model", said.model.clone().map(Value::from));
        add("gen_ai.response.finish_reasons", finish_reasons(record, trace));
    }
    let first = times
        .first
        .filter(|_| trace.request_params.is_some_and(|request_params| request_params.stream));
    let first = first.map(|first| first.saturating_duration_since(one.began).as_secs_f64());
    add("gen_ai.response.time_to_first_chunk", first.map(Value::from));
    attributes
}

/// Why each choice ended: `error` for one that was expected and never said. Some providers say it twice.
fn finish_reasons(record: &Record, trace: &Trace) -> Option<Value> {
    if record.route.operation() != "chat" {
        return None;
    }
    let choices = trace
        .request_params
        .map_or(1, |request_params| request_params.choices)
        .clamp(1, CHOICES_MAX);
    let said = trace.said.as_ref()?.finishes;
    let reasons = said.names().chain(std::iter::repeat("error"));
    let reasons = reasons
        .take(usize::try_from(choices).unwrap_or(1))
        .map(StringValue::from);
    Some(Value::Array(Array::String(reasons.collect())))
}

/// The conventions' name of the provider whose interface is at this host; where they have none, its name in the configuration.
fn provider(host: &str, configured: &str) -> String {
    let known = PROVIDERS.iter().find(|(ending, _)| {
        let before = host.strip_suffix(ending);
        before.is_some_and(|before| before.is_empty() || before.ends_with(['.', '-']))
    });
    known.map_or(configured, |(_, name)| name).to_owned()
}

/// The error's own attribute says what it is.
fn status_of(error: Option<&str>) -> Status {
    error.map_or(Status::Unset, |_| Status::error(""))
}

fn id(id: trace_context::SpanId) -> SpanId {
    SpanId::from_bytes(id.to_bytes())
}

fn whole(number: impl TryInto<i64>) -> Option<i64> {
    number.try_into().ok()
}

fn millis(duration: std::time::Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// Hosts, or what they end with, and the value of `gen_ai.provider.name` that stands for them.
const PROVIDERS: [(&str, &str); 12] = [
    ("api.openai.com", "openai"),
    ("api.anthropic.com", "anthropic"),
    ("generativelanguage.googleapis.com", "gcp.gemini"),
    ("aiplatform.googleapis.com", "gcp.vertex_ai"),
    ("openai.azure.com", "azure.ai.openai"),
    ("api.mistral.ai", "mistral_ai"),
    ("api.groq.com", "groq"),
    ("api.deepseek.com", "deepseek"),
    ("api.perplexity.ai", "perplexity"),
    ("api.x.ai", "x_ai"),
    ("api.moonshot.ai", "moonshot_ai"),
    ("api.cohere.ai", "cohere"),
];
/// As many reasons as are kept.
const CHOICES_MAX: u64 = 16;

#[cfg(test)]
mod tests {
    use super::provider;

    #[test]
    fn providers_have_the_conventions_names_where_there_are_some() {
        for (host, name) in [
            ("api.openai.com", "openai"),
            ("eu.api.openai.com", "openai"),
            ("europe-west1-aiplatform.googleapis.com", "gcp.vertex_ai"),
            ("mine.openai.azure.com", "azure.ai.openai"),
            ("evilapi.openai.com", "mine"),
            ("openrouter.ai", "mine"),
            ("127.0.0.1", "mine"),
        ] {
            assert_eq!(provider(host, "mine"), name, "{host}");
        }
    }
}
