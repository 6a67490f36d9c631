//! `tollgate key`: make, list and revoke keys. A key is made here, shown once, and only its digest leaves this process.

use clap::{Args, Subcommand};
use serde::Serialize;

use super::arguments::{Lifetime, key_id, limit};
use super::failure::Failure;
use super::key_rotate::{self, RotateArgs};
use super::key_settings::{SettingsArgs, SettingsShown};
use super::ledger::ask;
use super::made::{Made, RUN_AGAIN};
use super::output::{Align, Answer, Format, Show, Table, line};
use crate::clock::Clock;
use crate::config::Config;
use crate::ledger::KeyRecord;
use crate::ledger::admin::{AdminOp, AdminReply, KeyRef};
use crate::ledger::key_settings::{KeyChange, KeySettings, check_domains};
use crate::ledger::shown::CredentialState;
use crate::ledger::terms::AccountStatus;
use crate::pure::ids::{AccountId, ApiKey, KeyId, Tier};
use crate::pure::limits::LimitOverrides;
use crate::pure::policy::DomainPattern;

#[derive(Debug, Subcommand)]
pub(super) enum KeyCommand {
    /// Make a key for an account and show it, once
    #[command(after_help = "Examples:\n  tollgate key create --account acme\n  \
        tollgate key create --account acme --tier lite --expires 30d --rpm 60\n  \
        tollgate key create --account acme --domain app.example.com --domain '*.example.org'\n  \
        tollgate key create --account acme --limit 25 --limit-reset monthly --model 'openai/*'\n\n\
        *.example.org means the subdomains, not example.org itself. A key with limits of its\n\
        own is counted by itself; others are counted together, by account. What it may spend\n\
        begins anew at midnight UTC, each week on Monday.\n\n\
        Only a digest of the key is stored: a key that is lost cannot be shown again,\n\
        only revoked and replaced. Where the answer cannot be written, or goes to /dev/null,\n\
        it is revoked again.")]
    Create(CreateArgs),
    /// Change what sets a key apart; what is not given stays
    #[command(
        after_help = "Examples:\n  tollgate key set key_0123456789abcdef --limit 25 --limit-reset monthly\n  \
        tollgate key set key_0123456789abcdef --limit none --model none\n\n\
        A list that is given replaces the one before. What the key has spent is kept, whatever\n\
        becomes of its limit."
    )]
    Set {
        /// The key's id, or the key itself
        key_or_id: String,
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// Make a new key in place of one, which holds on for a while
    Rotate(RotateArgs),
    /// List an account's keys; they are shown by their ids
    #[command(after_help = "Example:\n  tollgate key list acme")]
    List {
        /// The account's name
        name: AccountId,
    },
    /// Revoke a key for good; it is refused within a second
    #[command(
        after_help = "Examples:\n  tollgate key revoke key_0123456789abcdef\n  tollgate key revoke \"$LEAKED_KEY\""
    )]
    Revoke {
        /// The key's id, or the key itself
        key_or_id: String,
    },
}

#[derive(Debug, Args)]
pub(super) struct CreateArgs {
    /// Who pays for its calls
    #[arg(long, value_name = "NAME")]
    account: AccountId,
    /// A tier up to the account's: free, lite, pro or enterprise
    #[arg(long)]
    tier: Option<Tier>,
    /// Only pages of this host, or *.example.com; repeatable
    #[arg(long = "domain", value_name = "HOST")]
    domains: Vec<DomainPattern>,
    /// How long it works: 30d, 12h, 90m, 45s [default: for ever]
    #[arg(long, value_name = "TIME")]
    expires: Option<Lifetime>,
    /// Requests a minute, in place of its tier's limit
    #[arg(long, value_name = "N", value_parser = limit)]
    rpm: Option<u64>,
    /// Tokens a minute, in place of its tier's limit
    #[arg(long, value_name = "N", value_parser = limit)]
    tpm: Option<u64>,
    /// Calls at once, in place of its tier's limit
    #[arg(long, value_name = "N", value_parser = limit)]
    concurrency: Option<u64>,
    #[command(flatten)]
    settings: SettingsArgs,
}

