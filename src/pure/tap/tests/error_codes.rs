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
