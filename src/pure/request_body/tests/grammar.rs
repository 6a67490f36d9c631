//! The grammar of JSON: what is none, where it ends, how deep it may nest, and what an error says.

use super::super::scan::DEPTH_MAX;
use super::*;

#[test]
fn what_is_not_json() {
    let cases: [&[u8]; 42] = [
        b"",
        b" ",
        b"{",
        b"}",
        b"x",
        b"\xef\xbb\xbf{}",
        b"{}x",
        b"{} {}",
        b"{},",
        b"{,}",
        b"{\"a\"}",
        b"{\"a\":}",
        b"{\"a\":1,}",
        b"{\"a\":1 \"b\":2}",
        b"{a:1}",
        b"{'a':1}",
        b"{\"a\":[1,]}",
        b"{\"a\":[,1]}",
        b"{\"a\":[1}",
        b"{\"a\":[1}]",
        b"{\"a\":{]}",
        b"{\"a\":[1 2]}",
        b"{\"a\":tru}",
        b"{\"a\":True}",
        b"{\"a\":nul}",
        b"{\"a\":NaN}",
        b"{\"a\":-}",
        b"{\"a\":01}",
        b"{\"a\":1.}",
        b"{\"a\":.1}",
        b"{\"a\":+1}",
        b"{\"a\":1e}",
        b"{\"a\":1e+}",
        b"{\"a\":0x1}",
        b"{\"a\":\"\n\"}",
        b"{\"a\":\"\\x\"}",
        b"{\"a\":\"\\u12g4\"}",
        b"{\"a\":\"\\ud800\"}",
        b"{\"a\":\"\\udc00\"}",
        b"{\"a\":\"\\ud800\\u0041\"}",
        b"{\"\xff\":1}",
        b"{\"a\":1/**/}",
    ];
    for body in cases {
        check_not_json(body);
    }
}

#[test]
fn an_error_says_where() {
    check_refused(
        r#"{"model":"m" "x"}"#,
        BodyError::NotJson {
            at: 13,
            expected: "`,` or `}`",
        },
    );
    let error = RequestBody::parse(Bytes::from_static(b"{\"model\":\"\xc3\x28\"}"), Endpoint::Chat).unwrap_err();
    assert_eq!(error.to_string(), "the body is not UTF-8 text: invalid at byte 10");
    let error = chat(r#"{"model":"m","messages":[{}],"n":0}"#).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`n` must be a positive integer, in digits, of at most 4294967295"
    );
    let error = check_accepted(r#""models":["x"]"#)
        .check_fields(&FieldRules::default(), None)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "`models` is not accepted here: it lets the upstream choose another model or provider; leave it out"
    );
}

#[test]
fn an_error_says_what_may_follow_in_an_object_and_in_an_array() {
    for (read, wrong, expected) in [
        (r#""x":{"a":1 "#, r#""b":2}"#, "`,` or `}`"),
        (r#""x":{"a":1"#, "]", "`,` or `}`"),
        (r#""x":[1 "#, "2]", "`,` or `]`"),
        (r#""x":[1"#, "}", "`,` or `]`"),
    ] {
        let at = chat_with(read).find(read).unwrap() + read.len();
        check_member_refused(&format!("{read}{wrong}"), BodyError::NotJson { at, expected });
    }
}

#[test]
fn nesting_is_limited_and_costs_no_stack() {
    let levels = usize::try_from(DEPTH_MAX).unwrap();
    let nested = |inner: usize| format!("{}{}", "[".repeat(inner), "]".repeat(inner));
    check_accepted(&format!(r#""x":{}"#, nested(levels - 1)));
    check_member_refused(
        &format!(r#""x":{}"#, nested(levels)),
        BodyError::TooDeep { max: DEPTH_MAX },
    );
    check_member_refused(
        &format!(r#""x":{}"#, nested(1_000_000)),
        BodyError::TooDeep { max: DEPTH_MAX },
    );
    let messages = |inner| format!(r#"{{"model":"m","messages":[{{"x":{}}}]}}"#, nested(inner));
    chat(&messages(levels - 3)).unwrap();
    check_refused(&messages(levels - 2), BodyError::TooDeep { max: DEPTH_MAX });
    let objects = |levels: usize| format!(r#""x":{}1{}"#, r#"{"a":"#.repeat(levels), "}".repeat(levels));
    check_accepted(&objects(levels - 1));
    check_member_refused(&objects(levels), BodyError::TooDeep { max: DEPTH_MAX });
}

#[test]
fn a_text_is_escaped_where_json_needs_it_alone() {
    for (text, escaped) in [
        ("plain / é", "plain / é"),
        ("a b", "a b"),
        ("\"", "\\\""),
        ("\\", "\\\\"),
        ("\n", "\\u000a"),
        ("\u{1f}\u{7f}", "\\u001f\u{7f}"),
    ] {
        assert_eq!(text::escape(text), escaped, "{text:?}");
        let read: String = serde_json::from_str(&format!("\"{}\"", text::escape(text))).unwrap();
        assert_eq!(read, text);
    }
}
