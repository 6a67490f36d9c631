//! Who is calling: from the `Authorization` header to a caller, or a 401 that says no more than it must.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::HeaderMap;
use http::header::{AUTHORIZATION, ORIGIN, REFERER};

use super::auth_throttle::{AuthThrottle, KeyCheck};
use crate::clock::{Clock, monotonic};
use crate::ledger::{Caller, Ledger, StoreError};
use crate::pure::error::{ApiError, KeyFault};
use crate::pure::ids::{ApiKey, KeyDigest};
use crate::pure::policy::Provenance;

/// Who looks at a key: what the check needs beside the header.
pub(in crate::gateway) struct AuthContext<'a> {
    /// What keys begin with.
    pub(in crate::gateway) key_prefix: &'a str,
    pub(in crate::gateway) ledger: &'a Ledger,
    pub(in crate::gateway) clock: &'a Clock,
    pub(in crate::gateway) auth_throttle: &'a AuthThrottle,
    /// The client's address.
    pub(in crate::gateway) address: Option<IpAddr>,
    /// Failures a minute that are forgiven to one address.
    pub(in crate::gateway) failures_max: u64,
}

/// Finds the caller of a request, and by which digest.
///
/// A key without the right prefix and checksum is refused before any store is asked, and so is one from an address that has
/// guessed too often, unless it has opened before.
///
/// # Errors
/// 401; 403 when the account is stopped; 429 when the address has failed too often; 503 when the store cannot say.
pub(in crate::gateway) async fn caller(
    headers: &HeaderMap,
    context: &AuthContext<'_>,
) -> Result<(Caller, KeyDigest), ApiError> {
    let text = bearer(headers)?;
    let failed = || context.auth_throttle.failed(context.address, context.failures_max);
    let Some(digest) = text.and_then(|text| Some(ApiKey::parse(context.key_prefix, text)?.digest())) else {
        return Err(failed());
    };
    let now = context.clock.now();
    match context
        .auth_throttle
        .check(&digest, context.address, context.failures_max, now)
    {
        KeyCheck::Ask => {}
        KeyCheck::Unknown => return Err(failed()),
        KeyCheck::Limited => return Err(context.auth_throttle.limited(context.failures_max)),
    }
    Ok((of_digest(&digest, context).await?, digest))
}

/// The caller whose key has this digest, as the ledger has it now. Asked again where a request was waited for: its key may have been revoked
/// meanwhile, or changed.
///
/// # Errors
/// As [`caller`].
pub(in crate::gateway) async fn of_digest(digest: &KeyDigest, context: &AuthContext<'_>) -> Result<Caller, ApiError> {
    let failed = || context.auth_throttle.failed(context.address, context.failures_max);
    let Some(found) = context.ledger.authenticate(digest).await.map_err(store_failed)? else {
        context
            .auth_throttle
            .note_unknown(digest, context.address, context.clock.now());
        return Err(failed());
    };
    // When it expires was said by the ledger's clock.
    let Some(caller) = found.checked(context.ledger.now()) else {
        context.auth_throttle.note_ended(digest, context.clock.now());
        return Err(failed());
    };
    context.auth_throttle.note_opened(digest);
    match caller.account.terms.status.stop() {
        None => Ok(caller),
        Some(stop) => Err(ApiError::AccountStopped(stop)),
    }
}

/// Where the request says it comes from. That is not looked for where the key is not locked to domains.
pub(in crate::gateway) fn provenance<'a>(headers: &'a HeaderMap, caller: &Caller) -> Provenance<'a> {
    if caller.key.domains.is_empty() {
        return Provenance {
            origin: None,
            referer: None,
        };
    }
    said_of(headers)
}

/// The same, for whatever key. A header that is no text, or is there more than once, names no host.
fn said_of(headers: &HeaderMap) -> Provenance<'_> {
    let text = |name: http::HeaderName| {
        let mut values = headers.get_all(name).iter();
        let value = values.next()?;
        // Of several, another server may read another one.
        let is_one = values.next().is_none();
        Some(value.to_str().ok().filter(|_| is_one).unwrap_or("unreadable"))
    };
    Provenance {
        origin: text(ORIGIN),
        referer: text(REFERER),
    }
}

/// The answer when the ledger cannot be asked: never "allowed". Reports that an account asks for faster than they are made are no failure.
pub(in crate::gateway) fn store_failed(error: StoreError) -> ApiError {
    if let StoreError::Busy(_) = error {
        return ApiError::REPORTS_AT_ONCE;
    }
    tell_seldom(&error);
    ApiError::LEDGER_UNREACHABLE
}

