//! What one call cost, and why: the record that is written in the step that resolves its number, once, and never changed.
//!
//! The ledger writes what it knows itself, and adds what the gateway knew of the call. What nobody knows, such as how a call ended whose
//! process died, is absent: never zero, never invented.

mod compact;
mod kinds;

use std::sync::Arc;

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

pub use self::compact::UsageOfReceipt;
pub use self::kinds::{BilledKinds, PricedBy};
use super::ids::{AccountId, KeyId, RequestId};
use super::money::{Credits, ListPrice, Pricing};
use super::numbers::{CallNumber, ProducerId};
use super::request_body::Endpoint;
use super::time::Timestamp;
use super::usage::{CompletionTokens, PromptTokens, Usage};

/// A call that was billed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// When the ledger took the debit, by its own clock: the receipt counts in the usage of that day.
    pub resolved: Timestamp,
    /// What was billed.
    #[serde(flatten)]
    pub billed: Billed,
}

/// What whoever sends a debit knows of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Billed {
    /// The request's id, as the client was told.
    pub id: RequestId,
    /// Who gave the call its number.
    #[serde(with = "producer_text")]
    pub producer: ProducerId,
    /// The number: with its producer and its account the name under which the call counts once.
    pub number: u64,
    /// Who pays.
    pub account: AccountId,
    /// The key that asked.
    pub key: KeyId,
    /// The model's id.
    pub model: Arc<str>,
    /// Prompt tokens that were billed.
    pub prompt_tokens: u64,
    /// Completion tokens that were billed.
    pub completion_tokens: u64,
    /// What they cost, exactly.
    #[serde(with = "decimal_text")]
    pub cost: Credits,
    /// What was held for the call.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "decimal_text_option")]
    pub held: Option<Credits>,
    /// What else is known of the call.
    #[serde(flatten)]
    pub call: CallFacts,
}

/// What a gateway knew of a call, as a receipt says it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallFacts {
    /// Who answered, as the configuration names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Arc<str>>,
    /// The model that the provider was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_model: Option<Arc<str>>,
    /// The answer's own id: what a provider's export lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_id: Option<String>,
    /// Where the call came in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<EndpointName>,
    /// When the request came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// When the first byte of its answer came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte: Option<Timestamp>,
    /// When the call ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// Whether its answer was a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streamed: Option<bool>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<CallEnding>,
    /// Tokens as the provider reported them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported_prompt_tokens: Option<u64>,
    /// Tokens as the provider reported them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported_completion_tokens: Option<u64>,
    /// Tokens that were counted in what was delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_completion_tokens: Option<u64>,
    /// The list price of a prompt token, exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_price: Option<ListPrice>,
    /// The list price of a completion token, exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_price: Option<ListPrice>,
    /// The tokens of each kind, and the prices of those kinds that have their own. Absent where the model has two prices and tokens are what
    /// was billed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kinds: Option<BilledKinds>,
    /// The tier by which its provider served it, as that says; where the model has prices of tiers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_tier: Option<Box<str>>,
    /// What the provider said that the call cost, where that is what was billed, with the markup.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "rust_decimal::serde::str_option"
    )]
    pub provider_cost: Option<Decimal>,
    /// Whose call the request said that it is, in at most [`super::spend::END_USER_BYTES_MAX`] bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_user: Option<Box<str>>,
    /// Its client had left, and the answer was read on for it to its end: of a call that is complete all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub client_left: bool,
}

/// An endpoint's name in receipts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndpointName {
    /// Chat.
    Chat,
    /// The endpoint of chats that are always streams.
    ChatStream,
    /// Embeddings.
    Embeddings,
}

/// How a call ended, as far as its gateway saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallEnding {
    /// The answer was passed on to its end.
    Complete,
    /// The client went away before.
    ClientGone,
    /// The upstream failed before.
    UpstreamFailed,
    /// The client had gone, and what was read on for it was cut off.
    DrainEnded,
    /// The gateway was stopped before.
    Dropped,
}

/// The same as the gateway has it when a call ends: nothing is put into text before the receipt is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallDetails {
    /// Who answered, as the configuration names it.
    pub provider: Option<Arc<str>>,
    /// The model that the provider was asked for.
    pub upstream_model: Option<Arc<str>>,
    /// The answer's own id.
    pub upstream_id: Option<String>,
    /// Where the call came in.
    pub endpoint: Option<Endpoint>,
    /// When the first byte of its answer came.
    pub first_byte: Option<Timestamp>,
    /// When the call ended.
    pub ended: Option<Timestamp>,
    /// Whether its answer was a stream.
    pub streamed: Option<bool>,
    /// How it ended.
    pub ending: Option<CallEnding>,
    /// Its client had left, and the answer was read on for it to its end.
    pub client_left: bool,
    /// The prompt as the provider reported it.
    pub reported_prompt: Option<PromptTokens>,
    /// The completion as the provider reported it.
    pub reported_completion: Option<CompletionTokens>,
    /// The completion as it was counted.
    pub counted_completion: Option<CompletionTokens>,
    /// The list prices.
    pub pricing: Option<Pricing>,
    /// What else its price depended on. None where that is how many tokens its sides have.
    pub priced: Option<Box<PricedBy>>,
    /// Whose call the request said that it is.
    pub end_user: Option<Box<str>>,
}

