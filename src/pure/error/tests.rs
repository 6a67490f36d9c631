//! Errors in the interface's shape, each with its status.

use serde_json::Value;

use super::*;

#[test]
fn the_code_in_the_body_is_the_status() {
    let errors = [
        ApiError::BadRequest("x".into()),
        ApiError::Unauthenticated(KeyFault::Invalid),
        ApiError::Forbidden("x".into()),
        ApiError::AccountStopped(AccountStop::Suspended),
        ApiError::UpstreamRefused {
            status: 422,
            message: "x".into(),
            named: Box::default(),
        },
        ApiError::Internal,
        ApiError::CredentialRefused,
    ];
    for error in errors {
        let wire = error.to_wire();
        let body: Value = serde_json::from_slice(&wire.body()).unwrap();
        assert_eq!(body["error"]["code"], wire.status);
        assert_eq!(body["error"]["type"], wire.kind);
    }
}

#[test]
fn a_stopped_account_is_told_apart_from_what_a_key_may_not() {
    for (stop, text) in [(AccountStop::Suspended, "suspended"), (AccountStop::Closed, "closed")] {
        let wire = ApiError::AccountStopped(stop).to_wire();
        let body: Value = serde_json::from_slice(&wire.body()).unwrap();
        let expected = serde_json::json!({ "error": {
            "code": 403,
            "type": "permission_error",
            "message": format!("This account is {text}."),
            "metadata": { "reason": format!("account_{text}") },
        }});
        assert_eq!(body, expected);
        assert_eq!(wire.should_retry, Some(false));
    }
}

#[test]
fn only_a_shortage_by_running_calls_says_when_to_come_back() {
    let mut shortage = CreditShortage {
        available: Credits::ZERO,
        held: "0.5".parse().unwrap(),
        needed: Some("0.1".parse().unwrap()),
        affordable_tokens: Some(3),
        in_flight: true,
    };
    let wire = ApiError::InsufficientCredits(shortage.clone()).to_wire();
    assert!(wire.retry_after_secs.is_some());
    assert_eq!(wire.should_retry, Some(true));
    assert!(wire.metadata.unwrap().contains("\"reason\":\"in_flight\""));
    shortage.in_flight = false;
    let wire = ApiError::InsufficientCredits(shortage).to_wire();
    assert!(wire.retry_after_secs.is_none());
    assert_eq!(wire.should_retry, Some(false));
    let text = String::from_utf8(wire.body()).unwrap();
    assert!(
        text.contains("\"held\":0.5") && text.contains("\"affordable_tokens\":3"),
        "{text}"
    );
}

#[test]
fn what_a_provider_answers_is_told_as_it_helps() {
    for status in [400, 404, 409, 413, 415, 422] {
        let told = ApiError::from_upstream_status(status, Some(7));
        assert!(
            matches!(told, ApiError::UpstreamRefused { status: said, .. } if said == status),
            "{told:?}"
        );
    }
    for status in [408, 504] {
        let told = ApiError::from_upstream_status(status, None);
        assert!(matches!(told, ApiError::UpstreamUnreachable), "{told:?}");
    }
    for status in [401, 402, 403, 500, 502, 503, 418] {
        let told = ApiError::from_upstream_status(status, None);
        assert!(matches!(told, ApiError::UpstreamFailed), "{told:?}");
    }
    for (said, secs) in [(Some(7), 7), (None, DEFAULT_RETRY_AFTER_SECS)] {
        let told = ApiError::from_upstream_status(429, said);
        assert!(
            matches!(told, ApiError::UpstreamBusy { retry_after_secs } if retry_after_secs == secs),
            "{told:?}"
        );
    }
}

#[test]
fn within_a_stream_only_what_blames_the_request_and_a_busy_provider_are_told_apart() {
    for code in 0..1_000 {
        let told = ApiError::within_stream(Some(code)).map(|told| (told.status, told.kind));
        let expected = match code {
            400 | 409 | 413 | 415 | 422 => Some((code, "invalid_request_error")),
            404 => Some((404, "not_found_error")),
            429 => Some((429, "rate_limit_error")),
            _ => None,
        };
        assert_eq!(told, expected, "{code}");
    }
    assert_eq!(ApiError::within_stream(None), None);
}

#[test]
fn each_limit_is_told_by_its_name() {
    for (limit, name) in [
        (LimitKind::Requests, "requests_per_minute"),
        (LimitKind::Tokens, "tokens_per_minute"),
        (LimitKind::Concurrency, "concurrent_requests"),
        (LimitKind::FailedAuthentication, "failed_authentications"),
        (LimitKind::BodyMemoryOfKey, "body_memory_bytes_per_key"),
        (LimitKind::BodyMemoryOfAddress, "body_memory_bytes_per_address"),
        (LimitKind::EndUsers, "end_users_per_key"),
        (LimitKind::IdempotencyKeys, "idempotency_keys_per_key"),
        (LimitKind::Reports, "concurrent_reports"),
    ] {
        assert_eq!(limit.name(), name);
    }
}

/// It said that it helps to come back in a day, each day.
#[test]
fn end_users_that_are_never_forgotten_are_a_limit_for_good() {
    let wire = ApiError::EndUsersFull { value: 7 }.to_wire();
    assert_eq!(
        (wire.status, wire.kind, wire.retry_after_secs, wire.should_retry),
        (429, "rate_limit_error", None, Some(false))
    );
    let body = String::from_utf8(wire.body()).unwrap();
    assert!(body.contains(r#""limit":"end_users_per_key","value":7"#), "{body}");
}

#[test]
fn a_provider_that_does_not_find_something_is_told_apart() {
    for (status, kind) in [
        (404, "not_found_error"),
        (400, "invalid_request_error"),
        (422, "invalid_request_error"),
    ] {
        let refused = ApiError::UpstreamRefused {
            status,
            message: "x".to_owned(),
            named: Box::default(),
        };
        assert_eq!(refused.to_wire().kind, kind);
    }
}

#[test]
fn what_a_provider_names_stands_beside_its_message_and_the_code_stays_the_status() {
    let told = |code: Option<&str>, param: Option<&str>| {
        let refused = ApiError::UpstreamRefused {
            status: 400,
            message: "too long".to_owned(),
            named: Box::new(Named {
                code: code.map(Box::from),
                param: param.map(Box::from),
            }),
        };
        String::from_utf8(refused.to_wire().body()).unwrap()
    };
    let plain = r#"{"error":{"code":400,"message":"too long","type":"invalid_request_error""#;
    for (code, param, rest) in [
        (None, None, "}}"),
        (
            Some("context_length_exceeded"),
            Some("messages"),
            r#","param":"messages","metadata":{"provider_code":"context_length_exceeded"}}}"#,
        ),
        (None, Some("tools[0].name"), r#","param":"tools[0].name"}}"#),
        (
            Some("content_filter"),
            None,
            r#","metadata":{"provider_code":"content_filter"}}}"#,
        ),
    ] {
        assert_eq!(told(code, param), format!("{plain}{rest}"));
    }
}

#[test]
fn only_a_failure_that_its_operator_has_to_mend_is_final() {
    let (failed, refused) = (
        ApiError::UpstreamFailed.to_wire(),
        ApiError::CredentialRefused.to_wire(),
    );
    assert_eq!((failed.should_retry, refused.should_retry), (None, Some(false)));
    assert_eq!(failed.body(), refused.body(), "the client is not told why");
}
