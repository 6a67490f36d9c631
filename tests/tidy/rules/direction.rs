//! Imports between the folders of `src` point down only.

use crate::imports::{imports, room};
use crate::tree::{Finding, Tree};

/// From the top down: each folder, and those that it may import. `clock` and `failpoints` may be imported by all but `pure`.
const BELOW: &[(&str, &[&str])] = &[
    ("main", &["cli"]),
    ("lib", &["gateway", "server"]),
    (
        "cli",
        &[
            "server",
            "gateway",
            "net",
            "telemetry",
            "ledger",
            "config",
            "simulator",
            "pure",
        ],
    ),
    ("server", &["gateway", "net", "telemetry", "ledger", "config", "pure"]),
    ("gateway", &["net", "telemetry", "ledger", "config", "pure"]),
    ("net", &["config", "pure"]),
    ("telemetry", &["ledger", "config", "pure"]),
    ("ledger", &["config", "pure"]),
    ("simulator", &["pure"]),
    ("config", &["pure"]),
    ("clock", &["pure"]),
    ("failpoints", &[]),
    ("pure", &[]),
];

/// What points up or sideways, but for the files that are excepted.
pub(crate) fn check(tree: &Tree, excepted: &[(&str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for import in imports(tree) {
        let (from, to) = (room(&import.from), room(&import.to));
        let Some((_, below)) = BELOW.iter().find(|(room, _)| *room == from) else {
            let what = format!("`{from}` is no folder that the rule of imports knows: say where it stands");
            findings.push(Finding {
                path: import.from.clone(),
                line: import.line,
                what,
            });
            continue;
        };
        let everywhere = from != "pure" && ["clock", "failpoints"].contains(&to);
        let is_excepted = excepted.iter().any(|(path, _)| *path == import.from);
        // The crate's root only passes on what its modules have.
        if from == to || everywhere || below.contains(&to) || to == "lib" || is_excepted {
            continue;
        }
        findings.push(Finding {
            path: import.from.clone(),
            line: import.line,
            what: format!("`{from}` imports `{to}` ({}): move what both need down", import.to),
        });
    }
    findings
}
