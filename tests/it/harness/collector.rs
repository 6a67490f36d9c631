//! An OTLP collector: it takes what is sent to it over HTTP, and decodes it with the protocol's own definitions.

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyValue;
use opentelemetry_proto::tonic::common::v1::{ArrayValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode};
use prost::Message;
use serde_json::{Map, Value, json};

use super::upstream::{Seen, Upstream};
use super::{Reply, eventually};

/// A running collector.
pub struct Collector(Upstream);

/// The spans of one request: its own, and those of its tries in their order.
pub struct Trace {
    pub server: Span,
    pub clients: Vec<Span>,
}

impl Collector {
    /// One that takes everything.
    pub async fn start() -> Collector {
        Collector::answering([Collector::takes(0)]).await
    }

    /// One that answers so in turn, and then with the last again and again.
    pub async fn answering(replies: impl IntoIterator<Item = Reply>) -> Collector {
        Collector(Upstream::of(replies).await)
    }

    /// The answer that a batch was taken, but for so many spans.
    pub fn takes(rejected: i64) -> Reply {
        let partly = ExportTracePartialSuccess {
            rejected_spans: rejected,
            error_message: "too old".to_owned(),
        };
        let answer = ExportTraceServiceResponse {
            partial_success: (rejected > 0).then_some(partly),
        };
        let headers = [("content-type", "application/x-protobuf")];
        Reply::new(200, &headers, answer.encode_to_vec())
    }

    /// What the configuration calls its endpoint.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.0.address)
    }

    /// The requests as they came.
    pub fn seen(&self) -> Vec<Seen> {
        self.0.seen()
    }

    /// All spans that have come.
    pub fn spans(&self) -> Vec<Span> {
        let batches = self.0.seen().into_iter().map(|seen| batch(&seen));
        let resources = batches.flat_map(|batch| batch.resource_spans);
        let scopes = resources.flat_map(|resource| resource.scope_spans);
        scopes.flat_map(|scope| scope.spans).collect()
    }

    /// The resource of the first batch.
    pub fn resource(&self) -> Resource {
        let first = batch(&self.0.seen()[0]).resource_spans.remove(0);
        first.resource.unwrap()
    }

    /// Waits for the trace of the request of this id.
    pub async fn trace(&self, request_id: &str) -> Trace {
        let server = eventually("the request's span", async || {
            let mut spans = self.spans().into_iter();
            spans.find(|span| attribute(span, "tollgate.request_id") == json!(request_id))
        })
        .await;
        let of_it = |span: &Span| span.parent_span_id == server.span_id && span.trace_id == server.trace_id;
        let clients: Vec<Span> = self.spans().into_iter().filter(of_it).collect();
        assert_eq!(server.kind(), SpanKind::Server);
        assert!(clients.iter().all(|client| client.kind() == SpanKind::Client));
        for client in &clients {
            let within = server.start_time_unix_nano <= client.start_time_unix_nano
                && client.start_time_unix_nano <= client.end_time_unix_nano
                && client.end_time_unix_nano <= server.end_time_unix_nano;
            assert!(within, "{client:?} is not within {server:?}");
        }
        Trace { server, clients }
    }
}

impl Trace {
    /// The only try.
    #[track_caller]
    pub fn client(&self) -> &Span {
        assert_eq!(self.clients.len(), 1, "{:#?}", self.clients);
        &self.clients[0]
    }
}

fn batch(seen: &Seen) -> ExportTraceServiceRequest {
    assert!(seen.head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{}", seen.head);
    assert_eq!(seen.header("content-type"), Some("application/x-protobuf"));
    ExportTraceServiceRequest::decode(seen.body.clone()).unwrap()
}

/// A span's attributes as JSON. A name stands once.
pub fn attributes(attributes: &[KeyValue]) -> Map<String, Value> {
    let mut map = Map::new();
    for KeyValue { key, value, .. } in attributes {
        let value = value.clone().and_then(|value| value.value).map_or(Value::Null, to_json);
        assert_eq!(map.insert(key.clone(), value), None, "{key} stands twice");
    }
    map
}

/// One of a span's attributes; null when it has none of that name.
pub fn attribute(span: &Span, name: &str) -> Value {
    attributes(&span.attributes).remove(name).unwrap_or_default()
}

/// Whether a span says that it is an error.
pub fn is_error(span: &Span) -> bool {
    span.status
        .as_ref()
        .is_some_and(|status| status.code() == StatusCode::Error)
}

/// Lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn to_json(value: AnyValue) -> Value {
    match value {
        AnyValue::StringValue(text) => text.into(),
        AnyValue::BoolValue(flag) => flag.into(),
        AnyValue::IntValue(number) => number.into(),
        AnyValue::DoubleValue(number) => number.into(),
        AnyValue::ArrayValue(ArrayValue { values }) => {
            let values = values.into_iter().filter_map(|value| value.value);
            Value::Array(values.map(to_json).collect())
        }
        other => panic!("{other:?}"),
    }
}
