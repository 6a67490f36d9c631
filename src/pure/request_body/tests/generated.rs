//! Generated bodies, compared with serde_json.

use std::fmt;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::generators::{json, request, string};
use super::*;

/// The members that a provider gets only where its configuration allows them; `store` where it says so as well.
const WITHHELD: [&str; 4] = ["session_id", "metadata", "store", "usage"];

const SEEDS: [&str; 4] = [
    r#"{"model":"a/b:c","messages":[{"role":"user","content":"h\n\u00e9\ud83d\ude00"}],"stream":true,"max_tokens":10}"#,
    r#" { "model" : "m" , "input" : [ "a" , "b" ] , "x" : [ -0.5e+3 , true , null , { } ] } "#,
    r#"{"messages":[{"content":[{"type":"text","text":"é"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}}]}],"model":"m","stream_options":{"x":1},"n":2}"#,
    r#"{"model":"m","input":[[1,2],[3]],"max_completion_tokens":null,"tools":[{"type":"function","function":{}}]}"#,
];

/// Keeps the fuzz target's function alive, and shows that no truncation of a body is a body.
#[test]
fn every_prefix_of_a_body_is_refused() {
    for seed in SEEDS {
        fuzz_body(seed.as_bytes());
        for end in 0..seed.trim_end().len() {
            let prefix = &seed.as_bytes()[..end];
            fuzz_body(prefix);
            check_not_json(prefix);
        }
    }
}

#[test]
fn every_changed_byte_is_read_as_serde_json_reads_it() {
    for seed in SEEDS {
        for at in 0..seed.len() {
            for byte in *b"\"\\{}[],:01-.eEtnu \n\x00\x1f\x7f\x80\xc3\xff" {
                let mut changed = seed.as_bytes().to_vec();
                changed[at] = byte;
                fuzz_body(&changed);
            }
        }
    }
}