pub(super) fn run(command: KeyCommand, config: &Config, format: Format) -> Result<Answer, Failure> {
    match command {
        KeyCommand::Create(args) => {
            let warnings = args.settings.doubts(config);
            let (key, id) = create(config, args)?;
            let made = Some(Made::key(config, &id, RUN_AGAIN));
            let answer = Answer::of(&Created { key: key.reveal(), id }, format)?;
            Ok(Answer {
                warnings,
                made,
                ..answer
            })
        }
        KeyCommand::List { name } => match ask(config, AdminOp::KeyList { account: name.clone() })? {
            AdminReply::Keys { keys, account_status } => {
                let shown = KeysShown {
                    account: name,
                    account_status,
                    keys: keys.into_iter().map(KeyShown::of).collect(),
                };
                Answer::of(&shown, format)
            }
            _ => Err(Failure::wrong_reply()),
        },
        KeyCommand::Set { key_or_id, settings } => {
            let warnings = settings.doubts(config);
            let (key, change) = (named(&key_or_id)?, Box::new(settings.change()));
            if *change == KeyChange::default() {
                return Err(Failure::wrong_usage("nothing to change: see tollgate key set --help"));
            }
            check(&change)?;
            match ask(config, AdminOp::KeySet { key, change })? {
                AdminReply::Key(record) => {
                    let answer = Answer::of(&Changed(KeyShown::of(record)), format)?;
                    Ok(Answer { warnings, ..answer })
                }
                _ => Err(Failure::wrong_reply()),
            }
        }
        KeyCommand::Rotate(args) => key_rotate::run(&args, config, format),
        KeyCommand::Revoke { key_or_id } => {
            let key = named(&key_or_id)?;
            match ask(config, AdminOp::KeyRevoke { key })? {
                AdminReply::Key(record) => Answer::of(&Revoked(KeyShown::of(record)), format),
                _ => Err(Failure::wrong_reply()),
            }
        }
    }
}

/// Refuses what no key can have. Whether it has a limit that can be reset only the ledger knows.
fn check(change: &KeyChange) -> Result<(), Failure> {
    let without_resets = KeyChange {
        limit_reset: None,
        end_user_limit_reset: None,
        ..change.clone()
    };
    let applied = without_resets.applied(&KeySettings::default());
    applied.map(drop).map_err(Failure::wrong_usage)
}

/// Makes a plain key for an account: no limits of its own, no expiry.
pub(super) fn create_plain(config: &Config, account: AccountId) -> Result<ApiKey, Failure> {
    let args = CreateArgs {
        account,
        tier: None,
        domains: Vec::new(),
        expires: None,
        rpm: None,
        tpm: None,
        concurrency: None,
        settings: SettingsArgs::default(),
    };
    create(config, args).map(|(key, _)| key)
}

fn create(config: &Config, args: CreateArgs) -> Result<(ApiKey, KeyId), Failure> {
    check_domains(&args.domains).map_err(Failure::wrong_usage)?;
    let key = ApiKey::from_random(&config.key_prefix, random()?);
    let settings = args
        .settings
        .change()
        .applied(&KeySettings::default())
        .map_err(Failure::wrong_usage)?;
    let op = AdminOp::KeyCreate {
        digest: key.digest().to_hex(),
        account: args.account,
        tier: args.tier,
        domains: args.domains,
        expires_in_ms: args.expires.map(|lifetime| lifetime.millis),
        limits: LimitOverrides {
            rpm: args.rpm,
            tpm: args.tpm,
            concurrency: args.concurrency,
        },
        settings: Box::new(settings),
    };
    match ask(config, op)? {
        AdminReply::Key(record) => Ok((key, record.id)),
        _ => Err(Failure::wrong_reply()),
    }
}

/// 256 bits from the operating system.
pub(super) fn random() -> Result<[u8; 32], Failure> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::new(format!("the operating system gives no random numbers: {error}")))?;
    Ok(bytes)
}

/// What the operator means. A key is known by its checksum, whatever its prefix was when it was made. The text itself is in no error.
pub(super) fn named(text: &str) -> Result<KeyRef, Failure> {
    let prefix = text.len().checked_sub(KEY_DIGITS).and_then(|at| text.get(..at));
    if let Some(key) = prefix.and_then(|prefix| ApiKey::parse(prefix, text)) {
        return Ok(KeyRef::Digest(key.digest().to_hex()));
    }
    key_id(text).map(KeyRef::Id).map_err(|_| {
        Failure::wrong_usage(
            "that is neither a whole key nor the id of one (key_ and 16 hexadecimal digits); `tollgate key list NAME` shows the ids",
        )
    })
}

/// A key for its new owner: the only place that shows one.
#[derive(Serialize)]
struct Created<'k> {
    key: &'k str,
    id: KeyId,
}

