//! What a new catalogue changes of an old one, as it is told.

use super::{Catalogue, Purpose, parse, yaml};
use crate::pure::catalogue::changes::Changes;

/// What the catalogue changes when `from` becomes `to`.
fn changes(edits: &[(&str, &str)]) -> Changes {
    let edited = yaml(|text| {
        edits.iter().fold(text, |text, (from, to)| {
            assert!(text.contains(from), "{from}");
            text.replacen(from, to, 1)
        })
    });
    Changes::between(&parse(&yaml(|text| text)).unwrap(), &parse(&edited).unwrap())
}

#[test]
fn each_field_that_changed_is_told_with_both_values() {
    for (from, to, told) in [
        ("name: M", "name: N", "name M -> N"),
        ("provider: A", "provider: B", "provider A -> B"),
        ("name: M", "name: M\n    description: \"D\\nE\"", "description  -> D E"),
        // What a terminal would obey.
        ("name: M", "name: \"N\\u009bO\"", "name M -> N O"),
        ("tier: free", "tier: pro", "tier free -> pro"),
        ("context_length: 1000", "context_length: 7", "context_length 1000 -> 7"),
        ("tokens: 100", "tokens: 7", "max_completion_tokens 100 -> 7"),
        (
            "text->text",
            "text+image->text",
            "modality text->text -> text+image->text",
        ),
        ("id: a/m", "id: a/m\n    aliases: [b/m, c/m]", "aliases  -> b/m+c/m"),
        (
            "provider: p, model: m",
            "provider: r, model: n",
            "targets p:m+q:m2 -> r:n+q:m2",
        ),
        (
            "provider: p, model: m",
            "provider: p, model: m, weight: 3",
            "targets p:m+q:m2 -> p:m weight 3+q:m2",
        ),
        (
            "name: M",
            "name: M\n    image_tokens_max: 5",
            "image_tokens_max none -> 5",
        ),
        (
            "name: M",
            "name: M\n    audio_tokens_max: 6",
            "audio_tokens_max none -> 6",
        ),
        (
            "name: M",
            "name: M\n    file_tokens_max: 7",
            "file_tokens_max none -> 7",
        ),
        (
            "name: M",
            "name: M\n    min_completion_tokens: 8",
            "min_completion_tokens 1 -> 8",
        ),
        (
            "name: M",
            "name: M\n    reasoning: true",
            "reasoning false -> true, tokens_per_second none -> 50",
        ),
        ("\"0.000001\"", "\"0.000003\"", "prompt price 0.00000115 -> 0.00000345"),
        (
            "\"0.000002\"",
            "\"0.000003\"",
            "completion price 0.0000023 -> 0.00000345",
        ),
        (
            "\"0.000002\"",
            "\"0.000002\", request: \"0.1\"",
            "request none -> 0.115",
        ),
        ("\"0.000002\"", "\"0.000002\", audio: \"0.1\"", "audio none -> 0.115"),
        (
            "\"0.000002\"",
            "\"0.000002\", overrides: [{ min_prompt_tokens: 5, prompt: \"0.1\", image: \"0.2\" }, { min_prompt_tokens: 6, completion: \"0.3\" }]",
            "overrides none -> above 5: 0.115 / 0.0000023 image 0.23; above 6: 0.00000115 / 0.345",
        ),
        (
            "\"0.000002\"",
            "\"0.000002\", tiers: { flex: { prompt: \"0.1\" }, batch: { request: \"0.1\", overrides: [{ min_prompt_tokens: 5, prompt: \"0.2\" }] } }",
            "tiers none -> batch: 0.00000115 / 0.0000023 request 0.115, above 5: 0.23 / 0.0000023 request 0.115; flex: 0.115 / 0.0000023",
        ),
    ] {
        let changes = changes(&[(from, to)]);
        assert_eq!(changes.to_string(), format!("~ a/m  {told}\n"), "{to}");
        assert_eq!(changes.summary(), "0 models added, 0 removed, 1 changed");
        assert!(!changes.is_empty());
    }
}

#[test]
fn what_is_new_and_what_is_gone_is_told() {
    let nothing = changes(&[]);
    assert!(nothing.is_empty() && nothing.to_string().is_empty());
    let renamed = changes(&[("id: a/e", "id: a/f"), ("embedding: a/e", "embedding: a/f")]);
    assert_eq!(
        renamed.to_string(),
        "~ purposes.embedding  a/e -> a/f\n+ a/f  0.00000115 / 0, tier pro\n- a/e\n"
    );
    assert_eq!(
        renamed.summary(),
        "1 models added, 1 removed, 0 changed, 1 purpose with another default"
    );
    let Changes {
        added,
        removed,
        purposes,
        ..
    } = renamed;
    for only in [
        Changes {
            added,
            ..Changes::default()
        },
        Changes {
            removed,
            ..Changes::default()
        },
        Changes {
            purposes,
            ..Changes::default()
        },
    ] {
        assert!(!only.is_empty());
    }
}

#[test]
fn a_purpose_with_another_default_is_told_though_no_model_changes() {
    let catalogue = |default: &str| {
        let text = yaml(|text| {
            let (head, tail) = text.split_once("  - id: a/m\n").unwrap();
            let (entry, rest) = tail.split_once("  - id: ").unwrap();
            format!("{head}  - id: a/m\n{entry}  - id: a/n\n{entry}  - id: {rest}")
        });
        parse(&text.replace("chat: a/m", &format!("chat: {default}"))).unwrap()
    };
    let changes = Changes::between(&catalogue("a/m"), &catalogue("a/n"));
    assert!(!changes.is_empty());
    assert_eq!(changes.to_string(), "~ purposes.chat  a/m -> a/n\n");
    assert_eq!(
        changes.summary(),
        "0 models added, 0 removed, 0 changed, 1 purpose with another default"
    );
    let json = serde_json::to_value(&changes).unwrap();
    let moved = serde_json::json!([{ "purpose": "chat", "from": "a/m", "to": "a/n" }]);
    assert_eq!(json["purposes"], moved);
    let first = Changes::between(&Catalogue::default(), &catalogue("a/m"));
    assert_eq!(
        first.purposes.len(),
        Purpose::ALL.len(),
        "a purpose without a default gets one"
    );
    assert!(
        first.to_string().starts_with("~ purposes.chat  none -> a/m\n"),
        "{first}"
    );
}
