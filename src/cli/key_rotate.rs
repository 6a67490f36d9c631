//! `tollgate key rotate`: a new key in place of one, which holds on for a while.

use clap::Args;
use serde::Serialize;

use super::failure::Failure;
use super::key::{named, random};
use super::ledger::ask;
use super::made::{Made, same};
use super::output::{Answer, Format, Show};
use crate::config::Config;
use crate::ledger::admin::{AdminOp, AdminReply, KeyRef};
use crate::ledger::rotation::OVERLAP_MS_MAX;
use crate::pure::ids::{AccountId, ApiKey, KeyDigest, KeyId};
use crate::pure::time::{SpanError, parse_span};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tollgate key rotate key_0123456789abcdef --overlap 24h\n  \
    tollgate key rotate \"$LEAKED_KEY\" --overlap 0\n\n\
    The new key has the account, tier, domains, limits, settings and expiry of the old one. That\n\
    one works until the overlap is over, or until its own expiry if that comes first; with an\n\
    overlap of 0 it is revoked at once. Whoever has lost the new key rotates the old one again\n\
    within the overlap, which gets no longer by it, and revokes the lost one. A limit of what the\n\
    key may spend holds for both together: what the old key has spent counts, and they spend one\n\
    limit, not two. Limits a minute are each key's own.\n\n\
    Where the answer cannot be written, or goes to /dev/null, the new key is revoked again. With an\n\
    overlap of 0 the old one has ended by then, and a new one has to be made."
)]
pub(super) struct RotateArgs {
    /// The key's id, or the key itself
    key_or_id: String,
    /// How long the old key works, up to 366d; 0: not at all
    #[arg(long, value_name = "TIME", value_parser = overlap, default_value = "24h")]
    overlap: i64,
}

/// A time as it is typed, in milliseconds, or 0.
fn overlap(text: &str) -> Result<i64, String> {
    match text {
        "0" => Ok(0),
        _ => match parse_span(text) {
            Ok(millis) if millis > 0 && millis <= OVERLAP_MS_MAX => Ok(millis),
            Ok(0) => Err("the time must be above 0; 0 alone ends the old key at once".to_owned()),
            Ok(_) | Err(SpanError::TooLong) => Err("an overlap lasts 366d at most".to_owned()),
            Err(SpanError::Malformed) => Err(format!("{text:?} is not a time such as 7d, 12h, 90m or 45s, or 0")),
        },
    }
}

pub(super) fn run(args: &RotateArgs, config: &Config, format: Format) -> Result<Answer, Failure> {
    let key = named(&args.key_or_id)?;
    let replaces = match &key {
        KeyRef::Id(id) => id.clone(),
        KeyRef::Digest(hex) => {
            KeyId::of(&KeyDigest::from_hex(hex).ok_or_else(|| Failure::new("the key cannot be read"))?)
        }
    };
    let new = ApiKey::from_random(&config.key_prefix, random()?);
    let op = AdminOp::KeyRotate {
        key,
        digest: new.digest().to_hex(),
        overlap_ms: args.overlap,
    };
    let AdminReply::Key(record) = ask(config, op)? else {
        return Err(Failure::wrong_reply());
    };
    let made = Made::key(
        config,
        &record.id,
        next(args.overlap, &replaces, &record.account, same(config)),
    );
    let answer = Answer::of(
        &Rotated {
            key: new.reveal(),
            id: record.id,
            account: record.account,
            expires: record.expires.map(|at| at.to_string()),
            replaces,
            overlap_seconds: args.overlap / 1_000,
        },
        format,
    )?;
    Ok(Answer {
        made: Some(made),
        ..answer
    })
}

/// What to do where the new key is revoked again since nobody has it.
fn next(overlap_ms: i64, replaces: &KeyId, account: &AccountId, same: &str) -> String {
    match overlap_ms {
        0 => format!(
            "{replaces} has ended as well, for the overlap was 0: make a new key with `tollgate key create --account {account}` \
             and the same {same}"
        ),
        _ => format!("{replaces} works until the overlap is over, or its own expiry: rotate it again before"),
    }
}

/// A key for its owner, once.
#[derive(Serialize)]
struct Rotated<'k> {
    key: &'k str,
    id: KeyId,
    account: AccountId,
    expires: Option<String>,
    replaces: KeyId,
    overlap_seconds: i64,
}

impl Show for Rotated<'_> {
    fn text(&self) -> String {
        let Rotated { key, id, replaces, .. } = self;
        let expires = self.expires.as_deref().unwrap_or("never");
        let old = match self.overlap_seconds {
            0 => format!("{replaces} is revoked"),
            seconds => format!(
                "{replaces} works for {} more, unless its own expiry or an earlier overlap ends it before",
                time(seconds)
            ),
        };
        format!("key      {key}\nid       {id}\nexpires  {expires}\n\nKeep the key now: it is shown once. {old}.\n")
    }
}

fn time(seconds: i64) -> String {
    for (unit, size) in [("d", 86_400), ("h", 3_600), ("m", 60)] {
        if seconds % size == 0 {
            return format!("{}{unit}", seconds / size);
        }
    }
    format!("{seconds}s")
}
