//! `tollgate operator`: who may use the operator's interface, and the log of what was done. A token is made here, shown once, and only its
//! digest leaves this process.

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::Value;

use super::arguments::Lifetime;
use super::failure::Failure;
use super::key::random;
use super::ledger::{ask, new_ledger};
use super::made::{Made, RUN_AGAIN};
use super::output::{Align, Answer, Format, Show, Table, facts, line, plain};
use crate::clock::Clock;
use crate::config::Config;
use crate::ledger::admin::operators::{ActQuery, Actor, OperatorOp, OperatorRecord};
use crate::ledger::admin::{AdminOp, AdminReply};
use crate::ledger::shown::{ActShown, CredentialState};
use crate::pure::ids::AccountId;
use crate::pure::operator::{Role, token};

#[derive(Debug, Subcommand)]
pub(super) enum OperatorCommand {
    /// Make an operator and show its token, once
    #[command(after_help = "Examples:\n  tollgate operator create anna --role admin\n  \
        tollgate operator create shop --role billing --expires-in 90d\n\n\
        read reads everything but the list of operators (the log of acts names them), and changes\n\
        nothing; support may suspend accounts and manage keys too; billing reads as read does, and\n\
        may add and correct credit alone; admin may do all there is.\n\n\
        Only a digest of the token is stored: one that is lost cannot be shown again, only revoked\n\
        and replaced. Where the answer cannot be written, or goes to /dev/null, it is revoked\n\
        again.")]
    Create {
        /// What it is called: 1 to 64 characters
        name: String,
        /// What it may do: admin, billing, support or read
        #[arg(long)]
        role: Role,
        /// How long its token works: 90d, 12h [default: for ever]
        #[arg(long, value_name = "TIME")]
        expires_in: Option<Lifetime>,
    },
    /// List all operators, revoked ones too
    #[command(after_help = "Example:\n  tollgate operator list")]
    List,
    /// Revoke an operator's token for good; it is refused within a second
    #[command(after_help = "Example:\n  tollgate operator revoke op_0123456789abcdef")]
    Revoke {
        /// The operator's id: op_ and 16 hexadecimal digits
        id: String,
    },
    /// Show the log: who did what, with what was there before and after
    #[command(after_help = "Examples:\n  tollgate operator log\n  \
        tollgate operator log --account acme --limit 10 --json\n\n\
        The newest act is first. Commands of this program are acts of the operator `cli`; what only\n\
        reads is not logged. An act with the error `unknown` is one whose end was never written: the\n\
        process died, or the store failed.")]
    Log(LogArgs),
}

#[derive(Debug, Args)]
pub(super) struct LogArgs {
    /// Only what is about this account
    #[arg(long, value_name = "NAME")]
    account: Option<AccountId>,
    /// How many acts, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Only acts before this one: `next` of the page before
    #[arg(long, value_name = "ID")]
    before: Option<String>,
}

pub(super) fn run(command: OperatorCommand, config: &Config, format: Format) -> Result<Answer, Failure> {
    match command {
        OperatorCommand::Create { name, role, expires_in } => {
            let token = token(random()?);
            let op = OperatorOp::Create {
                digest: token.digest().to_hex(),
                name,
                role,
                expires_in_ms: expires_in.map(|lifetime| lifetime.millis),
            };
            let warnings = new_ledger(config).into_iter().collect();
            let operator = OperatorShown::of(operator(config, op)?);
            let made = Some(Made::operator(config, &operator.id, RUN_AGAIN));
            let token = token.reveal();
            let answer = Answer::of(&Created { token, operator }, format)?;
            Ok(Answer {
                warnings,
                made,
                ..answer
            })
        }
        OperatorCommand::Revoke { id } => {
            let revoked = operator(config, OperatorOp::Revoke { id })?;
            Answer::of(&Revoked(OperatorShown::of(revoked)), format)
        }
        OperatorCommand::List => match ask(config, AdminOp::Operator(OperatorOp::List))? {
            AdminReply::Operators { operators } => {
                let operators = operators.into_iter().map(OperatorShown::of).collect();
                Answer::of(&OperatorsShown { operators }, format)
            }
            _ => Err(Failure::wrong_reply()),
        },
        OperatorCommand::Log(LogArgs { account, limit, before }) => {
            let query = ActQuery { limit, before, account };
            match ask(config, AdminOp::Operator(OperatorOp::Log(query)))? {
                AdminReply::Acts(page) => {
                    let acts = page.acts.into_iter().map(ActShown::from).collect();
                    let next = page.next;
                    Answer::of(&ActsShown { acts, next }, format)
                }
                _ => Err(Failure::wrong_reply()),
            }
        }
    }
}

fn operator(config: &Config, op: OperatorOp) -> Result<OperatorRecord, Failure> {
    match ask(config, AdminOp::Operator(op))? {
        AdminReply::Operator(record) => Ok(record),
        _ => Err(Failure::wrong_reply()),
    }
}

