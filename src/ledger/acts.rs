//! What the log of acts says of a command: which ones it has, by which names, and how what was there before and after is shown.
//!
//! A store begins an entry before it runs a command, with `unknown` for its end, and completes it afterwards. So a process that dies
//! between leaves an entry that says so, and no command takes effect without one.

mod bounds;
mod request;
mod shapes;

use serde_json::{Value, json};

pub(super) use self::bounds::{PAGE_BYTES_MAX, PageReader};
use self::bounds::{capped, check};
use self::request::{credit_of, request_of};
pub(super) use self::shapes::{account_value, key_value, operator_value};
use super::admin::accounts::AccountOp;
use super::admin::credits::CreditOp;
use super::admin::events::EventOp;
use super::admin::operators::{Act, ActQuery, Actor, NAME_CHARS_MAX, OperatorOp};
use super::admin::{AdminError, AdminOp, AdminReply, KeyRef};
use crate::pure::ids::{AccountId, KeyDigest, KeyId};
use crate::pure::operator::operator_id;
use crate::pure::time::Timestamp;

/// An entry on its way: what is known of a command before it runs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) act: Act,
    about: About,
    /// Said of an entry of credit beside what the account is after it.
    credit: Option<Value>,
}

/// What a command is about, which is looked at before and after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum About {
    /// Something that leaves nothing to look at.
    Nothing,
    /// An account.
    Account(AccountId),
    /// A key.
    Key(KeyRef),
    /// An operator, by its id.
    Operator(String),
    /// Whether calls are refused.
    Maintenance,
    /// All books: only what was mended is told, and nothing where nothing was.
    Books,
}

impl AdminOp {
    /// Whether it is an act: the log has it when somebody gives it.
    pub fn is_act(&self) -> bool {
        matches!(told(self), Ok(Some(_)))
    }
}

impl Entry {
    /// The entry of a command, or nothing for one that the log does not have: one that only reads.
    ///
    /// # Errors
    /// When it is no command that somebody gives, or names something by a text that nothing can have: that is not in the log.
    pub(super) fn of(actor: Actor, op: &AdminOp) -> Result<Option<Entry>, AdminError> {
        let Some((action, account, subject, about)) = told(op)? else {
            return Ok(None);
        };
        check(op)?;
        Ok(Some(Entry {
            act: Act {
                id: String::new(),
                at: Timestamp(0),
                actor,
                action: action.to_owned(),
                account: account.cloned(),
                subject: subject.map(capped),
                request: request_of(op),
                before: Value::Null,
                after: Value::Null,
                error: Some(UNKNOWN.to_owned()),
            },
            about,
            credit: credit_of(op),
        }))
    }

    /// What to look at before the command runs, and again where its answer does not say what it left.
    pub(super) fn about(&self) -> &About {
        &self.about
    }

    /// Notes when the command is given, and what was there before.
    pub(super) fn begins(&mut self, at: Timestamp, before: Value) {
        self.act.at = at;
        if let (About::Key(_), true) = (&self.about, before.is_object()) {
            // A key may be named by its digest; whose it is says only what was found.
            let text = |name: &str| before.get(name).and_then(Value::as_str);
            self.act.account = text("account").and_then(|name| name.parse().ok());
            self.act.subject = text("id").map(str::to_owned).or(self.act.subject.take());
        }
        self.act.before = before;
    }

    /// Whether what is there after `result` has to be looked at, for the answer does not say it.
    pub(super) fn needs_look(&self, result: &Result<AdminReply, AdminError>) -> bool {
        match result {
            Ok(AdminReply::Credited { .. } | AdminReply::Posted(_)) => true,
            Ok(_) => self.act.action == ROTATE,
            // It was written all the same, or it may have been.
            Err(AdminError::NotConfirmed(_) | AdminError::Store(_)) => true,
            Err(_) => false,
        }
    }

