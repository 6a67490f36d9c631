//! Who is calling: from the `Authorization` header to a caller, or a 401 that says no more than it must.

use http::HeaderMap;
use http::header::{AUTHORIZATION, ORIGIN, REFERER};

use crate::clock::Clock;
use crate::pure::error::{ApiError, KeyFault};
use crate::pure::ids::ApiKey;
use crate::pure::policy::Provenance;
use crate::store::{Caller, Ledger, StoreError};

/// Finds the caller of a request (INTERFACE.md section 5).
///
/// A key without the right prefix and checksum is refused before any store is asked.
pub(super) async fn caller(
    headers: &HeaderMap,
    key_prefix: &str,
    ledger: &Ledger,
    clock: &Clock,
) -> Result<Caller, ApiError> {
    let text = bearer(headers)?;
    let key = ApiKey::parse(key_prefix, text).ok_or(ApiError::Unauthenticated(KeyFault::Invalid))?;
    let found = ledger.authenticate(&key.digest()).await.map_err(store_failed)?;
    let caller = found.ok_or(ApiError::Unauthenticated(KeyFault::Invalid))?;
    let now = clock.now();
    let expired = caller.key.expires.is_some_and(|at| at <= now);
    if expired || caller.key.revoked.is_some() {
        return Err(ApiError::Unauthenticated(KeyFault::Invalid));
    }
    Ok(caller)
}

/// Where the request says it comes from.
pub(super) fn provenance(headers: &HeaderMap) -> Provenance<'_> {
    let text = |name| {
        headers
            .get(name)
            .map(|value: &http::HeaderValue| value.to_str().unwrap_or("unreadable"))
    };
    Provenance {
        origin: text(ORIGIN),
        referer: text(REFERER),
    }
}

/// The answer when the ledger cannot be asked: never "allowed".
pub(super) fn store_failed(error: StoreError) -> ApiError {
    log::warn!("refused a call: {error}");
    ApiError::Unavailable {
        message: "The ledger cannot be reached right now.",
        retry_after_secs: 2,
    }
}

fn bearer(headers: &HeaderMap) -> Result<&str, ApiError> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(ApiError::Unauthenticated(KeyFault::Missing));
    };
    let text = value
        .to_str()
        .map_err(|_| ApiError::Unauthenticated(KeyFault::Invalid))?;
    let (scheme, key) = text
        .split_once(' ')
        .ok_or(ApiError::Unauthenticated(KeyFault::Missing))?;
    if scheme.eq_ignore_ascii_case("bearer") {
        Ok(key.trim())
    } else {
        Err(ApiError::Unauthenticated(KeyFault::Missing))
    }
}
