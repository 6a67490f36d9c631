//! Edits: what changes, and that nothing else does.

use super::*;

/// Edits a body on an endpoint and compares bytes.
#[track_caller]
pub(super) fn check(endpoint: Endpoint, before: &str, edit: Edit<'_>, after: &str) {
    let body = RequestBody::parse(Bytes::copy_from_slice(before.as_bytes()), endpoint).unwrap();
    let edited = body.edit(&edit);
    assert_eq!(String::from_utf8_lossy(&edited), after);
    super::super::fuzz_body(before.as_bytes());
}

pub(super) fn rename(model: &str) -> Edit<'_> {
    Edit {
        model,
        maximum: MaximumField::MaxTokens,
        cap: None,
        rules: FieldRules::default(),
        stream_usage: StreamUsage::Ask,
    }
}

pub(super) fn cap(tokens: u64, maximum: MaximumField) -> Edit<'static> {
    Edit {
        model: "m",
        maximum,
        cap: NonZeroU64::new(tokens),
        rules: FieldRules::default(),
        stream_usage: StreamUsage::Ask,
    }
}

#[test]
fn the_model_is_replaced_in_place() {
    let before = "{ \"temperature\" : 1.0e0 ,\n\"model\":\"a/b\", \"messages\":[ {\"content\":\"a/b\"} ], \"x\": {\"model\":\"a/b\"} } ";
    check(
        Endpoint::Chat,
        before,
        rename("gpt"),
        &before.replacen("\"a/b\"", "\"gpt\"", 1),
    );
    check(
        Endpoint::Chat,
        before,
        rename("a\"\\\u{1}é"),
        &before.replacen("\"a/b\"", "\"a\\\"\\\\\\u0001é\"", 1),
    );
    check(
        Endpoint::Chat,
        r#"{"m\u006fdel":"\u0061","messages":[{}]}"#,
        rename("x"),
        r#"{"m\u006fdel":"x","messages":[{}]}"#,
    );
    check(
        Endpoint::Embeddings,
        r#"{"input":[1, 2],"model":"m"}"#,
        rename("text-3"),
        r#"{"input":[1, 2],"model":"text-3"}"#,
    );
}

#[test]
fn an_unchanged_body_is_not_copied() {
    let bytes = Bytes::from(chat_with(
        r#""stream":true,"stream_options":{"include_usage":true},"max_tokens":3"#,
    ));
    for endpoint in [Endpoint::Chat, Endpoint::ChatStream] {
        let body = RequestBody::parse(bytes.clone(), endpoint).unwrap();
        assert_eq!(body.edit(&cap(3, MaximumField::MaxTokens)).as_ptr(), bytes.as_ptr());
        assert_eq!(body.edit(&rename("m")).as_ptr(), bytes.as_ptr());
    }
}

