//! Refusals as providers write them.

use serde_json::json;

use super::*;

/// What is read of this body.
fn read(body: &Value) -> ProviderWords {
    ProviderWords::read(body.to_string().as_bytes())
}

/// Checks that the client gets this message, and that the operator is not meant.
fn check(body: &Value, message: &str) {
    let words = ProviderWords {
        message: Some(message.to_owned()),
        ..ProviderWords::default()
    };
    assert_eq!(read(body), words, "{body}");
}

/// Checks what is read of this body as code and param.
fn check_named(body: &Value, code: Option<&str>, param: Option<&str>) {
    let named = Named {
        code: code.map(Box::from),
        param: param.map(Box::from),
    };
    assert_eq!(read(body).named, named, "{body}");
}

#[test]
fn the_message_is_found_in_each_shape() {
    let error = json!({ "code": 400, "message": "not like this", "status": "INVALID_ARGUMENT" });
    let fault = json!([{ "loc": ["body", "messages", 0, "role"], "msg": "Field required" }, { "msg": "another" }]);
    let placed = "body.messages.0.role: Field required";
    for (body, message) in [
        (json!({ "error": error }), "not like this"),
        (json!([{ "error": error }]), "not like this"),
        (json!({ "error": "not like this" }), "not like this"),
        (json!({ "message": "not like this" }), "not like this"),
        (json!({ "detail": "not like this" }), "not like this"),
        (json!({ "detail": fault }), placed),
        (json!({ "object": "error", "message": { "detail": fault } }), placed),
        (json!({ "error": { "detail": "not like this" } }), "not like this"),
        (json!({ "detail": [{ "msg": "Field required" }] }), "Field required"),
        (
            json!({ "detail": [{ "loc": [], "msg": "Field required" }] }),
            "Field required",
        ),
    ] {
        check(&body, message);
    }
}

#[test]
fn a_byte_order_mark_before_the_words_is_none_of_them() {
    let words = ProviderWords::read("\u{feff} {\"error\":{\"message\":\"not like this\",\"code\":\"no\"}}".as_bytes());
    assert_eq!(words.message.as_deref(), Some("not like this"));
    assert_eq!(words.named.code.as_deref(), Some("no"));
}

#[test]
fn what_an_aggregators_provider_said_is_preferred() {
    let through = |raw: Value| json!({ "error": { "message": FORWARDED, "code": 400, "metadata": { "raw": raw } } });
    let inner = json!({ "error": { "message": "not like this" } });
    for (raw, message) in [
        (json!(inner.to_string()), "not like this"),
        (json!(json!([inner]).to_string()), "not like this"),
        (inner.clone(), "not like this"),
        (json!("not like this"), "not like this"),
        (json!(" "), FORWARDED),
        (json!("{\"x\":1}"), FORWARDED),
        (json!(7), FORWARDED),
        // Not unwrapped twice.
        (json!(through(json!("deeper")).to_string()), FORWARDED),
    ] {
        check(&through(raw), message);
    }
    check(&json!({ "error": { "message": FORWARDED } }), FORWARDED);
    check(&through(json!({ "error": { "message": "" } })), FORWARDED);
    let other = json!({ "error": { "message": "their own", "metadata": { "raw": "not theirs" } } });
    check(&other, "their own");
    let refused = read(&through(json!({ "error": { "message": "API key not valid." } })));
    assert_eq!(refused.about_operator, Some("API key not valid"));
}

#[test]
fn what_is_no_message_is_none_and_what_is_long_is_cut() {
    let bodies = [
        "",
        "no JSON",
        "{}",
        "[]",
        "7",
        r#"{"error":{"message":1}}"#,
        r#"{"detail":[]}"#,
        r#"[{"msg":1}]"#,
        r#"{"error":{"message":""}}"#,
        r#"{"error":""}"#,
        r#"{"detail":" \n"}"#,
        r#"{"detail":[{"msg":""}]}"#,
    ];
    for body in bodies {
        assert_eq!(ProviderWords::read(body.as_bytes()), ProviderWords::default(), "{body}");
    }
    let long = "é".repeat(MESSAGE_CHARS_MAX + 1);
    let cut = "é".repeat(MESSAGE_CHARS_MAX);
    check(&json!({ "message": long }), &cut);
    let through = json!({ "error": { "message": FORWARDED, "metadata": { "raw": long } } });
    check(&through, &cut);
}

