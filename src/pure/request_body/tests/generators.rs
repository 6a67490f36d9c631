//! Strategies for bodies: requests, and any JSON.

use proptest::prelude::*;
use proptest::sample::select;

/// A chat or embeddings request: its members as they are written, and the white space between.
#[derive(Clone, Debug)]
pub(super) struct Request {
    members: Vec<(String, String)>,
    space: &'static str,
}

impl Request {
    /// The request as it is sent.
    pub(super) fn text(&self) -> String {
        let space = self.space;
        let members: Vec<_> = self
            .members
            .iter()
            .map(|(key, value)| format!("{space}{key}{space}:{space}{value}{space}"))
            .collect();
        format!("{space}{{{}}}{space}", members.join(","))
    }
}

pub(super) fn request() -> impl Strategy<Value = Request> {
    let known = |name: &'static str, value: BoxedStrategy<String>| {
        (key(name), value).prop_map(|(key, value)| vec![(key, value)]).boxed()
    };
    let optional = |name, value| prop_oneof![Just(Vec::new()), known(name, value)].boxed();
    let number = || {
        select(vec!["null", "1", "7", "50", "4294967295"])
            .prop_map(str::to_owned)
            .boxed()
    };
    let boolean = || select(vec!["null", "true", "false"]).prop_map(str::to_owned).boxed();
    let options = prop_oneof![
        Just("null".to_owned()),
        Just("{ }".to_owned()),
        json().prop_map(|value| format!(r#"{{ "o" :{value}}}"#)),
        (boolean(), json(), key("include_usage"))
            .prop_map(|(usage, other, key)| format!("{{\"o\":{other}, {key} : {usage}}}")),
    ];
    let messages = prop::collection::vec(message(), 1..4).prop_map(|messages| format!("[{}]", messages.join(" ,")));
    let input = select(vec![r#""text""#, r#"["a", "b\n"]"#, "[1, 2]", "[[1],[2,3]]"]).prop_map(str::to_owned);
    let unknown = prop::collection::vec((unknown_key(), json()), 0..4);
    let store = select(vec!["null", "false", "true", r#""x""#]).prop_map(str::to_owned);
    let usage = prop_oneof![
        Just("null".to_owned()),
        Just("{ }".to_owned()),
        (boolean(), json(), key("include"))
            .prop_map(|(include, other, key)| format!("{{\"o\":{other}, {key} : {include}}}")),
    ];
    let withheld = (
        optional("session_id", json().boxed()),
        optional("metadata", json().boxed()),
        optional("store", store.boxed()),
        optional("usage", usage.boxed()),
    );
    let sets = (
        known("model", string().prop_filter("empty", |raw| raw.len() > 2).boxed()),
        known("messages", messages.boxed()),
        optional("input", input.boxed()),
        optional("stream", boolean()),
        optional("stream_options", options.boxed()),
        optional("max_tokens", number()),
        optional("max_completion_tokens", number()),
        optional("n", number()),
        unknown,
        withheld.prop_map(|(a, b, c, d)| [a, b, c, d].concat()),
    );
    (
        sets.prop_map(|(a, b, c, d, e, f, g, h, i, j)| [a, b, c, d, e, f, g, h, i, j].concat())
            .prop_shuffle(),
        space(),
    )
        .prop_map(|(members, space)| Request { members, space })
}

fn message() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        string().prop_map(|text| format!(r#"{{"type":"text","text":{text}}}"#)),
        Just(r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}"#.to_owned()),
        Just(r#"{"type":"input_image","image_url":"data:image\/png;base64,AAAA"}"#.to_owned()),
        json(),
    ];
    let parts = prop::collection::vec(part, 0..4).prop_map(|parts| format!("[{}]", parts.join(",")));
    let content = prop_oneof![string(), json(), parts];
    (key("content"), content, unknown_key(), json())
        .prop_map(|(key, content, other, value)| format!(r#"{{"role":"user",{key}:{content},{other}:{value}}}"#))
}

/// A name as a key, some of its letters escaped.
fn key(name: &'static str) -> impl Strategy<Value = String> {
    prop::collection::vec(prop::bool::weighted(0.1), name.len()).prop_map(move |escaped| {
        let letters = name.chars().zip(escaped).map(|(letter, escaped)| match escaped {
            true => format!("\\u{:04x}", u32::from(letter)),
            false => letter.to_string(),
        });
        format!("\"{}\"", letters.collect::<String>())
    })
}

/// A key that no field has.
fn unknown_key() -> impl Strategy<Value = String> {
    string().prop_map(|raw| raw.replacen('"', "\"x-", 1))
}

pub(super) fn json() -> impl Strategy<Value = String> {
    let number = "-?(0|[1-9][0-9]{0,18})([.][0-9]{1,20})?([eE][+-]?[0-9]{1,2})?";
    let leaf = prop_oneof![
        select(vec!["null", "true", "false", "{}", "[]", "{ }", "[ ]"]).prop_map(str::to_owned),
        number,
        string(),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let arrays = (prop::collection::vec(inner.clone(), 0..4), space())
            .prop_map(|(values, space)| format!("[{space}{}{space}]", values.join(&format!("{space},{space}"))));
        let objects = (prop::collection::vec((string(), inner), 0..4), space()).prop_map(|(members, space)| {
            let members: Vec<_> = members
                .iter()
                .map(|(key, value)| format!("{key}{space}:{space}{value}"))
                .collect();
            format!("{{{space}{}{space}}}", members.join(&format!("{space},{space}")))
        });
        prop_oneof![arrays, objects]
    })
}

pub(super) fn string() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[ -!#-\\[\\]-~]{0,12}",
        "[ -!#-\\[\\]-~]{30,80}",
        "[é漢😀\u{80}\u{10ffff}\u{2028}\u{7f}]{1,4}",
        select(vec![
            "\\n",
            "\\\"",
            "\\\\",
            "\\/",
            "\\b",
            "\\f",
            "\\r",
            "\\t",
            "\\u0000",
            "\\u00E9",
            "\\ud83d\\ude00",
            "\\uFFFF"
        ])
        .prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..4).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

fn space() -> impl Strategy<Value = &'static str> {
    select(vec!["", "", " ", "\n", "\t \r\n"])
}