#[test]
fn a_stream_asks_for_usage() {
    let base = r#""model":"m","messages":[{}]"#;
    for (members, after) in [
        ("", r#"{"stream":true,"stream_options":{"include_usage":true},BASE}"#),
        (
            r#","stream":true"#,
            r#"{"stream_options":{"include_usage":true},BASE,"stream":true}"#,
        ),
        (
            r#","stream": false "#,
            r#"{"stream_options":{"include_usage":true},BASE,"stream": true }"#,
        ),
        (
            r#","stream":null"#,
            r#"{"stream_options":{"include_usage":true},BASE,"stream":true}"#,
        ),
        (
            r#","stream_options":null"#,
            r#"{"stream":true,BASE,"stream_options":{"include_usage":true}}"#,
        ),
        (
            r#","stream_options":{ }"#,
            r#"{"stream":true,BASE,"stream_options":{"include_usage":true }}"#,
        ),
        (
            r#","stream_options":{ "x" : [1.0] }"#,
            r#"{"stream":true,BASE,"stream_options":{"include_usage":true, "x" : [1.0] }}"#,
        ),
        (
            r#","stream_options":{"x":1,"include_usage": false}"#,
            r#"{"stream":true,BASE,"stream_options":{"x":1,"include_usage": true}}"#,
        ),
        (
            r#","stream_options":{"include\u005fusage":null,"x":1}"#,
            r#"{"stream":true,BASE,"stream_options":{"include\u005fusage":true,"x":1}}"#,
        ),
    ] {
        check(
            Endpoint::ChatStream,
            &format!("{{{base}{members}}}"),
            rename("m"),
            &after.replace("BASE", base),
        );
    }
}

/// What refuses to be asked is not, by the client neither.
#[test]
fn who_reports_unasked_gets_no_stream_options() {
    let base = r#""model":"m","messages":[{}]"#;
    let edit = || Edit {
        stream_usage: StreamUsage::Unasked,
        ..cap(7, MaximumField::MaxTokens)
    };
    for (members, after) in [
        ("", r#"{"stream":true,"max_tokens":7,BASE}"#),
        (r#","stream_options":null"#, r#"{"stream":true,"max_tokens":7,BASE}"#),
        (
            r#", "stream_options" : {} ,"x":1"#,
            r#"{"stream":true,"max_tokens":7,BASE ,"x":1}"#,
        ),
        (
            r#","stream_options":{"x":{"include_usage":1},"include_usage":true},"max_tokens":9,"max_completion_tokens":3"#,
            r#"{"stream":true,BASE,"max_tokens":3}"#,
        ),
    ] {
        let after = after.replace("BASE", base);
        check(Endpoint::ChatStream, &format!("{{{base}{members}}}"), edit(), &after);
    }
    let first = format!(r#"{{"stream_options":{{"include_usage":true}},{base}}}"#);
    check(
        Endpoint::ChatStream,
        &first,
        edit(),
        &format!(r#"{{"stream":true,"max_tokens":7,{base}}}"#),
    );
    // Of a whole answer, too: there it is no field at all.
    let whole = format!(r#"{{{base},"stream_options":{{"include_usage":true}}}}"#);
    check(Endpoint::Chat, &whole, edit(), &format!(r#"{{"max_tokens":7,{base}}}"#));
}

#[test]
fn a_whole_answer_is_left_as_the_client_asked() {
    for members in [
        r#""stream":false"#,
        r#""stream":null"#,
        r#""stream_options":{"include_usage":false}"#,
    ] {
        let body = chat_with(members);
        check(Endpoint::Chat, &body, rename("m"), &body);
    }
    let body = r#"{"model":"m","input":"a","stream":true,"max_tokens":9}"#;
    check(Endpoint::Embeddings, body, cap(3, MaximumField::MaxTokens), body);
}

#[test]
fn a_cap_stands_under_the_name_that_the_upstream_reads() {
    use MaximumField::{MaxCompletionTokens, MaxTokens};
    let base = r#""model":"m","messages":[{}]"#;
    for (members, field, after) in [
        ("", MaxTokens, r#"{"max_tokens":50,BASE}"#),
        ("", MaxCompletionTokens, r#"{"max_completion_tokens":50,BASE}"#),
        (r#","max_tokens": null"#, MaxTokens, r#"{BASE,"max_tokens": 50}"#),
        (
            r#","max_tokens":null"#,
            MaxCompletionTokens,
            r#"{BASE,"max_completion_tokens":50}"#,
        ),
        (r#","max_tokens":100"#, MaxTokens, r#"{BASE,"max_tokens":50}"#),
        (r#","max_tokens":10"#, MaxTokens, r#"{BASE,"max_tokens":10}"#),
        (
            r#","max_tokens":10"#,
            MaxCompletionTokens,
            r#"{BASE,"max_completion_tokens":10}"#,
        ),
        (
            r#","max_completion_tokens":100"#,
            MaxTokens,
            r#"{BASE,"max_tokens":50}"#,
        ),
        (
            r#","max_completion_tokens":100 , "max_tokens": 100"#,
            MaxTokens,
            r#"{BASE , "max_tokens": 50}"#,
        ),
        (
            r#","max_completion_tokens":10,"max_tokens":null"#,
            MaxTokens,
            r#"{BASE,"max_tokens":10}"#,
        ),
        (
            r#","max_completion_tokens":null,"max_tokens":70"#,
            MaxCompletionTokens,
            r#"{BASE,"max_completion_tokens":50}"#,
        ),
    ] {
        check(
            Endpoint::Chat,
            &format!("{{{base}{members}}}"),
            cap(50, field),
            &after.replace("BASE", base),
        );
    }
    check(
        Endpoint::Chat,
        &format!(r#"{{ "max_tokens" : 9 , "max_completion_tokens":9,{base}}}"#),
        cap(50, MaxCompletionTokens),
        &format!(r#"{{  "max_completion_tokens":9,{base}}}"#),
    );
    let body = chat(&format!("{{{base}}}")).unwrap();
    let edited = body.edit(&cap(u64::MAX, MaxTokens));
    assert!(edited.starts_with(br#"{"max_tokens":18446744073709551615,"#));
}

#[test]
fn all_edits_at_once() {
    check(
        Endpoint::ChatStream,
        r#"{"messages":[{"role":"user","content":"\u00e9\/ é"}],"model":"a","big":1e400,"zero":-0.0}"#,
        Edit {
            model: "upstream/b",
            ..cap(7, MaximumField::MaxCompletionTokens)
        },
        concat!(
            r#"{"stream":true,"stream_options":{"include_usage":true},"max_completion_tokens":7,"#,
            r#""messages":[{"role":"user","content":"\u00e9\/ é"}],"model":"upstream/b","big":1e400,"zero":-0.0}"#
        ),
    );
}

#[test]
fn a_clients_own_maximum_moves_to_the_name_that_the_upstream_reads() {
    let base = r#""model":"m","messages":[{}]"#;
    for (maximum, members, after) in [
        (
            MaximumField::MaxTokens,
            r#","max_completion_tokens":1"#,
            r#"{BASE,"max_tokens":1}"#,
        ),
        (
            MaximumField::MaxCompletionTokens,
            r#","max_tokens": 1"#,
            r#"{BASE,"max_completion_tokens": 1}"#,
        ),
        (
            MaximumField::MaxTokens,
            r#","max_tokens":7,"x":1,"max_completion_tokens":7"#,
            r#"{BASE,"max_tokens":7,"x":1}"#,
        ),
        (
            MaximumField::MaxTokens,
            r#","max_completion_tokens":null"#,
            r#"{BASE,"max_completion_tokens":null}"#,
        ),
        (MaximumField::MaxTokens, "", "{BASE}"),
    ] {
        check(
            Endpoint::Chat,
            &format!("{{{base}{members}}}"),
            Edit { maximum, ..rename("m") },
            &after.replace("BASE", base),
        );
    }
}
