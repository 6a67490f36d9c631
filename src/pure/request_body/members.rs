//! Members of a body that are kept as the client wrote them: what they say, and where they stand.

use std::num::NonZeroU64;

use super::end_user::EndUserFields;
use super::fields::{METADATA, SESSION, STORE, USAGE};
use super::priced::PricedFields;
use super::scan::{Span, Text};
use super::unasked::Unasked;

/// What few bodies have, apart, since every call carries a body.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    /// The model's name when it is written with escapes.
    pub(super) model: Option<Box<str>>,
    /// How a chat names its conversation.
    pub(super) session: Option<Session>,
    /// `store`, when it is null or false.
    pub(super) store: Option<Member>,
    pub(super) metadata: Option<Member>,
    /// `usage` of a chat.
    pub(super) usage: Option<Member>,
    /// That asks for the usage.
    pub(super) asks_usage: bool,
    /// The last `prompt_cache_key` that is a text.
    pub(super) cache_key: Option<Text>,
    /// What it says in fields that change its price.
    pub(super) priced: PricedFields,
    /// Where it may say whose call it is.
    pub(super) end_user: EndUserFields,
    /// Whether some of its `tools` are no functions of the client.
    pub(super) hosted_tools: bool,
    /// Fields that are refused where they ask for something, and here do not.
    pub(super) unasked: Vec<Unasked>,
}

impl Names {
    /// The members that a provider gets only where its configuration names the field, by name.
    pub(super) fn withheld(&self) -> [(&'static str, Option<Member>); WITHHELD_MAX] {
        [
            (SESSION, self.session.map(|session| session.member)),
            (STORE, self.store),
            (METADATA, self.metadata),
            (USAGE, self.usage),
        ]
    }
}

/// Where a member stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    /// Between the quotes.
    pub(super) key: Span,
    pub(super) value: Span,
}

/// The member `session_id` of a chat.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    pub(super) member: Member,
    /// None when it is no text.
    pub(super) text: Option<Text>,
}

/// A limit of completion tokens as the client wrote it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Maximum {
    /// Between the quotes.
    pub(super) key: Span,
    pub(super) value: Span,
    /// None when it is null, which says the same as an absent field.
    pub(super) tokens: Option<NonZeroU64>,
}

/// What the client wrote as `stream_options`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StreamOptions {
    /// None where it wrote none.
    pub(super) member: Option<Member>,
    pub(super) usage: UsageOption,
}

/// Where it says whether the usage chunk is wanted, or where that is to be said.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum UsageOption {
    #[default]
    Absent,
    Null(Span),
    Empty {
        first_member: u32,
    },
    Others {
        first_member: u32,
    },
    IncludeUsage {
        value: Span,
        asked: bool,
    },
}

/// The members that may be withheld.
pub(super) const WITHHELD_MAX: usize = 4;
