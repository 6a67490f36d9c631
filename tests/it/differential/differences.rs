//! Where the transport does not do as Pingora's loop, and why. A difference that is listed and does not occur is a failure too.

use super::observed::Observed;

/// A difference that is meant.
pub struct Listed {
    /// The behaviour's name.
    pub behaviour: &'static str,
    /// Why the transport does otherwise.
    pub reason: &'static str,
    pub pingora: Words,
    pub transport: Words,
}

/// What is observed, as [`Observed`] has it.
pub struct Words {
    pub client: &'static str,
    pub upstream: &'static str,
    pub next: &'static str,
}

impl PartialEq<Observed> for Words {
    fn eq(&self, seen: &Observed) -> bool {
        self.client == seen.client && self.upstream == seen.upstream && self.next == seen.next
    }
}

const INFORMATIONAL: &str =
    "Informational answers stay inside: a client that asked for none has no use for an upstream's.";
const UPGRADE: &str = "An upgrade that nobody asked for is no answer.";
const CHUNK_LINES: &str = "A chunk's line that does not end with CR LF is refused: others would read other chunks.";
const WHOLE_BODY: &str = "The client's whole body was read before, so its connection can be used again.";

pub const DIFFERENCES: &[Listed] = &[
    Listed {
        behaviour: "h1, fresh: 100",
        reason: INFORMATIONAL,
        pingora: Words {
            client: "100, 200 [content-length: 5, connection: keep-alive] \"hello\", whole",
            upstream: "POST /v1 HTTP/1.1 [content-length: 10] the body",
            next: "the same connection, right",
        },
        transport: Words {
            client: "200 [content-length: 5, connection: keep-alive] \"hello\", whole",
            upstream: "POST /v1 HTTP/1.1 [content-length: 10] the body",
            next: "the same connection, right",
        },
    },
    Listed {
        behaviour: "h1, fresh: 103",
        reason: INFORMATIONAL,
        pingora: Words {
            client: "103, 200 [content-length: 5, connection: keep-alive] \"hello\", whole",
            upstream: "POST /v1 HTTP/1.1 [content-length: 10] the body",
            next: "the same connection, right",
        },
        transport: Words {
            client: "200 [content-length: 5, connection: keep-alive] \"hello\", whole",
            upstream: "POST /v1 HTTP/1.1 [content-length: 10] the body",
            next: "the same connection, right",
        },
    },
    Listed {
        behaviour: "h1, fresh: 102 and 103 twice",
        reason: INFORMATIONAL,
        pingora: Words {
            client: "102, 103, 103, 200 [content-length: 5, connection: keep-alive] \"hello\", whole",
            upstream: "POST /v1 HTTP/1.1 [content-length: 10] the body",
            next: "the same connection, right",
        },
        transport: Words {
            client: "200 [content-length: 5, connection: keep-alive] \"hello\", whole",
            upstream: "POST /v1 HTTP/1.1 [content-length: 10] the body",
            next: "the same connection, right",
        },
    },
    Listed {
        behaviour: "h1, fresh: 101 that was not asked for",
        reason: UPGRADE,
        pingora: Words {
            client: "101 [upgrade: x, connection: upgrade] \"\", until the end",
            upstream: "POST /v1 HTTP/1.1 [content-length: 10] the body",
            next: "another connection, right",
        },
        transport: Words {
            client: "502 [content-length: 0, connection: close] \"\", whole",
            upstream: "POST /v1 HTTP/1.1 [content-length: 10] the body",
            next: "another connection, right",
        },
    },
    Listed {
        behaviour: "h1, fresh: 100 and nothing",
        reason: INFORMATIONAL,
        pingora: Words {
            client: "100, 502 [content-length: 0, connection: close] \"\", whole",
            upstream: "POST /v1 HTTP/1.1 [content-length: 10] the body",
            next: "another connection, right",
        },
        transport: Words {
            client: "502 [content-length: 0, connection: close] \"\", whole",
            upstream: "POST /v1 HTTP/1.1 [content-length: 10] the body",
            next: "another connection, right",
        },
    },
    Listed {
        behaviour: "h1, fresh: a line feed in an extension",
        reason: CHUNK_LINES,
        pingora: Words {
            client: "200 [transfer-encoding: chunked, connection: keep-alive] \"hello\", whole",
            upstream: "POST /v1 HTTP/1.1 [content-length: 10] the body",
            next: "another connection, right",
        },
        transport: Words {
            client: "200 [transfer-encoding: chunked, connection: keep-alive] \"he\", cut",
            upstream: "POST /v1 HTTP/1.1 [content-length: 10] the body",
            next: "another connection, right",
        },
    },
    Listed {
        behaviour: "h1, fresh: an answer before a body that is never read",
        reason: WHOLE_BODY,
        pingora: Words {
            client: "413 [connection: close, content-length: 5] \"large\", whole",
            upstream: "POST /v1 HTTP/1.1 [content-length: 16777216] \"\"",
            next: "another connection, right",
        },
        transport: Words {
            client: "413 [connection: keep-alive, content-length: 5] \"large\", whole",
            upstream: "POST /v1 HTTP/1.1 [content-length: 16777216] \"\"",
            next: "another connection, right",
        },
    },
    Listed {
        behaviour: "h1, pooled: 100",
        reason: INFORMATIONAL,
        pingora: Words {
            client: "100, 200 [content-length: 5, connection: keep-alive] \"hello\", whole",
            upstream: "POST /v1 HTTP/1.1 [content-length: 10] the body",
            next: "the same connection, right",
        },
        transport: Words {
            client: "200 [content-length: 5, connection: keep-alive] \"hello\", whole",
            upstream: "POST /v1 HTTP/1.1 [content-length: 10] the body",
            next: "the same connection, right",
        },
    },
    Listed {
        behaviour: "h1, pooled: 103",
        reason: INFORMATIONAL,
        pingora: Words {
            client: "103, 200 [content-length: 5, connection: keep-alive] \"hello\", whole",
            upstream: "POST /v1 HTTP/1.1 [content-length: 10] the body",
            next: "the same connection, right",
        },
        transport: Words {
            client: "200 [content-length: 5, connection: keep-alive] \"hello\", whole",
            upstream: "POST /v1 HTTP/1.1 [content-length: 10] the body",
            next: "the same connection, right",
        },
    },
    Listed {
        behaviour: "h1, pooled: 102 and 103 twice",
        reason: INFORMATIONAL,
        pingora: Words {
            client: "102, 103, 103, 200 [content-length: 5, connection: keep-alive] \"hello\", whole",
            upstream: "POST /v1 HTTP/1.1 [content-length: 10] the body",
            next: "the same connection, right",
        },
        transport: Words {
            client: "200 [content-length: 5, connection: keep-alive] \"hello\", whole",
            upstream: "POST /v1 HTTP/1.1 [content-length: 10] the body",
            next: "the same connection, right",
        },
    },
    Listed {
        behaviour: "h1, pooled: 101 that was not asked for",
        reason: UPGRADE,
        pingora: Words {
            client: "101 [upgrade: x, connection: upgrade] \"\", until the end",
            upstream: "POST /v1 HTTP/1.1 [content-length: 10] the body",
            next: "another connection, right",
        },
        transport: Words {
            client: "502 [content-length: 0, connection: close] \"\", whole",
            upstream: "POST /v1 HTTP/1.1 [content-length: 10] the body",
            next: "another connection, right",
        },
    },
    Listed {
        behaviour: "h1, pooled: 100 and nothing",
        reason: INFORMATIONAL,
        pingora: Words {
            client: "100, 502 [content-length: 0, connection: close] \"\", whole",
            upstream: "POST /v1 HTTP/1.1 [content-length: 10] the body",
            next: "another connection, right",
        },
        transport: Words {
            client: "502 [content-length: 0, connection: close] \"\", whole",
            upstream: "POST /v1 HTTP/1.1 [content-length: 10] the body",
            next: "another connection, right",
        },
    },
    Listed {
        behaviour: "h1, pooled: a line feed in an extension",
        reason: CHUNK_LINES,
        pingora: Words {
            client: "200 [transfer-encoding: chunked, connection: keep-alive] \"hello\", whole",
            upstream: "POST /v1 HTTP/1.1 [content-length: 10] the body",
            next: "another connection, right",
        },
        transport: Words {
            client: "200 [transfer-encoding: chunked, connection: keep-alive] \"he\", cut",
            upstream: "POST /v1 HTTP/1.1 [content-length: 10] the body",
            next: "another connection, right",
        },
    },
    Listed {
        behaviour: "h1, pooled: an answer before a body that is never read",
        reason: WHOLE_BODY,
        pingora: Words {
            client: "413 [connection: close, content-length: 5] \"large\", whole",
            upstream: "POST /v1 HTTP/1.1 [content-length: 16777216] \"\"",
            next: "another connection, right",
        },
        transport: Words {
            client: "413 [connection: keep-alive, content-length: 5] \"large\", whole",
            upstream: "POST /v1 HTTP/1.1 [content-length: 16777216] \"\"",
            next: "another connection, right",
        },
    },
];
