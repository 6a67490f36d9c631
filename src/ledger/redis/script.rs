//! The scripts: one step of the ledger each, atomic in Redis. Their texts are in `lua/`, put together from shared parts.
//!
//! They are called by the hash of their text, so nodes of different versions never run each other's. The layout of what they
//! keep has its version in [`PREFIX`].

use std::sync::OnceLock;

use redis::{Arg, Cmd};

/// What every key begins with; the number is the version of the layout.
pub(super) const PREFIX: &str = "tg1:";

/// A script and its hash.
pub(super) struct Script {
    text: &'static str,
    hash: OnceLock<String>,
}

/// How a script is named in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EvalMode {
    /// By its hash: short, and known to the server unless it has restarted.
    Hash,
    /// By its text, which also makes it known.
    Text,
}

impl Script {
    const fn new(text: &'static str) -> Script {
        Script {
            text,
            hash: OnceLock::new(),
        }
    }

    /// A call with these keys; its arguments follow.
    pub(super) fn call(&self, by: EvalMode, keys: &[&str]) -> Cmd {
        let mut command = match by {
            EvalMode::Hash => {
                let hash = self
                    .hash
                    .get_or_init(|| redis::Script::new(self.text).get_hash().to_owned());
                // Room at once: it would grow a dozen times for the arguments of a reserve.
                let mut command = Cmd::with_capacity(ARGUMENTS, ARGUMENT_BYTES);
                command.arg("EVALSHA").arg(hash);
                command
            }
            EvalMode::Text => {
                let mut command = redis::cmd("EVAL");
                command.arg(self.text);
                command
            }
        };
        command.arg(keys.len()).arg(keys);
        command
    }

    /// The same call by text, for a server that does not know the hash.
    pub(super) fn by_text(&self, call: &Cmd) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(self.text);
        for argument in call.args_iter().skip(2) {
            if let Arg::Simple(bytes) = argument {
                command.arg(bytes);
            }
        }
        command
    }
}

/// What a call's arguments commonly need.
const ARGUMENTS: usize = 24;
const ARGUMENT_BYTES: usize = 384;

macro_rules! scripts {
    ($($name:ident = $($part:literal)+;)+) => {
        $(pub(super) static $name: Script = Script::new(concat!($(include_str!(concat!("lua/", $part, ".lua"))),+));)+
    };
}

scripts! {
    RESERVE = "clock" "amount" "hold" "month" "spend" "event" "reserve";
    SETTLE = "clock" "amount" "hold" "month" "usage" "numbers" "spend" "spent" "event" "settle";
    EXTEND = "clock" "amount" "hold" "month" "extend";
    RELEASE = "clock" "hold" "numbers" "release";
    RENEW = "clock" "renew";
    REMAKE = "clock" "amount" "hold" "month" "spend" "remake";
    TRACK = "clock" "amount" "track";
    KEY_SPENT = "clock" "hold" "key_spent";
    KEY_BOOKS = "key_books";
    KEY_CREATE = "key_create";
    KEY_SET = "key_set";
    KEY_SHARE = "key_share";
    KEY_TOLD = "key_told";
    FREE_PARTS = "hold" "free_parts";
    EXPIRE = "clock" "hold" "expire";
    FORGET = "clock" "forget";
    POST = "clock" "amount" "hold" "credit" "made" "event" "post";
    CLAIM = "claim";
    CLAIM_END = "credit" "claim_end";
    CREDITS = "credit" "credits";
    STATEMENT_BEGIN = "clock" "statement_begin";
    STATEMENT_ENTRIES = "credit" "statement_entries";
    STATEMENT_DAYS = "statement" "statement_days";
    STATEMENT_END = "credit" "statement" "statement_end";
    TERMS = "agreed" "terms";
    SHOW = "clock" "amount" "hold" "month" "show";
    REPAIR = "clock" "amount" "month" "repair";
    CREATE = "clock" "made" "create";
    SET = "agreed" "set";
    REVOKE = "clock" "revoke";
    MAINTENANCE = "maintenance";
    ROWS = "clock" "rows";
    BOOKS = "clock" "books";
    KEY_TAKE = "clock" "idempotency" "idempotency_take";
    KEY_SENT = "clock" "idempotency" "idempotency_sent";
    KEY_END = "clock" "idempotency" "idempotency_end";
    FIND = "find";
    EVENT_RAISE = "clock" "amount" "event" "event_raise";
    EVENT_CLAIM = "clock" "event_claim";
    EVENT_SETTLE = "event_settle";
    EVENT_COUNT = "event_count";
    OPERATOR_CREATE = "operator_create";
    OPERATOR_REVOKE = "clock" "operator_revoke";
    TURN = "turn";
    ACT_BEGIN = "act_begin";
    ACT_END = "act_end";
    ACT_LIST = "act_list";
}
