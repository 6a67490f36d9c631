//! Commands about credit: entries of every kind, their list, and statements that add up.

mod given;
mod statement;

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use self::statement::{DebitRow, STATEMENT_DAYS_MAX, STATEMENT_ROWS_MAX, Statement};
use crate::ledger::pico;
use crate::ledger::terms::{AccountStatus, AccountTerms};
use crate::pure::ids::AccountId;
use crate::pure::money::Credits;
use crate::pure::time::{Day, Timestamp};

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "credit_op")]
pub enum CreditOp {
    /// Posts an entry, once a reference of its account. Answers [`super::AdminReply::Posted`].
    Post(CreditPost),
    /// Entries, newest first. Answers [`super::AdminReply::CreditPage`].
    List {
        /// Whose.
        account: AccountId,
        /// The most that are given: 1 to [`CREDITS_MAX`], else the nearest.
        limit: u32,
        /// Where the page begins: what the page before said in `next`.
        before: Option<String>,
    },
    /// A statement. Answers [`super::AdminReply::Statement`].
    Statement {
        /// Whose.
        account: AccountId,
        /// The first UTC day.
        from: Day,
        /// The last UTC day; not before the first, and at most [`STATEMENT_DAYS_MAX`] days in all.
        to: Day,
    },
    /// Looks for an entry. Answers [`super::AdminReply::CreditFound`].
    Find {
        /// Whose; none: that of the payment that has this reference ([`CreditPost::is_payment`]), also where it was posted by hand.
        account: Option<AccountId>,
        /// What it is known by.
        reference: String,
    },
}

/// An entry to post.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreditPost {
    /// Who gets it.
    pub account: AccountId,
    /// How much: above 0, or for corrections and refunds not 0.
    #[serde(with = "pico")]
    pub amount: Credits,
    /// The same reference, amount and kind again change nothing; anything else under it is refused.
    pub reference: String,
    /// What it is.
    pub kind: CreditKind,
    /// A word on it, at most [`NOTE_BYTES_MAX`] bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Lets a correction or a refund take more than what is available.
    #[serde(default)]
    pub allow_negative: bool,
    /// Takes the balance where that is less, were it nothing, whatever running calls hold of it: what these cost may bring the balance below
    /// zero then. The same reference and kind again change nothing, whatever was taken.
    #[serde(default, skip_serializing_if = "is_false")]
    pub as_available: bool,
    /// A payment elsewhere: of all accounts one is credited it, which can be found by its reference alone. Top-ups only.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_payment: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// What a credit entry is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CreditKind {
    /// Paid for.
    #[default]
    TopUp,
    /// Given.
    Bonus,
    /// Puts a mistake right; may be negative.
    Correction,
    /// Pays back (negative), or takes a paying back back.
    Refund,
}

/// A credit entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreditEntry {
    /// When it was posted.
    pub at: Timestamp,
    /// What it is; entries of before there were kinds are top-ups.
    pub kind: CreditKind,
    /// How much.
    #[serde(with = "pico")]
    pub amount: Credits,
    /// What it is known by.
    pub reference: String,
    /// A word on it.
    pub note: Option<String>,
    /// The balance right after it; none for entries of before it was kept.
    #[serde(with = "crate::ledger::pico_option")]
    pub balance: Option<Credits>,
}

/// What became of a post.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Posted {
    /// False when this reference had counted before: `replayed`.
    pub added: bool,
    /// The balance now.
    #[serde(with = "pico")]
    pub balance: Credits,
    /// The entry as it stands, with the time of its first posting.
    pub entry: CreditEntry,
}

/// Entries, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreditPage {
    /// The entries.
    pub entries: Vec<CreditEntry>,
    /// Where the next page begins; none when this was the last.
    pub next: Option<String>,
}

impl CreditPost {
    /// A top-up without a note.
    pub fn top_up(account: AccountId, amount: Credits, reference: String) -> CreditPost {
        CreditPost {
            account,
            amount,
            reference,
            kind: CreditKind::TopUp,
            note: None,
            allow_negative: false,
            as_available: false,
            is_payment: false,
        }
    }

