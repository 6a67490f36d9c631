//! What the repository may break, each with the reason.

use crate::rules::circles::Circle;

/// Files whose imports may point up, and why.
pub(crate) const UPWARD: &[(&str, &str)] = &[];

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
