//! Receipts as text: what is known is written, and reads back.

use super::*;
use crate::pure::numbers::Birth;
use crate::pure::prices::KindPrices;
use crate::pure::usage::TokenKinds;

fn billed(details: Option<&CallDetails>) -> Billed {
    let number = CallNumber::new(ProducerId::new(Birth(7), 9), 3);
    let (account, key) = ("acme".parse().unwrap(), KeyId::from("key_x".to_owned()));
    let usage = Usage {
        prompt: PromptTokens(5),
        completion: CompletionTokens(6),
    };
    let cost = "0.000000000001".parse().unwrap();
    let id = RequestId::from_bytes([1; 16]);
    Billed::new(
        id,
        number,
        (&account, &key),
        &"a/m".into(),
        (usage, cost, None),
        details,
    )
}

#[test]
fn what_is_not_known_is_absent() {
    let resolved = Timestamp(8);
    let receipt = Receipt {
        resolved,
        billed: billed(None),
    };
    let text = serde_json::to_string(&receipt).unwrap();
    assert_eq!(
        text,
        r#"{"resolved":8,"id":"01010101-0101-0101-0101-010101010101","producer":"0000000700000009","number":3,"account":"acme","key":"key_x","model":"a/m","prompt_tokens":5,"completion_tokens":6,"cost":"0.000000000001","created":1103823438081}"#
    );
    assert_eq!(serde_json::from_str::<Receipt>(&text).unwrap(), receipt);
    let compact = receipt.billed.to_compact().unwrap();
    assert_eq!(
        Billed::of_compact(&receipt.billed.account, &compact).unwrap(),
        receipt.billed
    );
}

#[test]
fn what_is_billed_beyond_a_report_was_counted() {
    // Billed are 5 and 6 tokens; a report may have more than was admitted.
    for (prompt, completion, expected) in [
        (Some(5), Some(6), BilledBy::Report),
        (Some(7), Some(8), BilledBy::Report),
        (Some(5), Some(5), BilledBy::Count),
        (Some(4), Some(6), BilledBy::Count),
        (Some(5), None, BilledBy::Count),
        (None, None, BilledBy::Count),
    ] {
        let details = CallDetails {
            reported_prompt: prompt.map(PromptTokens),
            reported_completion: completion.map(CompletionTokens),
            ending: Some(CallEnding::UpstreamFailed),
            ..CallDetails::default()
        };
        let by = billed(Some(&details)).billed_by();
        assert_eq!(by, Some(expected), "{prompt:?} {completion:?}");
    }
}

/// What stands in a journal of a call that was over.
#[test]
fn nobody_knows_by_what_a_call_was_billed_of_which_neither_end_nor_figures_are_known() {
    let of_journal = CallDetails {
        endpoint: Some(Endpoint::Chat),
        ..CallDetails::default()
    };
    let counted = CallDetails {
        counted_completion: Some(CompletionTokens(6)),
        ..of_journal.clone()
    };
    for (details, expected) in [
        (None, None),
        (Some(&of_journal), None),
        (Some(&counted), Some(BilledBy::Count)),
    ] {
        assert_eq!(billed(details).billed_by(), expected, "{details:?}");
    }
}