    /// Notes how the command ended. False when there is nothing to keep: it changed nothing.
    pub(super) fn ends(&mut self, result: &Result<AdminReply, AdminError>, looked: Value) -> bool {
        self.act.error = result.as_ref().err().map(|error| match error {
            AdminError::Store(_) => capped(format!("{UNKNOWN}: {error}")),
            _ => capped(error.to_string()),
        });
        self.act.after = match result {
            Ok(AdminReply::Account(view)) => account_value(view),
            Ok(AdminReply::Credited { added, .. }) => self.with_credit(looked, json!({ "added": added })),
            Ok(AdminReply::Posted(posted)) => {
                let entry = &posted.entry;
                // It may be less than was asked for.
                let amount = entry.amount.to_string();
                let mut credit = json!({ "added": posted.added, "amount": amount, "at": entry.at.to_string() });
                if let (Some(fields), Some(balance)) = (credit.as_object_mut(), entry.balance) {
                    fields.insert("balance".to_owned(), balance.to_string().into());
                }
                self.with_credit(looked, credit)
            }
            Ok(AdminReply::Key(key)) if self.act.action == ROTATE => json!({ "key": key_value(key), "old": looked }),
            Ok(AdminReply::Key(key)) => key_value(key),
            Ok(AdminReply::Operator(operator)) => operator_value(operator),
            Ok(AdminReply::Maintenance { on }) => json!({ "on": on }),
            Ok(AdminReply::Repaired { findings }) if findings.is_empty() => return false,
            Ok(AdminReply::Repaired { findings }) => shapes::findings_value(findings),
            Ok(AdminReply::Recovered(report)) if report.settled == 0 && report.released == 0 => return false,
            Ok(AdminReply::Recovered(report)) => {
                json!({ "settled": report.settled, "already": report.already, "released": report.released })
            }
            Ok(_) => Value::Null,
            Err(_) => looked,
        };
        true
    }

    fn with_credit(&self, mut looked: Value, more: Value) -> Value {
        let mut credit = self.credit.clone().unwrap_or_else(|| json!({}));
        if let (Some(fields), Value::Object(more)) = (credit.as_object_mut(), more) {
            fields.extend(more);
        }
        if looked.is_null() {
            looked = json!({}); // What is there now could not be read; what was posted is known all the same.
        }
        if let Some(fields) = looked.as_object_mut() {
            fields.insert("credit".to_owned(), credit);
        }
        looked
    }
}

type Told<'a> = (&'static str, Option<&'a AccountId>, Option<String>, About);