/// The end of a string is found wherever it lies in its block, and whatever mark ends it.
#[test]
fn strings_of_every_length() {
    for length in 0..150 {
        for (end, valid) in [
            ("", true),
            ("\\n", true),
            ("é", true),
            ("\u{1f}", false),
            ("\\", false),
            ("\\u12", false),
        ] {
            for offset in 0..9 {
                let text = format!(
                    "{}{{\"k\":\"{}{end}\",\"l\":1}}",
                    " ".repeat(offset),
                    "a".repeat(length)
                );
                fuzz_body(text.as_bytes());
                let body = chat_with(&format!(r#""x":"{}{end}""#, "a".repeat(length)));
                assert_eq!(chat(&body).is_ok(), valid, "{body}");
            }
        }
    }
}

#[test]
fn bodies_of_megabytes() {
    let long = "word \\n é ".repeat(200_000);
    let many = r#"{"role":"user","content":"a"},"#.repeat(70_000);
    let ids = "12345,".repeat(350_000);
    for body in [
        chat_with(&format!(r#""x":"{long}""#)),
        format!(r#"{{"messages":[{many}{{"content":"{long}"}}],"model":"m"}}"#),
        format!(r#"{{"input":[{ids}1],"model":"m"}}"#),
    ] {
        assert!(body.len() > 2_000_000);
        fuzz_body(body.as_bytes());
        check_not_json(&body.as_bytes()[..body.len() - 1]);
    }
    let body = chat(&format!(r#"{{"messages":[{many}{{"content":"{long}"}}],"model":"m"}}"#)).unwrap();
    assert_eq!(body.message_count(), 70_001);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn any_json_is_read_as_serde_json_reads_it(text in json(), at in any::<prop::sample::Index>(), mutation in mutation()) {
        fuzz_body(text.as_bytes());
        fuzz_body(&mutated(&text, at, mutation));
    }

    #[test]
    fn any_request_is_read_as_serde_json_reads_it(request in request(), at in any::<prop::sample::Index>(), mutation in mutation()) {
        let text = request.text();
        fuzz_body(text.as_bytes());
        fuzz_body(&mutated(&text, at, mutation));
    }

    #[test]
    fn an_edit_changes_the_named_fields_and_no_other_byte(request in request(), edit in edit(), endpoint in select(vec![Endpoint::Chat, Endpoint::ChatStream])) {
        check_edit(&request.text(), &edit, endpoint);
    }

    #[test]
    fn a_name_is_unescaped_as_serde_json_does(model in string().prop_filter("empty", |raw| raw.len() > 2)) {
        let body = chat(&format!(r#"{{"model":{model},"messages":[{{"content":{model}}}]}}"#)).unwrap();
        let expected: String = serde_json::from_str(&model).unwrap();
        prop_assert_eq!(body.model(), &expected);
        body.visit_text(&mut |text| assert_eq!(text, expected));
    }
}

/// An edit: the model, the field of the maximum, the cap, the fields that the provider's configuration allows, and how it reports usage.
type AnyEdit = (String, MaximumField, Option<NonZeroU64>, Vec<&'static str>, StreamUsage);

/// The edited body has the members of the original in their order and spelling, but for those that the edit names.
fn check_edit(text: &str, (model, maximum, cap, allowed, stream_usage): &AnyEdit, endpoint: Endpoint) {
    let body = RequestBody::parse(Bytes::copy_from_slice(text.as_bytes()), endpoint).unwrap();
    let edited = body.edit(&Edit {
        model,
        maximum: *maximum,
        cap: *cap,
        rules: FieldRules::allowing(allowed.iter().copied()).unwrap(),
        stream_usage: *stream_usage,
    });
    let Members(before) = serde_json::from_str(text).unwrap();
    let Members(after) = serde_json::from_slice(&edited).unwrap();
    let value = |members: &[(String, String)], name: &str| {
        members
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, raw)| serde_json::from_str::<Value>(raw).unwrap())
    };
    let is_withheld = |(name, raw): &(String, String)| match name.as_str() {
        "store" => !allowed.contains(&"store") && ["null", "false"].contains(&raw.as_str()),
        name => WITHHELD.contains(&name) && !allowed.contains(&name),
    };
    let is_any_withheld = before.iter().any(is_withheld);
    let untouched = |members: Vec<(String, String)>| -> Vec<_> {
        let named = [
            "model",
            "stream",
            "stream_options",
            "max_tokens",
            "max_completion_tokens",
        ];
        members
            .into_iter()
            .filter(|(key, _)| !named.contains(&key.as_str()))
            .collect()
    };
    assert_eq!(value(&after, "model"), Some(Value::from(model.as_str())));
    let is_unasked = *stream_usage == StreamUsage::Unasked;
    let is_stream = body.mode() == ResponseMode::Stream;
    let stream = is_stream
        .then(|| Value::from(true))
        .or_else(|| value(&before, "stream"));
    assert_eq!(value(&after, "stream"), stream);
    let options = match (is_unasked, is_stream) {
        (true, _) => None,
        (false, false) => value(&before, "stream_options"),
        (false, true) => {
            let asked = value(&before, "stream_options").filter(Value::is_object);
            let mut options = asked.unwrap_or_else(|| serde_json::json!({}));
            options["include_usage"] = Value::from(true);
            Some(options)
        }
    };
    assert_eq!(value(&after, "stream_options"), options);
    let tokens = |members: &[(String, String)], name| value(members, name).and_then(|value| value.as_u64());
    let names = ["max_tokens", "max_completion_tokens"];
    let asked = names.iter().filter_map(|name| tokens(&before, name)).min();
    let both = names.iter().all(|name| value(&before, name).is_some());
    let effective = asked.into_iter().chain(cap.map(NonZeroU64::get)).min();
    match effective {
        None => assert_eq!(
            names.map(|name| value(&before, name)),
            names.map(|name| value(&after, name))
        ),
        Some(effective) => {
            let (name, other) = match maximum {
                MaximumField::MaxTokens => (names[0], names[1]),
                MaximumField::MaxCompletionTokens => (names[1], names[0]),
            };
            assert_eq!(tokens(&after, name), Some(effective));
            assert_eq!(value(&after, other), None, "the other spelling is there");
        }
    }
    let spaces = |text: &[u8]| text.iter().filter(|byte| byte.is_ascii_whitespace()).count();
    if !both
        && !is_any_withheld
        && !is_unasked
        && !model.contains(' ')
        && !body.model().contains([' ', '\n', '\t', '\r'])
    {
        assert_eq!(spaces(text.as_bytes()), spaces(&edited), "white space");
    }
    let asks = |name: &str, member: &str| value(&before, name).is_some_and(|value| value[member] == true);
    let asks_usage = asks("stream_options", "include_usage") || asks("usage", "include");
    assert_eq!(body.asks_usage(), asks_usage);
    let sent = before.into_iter().filter(|member| !is_withheld(member)).collect();
    assert_eq!(untouched(sent), untouched(after));
}

/// The members of an object in their order, keys unescaped and values as they are written.
struct Members(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    members.push((key, value.get().to_owned()));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

fn edit() -> impl Strategy<Value = AnyEdit> {
    let fields = select(vec![MaximumField::MaxTokens, MaximumField::MaxCompletionTokens]);
    let caps = prop_oneof![Just(None), (1_u64..100).prop_map(NonZeroU64::new)];
    let models = prop_oneof![Just("m".to_owned()), "[a-z/:.\"\\\\\u{1}é-]{1,30}"];
    let usage = select(vec![StreamUsage::Ask, StreamUsage::Unasked]);
    (
        models,
        fields,
        caps,
        subsequence(WITHHELD.to_vec(), 0..=WITHHELD.len()),
        usage,
    )
}

#[derive(Clone, Copy, Debug)]
enum Mutation {
    Cut,
    Drop,
    Insert(u8),
    Replace(u8),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let byte = prop_oneof![select(b"\"\\{}[],:0-.eu \n\x1f\xff".to_vec()), any::<u8>()];
    prop_oneof![
        Just(Mutation::Cut),
        Just(Mutation::Drop),
        byte.clone().prop_map(Mutation::Insert),
        byte.prop_map(Mutation::Replace),
    ]
}

fn mutated(text: &str, at: prop::sample::Index, mutation: Mutation) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    let at = at.index(bytes.len());
    match mutation {
        Mutation::Cut => bytes.truncate(at),
        Mutation::Drop => {
            bytes.remove(at);
        }
        Mutation::Insert(byte) => bytes.insert(at, byte),
        Mutation::Replace(byte) => bytes[at] = byte,
    }
    bytes
}
