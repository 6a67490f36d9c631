//! Members that a provider gets only where its configuration names them: `session_id`, `metadata`, `usage`, and a `store` that asks for
//! nothing.

use super::edits::{cap, check, rename};
use super::*;

/// An edit that changes nothing else, for a provider whose configuration allows these fields.
fn allowing(fields: &[&'static str]) -> Edit<'static> {
    Edit {
        rules: FieldRules::allowing(fields.iter().copied()).unwrap(),
        ..rename("m")
    }
}

#[test]
fn a_session_is_taken_out_wherever_it_stands() {
    let rest = r#""model":"m","messages":[{}]"#;
    for (before, after) in [
        (format!(r#"{{"session_id":"a",{rest}}}"#), format!("{{{rest}}}")),
        (format!(r#"{{ "session_id" : "a" , {rest}}}"#), format!("{{  {rest}}}")),
        (format!(r#"{{{rest},"session_id":7}}"#), format!("{{{rest}}}")),
        (
            format!("{{{rest}\n,\n\"session_id\":{{\"a\":[1]}} }}"),
            format!("{{{rest}\n }}"),
        ),
        (
            r#"{"model":"m","session_id":"a","messages":[{}]}"#.to_owned(),
            format!("{{{rest}}}"),
        ),
        (format!(r#"{{"s\u0065ssion_id":null,{rest}}}"#), format!("{{{rest}}}")),
        // Not the gateway's own, deeper in the body.
        (
            format!(r#"{{{rest},"x":{{"session_id":"a"}}}}"#),
            format!(r#"{{{rest},"x":{{"session_id":"a"}}}}"#),
        ),
    ] {
        check(Endpoint::Chat, &before, rename("m"), &after);
        check(Endpoint::Chat, &before, allowing(&["session_id"]), &before);
    }
    // Beside another member that goes, in either order, and before what is put in.
    let capped = r#""max_tokens":3,"#;
    for before in [
        format!(r#"{{"session_id":"a","max_completion_tokens":9,{capped}{rest}}}"#),
        format!(r#"{{"max_completion_tokens":9,"session_id":"a",{capped}{rest}}}"#),
        format!(r#"{{"max_completion_tokens":9,{capped}"session_id":"a",{rest}}}"#),
        format!(r#"{{"session_id":"a",{capped}"max_completion_tokens":9,{rest}}}"#),
        format!(r#"{{{capped}"max_completion_tokens":9,"session_id":"a",{rest}}}"#),
    ] {
        check(
            Endpoint::Chat,
            &before,
            cap(3, MaximumField::MaxTokens),
            &format!("{{{capped}{rest}}}"),
        );
        check(
            Endpoint::ChatStream,
            &before,
            cap(3, MaximumField::MaxTokens),
            &format!(r#"{{"stream":true,"stream_options":{{"include_usage":true}},{capped}{rest}}}"#),
        );
    }
    let twice = format!(r#"{{"session_id":"a","session_id":"b",{rest}}}"#);
    let twice = RequestBody::parse(Bytes::from(twice), Endpoint::Chat);
    assert_eq!(twice.unwrap_err(), BodyError::Duplicate { field: "session_id" });
    // Of embeddings it is no conversation's.
    let input = r#"{"model":"m","input":"x","session_id":"a"}"#;
    check(Endpoint::Embeddings, input, rename("m"), input);
}

const REST: &str = r#""model":"m","messages":[{}]"#;

#[test]
fn each_is_taken_out_wherever_it_stands_unless_it_is_allowed() {
    for (name, value) in [
        ("metadata", r#"{"user_id":"a"}"#),
        ("metadata", "null"),
        ("metadata", "7"),
        ("m\\u0065tadata", r#"[ {"a":1} ]"#),
        ("store", "false"),
        ("store", "null"),
        ("st\\u006fre", "false"),
        ("usage", r#"{"include":true}"#),
        ("usage", r#"{"include":false,"x":[1]}"#),
        ("usage", "{ }"),
        ("us\\u0061ge", "null"),
    ] {
        let member = format!(r#""{name}":{value}"#);
        let plain: String = serde_json::from_str(&format!("\"{name}\"")).unwrap();
        let allowed: &'static str = ["metadata", "store", "usage"]
            .into_iter()
            .find(|known| *known == plain)
            .unwrap();
        let others: Vec<&'static str> = ["metadata", "store", "usage", "session_id"]
            .into_iter()
            .filter(|other| *other != allowed)
            .collect();
        for (before, after) in [
            (format!("{{{member},{REST}}}"), format!("{{{REST}}}")),
            (format!("{{ {member} , {REST}}}"), format!("{{  {REST}}}")),
            (format!("{{{REST},{member}}}"), format!("{{{REST}}}")),
            (format!("{{{REST}\n,\n{member} }}"), format!("{{{REST}\n }}")),
            (
                format!(r#"{{"model":"m",{member},"messages":[{{}}]}}"#),
                format!("{{{REST}}}"),
            ),
        ] {
            check(Endpoint::Chat, &before, rename("m"), &after);
            check(Endpoint::Chat, &before, allowing(&others), &after);
            check(Endpoint::Chat, &before, allowing(&[allowed]), &before);
        }
        // Deeper in the body it is the client's own.
        let deeper = format!(r#"{{"x":{{{member}}},{REST}}}"#);
        check(Endpoint::Chat, &deeper, rename("m"), &deeper);
    }
}

#[test]
fn those_beside_each_other_are_taken_out_together() {
    let members = [
        r#""session_id":"a""#,
        r#""metadata":{}"#,
        r#""store":null"#,
        r#""usage":{}"#,
        r#""max_completion_tokens":9"#,
    ];
    let capped = r#""max_tokens":3"#;
    let streamed = r#""stream":true,"stream_options":{"include_usage":true}"#;
    for first in 0..members.len() {
        let mut members = members;
        members.rotate_left(first);
        let [a, b, c, d, e] = members;
        for (before, after) in [
            (
                format!("{{{a},{b},{c},{d},{e},{capped},{REST}}}"),
                format!("{capped},{REST}"),
            ),
            (
                format!("{{{capped},{REST},{a},{b},{c},{d},{e}}}"),
                format!("{capped},{REST}"),
            ),
            (
                format!("{{{a},{b},{capped},{c},{REST},{d},{e}}}"),
                format!("{capped},{REST}"),
            ),
            (
                format!("{{{a},{b},{c},{REST},{d},{e},{capped}}}"),
                format!("{REST},{capped}"),
            ),
        ] {
            let edit = cap(3, MaximumField::MaxTokens);
            check(Endpoint::Chat, &before, edit, &format!("{{{after}}}"));
            check(Endpoint::ChatStream, &before, edit, &format!("{{{streamed},{after}}}"));
        }
    }
}

#[test]
fn of_embeddings_those_are_taken_out_that_say_who_asks_or_ask_for_nothing() {
    let input = r#""model":"m","input":"x""#;
    check(
        Endpoint::Embeddings,
        &format!(r#"{{{input},"metadata":{{"user_id":"a"}},"store":false,"usage":7}}"#),
        rename("m"),
        &format!(r#"{{{input},"usage":7}}"#),
    );
}

/// OpenAI keeps the chats of new accounts unless it is told not to. It was taken out, and prompt and answer were kept.
#[test]
fn who_keeps_answers_by_default_is_told_not_to() {
    let rules = FieldRules::default().of_who_keeps_by_default(true);
    let edit = || Edit { rules, ..rename("m") };
    let chat = |member: &str| format!(r#"{{{member}"model":"m","messages":[{{"role":"user","content":"hi"}}]}}"#);
    let no = chat(r#""store":false,"#);
    check(Endpoint::Chat, &no, edit(), &no);
    check(Endpoint::Chat, &chat(r#""store":null,"#), edit(), &chat(""));
    let input = r#""model":"m","input":"x""#;
    let before = format!(r#"{{{input},"store":false}}"#);
    check(Endpoint::Embeddings, &before, edit(), &format!("{{{input}}}"));
}

#[test]
fn what_asks_the_upstream_to_keep_the_answer_is_not_taken_out() {
    for value in ["true", r#""false""#, "0", "{}"] {
        let body = check_accepted(&format!(r#""store":{value}"#));
        assert!(body.check_fields(&FieldRules::default(), None).is_err(), "{value}");
        assert_eq!(body.edit(&rename("m")), *body.bytes(), "{value}");
    }
}

#[test]
fn a_body_with_what_is_allowed_is_not_copied() {
    let bytes = Bytes::from(chat_with(
        r#""metadata":{"user_id":"a"},"store":false,"usage":{"include":true},"session_id":"s""#,
    ));
    let body = RequestBody::parse(bytes.clone(), Endpoint::Chat).unwrap();
    let all = allowing(&["metadata", "store", "usage", "session_id"]);
    assert_eq!(body.edit(&all).as_ptr(), bytes.as_ptr());
    assert_ne!(body.edit(&rename("m")).as_ptr(), bytes.as_ptr());
}

#[test]
fn what_is_taken_out_is_still_read_and_bounds_the_prompt_as_before() {
    let body = check_accepted(r#""metadata":{"user_id":"anna"},"store":false"#);
    assert_eq!(body.end_user().unwrap().as_deref(), Some("anna"));
    assert_eq!(body.prompt_bytes(), body.bytes().len() as u64);
    let mut text = String::new();
    body.visit_text(&mut |piece| text.push_str(piece));
    assert_eq!(text, "hi");
}

#[test]
fn usage_is_asked_for_in_openrouters_way_too() {
    for (members, asks) in [
        (r#""usage":{"include":true}"#, true),
        (r#""us\u0061ge":{"x":1,"inclu\u0064e":true}"#, true),
        (
            r#""stream_options":{"include_usage":false},"usage":{"include":true}"#,
            true,
        ),
        (
            r#""usage":{"include":false},"stream_options":{"include_usage":true}"#,
            true,
        ),
        (r#""usage":{"include":false}"#, false),
        (r#""usage":{"include":null}"#, false),
        (r#""usage":{"x":{"include":true}}"#, false),
        (r#""usage":{}"#, false),
        (r#""usage":null"#, false),
        (r#""x":{"usage":{"include":true}}"#, false),
    ] {
        assert_eq!(check_accepted(members).asks_usage(), asks, "{members}");
    }
    let embeddings = embeddings(r#"{"model":"m","input":"a","usage":{"include":true}}"#).unwrap();
    assert!(!embeddings.asks_usage());
    for (members, field) in [
        (r#""Usage":{"include":true}"#, "usage"),
        (r#""usage":{"Include":true}"#, "include"),
        (r#""usage":{"\u0043ache_control":{}}"#, "cache_control"),
    ] {
        check_member_refused(members, BodyError::Misspelled { field });
    }
    assert!(matches!(
        chat(&chat_with(r#""usage":{"max_tokens":5}"#)),
        Err(BodyError::Refused {
            field: "max_tokens",
            ..
        })
    ));
}