/// Each call meets the same failure, and says so in the metrics: the log has one line for a moment, with the number of those before.
fn tell_seldom(error: &StoreError) {
    static LAST: Mutex<(Option<Instant>, u64)> = Mutex::new((None, 0));
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let now = monotonic();
    let (told_at, untold) = *last;
    if told_at.is_some_and(|at| now.saturating_duration_since(at) < TOLD_EVERY) {
        last.1 = untold.saturating_add(1);
        return;
    }
    *last = (Some(now), 0);
    drop(last);
    match untold {
        0 => log::warn!("refused a call: {error}"),
        _ => log::warn!("refused a call, and {untold} before: {error}"),
    }
}

/// What follows `Bearer`; nothing when that is no text.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(ApiError::Unauthenticated(KeyFault::Missing));
    };
    let Ok(text) = value.to_str() else { return Ok(None) };
    let (scheme, key) = text
        .split_once(' ')
        .ok_or(ApiError::Unauthenticated(KeyFault::Missing))?;
    if scheme.eq_ignore_ascii_case("bearer") {
        Ok(Some(key.trim()))
    } else {
        Err(ApiError::Unauthenticated(KeyFault::Missing))
    }
}

/// How often the log says that calls are refused for the store.
const TOLD_EVERY: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::admin::AdminOp;
    use crate::ledger::redis::{Options, RedisLedger};
    use crate::ledger::tests::redis_server::RedisServer;
    use crate::ledger::tests::rig::{NOW, block_on, caller_of, key_create, patient, run};
    use crate::pure::limits::LimitOverrides;
    use crate::pure::policy::domain_allowed;

    /// The gateway's clock is ten minutes behind Redis', which said when the key ends.
    #[test]
    fn a_key_ends_by_the_clock_of_the_ledger() {
        let server = RedisServer::start();
        let (redis, clock) = (Clock::manual(NOW), Clock::manual(NOW.plus_millis(-600_000)));
        let options = Options {
            redis_clock: Some(redis.clone()),
            ..patient(clock.clone())
        };
        let ledger = Ledger::Redis(RedisLedger::connect(&server.url(), options).unwrap());
        caller_of(&ledger, "acme", "1", LimitOverrides::default());
        let digest = ApiKey::from_random("tg_", [77; 32]).digest();
        let mut create = key_create("acme", &digest);
        if let AdminOp::KeyCreate { expires_in_ms, .. } = &mut create {
            *expires_in_ms = Some(60_000);
        }
        run(&ledger, create).unwrap();
        let throttle = AuthThrottle::new();
        let context = AuthContext {
            key_prefix: "tg_",
            ledger: &ledger,
            clock: &clock,
            auth_throttle: &throttle,
            address: None,
            failures_max: 10,
        };
        block_on(of_digest(&digest, &context)).unwrap();
        for clock in [&redis, &clock] {
            clock.advance(60_000);
        }
        block_on(of_digest(&digest, &context)).unwrap_err();
    }

    #[test]
    fn a_header_that_is_there_twice_lets_no_locked_key_in() {
        let lock = ["app.example.com".parse().unwrap()];
        let (good, evil) = ("https://app.example.com", "https://evil.example");
        for (lines, is_allowed) in [
            (&[(ORIGIN, good)][..], true),
            (&[(ORIGIN, good), (ORIGIN, evil)], false),
            (&[(ORIGIN, evil), (ORIGIN, good)], false),
            (&[(ORIGIN, good), (ORIGIN, good)], false),
            (&[(ORIGIN, good), (ORIGIN, "")], false),
            (&[(ORIGIN, evil), (ORIGIN, evil), (REFERER, good)], false),
            (&[(REFERER, good)], true),
            (&[(REFERER, good), (REFERER, evil)], false),
            (&[(REFERER, good), (REFERER, good)], false),
            // The origin decides.
            (&[(ORIGIN, good), (REFERER, good), (REFERER, evil)], true),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.append(name, value.parse().unwrap());
            }
            assert_eq!(domain_allowed(&lock, said_of(&headers)), is_allowed, "{lines:?}");
        }
    }

    #[test]
    fn reports_that_wait_for_one_another_are_a_limit_and_no_failure_of_the_store() {
        let told = store_failed(StoreError::Busy("a test's".to_owned())).to_wire();
        assert_eq!((told.status, told.kind), (429, "rate_limit_error"));
        assert_eq!(told.retry_after_secs, Some(1));
        let metadata = told.metadata.unwrap();
        assert_eq!(metadata, r#"{"limit":"concurrent_reports","value":1}"#);
        for failed in [StoreError::Unavailable, StoreError::Owned, StoreError::Corrupt] {
            let told = store_failed(failed("a test's".to_owned())).to_wire();
            assert_eq!((told.status, told.retry_after_secs), (503, Some(2)));
        }
    }
}