/// A command's name, account and subject, and what it is about.
fn told(op: &AdminOp) -> Result<Option<Told<'_>>, AdminError> {
    let of_key = |action, key: &KeyRef| {
        let id = match key {
            KeyRef::Id(id) => Some(id.to_string()),
            KeyRef::Digest(hex) => key_id(hex),
        };
        Some((action, None, id, About::Key(key.clone())))
    };
    Ok(match op {
        AdminOp::AccountCreate { account, .. } => of_account("account.create", account, None),
        AdminOp::AccountSet { account, .. } => of_account("account.set", account, None),
        AdminOp::Account(AccountOp::Terms { account, .. }) => of_account("account.terms", account, None),
        AdminOp::CreditsAdd { account, reference, .. } => of_account("credits.post", account, Some(reference.clone())),
        AdminOp::Credit(CreditOp::Post(post)) => {
            of_account("credits.post", &post.account, Some(post.reference.clone()))
        }
        AdminOp::KeyCreate { digest, account, .. } => {
            let about = About::Key(KeyRef::Digest(digest.clone()));
            Some(("key.create", Some(account), key_id(digest), about))
        }
        AdminOp::KeySet { key, .. } => of_key("key.set", key),
        AdminOp::KeyRevoke { key } => of_key("key.revoke", key),
        AdminOp::KeyRotate { key, .. } => of_key(ROTATE, key),
        AdminOp::Operator(OperatorOp::Create { digest, .. }) => {
            let id = KeyDigest::from_hex(digest).map(|digest| operator_id(&digest));
            let about = id.clone().map_or(About::Nothing, About::Operator);
            Some(("operator.create", None, id, about))
        }
        AdminOp::Operator(OperatorOp::Revoke { id }) => {
            Some(("operator.revoke", None, Some(id.clone()), About::Operator(id.clone())))
        }
        AdminOp::Event(EventOp::Raise(event)) => Some((
            "event.raise",
            event.account.as_ref(),
            Some(event.id.clone()),
            About::Nothing,
        )),
        AdminOp::Maintenance { .. } => Some(("maintenance", None, None, About::Maintenance)),
        AdminOp::Repair => Some(("ledger.repair", None, None, About::Books)),
        AdminOp::Recover | AdminOp::NoteRecovered(_) => Some(("ledger.recover", None, None, About::Books)),
        AdminOp::Account(AccountOp::Page(_) | AccountOp::Stopped { .. })
        | AdminOp::Credit(CreditOp::List { .. } | CreditOp::Statement { .. } | CreditOp::Find { .. })
        | AdminOp::Operator(OperatorOp::List | OperatorOp::Find { .. } | OperatorOp::Log(_))
        | AdminOp::AccountShow { .. }
        | AdminOp::AccountList
        | AdminOp::KeyShow { .. }
        | AdminOp::KeyList { .. }
        | AdminOp::KeySpent { .. }
        | AdminOp::Usage { .. }
        | AdminOp::UsageOf(_)
        | AdminOp::EndUsers(_)
        | AdminOp::Receipts(_)
        | AdminOp::Audit => None,
        AdminOp::Event(EventOp::Claim { .. } | EventOp::Settle { .. } | EventOp::RaiseExpiring | EventOp::Count)
        | AdminOp::By(_)
        | AdminOp::Reserve(_)
        | AdminOp::Extend(_)
        | AdminOp::KeysFreed { .. } => {
            return Err(AdminError::Invalid("nobody gives such a command".to_owned()));
        }
    })
}

fn of_account<'a>(action: &'static str, account: &'a AccountId, subject: Option<String>) -> Option<Told<'a>> {
    Some((action, Some(account), subject, About::Account(account.clone())))
}

fn key_id(hex: &str) -> Option<String> {
    KeyDigest::from_hex(hex).map(|digest| KeyId::of(&digest).to_string())
}

/// What no act's number comes to: Redis counts with doubles, and the index by account has 16 digits.
const NUMBER_MAX: i64 = 999_999_999_999_999;

/// The number of the act that a page is before.
///
/// # Errors
/// When it is no number that an act can have.
pub(super) fn number_before(query: &ActQuery) -> Result<Option<i64>, AdminError> {
    let number = |text: &String| {
        let number: Option<i64> = text.parse().ok().filter(|number| (1..=NUMBER_MAX).contains(number));
        number.ok_or_else(|| AdminError::Invalid("before is the id of an act, which is a number".to_owned()))
    };
    query.before.as_ref().map(number).transpose()
}

/// Checks the name of a new operator.
///
/// # Errors
/// When it is too long, empty, or has control characters.
pub(super) fn check_name(name: &str) -> Result<(), AdminError> {
    let is_good =
        !name.trim().is_empty() && name.chars().count() <= NAME_CHARS_MAX && !name.chars().any(char::is_control);
    match is_good {
        true => Ok(()),
        false => Err(AdminError::Invalid(format!(
            "an operator's name has 1 to {NAME_CHARS_MAX} characters, and no control characters"
        ))),
    }
}

/// What is said where an entry could not be begun: nothing was done.
pub(super) fn not_logged(error: &impl std::fmt::Display) -> AdminError {
    AdminError::Store(format!("the act cannot be logged, so nothing was done: {error}"))
}

/// The error of an act of which nothing more was heard.
pub(super) const UNKNOWN: &str = "unknown";
const ROTATE: &str = "key.rotate";

#[cfg(test)]
mod tests;
