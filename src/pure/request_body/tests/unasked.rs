//! Refused fields with values that ask for nothing: they pass, and no provider gets them unless its configuration allows the field.

use super::edits::{cap, check, rename};
use super::*;

const REST: &str = r#""model":"m","messages":[{"role":"user","content":"hi"}]"#;

/// The field that a body with this member is refused for, if it is.
fn refused_for(member: &str) -> Option<&'static str> {
    let body = chat(&format!("{{{member},{REST}}}")).unwrap();
    match body.check_fields(&FieldRules::default(), None) {
        Ok(()) => None,
        Err(BodyError::Refused { field, .. }) => Some(field),
        Err(other) => panic!("{member}: {other}"),
    }
}

const NOTHING: [&str; 8] = [
    r#""transforms":[]"#,
    r#""transforms":[ ]"#,
    r#""plugins":[]"#,
    r#""provider":{}"#,
    "\"provider\":{\n}",
    r#""models":[]"#,
    r#""models":["m"]"#,
    r#""mod\u0065ls":[ "\u006d" ]"#,
];

#[test]
fn what_asks_for_nothing_passes_and_is_taken_out() {
    for member in NOTHING {
        assert_eq!(refused_for(member), None, "{member}");
        let after = format!("{{{REST}}}");
        for before in [
            format!("{{{member},{REST}}}"),
            format!("{{{REST},{member}}}"),
            format!(r#"{{"model":"m",{member},"messages":[{{"role":"user","content":"hi"}}]}}"#),
        ] {
            check(Endpoint::Chat, &before, rename("m"), &after);
        }
        let body = chat(&format!("{{{member},{REST}}}")).unwrap();
        let mut text = String::new();
        body.visit_text(&mut |piece| text.push_str(piece));
        assert_eq!(text, "hi", "{member}");
    }
    // Of embeddings too.
    let input = r#""model":"m","input":"x""#;
    let before = format!(r#"{{{input},"provider":{{}},"models":["m"]}}"#);
    check(Endpoint::Embeddings, &before, rename("m"), &format!("{{{input}}}"));
}

#[test]
fn all_that_asks_for_nothing_is_taken_out_at_once_and_beside_what_else_is() {
    let before = format!(
        r#"{{"plugins":[],"max_completion_tokens":9,"transforms":[],{REST},"models":["m"],"store":false,"provider":{{}},"metadata":{{}}}}"#
    );
    let after = format!(r#"{{"max_tokens":3,{REST}}}"#);
    check(Endpoint::Chat, &before, cap(3, MaximumField::MaxTokens), &after);
}

/// A provider that does not know the field refused the request, and its word was final.
#[test]
fn no_provider_gets_a_refused_field_that_is_null_or_false() {
    for member in [
        r#""provider":null"#,
        r#""plugins":false"#,
        r#""service_tier":null"#,
        r#""background":false"#,
        r#""max_output_tokens":null"#,
    ] {
        let before = format!("{{{member},{REST}}}");
        check(Endpoint::Chat, &before, rename("m"), &format!("{{{REST}}}"));
    }
    let before = format!(r#"{{"provider":null,{REST}}}"#);
    let edit = Edit {
        rules: FieldRules::allowing(["provider"]).unwrap(),
        ..rename("m")
    };
    check(Endpoint::Chat, &before, edit, &before);
}

/// Each would be kept, and a body may have millions.
#[test]
fn a_maximum_of_null_stands_once() {
    let twice = chat(&format!(r#"{{"maxtokens":null,"maxtokens":null,{REST}}}"#)).map(|_| ());
    assert!(matches!(twice, Err(BodyError::Duplicate { .. })), "{twice:?}");
}

#[test]
fn a_template_among_its_values_is_refused() {
    let refused = |values: &str| refused_for(&format!(r#""chat_template_kwargs":{values}"#)) == Some("chat_template");
    assert!(!refused(
        r#"{"enable_thinking":false,"max_tokens":7,"x":{"y":"chat_template"}}"#
    ));
    assert!(refused(r#"{"chat_template":"{% for i in range(9) %}x{% endfor %}"}"#));
    assert!(refused(r#"{"chat_t\u0065mplate":""}"#));
}

#[test]
fn what_asks_for_something_is_refused_as_before() {
    for (member, field) in [
        (r#""transforms":["middle-out"]"#, "transforms"),
        (r#""transforms":{}"#, "transforms"),
        (r#""transforms":"" "#, "transforms"),
        (r#""plugins":[[]]"#, "plugins"),
        (r#""plugins":[null]"#, "plugins"),
        (r#""provider":{"zdr":true}"#, "provider"),
        (r#""provider":[]"#, "provider"),
        (r#""models":["other"]"#, "models"),
        (r#""models":["m","m"]"#, "models"),
        (r#""models":["m","other"]"#, "models"),
        (r#""models":[["m"]]"#, "models"),
        (r#""models":[1]"#, "models"),
        (r#""models":"m""#, "models"),
        // To be there is what they ask for.
        (r#""web_search_options":{}"#, "web_search_options"),
        (r#""search_parameters":{}"#, "search_parameters"),
        (r#""mcp_servers":[]"#, "mcp_servers"),
    ] {
        assert_eq!(refused_for(member), Some(field), "{member}");
    }
    for twice in [r#""plugins":[],"plugins":[{}]"#, r#""models":["m"],"models":["other"]"#] {
        let refused = chat(&format!("{{{twice},{REST}}}")).map(|_| ());
        assert!(
            matches!(refused, Err(BodyError::Duplicate { .. })),
            "{twice}: {refused:?}"
        );
    }
}

#[test]
fn a_provider_whose_configuration_allows_the_field_gets_it_as_it_is() {
    for (member, name) in [
        (r#""transforms":[]"#, "transforms"),
        (r#""plugins":[]"#, "plugins"),
        (r#""provider":{}"#, "provider"),
        (r#""models":["m"]"#, "models"),
    ] {
        let before = format!("{{{member},{REST}}}");
        let edit = Edit {
            rules: FieldRules::allowing([name]).unwrap(),
            ..rename("m")
        };
        check(Endpoint::Chat, &before, edit, &before);
    }
}