/// A token for its new owner: the only place that shows one.
#[derive(Serialize)]
struct Created<'t> {
    token: &'t str,
    #[serde(flatten)]
    operator: OperatorShown,
}

impl Show for Created<'_> {
    fn text(&self) -> String {
        let Created { token, operator } = self;
        let expires = operator.expires.clone().unwrap_or_else(|| "never".to_owned());
        let mut text = facts(&[
            ("token", (*token).to_owned()),
            ("id", operator.id.clone()),
            ("name", operator.name.clone()),
            ("role", operator.role.name().to_owned()),
            ("expires", expires),
        ]);
        text.push_str("\nKeep the token now: it is shown once. The id is for lists and for revoking it.\n");
        text
    }
}

#[derive(Serialize)]
#[serde(transparent)]
struct Revoked(OperatorShown);

impl Show for Revoked {
    fn text(&self) -> String {
        format!("{} ({}) is revoked\n", self.0.id, self.0.name)
    }
}

#[derive(Serialize)]
struct OperatorsShown {
    operators: Vec<OperatorShown>,
}

/// An operator as lists show it.
#[derive(Serialize)]
struct OperatorShown {
    id: String,
    name: String,
    role: Role,
    state: CredentialState,
    created: String,
    expires: Option<String>,
    revoked: Option<String>,
}

impl OperatorShown {
    fn of(record: OperatorRecord) -> OperatorShown {
        OperatorShown {
            state: CredentialState::of(record.revoked, record.expires, Clock::System.now()),
            id: record.id,
            name: record.name,
            role: record.role,
            created: record.created.to_string(),
            expires: record.expires.map(|at| at.to_string()),
            revoked: record.revoked.map(|at| at.to_string()),
        }
    }
}

impl Show for OperatorsShown {
    fn text(&self) -> String {
        if self.operators.is_empty() {
            return "no operators: tollgate operator create NAME --role admin\n".to_owned();
        }
        let columns = ["OPERATOR", "NAME", "ROLE", "STATE", "EXPIRES"].map(|title| (title, Align::Left));
        let mut table = Table::new(&columns);
        for operator in &self.operators {
            table.row(vec![
                operator.id.clone(),
                operator.name.clone(),
                operator.role.name().to_owned(),
                operator.state.name().to_owned(),
                operator.expires.clone().unwrap_or_else(|| "never".to_owned()),
            ]);
        }
        table.text()
    }
}

#[derive(Serialize)]
struct ActsShown {
    acts: Vec<ActShown>,
    next: Option<String>,
}

/// Appends an act, as the log shows it.
fn write(act: &ActShown, text: &mut String) {
    let Actor {
        id,
        name,
        role,
        address,
    } = &act.actor;
    let from = address.as_ref().map(|address| format!(" from {address}"));
    told(text, format_args!("{}  {}  {}", act.id, act.time, act.action));
    told(
        text,
        format_args!("  by       {name} ({id}, {role}){}", from.unwrap_or_default()),
    );
    if let Some(account) = &act.account {
        told(text, format_args!("  account  {account}"));
    }
    if let Some(subject) = &act.subject {
        told(text, format_args!("  subject  {subject}"));
    }
    // A rotation makes a key, and changes the old one.
    let after = match act.after.get("key").filter(|_| act.action == "key.rotate") {
        Some(new) => {
            told(
                text,
                format_args!("  new key  {}", new["id"].as_str().unwrap_or_default()),
            );
            &act.after["old"]
        }
        None => &act.after,
    };
    for (name, before, after) in changes(&act.before, after) {
        told(text, format_args!("  {name}: {before} -> {after}"));
    }
    if let Some(error) = &act.error {
        if !act.request.is_null() {
            told(text, format_args!("  request  {}", act.request));
        }
        told(text, format_args!("  error    {error}"));
    }
}

impl Show for ActsShown {
    fn text(&self) -> String {
        let mut text = String::new();
        if self.acts.is_empty() {
            text.push_str("no acts\n");
        }
        self.acts.iter().for_each(|act| write(act, &mut text));
        if let Some(next) = &self.next {
            line(&mut text, format_args!("\nmore: --before {next}"));
        }
        text
    }
}

/// Appends a line of the log, in which there may be what somebody sent.
fn told(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    line(text, format_args!("{}", plain(&arguments.to_string())));
}

/// What an act changed: of something that was there, each of its fields that is another one afterwards.
fn changes(before: &Value, after: &Value) -> Vec<(String, Value, Value)> {
    let (Some(before), Some(after)) = (before.as_object(), after.as_object()) else {
        return Vec::new();
    };
    let differs = |(name, after): (&String, &Value)| {
        let before = before.get(name).unwrap_or(&Value::Null);
        (before != after).then(|| (name.clone(), before.clone(), after.clone()))
    };
    after.iter().filter_map(differs).collect()
}
