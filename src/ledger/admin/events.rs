//! Events that are told to webhooks: kept in the ledger until every webhook has them, or three days are over.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::pure::ids::AccountId;
use crate::pure::time::Timestamp;
pub use crate::pure::webhook::EventKind;

/// A command about events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event_op")]
pub enum EventOp {
    /// Keeps an event of the gateway's own. One with the id of an event that is there changes nothing. Answers
    /// [`super::AdminReply::Events`] with it.
    Raise(Event),
    /// Takes events that are due, for so long that nobody else takes them meanwhile. Answers [`super::AdminReply::Events`], which says so
    /// where some could not be asked for or read; refused where that is so and there are no others.
    Claim {
        /// The most that are given.
        limit: u32,
        /// For so many milliseconds.
        lease_ms: i64,
    },
    /// Says what became of an event that was claimed. Answers [`super::AdminReply::Done`].
    Settle {
        /// Its id.
        id: String,
        /// The account that it is about.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        account: Option<AccountId>,
        /// What is still to be told to whom; nothing: it is done, and goes.
        deliveries: Vec<Delivery>,
        /// It goes because it is too old, and a webhook does not have it: it counts as dropped, once. Says nothing of one that stays. Earlier
        /// versions know no such field, and count none.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_dropped: bool,
    },
    /// Raises an event for each key that expires within a week, once; one of an account that has many open events may be left for a later time.
    /// Answers [`super::AdminReply::Done`], or [`super::AdminReply::Events`] without any where it is to be asked again soon, for not all keys
    /// were looked at: another gateway does that, or very many keys expire. Where keys could not be asked for or read, it is refused once those of
    /// all others are raised.
    RaiseExpiring,
    /// Counts what is still to be told. Answers [`super::AdminReply::EventCount`], which says so where some could not be asked for; refused where
    /// none could.
    Count,
}

/// What is still to be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventCount {
    /// Events that are still to be told to somebody.
    pub open: u64,
    /// When the oldest of them happened.
    pub oldest: Option<Timestamp>,
    /// Events that made room for others, or were too old, before every webhook had them; since the ledger was made.
    pub dropped: u64,
    /// Not all of the ledger could be asked: of the rest counts what was known before, where anything was.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_partial: bool,
}

/// Something that webhooks are told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// `evt_` and a text that no other event has; what the receiver knows a repeated one by.
    pub id: String,
    /// What it is.
    pub kind: EventKind,
    /// When it happened.
    pub at: Timestamp,
    /// The account that it is about.
    pub account: Option<AccountId>,
    /// What is told of it.
    pub data: Value,
    /// Who is still to be told; empty until it was claimed once.
    #[serde(default)]
    pub deliveries: Vec<Delivery>,
    /// When it was claimed, by the ledger's clock: said of one that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed: Option<Timestamp>,
    /// It happened so long ago that nobody is told any more, by the ledger's own time: said of one that is claimed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_too_old: bool,
}

/// What is still to be told to one webhook, or was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// The webhook's url.
    pub url: String,
    /// Attempts that failed.
    pub failed: u32,
    /// When the next one is due.
    pub due: Timestamp,
    /// It has the event, or is told no more of it. It stands here while others are still to be told, so that it is not told again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub done: bool,
}

/// When the first of those that are still to be told is due; none when nobody is.
pub(crate) fn next_due(deliveries: &[Delivery]) -> Option<Timestamp> {
    let open = deliveries.iter().filter(|delivery| !delivery.done);
    open.map(|delivery| delivery.due).min()
}
