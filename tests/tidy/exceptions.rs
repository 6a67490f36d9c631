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

/// Circles of imports, and why.
pub(crate) const CIRCLES: &[Circle] = &[];

/// Words that are the field's own where they stand: file, word, reason.
pub(crate) const WORDS: &[(&str, &str, &str)] = &[];
