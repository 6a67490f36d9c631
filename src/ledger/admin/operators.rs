//! Operators, and the log of what they did.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::pure::ids::AccountId;
use crate::pure::operator::Role;
use crate::pure::time::Timestamp;

/// A command about operators and their log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "operator_op")]
pub enum OperatorOp {
    /// Makes an operator, of whose token only the digest is sent. Answers [`super::AdminReply::Operator`].
    Create {
        /// SHA-256 of the token, 64 lowercase hexadecimal digits.
        digest: String,
        /// What it is called: 1 to [`NAME_CHARS_MAX`] characters, no control characters. Several may have one name.
        name: String,
        /// What it may do.
        role: Role,
        /// Milliseconds from now until its token expires.
        expires_in_ms: Option<i64>,
    },
    /// All operators, revoked ones too, oldest first. Answers [`super::AdminReply::Operators`].
    List,
    /// Revokes an operator's token for good. Answers [`super::AdminReply::Operator`].
    Revoke {
        /// Its id.
        id: String,
    },
    /// The operator of a token, whatever became of it. Answers [`super::AdminReply::Operators`] with one or none.
    Find {
        /// The token's digest, as at its making.
        digest: String,
    },
    /// The log of acts, newest first. Answers [`super::AdminReply::Acts`].
    Log(ActQuery),
}

/// An operator as the store knows them: everything but the token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorRecord {
    /// `op_` and the first 16 hexadecimal digits of the token's digest.
    pub id: String,
    /// What it is called.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// When it was made.
    pub created: Timestamp,
    /// From when on its token is refused.
    pub expires: Option<Timestamp>,
    /// When it was revoked.
    pub revoked: Option<Timestamp>,
}

/// Who gives a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// An operator's id; `cli` for the command line on the gateway's own machine, `stripe` for its hook.
    pub id: String,
    /// The operator's name, or the user of the command line.
    pub name: String,
    /// The role it acts in.
    pub role: Role,
    /// The address that the request came from; none for the command line.
    pub address: Option<String>,
}

/// One act, as the log has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Act {
    /// Its number in the log: greater for a later one.
    pub id: String,
    /// When it was begun.
    pub at: Timestamp,
    /// Who.
    pub actor: Actor,
    /// What, by the command's name, such as `credits.post` or `key.revoke`.
    pub action: String,
    /// The account that it is about.
    pub account: Option<AccountId>,
    /// What else it is about: a key's id, an operator's id, a reference.
    pub subject: Option<String>,
    /// What was asked for, beside the account and the subject; null for acts of before it was kept, and where there is nothing to say.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub request: Value,
    /// What stood there before; null when there was nothing. Never a key's or a token's text.
    pub before: Value,
    /// What stands there after; null when it failed. Of one whose end is not known: what was found there then.
    pub after: Value,
    /// Why it failed. `unknown` when the process died before that could be told; `unknown: ` and why when the store failed, and whether it
    /// took effect has to be seen from `after`.
    pub error: Option<String>,
}

/// Which acts are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ActQuery {
    /// The most that are given: 1 to [`ACTS_MAX`], else the nearest.
    pub limit: u32,
    /// Where the page begins: what the page before said in `next`.
    pub before: Option<String>,
    /// Only those about this account.
    pub account: Option<AccountId>,
}

impl OperatorRecord {
    /// Whether its token is good at `now`: it is neither revoked nor expired.
    pub fn is_good(&self, now: Timestamp) -> bool {
        self.revoked.is_none() && self.expires.is_none_or(|expires| now < expires)
    }
}

impl ActQuery {
    /// The most acts that one answer has.
    pub fn limit(&self) -> u32 {
        self.limit.clamp(1, ACTS_MAX)
    }
}

/// Acts, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActPage {
    /// The acts.
    pub acts: Vec<Act>,
    /// Where the next page begins; none when this was the last.
    pub next: Option<String>,
}

/// The longest name of an operator, in characters.
pub const NAME_CHARS_MAX: usize = 64;
/// The most acts of one page.
pub const ACTS_MAX: u32 = 1_000;
/// The most operators that there are, revoked ones too.
pub const OPERATORS_MAX: usize = 10_000;
/// The most acts that a ledger in Redis keeps: each new one beyond takes the place of the oldest. An embedded ledger keeps all.
pub const ACTS_KEPT_IN_REDIS: u32 = 1_000_000;
/// The most bytes of acts that a ledger in Redis keeps: beyond, the oldest make room.
pub const ACTS_BYTES_KEPT_IN_REDIS: u64 = 256 << 20;
