//! `GET /llm/generation` and `GET /llm/generations`: what calls cost and why, for who pays, under the names that OpenRouter gave such an answer.

use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::own_key;
use super::parameters::{parameter, positive};
use crate::gateway::access::authenticate::store_failed;
use crate::gateway::snapshot::to_json;
use crate::gateway::state::Books;
use crate::ledger::Caller;
use crate::ledger::admin::{RECEIPTS_MAX, ReceiptQuery};
use crate::ledger::query::{RunningCall, is_place};
use crate::pure::error::ApiError;
use crate::pure::ids::RequestId;
use crate::pure::money::{Credits, ListPrice};
use crate::pure::receipt::{BilledBy, CallEnding, EndpointName, Receipt};
use crate::pure::time::Timestamp;

/// The answer about one call.
pub(super) async fn one(books: &Books, caller: &Caller, query: &[(String, String)]) -> Result<String, ApiError> {
    let name = parameter(query, "id")?.filter(|name| !name.is_empty()).ok_or_else(|| {
        ApiError::BadRequest("id is missing: the x-request-id of an answer, or the answer's own id.".to_owned())
    })?;
    if name.chars().count() > NAME_CHARS_MAX {
        let message = format!("id must have at most {NAME_CHARS_MAX} characters.");
        return Err(ApiError::BadRequest(message));
    }
    // Of another account or key, unknown, never billed, no more kept: one answer, which tells nobody of the calls of others.
    let unknown = || ApiError::NotFound("There is no such call, or no receipt of it any more.".to_owned());
    let key = own_key(caller);
    let query = ReceiptQuery::named(&caller.account.id, name);
    let page = books.ledger.receipts(query).await.map_err(store_failed)?;
    let is_own = |receipt: &Receipt| key.is_none_or(|key| *key == receipt.billed.key);
    if let Some(receipt) = page.receipts.first() {
        return match is_own(receipt) {
            true => Ok(to_json(&One {
                data: Generation::done(receipt),
            })),
            false => Err(unknown()),
        };
    }
    // A hold says whose it is only where the key has limits of its own. A locked key is told of no other.
    let running = page.running.filter(|call| key.is_none() || call.key.as_ref() == key);
    let data = Generation::running(&running.ok_or_else(unknown)?);
    Ok(to_json(&One { data }))
}

/// The newest calls, or those before a place.
pub(super) async fn page(books: &Books, caller: &Caller, query: &[(String, String)]) -> Result<String, ApiError> {
    let limit = positive(query, "limit", LIMIT, u64::from(RECEIPTS_MAX))?;
    let before = parameter(query, "before")?;
    if before.is_some_and(|place| !is_place(place)) {
        let message = "before must be what `next` of another page says.";
        return Err(ApiError::BadRequest(message.to_owned()));
    }
    let asked = ReceiptQuery {
        before: before.map(str::to_owned),
        model: parameter(query, "model")?.map(str::to_owned),
        key: own_key(caller).cloned(),
        ..ReceiptQuery::newest(&caller.account.id, u32::try_from(limit).unwrap_or(RECEIPTS_MAX))
    };
    let is_met = asked.clone();
    let page = books.ledger.receipts(asked).await.map_err(store_failed)?;
    let receipts = page.receipts.iter().filter(|receipt| is_met.is_met_by(receipt));
    Ok(to_json(&Page {
        data: receipts.map(Generation::done).collect(),
        next: page.next,
    }))
}

#[derive(Serialize)]
struct One<'a> {
    data: Generation<'a, Credits>,
}

#[derive(Serialize)]
struct Page<'a> {
    data: Vec<Generation<'a, Credits>>,
    next: Option<String>,
}

/// What is said of a call, with amounts as `M`. What the gateway does not know is null.
#[derive(Default, Serialize)]
pub(crate) struct Generation<'a, M> {
    id: String,
    upstream_id: Option<&'a str>,
    status: Status,
    total_cost: Option<M>,
    usage: Option<M>,
    hold: Option<M>,
    prices: Option<Prices>,
    billed_by: Option<BilledBy>,
    created_at: Option<String>,
    resolved_at: Option<String>,
    model: Option<&'a str>,
    provider_name: Option<&'a str>,
    upstream_model: Option<&'a str>,
    api_type: Option<&'static str>,
    streamed: Option<bool>,
    cancelled: Option<bool>,
    ending: Option<CallEnding>,
    finish_reason: Option<&'a str>,
    native_finish_reason: Option<&'a str>,
    latency: Option<i64>,
    generation_time: Option<i64>,
    tokens_prompt: Option<u64>,
    tokens_completion: Option<u64>,
    native_tokens_prompt: Option<u64>,
    native_tokens_prompt_audio: Option<u64>,
    native_tokens_prompt_images: Option<u64>,
    native_tokens_completion: Option<u64>,
    native_tokens_completion_audio: Option<u64>,
    native_tokens_completion_images: Option<u64>,
    native_tokens_reasoning: Option<u64>,
    native_tokens_cached: Option<u64>,
    native_tokens_cache_write: Option<u64>,
    native_tokens_cache_write_1h: Option<u64>,
    cache_discount: Option<M>,
    upstream_inference_cost: Option<M>,
    is_byok: bool,
    request_id: String,
    session_id: Option<&'a str>,
    service_tier: Option<&'a str>,
    external_user: Option<&'a str>,
    #[serde(flatten)]
    unknown: Unknown,
}

