//! Traces over OTLP: their shape, who is whose parent, and that no collector can do harm.

mod collectors;
mod context;
mod shape;

use crate::chat::request;
use crate::harness::Gateway;
use crate::harness::catalogue::SMALL;
use crate::harness::client::ask;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";
const STATE: &str = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE";

fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{SPAN}-{flags}")
}

/// A chat whose client is part of a trace itself.
async fn traced_chat(gateway: &Gateway, traceparent: &str) -> crate::harness::Answer {
    let request = gateway.http1.post_request("/llm/chat", request(SMALL));
    ask(request.header("traceparent", traceparent).header("tracestate", STATE)).await
}

/// What stands in the request's id, as the trace's id would be written.
fn id_of(request_id: &str) -> String {
    request_id.replace('-', "")
}

/// Headers of a client's that are no trace context.
fn malformed() -> Vec<String> {
    let good = traceparent("01");
    let zeros = "0".repeat(32);
    vec![
        good.to_uppercase(),
        format!("{good}-more"),
        format!("ff{}", &good[2..]),
        format!("00-{zeros}-{SPAN}-01"),
        format!("00-{TRACE}-{}-01", &zeros[..16]),
        "nonsense".to_owned(),
        String::new(),
    ]
}