    /// Whether it is kept whose payment has its reference, so that it is found by that alone: of a payment, and of a top-up by hand under a
    /// payment's id, for one that named no account.
    pub(in crate::ledger) fn keeps_payer(&self) -> bool {
        self.is_payment || (self.kind == CreditKind::TopUp && is_payments_id(&self.reference))
    }

    /// # Errors
    /// Says what no account takes.
    pub(in crate::ledger) fn check(&self) -> Result<(), String> {
        let (amount, kind) = (self.amount, self.kind);
        if amount == Credits::ZERO || (amount < Credits::ZERO && !kind.may_be_negative()) {
            return Err(match kind.may_be_negative() {
                true => format!("the amount of a {kind} must not be 0"),
                false => format!("the amount must be above 0, not {amount}"),
            });
        }
        if Credits::ZERO.checked_sub(amount).is_none() {
            return Err("the amount is out of range".to_owned());
        }
        if self.is_payment && kind != CreditKind::TopUp {
            return Err(format!("a payment is a top_up, not a {kind}"));
        }
        check_reference(&self.reference)?;
        let note = self.note.as_deref().unwrap_or_default();
        if note.len() > NOTE_BYTES_MAX || note.chars().any(char::is_control) {
            return Err(format!(
                "a note has at most {NOTE_BYTES_MAX} bytes, and no control characters"
            ));
        }
        Ok(())
    }

    /// Whether this was posted before: as the entry of its reference.
    pub(in crate::ledger) fn is_same_as(&self, entry: &CreditEntry) -> bool {
        let is_part = self.as_available && (self.amount..=Credits::ZERO).contains(&entry.amount);
        self.kind == entry.kind && (self.amount == entry.amount || is_part)
    }

    /// What it takes of an account with this balance: all of it, unless that is more than there is and it is content with less.
    pub(in crate::ledger) fn amount_of(&self, balance: Credits) -> Credits {
        if !self.as_available || self.allow_negative {
            return self.amount;
        }
        let there = balance.max(Credits::ZERO);
        self.amount.max(Credits::ZERO.saturating_sub(there))
    }

    /// What is said where it would take more than there is.
    pub(in crate::ledger) fn short(&self, available: Credits, held: Credits) -> String {
        let amount = self.amount;
        format!("{amount} is more than is available: {available}, with {held} held by running calls")
    }

    /// What is said where the balance would leave its range.
    pub(in crate::ledger) fn out_of_range(&self) -> String {
        format!("{} would take the balance beyond its range", self.amount)
    }

    /// # Errors
    /// Says why an account with these terms does not take it: it is closed.
    pub(in crate::ledger) fn allowed_by(&self, terms: &AccountTerms) -> Result<(), String> {
        match terms.status {
            AccountStatus::Closed if !self.kind.may_be_negative() => Err(closed_to_credit()),
            AccountStatus::Active | AccountStatus::Suspended | AccountStatus::Closed => Ok(()),
        }
    }

    /// What is kept of it.
    pub(in crate::ledger) fn entry(&self, at: Timestamp, balance: Option<Credits>) -> CreditEntry {
        CreditEntry {
            at,
            kind: self.kind,
            amount: self.amount,
            reference: self.reference.clone(),
            note: self.note.clone().filter(|note| !note.is_empty()),
            balance,
        }
    }
}

impl CreditPage {
    /// A page of at most `limit` entries, of one more that were looked for.
    pub(in crate::ledger) fn of(mut entries: Vec<CreditEntry>, limit: usize) -> CreditPage {
        let has_more = entries.len() > limit;
        entries.truncate(limit);
        let next = entries.last().filter(|_| has_more).map(|last| last.reference.clone());
        CreditPage { entries, next }
    }
}

