//! Every error that the gateway can answer with stands in the description.

use tollgate::pure::error::{AccountShortage, AccountStop, ApiError, CreditShortage, KeyFault, LimitKind, Unavailable};
use tollgate::pure::idempotency::KeyRefusal;
use tollgate::pure::ids::RequestId;
use tollgate::pure::money::Credits;

use super::description;
use crate::harness::{Gateway, Upstream};

/// One of each error. The match makes a new one a compile error here.
fn errors() -> Vec<ApiError> {
    let shortage = CreditShortage {
        available: Credits::ZERO,
        held: Credits::ZERO,
        needed: Some(Credits::ZERO),
        affordable_tokens: None,
        in_flight: false,
    };
    let text = String::new;
    let all = vec![
        ApiError::BadRequest(text()),
        ApiError::BodyTooLarge { max: 1 },
        ApiError::HeadTooLarge { max: 1 },
        ApiError::BodyTimeout,
        ApiError::Unauthenticated(KeyFault::Missing),
        ApiError::InsufficientCredits(shortage),
        ApiError::QuotaExceeded {
            quota: Credits::ZERO,
            used: Credits::ZERO,
            held: Credits::ZERO,
            needed: Some(Credits::ZERO),
            resets_at: None,
        },
        ApiError::AccountShort(AccountShortage {
            is_quota: true,
            needed: Some(Credits::ZERO),
            in_flight: false,
        }),
        ApiError::Forbidden(text()),
        ApiError::AccountStopped(AccountStop::Suspended),
        ApiError::AccountStopped(AccountStop::Closed),
        ApiError::NotFound(text()),
        ApiError::MethodNotAllowed { allow: "GET" },
        ApiError::RateLimited {
            limit: LimitKind::Requests,
            value: 1,
            retry_after_secs: 1,
        },
        ApiError::EndUsersFull { value: 1 },
        ApiError::KeyRepeated(KeyRefusal::Conflict),
        ApiError::KeyRepeated(KeyRefusal::InProgress),
        ApiError::KeyRepeated(KeyRefusal::Unavailable(RequestId::from_bytes([0; 16]))),
        ApiError::Internal,
        ApiError::UpstreamRefused {
            status: 422,
            message: text(),
            named: Box::default(),
        },
        ApiError::UpstreamBusy { retry_after_secs: 1 },
        ApiError::UpstreamFailed,
        ApiError::CredentialRefused,
        ApiError::UpstreamUnreachable,
        ApiError::BodyMemoryFull { retry_after_secs: 1 },
        ApiError::Unavailable {
            what: Unavailable::Ledger,
            message: "",
            retry_after_secs: 1,
        },
    ];
    for error in &all {
        match error {
            ApiError::BadRequest(_) | ApiError::BodyTooLarge { .. } | ApiError::HeadTooLarge { .. } => {}
            ApiError::BodyTimeout | ApiError::Unauthenticated(_) | ApiError::InsufficientCredits(_) => {}
            ApiError::AccountShort(_) | ApiError::LimitSpent(_) | ApiError::AccountStopped(_) => {}
            ApiError::QuotaExceeded { .. } | ApiError::Forbidden(_) | ApiError::NotFound(_) => {}
            ApiError::MethodNotAllowed { .. } | ApiError::RateLimited { .. } | ApiError::KeyRepeated(_) => {}
            ApiError::EndUsersFull { .. } => {}
            ApiError::Internal | ApiError::CredentialRefused => {}
            ApiError::UpstreamRefused { .. } | ApiError::UpstreamBusy { .. } | ApiError::UpstreamFailed => {}
            ApiError::UpstreamUnreachable | ApiError::BodyMemoryFull { .. } | ApiError::Unavailable { .. } => {}
        }
    }
    all
}

#[tokio::test]
async fn every_error_that_there_is_is_described() {
    let upstream = Upstream::unused().await;
    let gateway = Gateway::over(&upstream).await;
    let description = description(&gateway).await;
    let kinds = &description["components"]["schemas"]["Error"]["properties"]["error"]["properties"]["type"]["enum"];
    let kinds = kinds.as_array().unwrap();
    let responses = description["paths"]["/llm/chat"]["post"]["responses"]
        .as_object()
        .unwrap();
    for error in errors() {
        let wire = error.to_wire();
        assert!(kinds.contains(&wire.kind.into()), "{}", wire.kind);
        // Another method is no operation.
        assert!(
            wire.status == 405 || responses.contains_key(&wire.status.to_string()),
            "{}",
            wire.status
        );
    }
}