#[test]
fn codes_count_where_they_are_the_whole_field_and_phrases_where_the_message_begins() {
    for body in [
        json!({ "error": { "message": "x", "code": "insufficient_quota" } }),
        json!({ "error": { "message": "x", "type": "Insufficient_Quota" } }),
        json!({ "error": { "message": "x", "status": "BILLING_DISABLED" } }),
        json!([{ "error": { "details": [{ "reason": "OTHER" }, { "reason": "API_KEY_INVALID" }] } }]),
        json!({ "code": "Arrearage", "message": "Access denied." }),
        json!({ "error": { "message": "your credit balance is too low to access the Anthropic API." } }),
        json!({ "detail": "API key expired. Please renew the API key." }),
        json!({ "code": "Client specified an invalid argument", "error": "Incorrect API key provided: xa***" }),
    ] {
        assert!(read(&body).about_operator.is_some(), "{body}");
    }
    let phrase = "API key not valid. Please pass a valid API key.";
    for body in [
        json!({ "error": { "message": format!("\"{phrase}\" is not one of: user") } }),
        json!({ "error": { "message": format!("role: {phrase}") } }),
        json!({ "error": { "message": "x", "code": "not insufficient_quota" } }),
        json!({ "error": { "message": "x", "param": "insufficient_quota" } }),
        json!({ "error": { "message": "x", "details": [{ "description": phrase, "field": "API_KEY_INVALID" }] } }),
        json!({ "detail": [{ "loc": [phrase], "msg": "Extra inputs are not permitted", "type": "insufficient_quota" }] }),
        json!({ "error": { "message": "You exceeded your current quota, please check your plan and billing details." } }),
        json!({ "error": { "message": "API kéy" } }),
    ] {
        assert_eq!(read(&body).about_operator, None, "{body}");
    }
}

#[test]
fn its_code_and_the_field_that_it_names_are_read_where_they_are_plain_names() {
    let error = |code: Value, param: Value| json!({ "message": "x", "type": "t", "code": code, "param": param });
    let long = json!({ "error": error(json!("context_length_exceeded"), json!("messages")) });
    check_named(&long, Some("context_length_exceeded"), Some("messages"));
    check_named(&json!([long]), Some("context_length_exceeded"), Some("messages"));
    let filtered = json!({ "error": error(json!("content_filter"), Value::Null) });
    check_named(&filtered, Some("content_filter"), None);
    let flat = json!({ "code": "InvalidParameter", "message": "x" });
    check_named(&flat, Some("InvalidParameter"), None);
    let placed = error(Value::Null, json!("messages.[0].content/$text:a-b"));
    check_named(&placed, None, Some("messages.[0].content/$text:a-b"));
    // No names: numbers, what is empty, has other signs in it, or is too long.
    let (fits, longer) = ("a".repeat(NAME_BYTES_MAX), "a".repeat(NAME_BYTES_MAX + 1));
    check_named(&error(json!(fits), json!(fits)), Some(&fits), Some(&fits));
    for none in [
        json!(400),
        json!(""),
        json!(["a"]),
        json!("Client specified an invalid argument"),
        json!("a\"b"),
        json!("<b>"),
        json!("größe"),
        json!("a\nb"),
        json!(longer),
    ] {
        check_named(&json!({ "error": error(none.clone(), none) }), None, None);
    }
}

#[test]
fn what_an_aggregators_provider_names_is_preferred() {
    let through = |code: Value, raw: Value| {
        let metadata = json!({ "raw": raw.to_string() });
        json!({ "error": { "message": FORWARDED, "code": code, "param": "outer", "metadata": metadata } })
    };
    let inner = json!({ "error": { "message": "x", "code": "inner_code", "param": "inner" } });
    check_named(&through(json!("outer_code"), inner), Some("inner_code"), Some("inner"));
    let plain = json!({ "error": { "message": "x" } });
    check_named(
        &through(json!("outer_code"), plain.clone()),
        Some("outer_code"),
        Some("outer"),
    );
    check_named(&through(json!(400), plain), None, Some("outer"));
}
