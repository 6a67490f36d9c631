//! Tests of the request body. Here: what is read, and what is refused.

use std::num::NonZeroU64;

use bytes::Bytes;

use super::*;

mod conversations;
mod edits;
mod generated;
mod generators;
mod grammar;
mod maxima;
mod priced;
mod prompts;
mod unasked;
mod withheld;

pub(super) fn chat(body: &str) -> Result<RequestBody, BodyError> {
    RequestBody::parse(Bytes::copy_from_slice(body.as_bytes()), Endpoint::Chat)
}

pub(super) fn embeddings(body: &str) -> Result<RequestBody, BodyError> {
    RequestBody::parse(Bytes::copy_from_slice(body.as_bytes()), Endpoint::Embeddings)
}

/// A chat body that holds these members beside the required ones.
pub(super) fn chat_with(members: &str) -> String {
    format!(r#"{{"model":"m","messages":[{{"role":"user","content":"hi"}}],{members}}}"#)
}

#[track_caller]
fn check_refused(body: &str, expected: BodyError) {
    assert_eq!(chat(body).map(|_| ()), Err(expected), "{body}");
}

#[track_caller]
fn check_member_refused(members: &str, expected: BodyError) {
    check_refused(&chat_with(members), expected);
}

#[track_caller]
fn check_accepted(members: &str) -> RequestBody {
    let body = chat_with(members);
    chat(&body).unwrap_or_else(|error| panic!("{body}: {error}"))
}

#[track_caller]
fn check_not_json(body: &[u8]) {
    let result = RequestBody::parse(Bytes::copy_from_slice(body), Endpoint::Chat);
    assert!(
        matches!(result, Err(BodyError::NotJson { .. } | BodyError::NotUtf8 { .. })),
        "{}: {result:?}",
        String::from_utf8_lossy(body)
    );
}

fn wrong(field: &'static str, expected: &'static str) -> BodyError {
    BodyError::WrongType { field, expected }
}

const INTEGER: &str = "a positive integer, in digits, of at most 4294967295";
const OBJECTS: &str = "a non-empty array of objects";

#[test]
fn reads_the_fields_of_a_request() {
    let body = check_accepted(
        r#""stream":true,"stream_options":{"include_usage":true},"max_tokens":7,"max_completion_tokens":7,"n":3"#,
    );
    assert_eq!(body.model(), "m");
    assert_eq!(body.mode(), ResponseMode::Stream);
    assert!(body.asks_usage());
    assert_eq!(body.max_tokens(), NonZeroU64::new(7));
    assert_eq!(body.choices(), 3);
    assert_eq!(body.message_count(), 1);
    let plain = chat(r#" { "messages" : [ { } , {"content":null} ] , "model" : "a\u002fb\ud83d\ude00" } "#).unwrap();
    assert_eq!(plain.model(), "a/b😀");
    assert_eq!(plain.mode(), ResponseMode::Whole);
    assert!(!plain.asks_usage());
    assert_eq!(plain.max_tokens(), None);
    assert_eq!(plain.choices(), 1);
    assert_eq!(plain.message_count(), 2);
}

#[test]
fn null_is_an_absent_field() {
    let body = check_accepted(
        r#""stream":null,"stream_options":null,"max_tokens":null,"max_completion_tokens":null,"n":null"#,
    );
    assert_eq!(body.mode(), ResponseMode::Whole);
    assert_eq!(body.max_tokens(), None);
    assert_eq!(body.choices(), 1);
    assert!(!check_accepted(r#""stream_options":{"include_usage":null}"#).asks_usage());
}

/// Of the interface: the stream endpoint streams, the other one when `stream` is true.
#[test]
fn the_endpoint_and_the_body_choose_the_mode() {
    let mode = |members: &str, endpoint| {
        RequestBody::parse(Bytes::from(chat_with(members)), endpoint)
            .map(|body| body.mode())
            .unwrap()
    };
    for (stream, on_chat) in [
        ("null", ResponseMode::Whole),
        ("false", ResponseMode::Whole),
        ("true", ResponseMode::Stream),
    ] {
        let members = format!(r#""stream":{stream}"#);
        assert_eq!(mode(&members, Endpoint::Chat), on_chat);
        assert_eq!(mode(&members, Endpoint::ChatStream), ResponseMode::Stream);
    }
    assert_eq!(
        embeddings(r#"{"model":"m","input":"a","stream":true}"#).unwrap().mode(),
        ResponseMode::Whole
    );
}

/// Of the interface: no JSON, or no `model` or `messages`, is 400.
#[test]
fn required_fields() {
    check_refused(r#"{"messages":[{}]}"#, BodyError::Missing { field: "model" });
    check_refused(r#"{"model":"m"}"#, BodyError::Missing { field: "messages" });
    check_refused("{}", BodyError::Missing { field: "model" });
    assert_eq!(
        embeddings(r#"{"model":"m"}"#).map(|_| ()),
        Err(BodyError::Missing { field: "input" })
    );
    assert_eq!(
        embeddings(r#"{"input":"a"}"#).map(|_| ()),
        Err(BodyError::Missing { field: "model" })
    );
    for body in ["[]", "[1]", "\"a\"", "1", "-1", "true", "false", "null", " \n[{}]"] {
        check_refused(body, BodyError::NotAnObject);
    }
}

#[test]
fn wrong_types() {
    for value in ["1", "null", "true", "[]", "{}", "[\"m\"]"] {
        check_refused(
            &format!(r#"{{"model":{value},"messages":[{{}}]}}"#),
            wrong("model", "a string"),
        );
    }
    check_refused(r#"{"model":"","messages":[{}]}"#, BodyError::Empty { field: "model" });
    for value in ["1", "null", "\"hi\"", "{}", "[1]", "[{},\"a\"]", "[null]", "[[]]"] {
        check_refused(
            &format!(r#"{{"model":"m","messages":{value}}}"#),
            wrong("messages", OBJECTS),
        );
    }
    check_refused(r#"{"model":"m","messages":[]}"#, BodyError::Empty { field: "messages" });
    for value in ["1", "\"true\"", "[]", "{}"] {
        check_member_refused(&format!(r#""stream":{value}"#), wrong("stream", "a boolean"));
        check_member_refused(
            &format!(r#""stream_options":{{"include_usage":{value}}}"#),
            wrong("stream_options.include_usage", "a boolean"),
        );
        check_member_refused(
            &format!(r#""usage":{{"include":{value}}}"#),
            wrong("usage.include", "a boolean"),
        );
    }
    for value in ["1", "true", "\"\"", "[]"] {
        check_member_refused(
            &format!(r#""stream_options":{value}"#),
            wrong("stream_options", "an object"),
        );
        check_member_refused(&format!(r#""usage":{value}"#), wrong("usage", "an object"));
    }
}

#[test]
fn integers_are_positive_and_in_plain_digits() {
    for field in ["max_tokens", "max_completion_tokens", "n"] {
        for value in [
            "0",
            "-1",
            "-0",
            "1.0",
            "1e2",
            "1E0",
            "0.5",
            "4294967296",
            "99999999999999999999",
            "\"1\"",
            "true",
            "[1]",
        ] {
            check_member_refused(&format!(r#""{field}":{value}"#), wrong(field, INTEGER));
        }
        check_not_json(chat_with(&format!(r#""{field}":12x"#)).as_bytes());
    }
    let body = check_accepted(r#""max_tokens":4294967295,"n":128"#);
    assert_eq!(body.max_tokens(), NonZeroU64::new(4_294_967_295));
    assert_eq!(body.choices(), 128);
}

#[test]
fn input_of_embeddings() {
    let inputs = |input: &str| {
        let body = embeddings(&format!(r#"{{"model":"m","input":{input}}}"#))?;
        Ok((body.inputs(), body.token_ids()))
    };
    for (input, expected) in [
        (r#""a""#, (1, 0)),
        (r#"["a"]"#, (1, 0)),
        (r#"["a","","b"]"#, (3, 0)),
        ("[0,1,4294967295]", (1, 3)),
        ("[ [1] , [2,3] ]", (2, 3)),
    ] {
        assert_eq!(inputs(input), Ok(expected), "{input}");
    }
    for input in [r#""""#, "[]", "[[]]", "[[1],[]]"] {
        assert_eq!(inputs(input), Err(BodyError::Empty { field: "input" }), "{input}");
    }
    for input in [
        "null",
        "1",
        "{}",
        "true",
        "[null]",
        "[{}]",
        r#"["a",1]"#,
        r#"[1,"a"]"#,
        "[1.5]",
        "[-1]",
        "[1e1]",
        "[[1],2]",
        "[[[1]]]",
        r#"[["a"]]"#,
    ] {
        assert!(
            matches!(inputs(input), Err(BodyError::WrongType { field: "input", .. })),
            "{input}"
        );
    }
}

/// Two parsers would see two requests, so each known field may stand once, however its key is written.
#[test]
fn known_fields_stand_once() {
    for (body, field) in [
        (r#"{"model":"a","model":"a","messages":[{}]}"#, "model"),
        (r#"{"model":"a","mod\u0065l":"b","messages":[{}]}"#, "model"),
        (
            r#"{"\u006d\u006f\u0064\u0065\u006c":"a","model":"b","messages":[{}]}"#,
            "model",
        ),
        (r#"{"model":"a","messages":[{}],"m\u0065ssages":[{}]}"#, "messages"),
        (r#"{"model":"a","input":1,"messages":[{}],"input":1}"#, "input"),
    ] {
        check_refused(body, BodyError::Duplicate { field });
    }
    for (members, field) in [
        (r#""stream":true,"stream":false"#, "stream"),
        (r#""stream":null,"stre\u0061m":true"#, "stream"),
        (r#""stream_options":{},"stream_options":{}"#, "stream_options"),
        (
            r#""stream_options":{"include_usage":true,"include\u005fusage":false}"#,
            "stream_options.include_usage",
        ),
        (r#""max_tokens":1,"max_tokens":1"#, "max_tokens"),
        (
            r#""max_completion_tokens":1,"max_completion\u005Ftokens":2"#,
            "max_completion_tokens",
        ),
        (r#""n":1,"\u006E":2"#, "n"),
        (r#""tools":[],"tools":[]"#, "tools"),
        (r#""functions":[],"functions":[]"#, "functions"),
        (r#""metadata":{},"met\u0061data":null"#, "metadata"),
        (r#""usage":{"include":true},"us\u0061ge":null"#, "usage"),
        (r#""usage":{"include":true,"inclu\u0064e":false}"#, "usage.include"),
    ] {
        check_member_refused(members, BodyError::Duplicate { field });
    }
    for (field, _) in refused_fields() {
        check_member_refused(
            &format!(r#""{field}":null,"{field}":false"#),
            BodyError::Duplicate { field },
        );
    }
    check_accepted(r#""seed":1,"seed":2,"SEED":3,"model ":"z""#);
}

#[test]
fn fields_that_change_what_runs_are_refused_unless_allowed() {
    let none = FieldRules::default();
    for (field, effect) in refused_fields() {
        let escaped: String = field.bytes().map(|byte| format!("\\u{byte:04X}")).collect();
        for key in [field, &escaped] {
            let body = check_accepted(&format!(r#""{key}":["x"]"#));
            assert_eq!(
                body.check_fields(&none, None),
                Err(BodyError::Refused { field, effect })
            );
            assert_eq!(body.check_fields(&FieldRules::allowing([field]).unwrap(), None), Ok(()));
            for value in ["null", "false"] {
                assert_eq!(
                    check_accepted(&format!(r#""{key}":{value}"#)).check_fields(&none, None),
                    Ok(())
                );
            }
        }
    }
    let two = check_accepted(r#""route":"x","models":[]"#);
    let rules = FieldRules::allowing(["models"]).unwrap();
    assert!(matches!(
        two.check_fields(&rules, None),
        Err(BodyError::Refused { field: "route", .. })
    ));
    assert_eq!(
        FieldRules::allowing(["models", "modells"]),
        Err(UnknownField("modells".to_owned()))
    );
    assert_eq!(FieldRules::allowing(["model"]), Err(UnknownField("model".to_owned())));
    assert!(
        embeddings(r#"{"model":"m","input":"a","provider":{"order":["x"]}}"#)
            .unwrap()
            .check_fields(&none, None)
            .is_err()
    );
}

#[test]
fn tools_that_the_upstream_runs_are_refused() {
    let hosted = |tools: &str| {
        let body = check_accepted(&format!(r#""tools":{tools}"#));
        assert_eq!(
            body.check_fields(&FieldRules::allowing(["hosted_tools"]).unwrap(), None),
            Ok(())
        );
        body.check_fields(&FieldRules::default(), None).is_err()
    };
    for ours in [
        "null",
        "[]",
        r#"[{"type":"function","function":{"name":"f"}},{"type":"custom","custom":{}}]"#,
        r#"[{"function":{"name":"f"},"t\u0079pe":"functio\u006e"}]"#,
        r#"[{"function":{"name":"f"}}]"#,
        r#"[{"type":"function","function":{"name":"f"},"strict":true,"x":"y","googleSearch":null,"input_examples":[{}]}]"#,
        r#"[{"type":"function","name":"f","parameters":{"type":"object"}}]"#,
    ] {
        assert!(!hosted(ours), "{ours}");
    }
    for theirs in [
        r#"[{"type":"web_search"}]"#,
        r#"[{"type":"function","function":{}},{"type":"openrouter:web_search"}]"#,
        r#"[{"type":"function","type":"web_search"}]"#,
        r#"[{"google_search":{}}]"#,
        r#"[{"type":"function","function":{"name":"f"},"googleSearch":{}}]"#,
        r#"[{"function":{"name":"f"},"code_execution":true}]"#,
        r#"["web_search"]"#,
        r#"[{}]"#,
        r#"{"type":"function"}"#,
        r#"true"#,
    ] {
        assert!(hosted(theirs), "{theirs}");
    }
}

#[test]
fn tools_that_are_refused_are_told_what_tools_must_be() {
    const HOSTED: &str = "`tools` must be functions of the client: {\"type\":\"function\",\"function\":{…}}; tools that run at the provider \
                          are not accepted; leave them out";
    let told = |members: &str| {
        let refused = check_accepted(members).check_fields(&FieldRules::default(), None);
        refused.unwrap_err().to_string()
    };
    for tools in [
        r#"[{"type":"web_search"}]"#,
        // As Anthropic's interface has them.
        r#"[{"name":"f","description":"d","input_schema":{"type":"object","properties":{}}}]"#,
        r#"{"type":"function","function":{"name":"f"}}"#,
        r#"[{}]"#,
    ] {
        assert_eq!(told(&format!(r#""tools":{tools}"#)), HOSTED, "{tools}");
    }
    assert_eq!(
        told(r#""hosted_tools":["x"],"tools":[{"type":"function","function":{"name":"f"}}]"#),
        "`hosted_tools` is not accepted here: the upstream charges for it beside the tokens; leave it out",
        "a key is told by its name"
    );
}