impl Show for Created<'_> {
    fn text(&self) -> String {
        let Created { key, id } = self;
        format!(
            "key  {key}\nid   {id}\n\nKeep the key now: it is shown once. The id is for lists and for revoking it.\n"
        )
    }
}

#[derive(Serialize)]
struct KeysShown {
    account: AccountId,
    #[serde(skip_serializing_if = "Option::is_none")]
    account_status: Option<AccountStatus>,
    keys: Vec<KeyShown>,
}

#[derive(Serialize)]
#[serde(transparent)]
struct Revoked(KeyShown);

#[derive(Serialize)]
#[serde(transparent)]
struct Changed(KeyShown);

/// A key as lists show it.
#[derive(Serialize)]
pub(super) struct KeyShown {
    id: KeyId,
    account: AccountId,
    state: CredentialState,
    tier: Option<Tier>,
    domains: Vec<DomainPattern>,
    rpm: Option<u64>,
    tpm: Option<u64>,
    concurrency: Option<u64>,
    created: String,
    expires: Option<String>,
    revoked: Option<String>,
    #[serde(flatten)]
    settings: SettingsShown,
}

impl KeyShown {
    pub(super) fn of(record: KeyRecord) -> KeyShown {
        KeyShown {
            id: record.id,
            account: record.account,
            state: CredentialState::of(record.revoked, record.expires, Clock::System.now()),
            tier: record.tier,
            domains: record.domains,
            rpm: record.limits.rpm,
            tpm: record.limits.tpm,
            concurrency: record.limits.concurrency,
            created: record.created.to_string(),
            expires: record.expires.map(|at| at.to_string()),
            revoked: record.revoked.map(|at| at.to_string()),
            settings: SettingsShown::of(record.settings),
        }
    }

    /// What sets the key apart from its account, in words.
    fn rules(&self) -> String {
        let mut rules = Vec::new();
        let numbers = [("rpm", self.rpm), ("tpm", self.tpm), ("concurrency", self.concurrency)];
        rules.extend(self.tier.map(|tier| format!("tier {}", tier.name())));
        rules.extend(
            numbers
                .iter()
                .filter_map(|(name, value)| value.map(|value| format!("{name} {value}"))),
        );
        rules.extend(self.domains.iter().map(|domain| format!("only {domain}")));
        rules.extend(self.settings.rules());
        rules.join(", ")
    }
}

/// Keys, one a line; what sets one apart from its account stands below it.
pub(super) fn key_table(keys: &[KeyShown]) -> String {
    let mut table = Table::new(&[
        ("KEY", Align::Left),
        ("STATE", Align::Left),
        ("CREATED", Align::Left),
        ("EXPIRES", Align::Left),
    ]);
    for key in keys {
        let expires = key.expires.clone().unwrap_or_else(|| "never".to_owned());
        table.row(vec![
            key.id.to_string(),
            key.state.name().to_owned(),
            key.created.clone(),
            expires,
        ]);
    }
    let rows = table.text();
    let mut lines = rows.lines();
    let mut text = String::new();
    line(&mut text, format_args!("{}", lines.next().unwrap_or_default()));
    for (row, key) in lines.zip(keys) {
        line(&mut text, format_args!("{row}"));
        let rules = key.rules();
        if !rules.is_empty() {
            line(&mut text, format_args!("  {rules}"));
        }
    }
    text
}

impl Show for KeysShown {
    fn text(&self) -> String {
        if self.keys.is_empty() && self.account_status == Some(AccountStatus::Closed) {
            return format!("no keys, and {} is closed\n", self.account);
        }
        if self.keys.is_empty() {
            return format!("no keys: tollgate key create --account {}\n", self.account);
        }
        let mut text = key_table(&self.keys);
        if let Some(status) = self.account_status
            && let Some(stop) = status.stop()
        {
            let (account, status, reason) = (&self.account, status.name(), stop.name());
            line(
                &mut text,
                format_args!("{account} is {status}: calls with its keys are refused ({reason})"),
            );
        }
        text
    }
}

impl Show for Changed {
    fn text(&self) -> String {
        key_table(std::slice::from_ref(&self.0))
    }
}

impl Show for Revoked {
    fn text(&self) -> String {
        format!("{} of {} is revoked\n", self.0.id, self.0.account)
    }
}

/// Digits at a key's end: 256 random bits and the checksum.
const KEY_DIGITS: usize = 72;