#[test]
fn a_receipt_reads_back_whole() {
    let details = CallDetails {
        provider: Some("openai".into()),
        upstream_model: Some("m-2026".into()),
        upstream_id: Some("chatcmpl-\"1".to_owned()),
        endpoint: Some(Endpoint::ChatStream),
        first_byte: Some(Timestamp(9)),
        ended: Some(Timestamp(10)),
        streamed: Some(true),
        ending: Some(CallEnding::ClientGone),
        reported_prompt: Some(PromptTokens(5)),
        reported_completion: None,
        counted_completion: Some(CompletionTokens(6)),
        pricing: Pricing::from_units_each([2_000_000_000_000_000_000, 1]),
        ..CallDetails::default()
    };
    let receipt = Receipt {
        resolved: Timestamp(11),
        billed: Billed {
            held: Some("2.5".parse().unwrap()),
            ..billed(Some(&details))
        },
    };
    let text = serde_json::to_string(&receipt).unwrap();
    for part in [
        r#""held":"2.5""#,
        r#""prompt_price":"0.000002""#,
        r#""completion_price":"0.000000000000000000000001""#,
        r#""endpoint":"chat_stream","created":1103823438081"#,
        r#""ending":"client_gone","reported_prompt_tokens":5,"counted_completion_tokens":6"#,
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert_eq!(serde_json::from_str::<Receipt>(&text).unwrap(), receipt);
    let compact = receipt.billed.to_compact().unwrap();
    assert_eq!(
        Billed::of_compact(&receipt.billed.account, &compact).unwrap(),
        receipt.billed
    );
    assert!(Billed::of_compact(&receipt.billed.account, &compact.replacen("[1,", "[2,", 1)).is_err());
    assert!(receipt.is_named("chatcmpl-\"1") && receipt.is_named("01010101-0101-0101-0101-010101010101"));
    assert!(!receipt.is_named("m-2026"));
}

#[test]
fn what_else_a_price_depended_on_is_kept_and_a_receipt_without_it_is_as_it_always_was() {
    let plain = CallDetails {
        provider: Some("openai".into()),
        pricing: Pricing::from_units_each([2_000_000_000_000_000_000, 1]),
        ..CallDetails::default()
    };
    let kept = billed(Some(&plain));
    assert_eq!(kept.call.kinds, None, "the model has two prices");
    let text = kept.to_compact().unwrap();
    // What versions before this one wrote ends with the two prices, and they read nothing longer.
    assert!(text.ends_with(",2000000000000000000,1]]"), "{text}");
    let account = kept.account.clone();
    assert_eq!(Billed::of_compact(&account, &text).unwrap(), kept);
    let by = PricedBy {
        kinds: TokenKinds {
            cache_read: 4,
            cache_write: 3,
            reasoning: 2,
            ..TokenKinds::default()
        },
        kind_prices: KindPrices {
            input_cache_read: ListPrice::from_units(200_000_000_000_000_000),
            input_cache_write: ListPrice::from_units(34_028_236_692_093_846_346_337),
            ..KindPrices::default()
        },
        ..PricedBy::default()
    };
    let with = |by: PricedBy| {
        billed(Some(&CallDetails {
            priced: Some(Box::new(by)),
            ..plain.clone()
        }))
    };
    let kept = with(by.clone());
    let text = kept.to_compact().unwrap();
    // As the version wrote it that knew these three alone.
    assert!(
        text.ends_with(",1,[4,3,2,200000000000000000,34028236692093846346337,null]]]"),
        "{text}"
    );
    assert_eq!(Billed::of_compact(&account, &text).unwrap(), kept);
    let of = UsageOfReceipt::of_compact(&text).unwrap();
    assert_eq!((of.prompt_tokens, of.cost), (kept.prompt_tokens, kept.cost));
    let shown = serde_json::to_string(&kept).unwrap();
    assert!(shown.contains(r#""kinds":{"cache_read_tokens":4,"cache_write_tokens":3,"reasoning_tokens":2,"cache_read_price":"0.0000002","#), "{shown}");
    assert!(!shown.contains("audio"), "{shown}");
    let some = PricedBy {
        kinds: TokenKinds {
            cache_write_1h: 7,
            audio: 8,
            image_output: 9,
            ..by.kinds
        },
        ..by.clone()
    };
    // Each has a value of its own.
    let all = PricedBy {
        kinds: TokenKinds {
            cache_read: 1,
            cache_write: 2,
            cache_write_1h: 3,
            audio: 4,
            image: 5,
            reasoning: 6,
            audio_output: 7,
            image_output: 8,
        },
        kind_prices: KindPrices {
            input_cache_read: ListPrice::from_units(9),
            input_cache_write: ListPrice::from_units(10),
            input_cache_write_1h: ListPrice::from_units(11),
            audio: ListPrice::from_units(12),
            image: ListPrice::from_units(13),
            internal_reasoning: ListPrice::from_units(14),
            audio_output: ListPrice::from_units(15),
            image_output: ListPrice::from_units(16),
            request: ListPrice::from_units(17),
        },
        ..PricedBy::default()
    };
    // Where no kind has a price, the tokens of each are kept all the same.
    let tier = PricedBy {
        kinds: by.kinds,
        service_tier: Some("flex".into()),
        ..PricedBy::default()
    };
    let cost = PricedBy {
        provider_cost: Some("0.00014".parse().unwrap()),
        ..PricedBy::default()
    };
    let both = PricedBy {
        service_tier: tier.service_tier.clone(),
        provider_cost: cost.provider_cost,
        ..all.clone()
    };
    for by in [some, all, tier, cost, both] {
        let kinds = by.kinds;
        let kept = with(by);
        let told = kept.call.kinds.unwrap();
        assert_eq!(
            (told.cache_read_tokens, told.audio_tokens),
            (kinds.cache_read, kinds.audio)
        );
        let text = kept.to_compact().unwrap();
        assert_eq!(Billed::of_compact(&account, &text).unwrap(), kept, "{text}");
        let shown: Billed = serde_json::from_str(&serde_json::to_string(&kept).unwrap()).unwrap();
        assert_eq!(shown, kept);
    }
}

#[test]
fn an_end_user_is_kept_and_a_receipt_without_one_is_as_it_always_was() {
    let named = |end_user: Option<&str>, by: Option<PricedBy>| {
        billed(Some(&CallDetails {
            provider: Some("openai".into()),
            end_user: end_user.map(Box::from),
            priced: by.map(Box::new),
            ..CallDetails::default()
        }))
    };
    let without = named(None, None).to_compact().unwrap();
    assert!(without.ends_with(",null,null]]"), "{without}");
    let with = named(Some("\u{e9} \"1\""), None).to_compact().unwrap();
    let stem = without.strip_suffix("]]").unwrap();
    assert_eq!(with, format!("{stem},null,null,null,null,\"\u{e9} \\\"1\\\"\"]]"));
    let cost = PricedBy {
        provider_cost: Some("0.00014".parse().unwrap()),
        ..PricedBy::default()
    };
    for by in [None, Some(cost)] {
        let kept = named(Some("\u{e9} \"1\""), by);
        assert_eq!(kept.call.end_user.as_deref(), Some("\u{e9} \"1\""));
        let text = kept.to_compact().unwrap();
        assert_eq!(Billed::of_compact(&kept.account, &text).unwrap(), kept, "{text}");
        let of = UsageOfReceipt::of_compact(&text).unwrap();
        assert_eq!((of.prompt_tokens, of.cost), (kept.prompt_tokens, kept.cost));
        let shown = serde_json::to_string(&kept).unwrap();
        assert!(
            shown.contains(r#""end_user":"\u{e9} \"1\"""#.replace(r"\u{e9}", "\u{e9}").as_str()),
            "{shown}"
        );
        assert_eq!(serde_json::from_str::<Billed>(&shown).unwrap(), kept);
    }
}

#[test]
fn that_the_client_had_left_is_kept_and_a_receipt_without_it_is_as_it_always_was() {
    let left = |client_left: bool, end_user: Option<&str>| {
        billed(Some(&CallDetails {
            ending: Some(CallEnding::Complete),
            client_left,
            end_user: end_user.map(Box::from),
            ..CallDetails::default()
        }))
    };
    for (end_user, last) in [(None, ""), (Some("u-1"), ",null,null,null,null,\"u-1\"")] {
        let stayed = left(false, end_user).to_compact().unwrap();
        assert!(stayed.ends_with(&format!(",null,null{last}]]")), "{stayed}");
        let kept = left(true, end_user);
        let text = kept.to_compact().unwrap();
        let stem = stayed.strip_suffix("]]").unwrap();
        let between = if end_user.is_none() {
            ",null,null,null,null,null"
        } else {
            ""
        };
        assert_eq!(text, format!("{stem}{between},true]]"));
        assert_eq!(Billed::of_compact(&kept.account, &text).unwrap(), kept, "{text}");
        let of = UsageOfReceipt::of_compact(&text).unwrap();
        assert_eq!((of.prompt_tokens, of.cost), (kept.prompt_tokens, kept.cost));
        let shown = serde_json::to_string(&kept).unwrap();
        assert!(shown.contains(r#""client_left":true"#), "{shown}");
        assert_eq!(serde_json::from_str::<Billed>(&shown).unwrap(), kept);
        let shown = serde_json::to_string(&left(false, end_user)).unwrap();
        assert!(!shown.contains("client_left"), "{shown}");
    }
}
