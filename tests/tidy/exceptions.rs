//! What the repository may break, each with the reason.

use crate::rules::circles::Circle;

/// Files whose imports may point up, and why.
pub(crate) const UPWARD: &[(&str, &str)] = &[];

/// Circles of imports, and why. Each may become smaller, and none larger.
pub(crate) const CIRCLES: &[Circle] = &[
    Circle {
        files: &["src/config/remote.rs", "src/config/values.rs", "src/config/webhooks.rs"],
        why: "what a remote gateway is, is part of the configuration that says so; the webhooks' rules of addresses are its own. To be cut.",
    },
    Circle {
        files: &[
            "src/ledger/embedded.rs",
            "src/ledger/embedded/command.rs",
            "src/ledger/embedded/commands.rs",
            "src/ledger/embedded/credits.rs",
            "src/ledger/embedded/events.rs",
            "src/ledger/embedded/load.rs",
            "src/ledger/embedded/shared.rs",
            "src/ledger/embedded/spending.rs",
            "src/ledger/embedded/writer.rs",
        ],
        why: "events are raised where debits are written and refusals are made; what is raised still knows the thread that writes it. To be cut.",
    },
    Circle {
        files: &[
            "src/ledger/redis/events.rs",
            "src/ledger/redis/mod.rs",
            "src/ledger/redis/shared.rs",
        ],
        why: "the outbox is asked by the store that owns it. To be cut.",
    },
    Circle {
        files: &[
            "src/ledger/sqlite.rs",
            "src/ledger/sqlite/events.rs",
            "src/ledger/sqlite/spending.rs",
            "src/ledger/sqlite/terms.rs",
        ],
        why: "a settlement writes its events in its own transaction. To be cut.",
    },
    Circle {
        files: &[
            "src/server/operator/auth.rs",
            "src/server/operator/body.rs",
            "src/server/operator/call.rs",
            "src/server/operator/connection.rs",
            "src/server/operator/endpoints/accounts.rs",
            "src/server/operator/endpoints/books.rs",
            "src/server/operator/endpoints/commands.rs",
            "src/server/operator/endpoints/credits.rs",
            "src/server/operator/endpoints/gateway.rs",
            "src/server/operator/endpoints/keys.rs",
            "src/server/operator/endpoints/operators.rs",
            "src/server/operator/endpoints/pages.rs",
            "src/server/operator/endpoints/session.rs",
            "src/server/operator/endpoints/statement.rs",
            "src/server/operator/endpoints/stripe.rs",
            "src/server/operator/endpoints/usage.rs",
            "src/server/operator/exchange.rs",
            "src/server/operator/openapi/mod.rs",
            "src/server/operator/query.rs",
            "src/server/operator/routes.rs",
            "src/server/operator/state.rs",
        ],
        why: "one table of routes names what answers, and what answers knows the call that the table makes. To be cut.",
    },
];

/// Words that are the field's own where they stand: file, word, reason.
pub(crate) const WORDS: &[(&str, &str, &str)] = &[];
