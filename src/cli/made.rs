//! What a command has just made whose secret stands in its answer alone: what revokes it, and what to do, where nobody can be given the answer.
//! And what may have been made, where a gateway elsewhere was asked and its answer did not come, or is that its store failed.

use crate::config::{Config, Store};
use crate::ledger::admin::credits::CreditOp;
use crate::ledger::admin::operators::OperatorOp;
use crate::ledger::admin::{AdminOp, KeyRef};
use crate::pure::ids::{KeyDigest, KeyId};
use crate::pure::operator::operator_id;

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

/// What names the ledger of a command, for another one on the same.
pub(super) fn same(config: &Config) -> &'static str {
    match &config.store {
        Store::Remote(_) => "--operator",
        Store::Sqlite(_) | Store::Redis(_) | Store::Missing(_) => "configuration (--conf)",
    }
}

/// What is said of a command that was sent to a gateway elsewhere and may have been done, which `doubt` says; nothing of one that only reads.
/// Of what it may have made nobody has the text.
pub(super) fn in_doubt(op: &AdminOp, doubt: &str) -> Option<String> {
    let made = match op {
        AdminOp::KeyCreate { digest, account, .. } => KeyDigest::from_hex(digest).map(|digest| {
            let id = KeyId::of(&digest);
            format!(
                "the key would be {id}, and nobody has its text: look with `tollgate key list {account}`, revoke it with \
                 `tollgate key revoke {id}`, and make another"
            )
        }),
        AdminOp::KeyRotate { digest, overlap_ms, .. } => KeyDigest::from_hex(digest).map(|digest| {
            let id = KeyId::of(&digest);
            let next = match *overlap_ms {
                0 => "make another with `tollgate key create`, for the old one has then ended",
                _ => "rotate the old one again",
            };
            format!(
                "the new key would be {id}, and nobody has its text: look with `tollgate key list NAME`, revoke it with \
                 `tollgate key revoke {id}`, and {next}"
            )
        }),
        AdminOp::Operator(OperatorOp::Create { digest, .. }) => KeyDigest::from_hex(digest).map(|digest| {
            let id = operator_id(&digest);
            format!(
                "the operator would be {id}, and nobody has its token: look with `tollgate operator list`, revoke it with \
                 `tollgate operator revoke {id}`, and make another"
            )
        }),
        _ => None,
    };
    op.is_act().then(|| match made {
        Some(made) => format!("{doubt}; {made}, each with the same --operator"),
        None if is_credit(op) => {
            format!("{doubt}: run it again with the same reference, amount and kind, it counts once")
        }
        None => format!("{doubt}: look before you run it again"),
    })
}

/// Whether a reference tells the same command again from another one.
fn is_credit(op: &AdminOp) -> bool {
    matches!(op, AdminOp::CreditsAdd { .. } | AdminOp::Credit(CreditOp::Post(_)))
}

/// What is said of each request that was sent and may have changed something.
pub(super) const MAY_BE_DONE: &str = "the request was sent before that, so it may have been done";
/// The same where the gateway answers that its store failed: some of those errors tell what is there.
pub(super) const UNLESS_SAID: &str = "unless that says what came of it, it may have been done";
/// What to do where all that is missing is another one.
pub(super) const RUN_AGAIN: &str = "run the command again where its answer can be written";
