//! Where the transport does not do as Pingora's loop, and why. A difference that is listed and does not occur is a failure too.

use super::observed::Observed;

/// A difference that is meant. The upstream is asked the same, and its connection used again or not as Pingora would.
pub struct Listed {
    /// The behaviour's name, on a fresh connection and on one that has waited.
    pub behaviour: &'static str,
    /// Why the transport does otherwise.
    pub reason: &'static str,
    /// What a client sees behind each.
    pub pingora: &'static str,
    pub transport: &'static str,
    /// What the upstream is asked, and what becomes of its connection.
    pub upstream: &'static str,
    pub next: &'static str,
}

impl Listed {
    /// Whether the two sides show this difference and no other.
    pub fn is_seen(&self, pingora: &Observed, transport: &Observed) -> bool {
        let is_alike = |seen: &Observed| seen.upstream == self.upstream && seen.next == self.next;
        pingora.client == self.pingora && transport.client == self.transport && is_alike(pingora) && is_alike(transport)
    }
}

const INFORMATIONAL: &str =
    "Informational answers stay inside: a client that asked for none has no use for an upstream's.";
const UPGRADE: &str = "An upgrade that nobody asked for is no answer.";
const CHUNK_LINES: &str = "A chunk's line that does not end with CR LF is refused: others would read other chunks.";
const WHOLE_BODY: &str = "The client's whole body was read before, so its connection can be used again.";

const ASKED: &str = "POST /v1 HTTP/1.1 [content-length: 10] the body";
const SAME: &str = "the same connection, right";
const ANOTHER: &str = "another connection, right";

pub const DIFFERENCES: &[Listed] = &[
    Listed {
        behaviour: "h1: 100",
        reason: INFORMATIONAL,
        pingora: "100, 200 [content-length: 5, connection: keep-alive] \"hello\", whole",
        transport: "200 [content-length: 5, connection: keep-alive] \"hello\", whole",
        upstream: ASKED,
        next: SAME,
    },
    Listed {
        behaviour: "h1: 103",
        reason: INFORMATIONAL,
        pingora: "103, 200 [content-length: 5, connection: keep-alive] \"hello\", whole",
        transport: "200 [content-length: 5, connection: keep-alive] \"hello\", whole",
        upstream: ASKED,
        next: SAME,
    },
    Listed {
        behaviour: "h1: 102 and 103 twice",
        reason: INFORMATIONAL,
        pingora: "102, 103, 103, 200 [content-length: 5, connection: keep-alive] \"hello\", whole",
        transport: "200 [content-length: 5, connection: keep-alive] \"hello\", whole",
        upstream: ASKED,
        next: SAME,
    },
    Listed {
        behaviour: "h1: 101 that was not asked for",
        reason: UPGRADE,
        pingora: "101 [upgrade: x, connection: upgrade] \"\", until the end",
        transport: "502 [content-length: 0, connection: close] \"\", whole",
        upstream: ASKED,
        next: ANOTHER,
    },
    Listed {
        behaviour: "h1: 100 and nothing",
        reason: INFORMATIONAL,
        pingora: "100, 502 [content-length: 0, connection: close] \"\", whole",
        transport: "502 [content-length: 0, connection: close] \"\", whole",
        upstream: ASKED,
        next: ANOTHER,
    },
    Listed {
        behaviour: "h1: a line feed in an extension",
        reason: CHUNK_LINES,
        pingora: "200 [transfer-encoding: chunked, connection: keep-alive] \"hello\", whole",
        transport: "200 [transfer-encoding: chunked, connection: keep-alive] \"he\", cut",
        upstream: ASKED,
        next: ANOTHER,
    },
    Listed {
        behaviour: "h1: an answer before a body that is never read",
        reason: WHOLE_BODY,
        pingora: "413 [connection: close, content-length: 5] \"large\", whole",
        transport: "413 [connection: keep-alive, content-length: 5] \"large\", whole",
        upstream: "POST /v1 HTTP/1.1 [content-length: 16777216] \"\"",
        next: ANOTHER,
    },
];
