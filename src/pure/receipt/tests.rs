//! Receipts as text: what is known is written, and reads back.

use super::*;
use crate::pure::numbers::Birth;

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