impl CreditKind {
    /// All.
    pub const ALL: [CreditKind; 4] = [
        CreditKind::TopUp,
        CreditKind::Bonus,
        CreditKind::Correction,
        CreditKind::Refund,
    ];

    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            CreditKind::TopUp => "top_up",
            CreditKind::Bonus => "bonus",
            CreditKind::Correction => "correction",
            CreditKind::Refund => "refund",
        }
    }

    /// Whether an entry of it may be negative.
    pub fn may_be_negative(self) -> bool {
        matches!(self, CreditKind::Correction | CreditKind::Refund)
    }
}

impl fmt::Display for CreditKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CreditKind {
    type Err = String;

    fn from_str(text: &str) -> Result<CreditKind, String> {
        CreditKind::ALL
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| format!("a kind is top_up, bonus, correction or refund, not {text}"))
    }
}

/// Checks a reference.
///
/// # Errors
/// When it is empty, too long, or has control characters, which no list could show.
pub(in crate::ledger) fn check_reference(reference: &str) -> Result<(), String> {
    let is_good = (1..=REFERENCE_BYTES_MAX).contains(&reference.len()) && !reference.chars().any(char::is_control);
    let why = || format!("the reference must have 1 to {REFERENCE_BYTES_MAX} bytes, and no control characters");
    is_good.then_some(()).ok_or_else(why)
}

/// Checks the reference of an entry that is not there yet. Entries of earlier versions may have others, and count once all the same.
///
/// # Errors
/// When it has a character that no list shows, or white space but for blanks between others: it would count beside the same one without.
/// Also where a script is spelled with such characters: a reference is an id.
pub(in crate::ledger) fn check_new_reference(reference: &str) -> Result<(), String> {
    let is_seen = |c: char| c == ' ' || !(c.is_whitespace() || is_unseen(c));
    let is_good = reference.trim_matches(' ').len() == reference.len() && reference.chars().all(is_seen);
    let why = || {
        "the reference must not begin or end with white space, nor have white space that is no blank, or a character that is not seen"
            .to_owned()
    };
    is_good.then_some(()).ok_or_else(why)
}

/// What has no width, is blank without being white space, or says which way a text runs.
fn is_unseen(c: char) -> bool {
    UNSEEN.iter().any(|range| range.contains(&c))
}

/// Whether a reference is the id of a payment intent of Stripe's.
pub(in crate::ledger) fn is_payments_id(reference: &str) -> bool {
    reference.starts_with("pi_")
}

/// What is said of credit for a closed account.
pub(in crate::ledger) fn closed_to_credit() -> String {
    "the account is closed: only corrections and refunds are possible".to_owned()
}

/// The most entries of one page.
pub const CREDITS_MAX: u32 = 1_000;
/// The longest note, in bytes.
pub const NOTE_BYTES_MAX: usize = 500;
/// Longest reference, in bytes.
pub const REFERENCE_BYTES_MAX: usize = 200;
/// Characters that are not seen, beside white space: those of Unicode's property Default_Ignorable_Code_Point, and the blank Braille pattern.
const UNSEEN: [RangeInclusive<char>; 18] = [
    '\u{ad}'..='\u{ad}',
    '\u{34f}'..='\u{34f}',
    '\u{61c}'..='\u{61c}',
    '\u{115f}'..='\u{1160}',
    '\u{17b4}'..='\u{17b5}',
    '\u{180b}'..='\u{180f}',
    '\u{200b}'..='\u{200f}',
    '\u{202a}'..='\u{202e}',
    '\u{2060}'..='\u{206f}',
    '\u{2800}'..='\u{2800}',
    '\u{3164}'..='\u{3164}',
    '\u{fe00}'..='\u{fe0f}',
    '\u{feff}'..='\u{feff}',
    '\u{ffa0}'..='\u{ffa0}',
    '\u{fff0}'..='\u{fffb}',
    '\u{1bca0}'..='\u{1bca3}',
    '\u{1d173}'..='\u{1d17a}',
    '\u{e0000}'..='\u{e0fff}',
];
