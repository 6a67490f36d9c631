//! The maximum of completion tokens: its spellings, and keys that only fold to one that is known.

use super::*;

#[test]
fn the_smaller_of_two_spellings_of_the_maximum_counts() {
    assert_eq!(
        check_accepted(r#""max_tokens":5,"max_completion_tokens":5"#).max_tokens(),
        NonZeroU64::new(5)
    );
    for one_is_null in [
        r#""max_tokens":null,"max_completion_tokens":5"#,
        r#""max_tokens":5,"max_completion_tokens":null"#,
    ] {
        assert_eq!(check_accepted(one_is_null).max_tokens(), NonZeroU64::new(5));
    }
    for two_differ in [
        r#""max_tokens":5,"max_completion_tokens":6"#,
        r#""max_completion_tokens":5,"max_tokens":2000"#,
    ] {
        assert_eq!(check_accepted(two_differ).max_tokens(), NonZeroU64::new(5));
    }
}

#[test]
fn every_other_spelling_of_the_maximum_is_refused_whatever_a_provider_allows() {
    for name in other_maxima() {
        for value in ["-1", "1", "\"9\"", "false", "{}"] {
            let refused = chat(&chat_with(&format!(r#""{name}":{value}"#)));
            assert!(
                matches!(refused, Err(BodyError::Refused { field, .. }) if field == name),
                "{name}: {value}"
            );
        }
        check_accepted(&format!(r#""{name}":null"#));
        assert!(FieldRules::allowing([name]).is_err());
    }
    for members in [
        r#""maxOutputTokens":5"#,
        r#""maxTokens":5"#,
        r#""maxoutputtokens":5"#,
        r#""MAX_NEW_TOKENS":5"#,
        r#""options":{"num_predict":-1}"#,
        r#""options":{"NUM_PREDICT":-1}"#,
        r#""options":{"a":[{"num_\u0070redict":-1}]}"#,
        r#""generationConfig":{"maxOutputTokens":5}"#,
        r#""parameters":[{"max_tokens":5}]"#,
        r#""x":{"max_to\u212aens":5}"#,
    ] {
        assert!(chat(&chat_with(members)).is_err(), "{members}");
    }
}

#[test]
fn what_is_the_clients_own_may_have_any_key() {
    for members in [
        r#""response_format":{"type":"json_schema","json_schema":{"schema":{"properties":{"max_tokens":{},"Model":{}}}}}"#,
        r#""tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"num_predict":{},"Type":{}}}}}]"#,
        r#""metadata":{"max_new_tokens":"1","Model":"x"}"#,
        r#""guided_json":{"maxTokens":{}}"#,
        r#""logit_bias":{"50256":-100}"#,
        r#""options":{"temperature":1,"Stop":["x"]}"#,
    ] {
        check_accepted(members);
    }
    chat(r#"{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"MAX_TOKENS\":1}"},"Type":"x"}]}]}"#)
        .unwrap();
}

#[test]
fn a_budget_of_reasoning_demands_a_larger_maximum() {
    for (members, demanded) in [
        (r#""thinking":{"type":"enabled","budget_tokens":1024}"#, 1025),
        (r#""reasoning":{"max_tokens":2000,"effort":"high"}"#, 2001),
        (r#""reasoning":{"effort":"high"},"thinking":null"#, 0),
        (r#""thinking":{"budget_tokens":"many"}"#, 0),
        (r#""seed":1"#, 0),
    ] {
        assert_eq!(check_accepted(members).demanded_tokens(), demanded, "{members}");
    }
}

#[test]
fn a_request_asks_for_reasoning_unless_its_settings_are_absent_or_switch_it_off() {
    for (members, is_asked) in [
        (r#""thinking":{"type":"enabled","budget_tokens":1024}"#, true),
        (r#""thinking":{"budget_tokens":1}"#, true),
        (r#""thinking":{"budget_tokens":1.5e3}"#, true),
        (r#""thinking":{"type":"adaptive"}"#, true),
        (r#""thinking":{"type":"disabled"}"#, false),
        (r#""thinking":{"type":"disabled","budget_tokens":0}"#, false),
        (r#""thinking":{"type":"disabled","type":"enabled"}"#, true),
        (r#""thinking":{"typ\u0065":"\u0065nabled"}"#, true),
        (r#""thinking":null"#, false),
        (r#""thinking":{}"#, false),
        (r#""reasoning":{"max_tokens":2000}"#, true),
        (r#""reasoning":{"max_tokens":0}"#, false),
        (r#""reasoning":{"effort":"high"}"#, true),
        (r#""reasoning":{"effort":"none"}"#, false),
        (r#""reasoning":{"effort":null}"#, false),
        (r#""reasoning":{"enabled":true}"#, true),
        (r#""reasoning":{"enabled":false,"exclude":true}"#, false),
        (r#""reasoning_effort":"low""#, true),
        (r#""reasoning_effort":"none""#, false),
        (r#""reasoning_effort":null"#, false),
        (r#""reasoning_effort":"none","reasoning_effort":"high""#, true),
        (r#""seed":1"#, false),
    ] {
        assert_eq!(check_accepted(members).asks_reasoning(), is_asked, "{members}");
    }
}

#[test]
fn a_key_that_folds_to_a_known_one_is_refused_at_every_level() {
    for (members, field) in [
        (r#""Model":"paid""#, "model"),
        (r#""MAX_TOKENS":9"#, "max_tokens"),
        (r#""N":8"#, "n"),
        (r#""TOOLS":[]"#, "tools"),
        ("\"\u{17f}tream\":true", "stream"),
        ("\"max_to\u{212a}ens\":9", "max_tokens"),
        (r#""\u017ftream":true"#, "stream"),
        (r#""Service_tier":"priority""#, "service_tier"),
        (r#""User":"u""#, "user"),
        (r#""stream_options":{"Include_usage":false}"#, "include_usage"),
        (r#""tools":[{"type":"function","Type":"web_search"}]"#, "type"),
        (r#""thinking":{"Budget_tokens":5}"#, "budget_tokens"),
        (r#""reasoning":{"Effort":"high"}"#, "effort"),
    ] {
        check_member_refused(members, BodyError::Misspelled { field });
    }
    for (message, field) in [
        (r#"{"Content":[{"type":"file"}]}"#, "content"),
        (r#"{"content":"a","CONTENT":"b"}"#, "content"),
        (r#"{"content":[{"Type":"file"}]}"#, "type"),
        (r#"{"content":[{"typ\u0045":"file"}]}"#, "type"),
        (r#"{"content":[{"type":"text","Image_url":"u"}]}"#, "image_url"),
        (r#"{"content":[{"type":"image_url","image_url":{"URL":"u"}}]}"#, "url"),
        (r#"{"content":[{"type":"file","file":{"File_data":"u"}}]}"#, "file_data"),
    ] {
        check_refused(
            &format!(r#"{{"model":"m","messages":[{message}]}}"#),
            BodyError::Misspelled { field },
        );
    }
    check_accepted(r#""TEMPERATURE":1,"größe":2,"\u0073eed":3"#);
}
