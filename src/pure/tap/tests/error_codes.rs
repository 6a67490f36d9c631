//! What the event says that stands in the place of an upstream's error, by the code of that.

use serde_json::{Value, json};

use super::*;

/// A client tries again after a failure of the provider's: one whose prompt is too long would for ever.
#[test]
fn an_error_event_says_what_a_whole_answer_says_by_its_status() {
    let (failed, refused) = ((502, "upstream_error"), (400, "invalid_request_error"));
    for (code, (status, kind)) in [
        (json!("context_length_exceeded"), refused),
        (json!("content_filter"), refused),
        (json!(400), refused),
        (json!("413"), (413, "invalid_request_error")),
        (json!(422), (422, "invalid_request_error")),
        (json!(404), (404, "not_found_error")),
        (json!(429), (429, "rate_limit_error")),
        // The operator's key and account.
        (json!(401), failed),
        (json!(402), failed),
        (json!(403), failed),
        (json!("invalid_api_key"), failed),
        (json!(408), failed),
        (json!(500), failed),
        (json!(529), failed),
        (json!(200), failed),
        (json!(70_000), failed),
        (json!("overloaded"), failed),
        (Value::Null, failed),
    ] {
        let words = json!({ "message": "secret words", "type": "secret_type", "param": "secret", "code": code });
        let error = format!("data: {}\n\n", json!({ "error": words }));
        for begun in ["", DELTA] {
            // The blank line may be missing at the end.
            for stream in [[begun, &error].concat(), [begun, error.trim_end()].concat()] {
                for cut in 0..=stream.len() {
                    let (head, tail) = stream.as_bytes().split_at(cut);
                    let (mut out, mut tap) = pass(&[head, tail], TapOptions::default());
                    out.extend(tap.end());
                    let out = String::from_utf8(out).unwrap();
                    let event = out.strip_prefix(begun).and_then(|out| out.strip_suffix(DONE));
                    let event = event.and_then(|event| event.strip_prefix("data: ")).unwrap();
                    let event: Value = serde_json::from_str(event).unwrap();
                    assert_eq!(event["choices"][0]["finish_reason"], "error");
                    let told = &event["error"];
                    assert_eq!(told["code"], status, "{code}, cut at {cut}");
                    assert_eq!(told["type"], kind, "{code}, cut at {cut}");
                    assert!(!out.contains("secret"), "{out}");
                    assert!(tap.error_event());
                }
            }
        }
    }
}

/// Whatever number stands beside such words, the request is not to blame and a retry helps nobody: as in an answer that is not streamed.
#[test]
fn an_error_event_that_speaks_of_the_operators_account_blames_nobody_else() {
    let credit = "Your credit balance is too low to access the Anthropic API.";
    let behind = json!({ "error": { "message": "API key expired. Please renew the API key." } }).to_string();
    let quoted = "\"API key not valid\" is none of: system, user, assistant";
    for (words, told) in [
        (json!({ "error": { "code": 400, "message": credit } }), 502),
        (json!({ "error": { "code": 429, "message": credit } }), 502),
        (
            json!({ "error": { "code": 429, "type": "insufficient_quota", "message": "secret" } }),
            502,
        ),
        (
            json!([{ "error": { "code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT" } }]),
            502,
        ),
        (
            json!({ "error": "Incorrect API key provided: xa***", "code": "400" }),
            502,
        ),
        (
            json!({ "error": { "code": 400, "message": "Provider returned error", "metadata": { "raw": behind } } }),
            502,
        ),
        (
            json!({ "error": { "code": 400, "message": "x", "code": "organization_restricted" } }),
            502,
        ),
        // It may repeat what the client wrote.
        (json!({ "error": { "code": 400, "message": quoted } }), 400),
        (
            json!({ "error": { "code": 429, "message": format!("busy: {credit}") } }),
            429,
        ),
        // A status by that name, where the code is none; the request's content; a limit by time.
        (
            json!({ "error": { "message": "x", "type": "invalid_request_error", "status_code": 400 } }),
            400,
        ),
        (
            json!({ "error": { "message": "x", "code": "wrong_tool" }, "status_code": 422 }),
            422,
        ),
        (
            json!({ "error": { "message": "x", "code": 429 }, "status_code": 400 }),
            429,
        ),
        (
            json!({ "error": { "message": "x", "code": 403, "metadata": { "reasons": ["violence"] } } }),
            400,
        ),
        (
            json!({ "error": { "message": "x", "code": "rate_limit_exceeded" }, "status_code": 413 }),
            429,
        ),
    ] {
        let lines = serde_json::to_string_pretty(&words).unwrap().replace('\n', "\ndata: ");
        for event in [format!("data: {words}\n\n"), format!("event: error\ndata: {lines}\n\n")] {
            for stream in [
                [DELTA, &event].concat(),
                [DELTA, event.trim_end()].concat(),
                ["\u{FEFF}", &event].concat(),
            ] {
                for cut in 0..=stream.len() {
                    let (head, tail) = stream.as_bytes().split_at(cut);
                    let (mut out, mut tap) = pass(&[head, tail], TapOptions::default());
                    out.extend(tap.end());
                    let out = String::from_utf8(out).unwrap();
                    let code = format!("\"error\":{{\"code\":{told},");
                    assert!(out.contains(&code), "{words}, cut at {cut}: {out}");
                    assert!(!out.contains("credit") && !out.contains("API"), "{out}");
                    assert_eq!(tap.about_operator().is_some(), told == 502, "{words}");
                    let stands_for = if told == 502 { 403 } else { told };
                    assert_eq!(tap.error_code(), Some(stands_for), "{words}");
                }
            }
        }
    }
}