/// What OpenRouter's clients expect to be there, and this gateway has not.
#[derive(Default, Serialize)]
struct Unknown {
    app_id: (),
    moderation_latency: (),
    num_media_prompt: (),
    num_input_audio_prompt: (),
    num_media_completion: (),
    num_search_results: (),
    num_fetches: (),
    web_search_engine: (),
    /// Nobody's site is known: a text, for OpenRouter's clients take no null.
    origin: &'static str,
    preset_id: (),
    router: (),
    provider_responses: (),
    user_agent: (),
    http_referer: (),
    /// As of a call that was bound to no region.
    data_region: DataRegion,
    workspace_id: (),
}

/// Where OpenRouter says that a call was kept.
#[derive(Default, Serialize)]
#[serde(rename_all = "snake_case")]
enum DataRegion {
    /// Nowhere in particular.
    #[default]
    Global,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    /// It holds credit yet.
    #[default]
    Running,
    /// It was billed.
    Done,
}

/// The list prices that a call was billed at, for a token, as exact decimals; kinds without a price cost what their side costs.
#[derive(Serialize)]
struct Prices {
    prompt: Option<String>,
    completion: Option<String>,
    input_cache_read: Option<String>,
    input_cache_write: Option<String>,
    input_cache_write_1h: Option<String>,
    audio: Option<String>,
    image: Option<String>,
    internal_reasoning: Option<String>,
    audio_output: Option<String>,
    image_output: Option<String>,
    request: Option<String>,
}

impl<'a, M: From<Credits> + Default> Generation<'a, M> {
    /// Of one that was billed.
    pub(crate) fn done(receipt: &'a Receipt) -> Generation<'a, M> {
        let Receipt { resolved, billed } = receipt;
        let call = &billed.call;
        let span = |from: Option<Timestamp>, to: Option<Timestamp>| Some(to?.since(from?).max(0));
        Generation {
            upstream_id: call.upstream_id.as_deref(),
            status: Status::Done,
            total_cost: Some(billed.cost.into()),
            usage: Some(billed.cost.into()),
            hold: billed.held.map(M::from),
            prices: prices(receipt),
            billed_by: billed.billed_by(),
            resolved_at: text(*resolved),
            model: Some(&billed.model),
            provider_name: call.provider.as_deref(),
            upstream_model: call.upstream_model.as_deref(),
            api_type: call.endpoint.map(|endpoint| match endpoint {
                EndpointName::Chat | EndpointName::ChatStream => "completions",
                EndpointName::Embeddings => "embeddings",
            }),
            streamed: call.streamed,
            cancelled: call.ending.map(|ending| match ending {
                CallEnding::ClientGone | CallEnding::DrainEnded => true,
                CallEnding::Complete | CallEnding::UpstreamFailed | CallEnding::Dropped => call.client_left,
            }),
            ending: call.ending,
            latency: span(call.created, call.first_byte),
            generation_time: span(call.first_byte, call.ended),
            tokens_prompt: Some(billed.prompt_tokens),
            tokens_completion: Some(billed.completion_tokens),
            native_tokens_prompt: call.reported_prompt_tokens,
            native_tokens_completion: call.reported_completion_tokens,
            native_tokens_reasoning: call.kinds.map(|kinds| kinds.reasoning_tokens),
            native_tokens_cached: call.kinds.map(|kinds| kinds.cache_read_tokens),
            native_tokens_cache_write: call.kinds.map(|kinds| kinds.cache_write_tokens),
            native_tokens_cache_write_1h: call.kinds.map(|kinds| kinds.cache_write_1h_tokens),
            native_tokens_prompt_audio: call.kinds.map(|kinds| kinds.audio_tokens),
            native_tokens_prompt_images: call.kinds.map(|kinds| kinds.image_tokens),
            native_tokens_completion_audio: call.kinds.map(|kinds| kinds.audio_output_tokens),
            native_tokens_completion_images: call.kinds.map(|kinds| kinds.image_output_tokens),
            service_tier: call.service_tier.as_deref(),
            external_user: call.end_user.as_deref(),
            ..Generation::of(billed.id)
        }
    }

    fn running(call: &RunningCall) -> Generation<'a, M> {
        Generation {
            hold: Some(call.held.into()),
            ..Generation::of(call.id)
        }
    }

    fn of(id: RequestId) -> Generation<'a, M> {
        Generation {
            id: id.to_string(),
            request_id: id.to_string(),
            created_at: text(id.time()),
            ..Generation::default()
        }
    }
}

fn prices(receipt: &Receipt) -> Option<Prices> {
    let call = &receipt.billed.call;
    let decimal = |price: Option<ListPrice>| price.map(|price| price.to_string());
    let kinds = call.kinds.unwrap_or_default();
    (call.prompt_price.is_some() || call.completion_price.is_some()).then(|| Prices {
        prompt: decimal(call.prompt_price),
        completion: decimal(call.completion_price),
        input_cache_read: decimal(kinds.cache_read_price),
        input_cache_write: decimal(kinds.cache_write_price),
        input_cache_write_1h: decimal(kinds.cache_write_1h_price),
        audio: decimal(kinds.audio_price),
        image: decimal(kinds.image_price),
        internal_reasoning: decimal(kinds.reasoning_price),
        audio_output: decimal(kinds.audio_output_price),
        image_output: decimal(kinds.image_output_price),
        request: decimal(kinds.request_price),
    })
}

/// A moment in RFC 3339, with its milliseconds.
fn text(at: Timestamp) -> Option<String> {
    let nanos = i128::from(at.0).checked_mul(1_000_000)?;
    OffsetDateTime::from_unix_timestamp_nanos(nanos)
        .ok()?
        .format(&Rfc3339)
        .ok()
}

/// How many calls a page has by default.
pub(crate) const LIMIT: u64 = 20;
/// The longest name of a call: what is kept of an answer's own id is shorter.
const NAME_CHARS_MAX: usize = 256;
