//! A receipt as a store keeps it: an array in place of an object, for there are many of them.

use std::sync::Arc;

use rust_decimal::Decimal;
use serde::de::IgnoredAny as Any;
use serde::ser::SerializeSeq;
use serde::{Deserialize, Serialize, Serializer};

use super::kinds::MoreKinds;
use super::{Billed, BilledKinds, CallEnding, CallFacts, EndpointName, created};
use crate::pure::ids::{AccountId, KeyId, RequestId};
use crate::pure::money::{Credits, ListPrice};
use crate::pure::numbers::ProducerId;
use crate::pure::time::Timestamp;

/// A receipt's own part; the account is known by its place. What comes later goes to the end.
type Compact = (
    u8,
    RequestId,
    String,
    u64,
    KeyId,
    Arc<str>,
    u64,
    u64,
    i64,
    Option<i64>,
    CompactFacts,
);

/// [`CallFacts`] in the order of their fields; the two later times are milliseconds after `created`, which the request's id says, the
/// prices are in 10^-24 credit. What stands at the end is only there where a price depends on it, an end user is named, or the client had left:
/// earlier versions read the rest.
#[derive(Deserialize)]
struct CompactFacts(
    Option<Arc<str>>,
    Option<Arc<str>>,
    Option<String>,
    Option<EndpointName>,
    Option<i64>,
    Option<i64>,
    Option<bool>,
    Option<CallEnding>,
    Option<u64>,
    Option<u64>,
    Option<u64>,
    Option<u128>,
    Option<u128>,
    #[serde(default)] Option<CompactKinds>,
    #[serde(default)] Option<MoreKinds>,
    #[serde(default)] Option<Box<str>>,
    #[serde(default, with = "rust_decimal::serde::str_option")] Option<Decimal>,
    #[serde(default)] Option<Box<str>>,
    #[serde(default)] bool,
);

/// [`BilledKinds`] in the order of their fields.
type CompactKinds = (u64, u64, u64, Option<u128>, Option<u128>, Option<u128>);

impl Serialize for CompactFacts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        list.serialize_element(&self.0)?;
        list.serialize_element(&self.1)?;
        list.serialize_element(&self.2)?;
        list.serialize_element(&self.3)?;
        list.serialize_element(&self.4)?;
        list.serialize_element(&self.5)?;
        list.serialize_element(&self.6)?;
        list.serialize_element(&self.7)?;
        list.serialize_element(&self.8)?;
        list.serialize_element(&self.9)?;
        list.serialize_element(&self.10)?;
        list.serialize_element(&self.11)?;
        list.serialize_element(&self.12)?;
        // Each of these stands there when it or one after it has something to say.
        let has_client_left = self.18;
        let has_end_user = has_client_left || self.17.is_some();
        let has_cost = has_end_user || self.16.is_some();
        let has_tier = has_cost || self.15.is_some();
        let has_more = has_tier || self.14.is_some();
        if has_more || self.13.is_some() {
            list.serialize_element(&self.13)?;
        }
        if has_more {
            list.serialize_element(&self.14)?;
        }
        if has_tier {
            list.serialize_element(&self.15)?;
        }
        if has_cost {
            list.serialize_element(&self.16.map(|cost| cost.to_string()))?;
        }
        if has_end_user {
            list.serialize_element(&self.17)?;
        }
        if has_client_left {
            list.serialize_element(&self.18)?;
        }
        list.end()
    }
}

impl Billed {
    /// The text that a store keeps; the account is known by its place.
    ///
    /// # Errors
    /// None that a receipt can cause.
    pub fn to_compact(&self) -> Result<String, serde_json::Error> {
        let compact: Compact = (
            COMPACT_VERSION,
            self.id,
            format!("{:x}", self.producer.0),
            self.number,
            self.key.clone(),
            Arc::clone(&self.model),
            self.prompt_tokens,
            self.completion_tokens,
            self.cost.pico(),
            self.held.map(Credits::pico),
            self.call.as_compact(self.id),
        );
        serde_json::to_string(&compact)
    }

