//! One list of cases for both stores, random sequences against the reference, and races.

pub(in crate::ledger) mod cases;
mod earlier;
mod kept_receipts;
pub(crate) mod logged;
mod many;
mod opening;
pub(crate) mod rig;
pub(super) mod sequences;

/// Clusters of them, and such as Sentinels watch.
#[path = "../../../tests/support/redis_group.rs"]
#[expect(dead_code, reason = "the integration tests use more of it")]
pub(super) mod redis_group;
/// Real redis-server processes.
#[path = "../../../tests/support/redis_server.rs"]
#[expect(dead_code, reason = "the benches use more of it")]
pub(crate) mod redis_server;
