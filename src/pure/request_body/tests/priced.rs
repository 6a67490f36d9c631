//! Fields that change what a call costs: what they ask for, and that they pass only where that has a price.

use super::*;
use crate::pure::money::{ListPrice, Markup, Pricing, ProviderPrice};
use crate::pure::prices::{Asks, CacheWrites, KindPrices, PriceRow, PriceRows, PriceTable};

fn price() -> Option<ListPrice> {
    let price: ProviderPrice = "0.000001".parse().unwrap();
    Some(price.with_markup(Markup::default()))
}

fn table(kinds: KindPrices, tiers: &[&str]) -> PriceTable {
    let price = price().unwrap();
    let pricing = Pricing {
        prompt: price,
        completion: price,
    };
    let rows = |kinds| PriceRows::new(PriceRow { pricing, kinds }, Vec::new()).unwrap();
    let tiers = tiers.iter().map(|tier| ((*tier).into(), rows(KindPrices::default())));
    PriceTable::of(rows(kinds), tiers.collect())
}

/// A body whose one message has this content.
fn with_content(content: &str) -> RequestBody {
    chat(&format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":{content}}}]}}"#
    ))
    .unwrap()
}

#[test]
fn a_request_asks_for_media_when_it_has_or_wants_some() {
    let data = "A".repeat(400);
    for (content, images, audios, files, has_media) in [
        (r#""hi""#.to_owned(), 0, 0, 0, false),
        (r#"[{"type":"text","text":"hi"}]"#.to_owned(), 0, 0, 0, false),
        (
            r#"[{"type":"image_url","image_url":{"url":"https://x/y"}}]"#.to_owned(),
            1,
            0,
            0,
            true,
        ),
        (
            format!(r#"[{{"type":"input_audio","input_audio":{{"data":"{data}"}}}}]"#),
            0,
            1,
            0,
            true,
        ),
        (format!(r#"[{{"input_audio":{{"data":"{data}"}}}}]"#), 0, 1, 0, true),
        (
            format!(r#"[{{"type":"file","file":{{"file_data":"{data}"}}}},{{"file":"{data}"}}]"#),
            0,
            0,
            2,
            true,
        ),
        (r#"[{"type":"film","film":"x"}]"#.to_owned(), 0, 0, 0, true),
        // As serializers write a part that keep what is not set.
        (
            r#"[{"type":"text","text":"hi","image_url":null,"input_audio": null,"file":null}]"#.to_owned(),
            0,
            0,
            0,
            false,
        ),
    ] {
        let body = with_content(&content);
        let counts = (body.images(), body.audios(), body.files());
        assert_eq!(counts, (images, audios, files), "{content}");
        assert_eq!(
            body.asks(),
            Asks {
                has_media,
                ..Asks::default()
            },
            "{content}"
        );
        assert!(body.prompt_bytes() < 200, "{content}: bytes of a part are no text");
    }
    for (members, wants_media) in [
        (r#""modalities":["text","audio"]"#, true),
        (r#""audio":{"voice":"v"}"#, true),
        (r#""modalities":null,"audio":null"#, false),
        (r#""route":"x""#, false),
    ] {
        assert_eq!(check_accepted(members).asks().wants_media, wants_media, "{members}");
    }
}

#[test]
fn what_cannot_be_counted_is_known_by_a_report_alone() {
    for (part, is_unknown) in [
        (r#"{"type":"text","text":"hi"}"#, false),
        (r#"{"type":"text","text":"hi","cache_control":{}}"#, true),
        (r#"{"type":"image_url","image_url":{"url":"https://x/y"}}"#, true),
        (r#"{"type":"input_audio","input_audio":{"data":"QUJD"}}"#, true),
        (r#"{"type":"file","file":{"file_data":"QUJD"}}"#, true),
        (r#"{"type":"film","film":"x"}"#, true),
    ] {
        let body = with_content(&format!("[{part}]"));
        assert_eq!(body.is_known_by_report_alone(), is_unknown, "{part}");
    }
    for (members, is_unknown) in [
        (r#""modalities":["text","audio"]"#, true),
        (r#""cache_control":{"ttl":"1h"}"#, true),
        (r#""thinking":{"type":"enabled","budget_tokens":1024}"#, true),
        (r#""reasoning_effort":"none""#, false),
        (r#""cache_control":null,"modalities":null"#, false),
        (r#""service_tier":"flex","max_tokens":5"#, false),
    ] {
        assert_eq!(
            check_accepted(members).is_known_by_report_alone(),
            is_unknown,
            "{members}"
        );
    }
    let embedded = embeddings(r#"{"model":"m","input":["a","b"]}"#).unwrap();
    assert!(!embedded.is_known_by_report_alone());
}

#[test]
fn a_request_asks_for_the_tier_that_it_names_in_plain_text() {
    for (value, tier) in [
        (r#""flex""#, Some("flex")),
        (r#""""#, Some("")),
        (r#""fl\u0065x""#, None),
        ("7", None),
        ("null", None),
    ] {
        let body = check_accepted(&format!(r#""service_tier":{value}"#));
        assert_eq!(body.asks().tier, tier, "{value}");
    }
    assert_eq!(check_accepted(r#""seed":1"#).asks(), Asks::default());
}

#[test]
fn a_cache_control_asks_for_an_hour_unless_it_plainly_says_less() {
    use CacheWrites::{Hour, Unasked, Usual};
    for (value, writes) in [
        ("null", Unasked),
        (r#"{"type":"ephemeral"}"#, Usual),
        ("{}", Usual),
        (r#"{"ttl":null}"#, Usual),
        (r#"{"ttl":"5m"}"#, Usual),
        (r#"{"ttl":"1h"}"#, Hour),
        (r#"{"ttl":5}"#, Hour),
        (r#"{"ttl":"1h","ttl":"5m"}"#, Hour),
        (r#"{"ttl":"5m","ttl":null}"#, Hour),
        (r#"{"\u0074tl":"5m"}"#, Hour),
        (r#"{"type":"ephemer\u0061l"}"#, Hour),
        (r#""ephemeral""#, Hour),
        ("[]", Hour),
    ] {
        for body in [
            check_accepted(&format!(r#""cache_control":{value}"#)),
            with_content(&format!(r#"[{{"type":"text","text":"hi","cache_control":{value}}}]"#)),
            chat(&format!(
                r#"{{"model":"m","messages":[{{"role":"user","content":"hi","cache_control":{value}}}]}}"#
            ))
            .unwrap(),
        ] {
            assert_eq!(body.asks().writes, writes, "{value}");
            let is_refused = body.check_fields(&FieldRules::default(), None).is_err();
            assert_eq!(is_refused, writes != Unasked, "{value}");
        }
    }
    let (usual, hour) = (r#"{"ttl":"5m"}"#, r#"{"ttl":"1h"}"#);
    for (one, other) in [(usual, hour), (hour, usual)] {
        let part = |value| format!(r#"{{"type":"text","text":"hi","cache_control":{value}}}"#);
        let body = with_content(&format!("[{},{}]", part(one), part(other)));
        assert_eq!(body.asks().writes, Hour, "{one} {other}");
    }
}

#[test]
fn a_cache_control_is_found_wherever_some_upstream_reads_it_and_not_in_what_is_the_clients() {
    let control = r#""cache_control":{"type":"ephemeral"}"#;
    let escaped = r#""cache_contro\u006c":{}"#;
    for (members, is_found) in [
        (
            format!(r#""tools":[{{"type":"function","function":{{"name":"f",{control}}}}}]"#),
            true,
        ),
        (
            format!(r#""tools":[{{"type":"function",{control},"function":{{"name":"f"}}}}]"#),
            true,
        ),
        (
            format!(r#""tools":[{{"type":"function","function":{{"name":"f","parameters":{{{control}}}}}}}]"#),
            false,
        ),
        (
            format!(r#""tools":[{{"type":"function","function":{{"name":"f"}},"extra":{{{control}}}}}]"#),
            true,
        ),
        (
            format!(r#""tools":[{{"type":"function","name":"f","parameters":{{{control}}}}}]"#),
            false,
        ),
        (format!(r#""functions":[{{"name":"f",{control}}}]"#), true),
        (format!(r#""functions":[{{"name":"f",{escaped}}}]"#), true),
        (
            format!(r#""functions":[{{"name":"f","parameters":{{{control}}}}}]"#),
            false,
        ),
        (r#""functions":[{"name":"cache_control"}]"#.to_owned(), false),
        (format!(r#""unknown":{{"deep":[[1,{{{control}}}]]}}"#), true),
        (format!(r#""unknown":{{"schema":{{{control}}}}}"#), false),
        (format!(r#""metadata":{{{control}}}"#), false),
        (r#""unknown":"cache_control""#.to_owned(), false),
        // Only what may hold one is read again, not what stands before it.
        (
            format!(r#""logit_bias":{{"cache_control":1}},"unknown":{{"schema":{{{control}}}}}"#),
            false,
        ),
    ] {
        let writes = if is_found {
            CacheWrites::Usual
        } else {
            CacheWrites::Unasked
        };
        assert_eq!(check_accepted(&members).asks().writes, writes, "{members}");
    }
    let content = r#"[{"type":"tool_result","content":[{"type":"text","text":"x","cache_control":{}}]}]"#;
    assert_eq!(with_content(content).asks().writes, CacheWrites::Usual);
    for name in ["Cache_Control", "cach\\u0045_control"] {
        check_member_refused(
            &format!(r#""functions":[{{"name":"f","{name}":{{}}}}]"#),
            BodyError::Misspelled { field: "cache_control" },
        );
    }
}

#[test]
fn a_field_that_changes_the_price_passes_where_that_has_a_price() {
    let none = KindPrices::default();
    let sound = KindPrices {
        audio_output: price(),
        ..none
    };
    let image = KindPrices {
        image_output: price(),
        ..none
    };
    let both = KindPrices {
        audio_output: price(),
        ..image
    };
    let write = KindPrices {
        input_cache_write: price(),
        ..none
    };
    let write_1h = KindPrices {
        input_cache_write_1h: price(),
        ..none
    };
    let all = [none, sound, image, both, write, write_1h];
    let names = ["none", "sound", "image", "both", "write", "write_1h"];
    let many = format!(r#""modalities":[{}]"#, vec![r#""text""#; 200].join(","));
    for (members, passes) in [
        (r#""modalities":["text"]"#, &names[..]),
        (many.as_str(), &[]),
        (r#""modalities":["text","audio"]"#, &["sound", "both"]),
        (r#""modalities":["image"]"#, &["image", "both"]),
        (r#""modalities":["image","audio"]"#, &["both"]),
        (r#""modalities":["smell"]"#, &[]),
        (r#""modalities":[]"#, &[]),
        (r#""modalities":"audio""#, &[]),
        (r#""audio":{"voice":"v"}"#, &["sound", "both"]),
        (r#""cache_control":{}"#, &["write"]),
        (r#""cache_control":{"ttl":"1h"}"#, &["write_1h"]),
        (r#""audio":{"voice":"v"},"route":"x""#, &[]),
        (r#""seed":1"#, &names),
    ] {
        let body = check_accepted(members);
        for (kinds, name) in all.into_iter().zip(names) {
            let is_accepted = body
                .check_fields(&FieldRules::default(), Some(&table(kinds, &[])))
                .is_ok();
            assert_eq!(is_accepted, passes.contains(&name), "{members} {name}");
        }
    }
    for (tier, passes) in [
        (r#""flex""#, true),
        (r#""auto""#, true),
        (r#""priority""#, false),
        (r#""fl\u0065x""#, false),
        ("7", false),
    ] {
        let body = check_accepted(&format!(r#""service_tier":{tier}"#));
        let prices = table(none, &["flex"]);
        let is_accepted = body.check_fields(&FieldRules::default(), Some(&prices)).is_ok();
        assert_eq!(is_accepted, passes, "{tier}");
        assert!(body.check_fields(&FieldRules::default(), None).is_err(), "{tier}");
    }
}
