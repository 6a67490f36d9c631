//! What a command has just made whose secret stands in its answer alone: what revokes it, and what to do, where nobody can be given the answer.

use crate::config::Config;
use crate::ledger::admin::operators::OperatorOp;
use crate::ledger::admin::{AdminOp, KeyRef};
use crate::pure::ids::KeyId;

/// A key or an operator. Its secret is not in it.
#[derive(Debug)]
pub(super) struct Made {
    /// Of the ledger that has it.
    pub(super) config: Config,
    pub(super) id: String,
    /// What revokes it.
    pub(super) revoke: AdminOp,
    /// The command that does the same.
    pub(super) typed: &'static str,
    /// What to do once it is revoked.
    pub(super) next: String,
}

impl Made {
    pub(super) fn key(config: &Config, id: &KeyId, next: impl Into<String>) -> Box<Made> {
        Box::new(Made {
            config: config.clone(),
            id: id.to_string(),
            revoke: AdminOp::KeyRevoke {
                key: KeyRef::Id(id.clone()),
            },
            typed: "tollgate key revoke",
            next: next.into(),
        })
    }

    pub(super) fn operator(config: &Config, id: &str, next: impl Into<String>) -> Box<Made> {
        Box::new(Made {
            config: config.clone(),
            id: id.to_owned(),
            revoke: AdminOp::Operator(OperatorOp::Revoke { id: id.to_owned() }),
            typed: "tollgate operator revoke",
            next: next.into(),
        })
    }
}

/// What to do where all that is missing is another one.
pub(super) const RUN_AGAIN: &str = "run the command again where its answer can be written";