impl Receipt {
    /// Whether this is a receipt of what an export calls `id`: the answer's own id, or the request's.
    pub fn is_named(&self, id: &str) -> bool {
        self.billed.call.upstream_id.as_deref() == Some(id) || self.billed.id.to_string() == id
    }
}

/// By whose figures a call was billed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BilledBy {
    /// Tokens as the provider reported them.
    Report,
    /// Tokens as the gateway counted them, at least on one side: the provider did not report them, or fewer.
    Count,
    /// The provider's own cost, with the markup.
    Cost,
}

impl Billed {
    /// By whose figures it was billed. None where nobody knows: the journal of a gateway has the tokens and the cost of a call that was over,
    /// and nothing of how they came about.
    pub fn billed_by(&self) -> Option<BilledBy> {
        let call = &self.call;
        let figures = [
            call.reported_prompt_tokens,
            call.reported_completion_tokens,
            call.counted_completion_tokens,
        ];
        let is_known = call.ending.is_some() || figures.iter().any(Option::is_some);
        let covers = |reported: Option<u64>, billed: u64| reported.is_some_and(|reported| reported >= billed);
        let is_reported = covers(call.reported_prompt_tokens, self.prompt_tokens)
            && covers(call.reported_completion_tokens, self.completion_tokens);
        match call.provider_cost {
            Some(_) => Some(BilledBy::Cost),
            None if is_reported => Some(BilledBy::Report),
            None => is_known.then_some(BilledBy::Count),
        }
    }

    /// What is known of a debit when it is sent.
    pub fn new(
        id: RequestId,
        number: CallNumber,
        (account, key): (&AccountId, &KeyId),
        model: &Arc<str>,
        (usage, cost, held): (Usage, Credits, Option<Credits>),
        details: Option<&CallDetails>,
    ) -> Billed {
        let facts = details.map(CallDetails::facts).unwrap_or_default();
        Billed {
            id,
            producer: number.producer,
            number: number.number,
            account: account.clone(),
            key: key.clone(),
            model: Arc::clone(model),
            prompt_tokens: usage.prompt.0,
            completion_tokens: usage.completion.0,
            cost,
            held,
            call: CallFacts {
                created: created(id),
                ..facts
            },
        }
    }
}

/// When a request came, where its id says so.
fn created(id: RequestId) -> Option<Timestamp> {
    (id.time() > Timestamp::default()).then(|| id.time())
}

impl CallDetails {
    fn facts(&self) -> CallFacts {
        CallFacts {
            provider: self.provider.clone(),
            upstream_model: self.upstream_model.clone(),
            upstream_id: self.upstream_id.clone(),
            endpoint: self.endpoint.map(EndpointName::from),
            created: None,
            first_byte: self.first_byte,
            ended: self.ended,
            streamed: self.streamed,
            ending: self.ending,
            reported_prompt_tokens: self.reported_prompt.map(|tokens| tokens.0),
            reported_completion_tokens: self.reported_completion.map(|tokens| tokens.0),
            counted_completion_tokens: self.counted_completion.map(|tokens| tokens.0),
            prompt_price: self.pricing.map(|pricing| pricing.prompt),
            completion_price: self.pricing.map(|pricing| pricing.completion),
            kinds: self.priced.as_deref().map(PricedBy::kinds),
            service_tier: self.priced.as_deref().and_then(|priced| priced.service_tier.clone()),
            provider_cost: self.priced.as_deref().and_then(|priced| priced.provider_cost),
            end_user: self.end_user.clone(),
            client_left: self.client_left,
        }
    }
}

impl From<Endpoint> for EndpointName {
    fn from(endpoint: Endpoint) -> EndpointName {
        match endpoint {
            Endpoint::Chat => EndpointName::Chat,
            Endpoint::ChatStream => EndpointName::ChatStream,
            Endpoint::Embeddings => EndpointName::Embeddings,
        }
    }
}

/// An amount as its exact decimals in quotes.
mod decimal_text {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::pure::money::Credits;

    pub(super) fn serialize<S: Serializer>(credits: &Credits, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(credits)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Credits, D::Error> {
        Credits::deserialize(deserializer)
    }
}

/// The same for an amount that may be missing.
mod decimal_text_option {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::pure::money::Credits;

    pub(super) fn serialize<S: Serializer>(credits: &Option<Credits>, serializer: S) -> Result<S::Ok, S::Error> {
        credits.map(|credits| credits.to_string()).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Credits>, D::Error> {
        Option::<Credits>::deserialize(deserializer)
    }
}

/// A producer as 16 hexadecimal digits.
mod producer_text {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::pure::numbers::ProducerId;

    pub(super) fn serialize<S: Serializer>(producer: &ProducerId, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:016x}", producer.0))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ProducerId, D::Error> {
        let text = String::deserialize(deserializer)?;
        let number = u64::from_str_radix(&text, 16).map_err(serde::de::Error::custom)?;
        Ok(ProducerId(number))
    }
}

#[cfg(test)]
mod tests;
