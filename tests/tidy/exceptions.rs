//! What the repository may break, each with the reason.

use crate::rules::circles::Circle;

/// Files whose imports may point up, and why.
pub(crate) const UPWARD: &[(&str, &str)] = &[
    (
        "src/gateway/open.rs",
        "a host that mounts the plugin has no other process to open journal, ledger and admin listener",
    ),
    ("src/gateway/background.rs", "the same, as a service of Pingora's"),
];

/// Circles of imports, and why. Each may become smaller, and none larger.
pub(crate) const CIRCLES: &[Circle] = &[
    Circle {
        files: &[
            "src/config.rs",
            "src/config/checked.rs",
            "src/config/error.rs",
            "src/config/mistakes.rs",
            "src/config/raw.rs",
            "src/config/traces.rs",
        ],
        why: "the configuration is one type, and the files that read, check and name its mistakes each make a part of it",
    },
    Circle {
        files: &[
            "src/gateway/access/admit.rs",
            "src/gateway/access/auth_throttle.rs",
            "src/gateway/access/authenticate.rs",
            "src/gateway/access/decision.rs",
            "src/gateway/access/head_check.rs",
            "src/gateway/access/precheck.rs",
            "src/gateway/access/receive.rs",
            "src/gateway/api/cors.rs",
            "src/gateway/api/endpoints.rs",
            "src/gateway/api/openapi/mod.rs",
            "src/gateway/api/responses.rs",
            "src/gateway/api/router.rs",
            "src/gateway/billing/discard.rs",
            "src/gateway/billing/extend.rs",
            "src/gateway/billing/meter.rs",
            "src/gateway/billing/receipt.rs",
            "src/gateway/billing/settle.rs",
            "src/gateway/context.rs",
            "src/gateway/mod.rs",
            "src/gateway/mount.rs",
            "src/gateway/open.rs",
            "src/gateway/recorder.rs",
            "src/gateway/snapshot.rs",
            "src/gateway/trace.rs",
            "src/gateway/transport/deadline.rs",
            "src/gateway/transport/downstream.rs",
            "src/gateway/transport/drain.rs",
            "src/gateway/transport/idle_timeout.rs",
            "src/gateway/transport/mod.rs",
            "src/gateway/upstream/failure.rs",
            "src/gateway/upstream/providers.rs",
            "src/gateway/upstream/request.rs",
            "src/gateway/upstream/response.rs",
            "src/server/admin.rs",
            "src/server/refresh.rs",
            "src/server/reload.rs",
            "src/server/upgrade.rs",
        ],
        why: "a step of a request has the plugin and its context, which hold what the steps keep; the hooks call the steps, and `open` starts what runs beside them",
    },
    Circle {
        files: &[
            "src/ledger/admin.rs",
            "src/ledger/control.rs",
            "src/ledger/cover.rs",
            "src/ledger/embedded.rs",
            "src/ledger/embedded/handover.rs",
            "src/ledger/embedded/load.rs",
            "src/ledger/embedded/receipts.rs",
            "src/ledger/embedded/reports.rs",
            "src/ledger/embedded/take_back.rs",
            "src/ledger/embedded/writer.rs",
            "src/ledger/hold.rs",
            "src/ledger/journal/mod.rs",
            "src/ledger/mod.rs",
            "src/ledger/producer.rs",
            "src/ledger/sqlite.rs",
            "src/ledger/sqlite/reader.rs",
            "src/ledger/store_metrics.rs",
        ],
        why: "the contract names its stores, and each store answers the contract",
    },
    Circle {
        files: &[
            "src/ledger/redis/link.rs",
            "src/ledger/redis/mod.rs",
            "src/ledger/redis/shards.rs",
            "src/ledger/redis/shared.rs",
        ],
        why: "a connection belongs to a shard, and the shards to the state that all of them share",
    },
    Circle {
        files: &[
            "src/net/bounded_stream.rs",
            "src/net/head_limit.rs",
            "src/net/upstream_io.rs",
            "src/net/write_buffer.rs",
        ],
        why: "a stream, its buffer and its limits are one connection in four files",
    },
    Circle {
        files: &[
            "src/simulator/exchange.rs",
            "src/simulator/refusal.rs",
            "src/simulator/script.rs",
        ],
        why: "a script acts on its exchange, which asks it what comes next",
    },
    Circle {
        files: &[
            "src/telemetry/counters.rs",
            "src/telemetry/mod.rs",
            "src/telemetry/record.rs",
            "src/telemetry/trace.rs",
        ],
        why: "a record and a trace are handed to the telemetry that they were begun by, which counts them",
    },
];

/// Words that are the field's own where they stand: file, word, reason.
pub(crate) const WORDS: &[(&str, &str, &str)] = &[];
