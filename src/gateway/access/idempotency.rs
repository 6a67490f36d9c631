//! `Idempotency-Key`: a call that brings one is made once. It takes its key before anything is held for it; a call whose key is known gets
//! the first one's answer, or is told why not.

use std::sync::Arc;

use http::HeaderMap;
use http::header::HeaderName;

use super::admit;
use super::authenticate::store_failed;
use crate::gateway::admission::Admission;
use crate::gateway::billing::capture::Capture;
use crate::gateway::context::Ctx;
use crate::gateway::snapshot::Snapshot;
use crate::ledger::{Caller, KeyedCall, TakenKey, Taking};
use crate::pure::account::Denial;
use crate::pure::error::{ApiError, LimitKind};
use crate::pure::idempotency::{Answer, Fingerprint, KeyName, Record, Repeated};
use crate::pure::ids::RequestId;
use crate::pure::limits::RateView;

/// What becomes of a call that brings a key.
pub(in crate::gateway) enum Keyed {
    /// It goes on, under its key.
    New(Box<TakenKey>),
    /// It gets the answer of the call with this id.
    Replayed(Answer, RequestId),
}

/// The name of the request's key, when it has one.
///
/// # Errors
/// 400 when there are several, or what there is is none.
pub(in crate::gateway) fn name(headers: &HeaderMap, caller: &Caller) -> Result<Option<KeyName>, ApiError> {
    // Most requests have none: to compare their few names is less work than a look-up.
    if !headers.keys().any(|name| *name == IDEMPOTENCY_KEY) {
        return Ok(None);
    }
    let mut values = headers.get_all(&IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(ApiError::BadRequest("idempotency-key: there are several.".to_owned()));
    }
    let name = KeyName::of(&caller.key.id, value.as_bytes());
    name.map(Some)
        .map_err(|error| ApiError::BadRequest(format!("{error}.")))
}

/// Takes the key for a call. What is known of it already counts for the limit of requests.
///
/// # Errors
/// 409 for a key that is known and has no answer to give, 429 for a limit, which counts as a request too, 503 when the store cannot say.
pub(in crate::gateway) async fn take(
    ctx: &mut Ctx,
    caller: &Caller,
    keyed: (KeyName, Fingerprint),
) -> Result<Keyed, ApiError> {
    let call = call(ctx, caller, keyed);
    let fingerprint = call.fingerprint;
    match caller.take_key(call).await.map_err(store_failed)? {
        Taking::Taken(key) => Ok(Keyed::New(key)),
        Taking::Full(value) => {
            let snapshot = Arc::clone(&ctx.snapshot);
            let (scope, limits) = admit::limits(&snapshot, caller);
            let counted = caller.count_refused(ctx.id, scope, limits).await;
            ctx.rate = counted.or(ctx.rate);
            Err(ApiError::RateLimited {
                limit: LimitKind::IdempotencyKeys,
                value,
                retry_after_secs: FULL_RETRY_AFTER_SECS,
            })
        }
        Taking::Known(record) => {
            let (answer, original) = repeated(ctx, caller, (record, fingerprint)).await?;
            Ok(Keyed::Replayed(answer, original))
        }
    }
}

fn call(ctx: &Ctx, caller: &Caller, (name, fingerprint): (KeyName, Fingerprint)) -> KeyedCall {
    KeyedCall {
        key: caller.key.id.clone(),
        name,
        fingerprint,
        request: ctx.id,
        limits: ctx.snapshot.config.idempotency,
    }
}

/// The answer that a known key has for a call, which counts for the limit of requests.
///
/// # Errors
/// As [`take`].
async fn repeated(
    ctx: &mut Ctx,
    caller: &Caller,
    (record, fingerprint): (Record, Fingerprint),
) -> Result<(Answer, RequestId), ApiError> {
    let snapshot = Arc::clone(&ctx.snapshot);
    let (scope, limits) = admit::limits(&snapshot, caller);
    let counted = caller
        .count_repeated(ctx.id, scope, limits)
        .await
        .map_err(store_failed)?;
    match counted {
        Ok(rate) => ctx.rate = Some(rate),
        Err(rate) => {
            ctx.rate = Some(rate);
            return Err(too_many(&rate));
        }
    }
    match record.repeated(&fingerprint) {
        Repeated::Replayed { answer, original } => {
            ctx.recorder().replayed();
            Ok((answer, original))
        }
        Repeated::Refused(refusal) => Err(ApiError::KeyRepeated(refusal)),
    }
}

fn too_many(rate: &RateView) -> ApiError {
    ApiError::RateLimited {
        limit: LimitKind::Requests,
        value: rate.limits.rpm,
        retry_after_secs: rate.reset_ms.div_ceil(1000).max(1),
    }
}

/// Whether the caller has a request left in this minute, as far as this process knows. What a call with a key comes back for counts for
/// nothing else, and is counted when it is given.
///
/// # Errors
/// [`Denial::Requests`].
pub(super) fn requests_left(caller: &Caller, snapshot: &Snapshot) -> Result<(), Denial> {
    let (scope, limits) = admit::limits(snapshot, caller);
    caller.requests_left(&scope, limits).map_err(Denial::Requests)
}

/// The answer to a call that may not be made as things are now, when its key is known. One that is not stays free all the time, for a call that
/// may be made. What became of the catalogue since takes no answer away.
///
/// # Errors
/// As [`take`], but for keys that are too many. 429 also before it looks: what it refuses in the end counts, and costs a look.
pub(in crate::gateway) async fn known(
    ctx: &mut Ctx,
    caller: &Caller,
    keyed: (KeyName, Fingerprint),
) -> Result<Option<(Answer, RequestId)>, ApiError> {
    if let Err(Denial::Requests(rate)) = requests_left(caller, &ctx.snapshot) {
        ctx.rate = Some(rate);
        return Err(too_many(&rate));
    }
    let call = call(ctx, caller, keyed);
    match caller.known_key(&call).await.map_err(store_failed)? {
        Some(record) => repeated(ctx, caller, (record, call.fingerprint)).await.map(Some),
        None => Ok(None),
    }
}

/// An admitted call is about to be sent under its key: what will be kept of its answer, when anything is.
///
/// # Errors
/// 503 when the store does not say that it knows so: the call is not made.
pub(in crate::gateway) async fn send(
    mut admission: Box<Admission>,
    key: Box<TakenKey>,
    ctx: &Ctx,
) -> Result<(Box<Admission>, Option<Box<Capture>>), ApiError> {
    if let Err(error) = admission.hold.send_under_key(key).await {
        admission.hold.release();
        return Err(store_failed(error));
    }
    let limits = &ctx.snapshot.config.idempotency;
    Ok((admission, limits.store_answers.then(|| Box::new(Capture::new(limits)))))
}

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// When it makes sense to come back with more keys than may be known. They go one by one, a day after they came.
const FULL_RETRY_AFTER_SECS: u64 = 60;