    /// Reads what [`Billed::to_compact`] wrote.
    ///
    /// # Errors
    /// When it is not that, or of a later version.
    pub fn of_compact(account: &AccountId, text: &str) -> Result<Billed, serde_json::Error> {
        let (version, id, producer, number, key, model, prompt_tokens, completion_tokens, cost, held, facts): Compact =
            serde_json::from_str(text)?;
        if version != COMPACT_VERSION {
            return Err(serde::de::Error::custom("a receipt of another version"));
        }
        let producer = u64::from_str_radix(&producer, 16).map_err(serde::de::Error::custom)?;
        Ok(Billed {
            id,
            producer: ProducerId(producer),
            number,
            account: account.clone(),
            key,
            model,
            prompt_tokens,
            completion_tokens,
            cost: Credits::from_pico(cost),
            held: held.map(Credits::from_pico),
            call: CallFacts::of_parts(facts, id),
        })
    }
}

/// What counts of a receipt in the usage of its day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageOfReceipt {
    /// The model's id.
    pub model: String,
    /// Prompt tokens that were billed.
    pub prompt_tokens: u64,
    /// Completion tokens that were billed.
    pub completion_tokens: u64,
    /// What they cost, exactly.
    pub cost: Credits,
}

impl UsageOfReceipt {
    /// Reads what [`Billed::to_compact`] wrote, and no more of it than it needs.
    ///
    /// # Errors
    /// As [`Billed::of_compact`].
    pub fn of_compact(text: &str) -> Result<UsageOfReceipt, serde_json::Error> {
        type Parts = (u8, Any, Any, Any, Any, String, u64, u64, i64, Any, Any);
        let (version, _, _, _, _, model, prompt_tokens, completion_tokens, cost, _, _): Parts =
            serde_json::from_str(text)?;
        if version != COMPACT_VERSION {
            return Err(serde::de::Error::custom("a receipt of another version"));
        }
        Ok(UsageOfReceipt {
            model,
            prompt_tokens,
            completion_tokens,
            cost: Credits::from_pico(cost),
        })
    }
}

impl CallFacts {
    fn as_compact(&self, id: RequestId) -> CompactFacts {
        let after = |time: Timestamp| time.0.saturating_sub(id.time().0);
        CompactFacts(
            self.provider.clone(),
            self.upstream_model.clone(),
            self.upstream_id.clone(),
            self.endpoint,
            self.first_byte.map(after),
            self.ended.map(after),
            self.streamed,
            self.ending,
            self.reported_prompt_tokens,
            self.reported_completion_tokens,
            self.counted_completion_tokens,
            self.prompt_price.map(ListPrice::units),
            self.completion_price.map(ListPrice::units),
            self.kinds.map(|kinds| {
                let units = |price: Option<ListPrice>| price.map(ListPrice::units);
                (
                    kinds.cache_read_tokens,
                    kinds.cache_write_tokens,
                    kinds.reasoning_tokens,
                    units(kinds.cache_read_price),
                    units(kinds.cache_write_price),
                    units(kinds.reasoning_price),
                )
            }),
            self.kinds.and_then(|kinds| kinds.more()),
            self.service_tier.clone(),
            self.provider_cost,
            self.end_user.clone(),
            self.client_left,
        )
    }

    fn of_parts(facts: CompactFacts, id: RequestId) -> CallFacts {
        let CompactFacts(
            provider,
            upstream_model,
            upstream_id,
            endpoint,
            first_byte,
            ended,
            streamed,
            ending,
            rp,
            rc,
            cc,
            pp,
            cp,
            kinds,
            more,
            service_tier,
            provider_cost,
            end_user,
            client_left,
        ) = facts;
        let price = |units: Option<u128>| units.and_then(ListPrice::from_units);
        let at = |after: i64| Timestamp(id.time().0.saturating_add(after));
        CallFacts {
            provider,
            upstream_model,
            upstream_id,
            endpoint,
            created: created(id),
            first_byte: first_byte.map(at),
            ended: ended.map(at),
            streamed,
            ending,
            reported_prompt_tokens: rp,
            reported_completion_tokens: rc,
            counted_completion_tokens: cc,
            prompt_price: price(pp),
            completion_price: price(cp),
            kinds: kinds.map(|(read, write, reasoning, read_price, write_price, reasoning_price)| {
                BilledKinds {
                    cache_read_tokens: read,
                    cache_write_tokens: write,
                    reasoning_tokens: reasoning,
                    cache_read_price: price(read_price),
                    cache_write_price: price(write_price),
                    reasoning_price: price(reasoning_price),
                    ..BilledKinds::default()
                }
                .with(more.unwrap_or_default())
            }),
            service_tier,
            provider_cost,
            end_user,
            client_left,
        }
    }
}

const COMPACT_VERSION: u8 = 1;
