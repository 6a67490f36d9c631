//! Catalogues that are read, and those that are refused with the line that is wrong.

use super::*;

const PURPOSES: &str = "chat vision code fast router planner executor free slide slot_extract";

fn yaml(edit: impl Fn(String) -> String) -> String {
    let all: Vec<&str> = PURPOSES.split(' ').collect();
    let mut text = format!(
        "models:\n  - id: a/m\n    name: M\n    provider: A\n    context_length: 1000\n    max_completion_tokens: 100\n    \
         modality: text->text\n    pricing: {{ prompt: \"0.000001\", completion: \"0.000002\" }}\n    tier: free\n    \
         purposes: [{}]\n    targets: [ {{ provider: p, model: m }}, {{ provider: q, model: m2 }} ]\n  - id: a/e\n    name: E\n    provider: A\n    \
         context_length: 1000\n    max_completion_tokens: 0\n    modality: text->embedding\n    pricing: {{ prompt: \"0.000001\", \
         completion: \"0\" }}\n    tier: pro\n    purposes: [embedding]\n    targets: [ {{ provider: q, model: e }} ]\npurposes:\n  embedding: a/e\n",
        all.join(", ")
    );
    for purpose in all {
        text.push_str(&format!("  {purpose}: a/m\n"));
    }
    edit(text)
}

fn parse(text: &str) -> Result<Catalogue, CatalogueError> {
    Catalogue::parse(text, Markup::default())
}

#[test]
fn a_good_catalogue_is_read() {
    let catalogue = parse(&yaml(|t| t)).unwrap();
    assert_eq!(catalogue.models().len(), 2);
    assert_eq!(catalogue.model("a/m").unwrap().pricing.prompt.to_string(), "0.00000115");
    assert_eq!(catalogue.resolve("purpose/embedding").unwrap().id.as_ref(), "a/e");
    assert!(catalogue.resolve("purpose/none").is_none());
    assert!(catalogue.resolve("a/x").is_none());
}

#[test]
fn each_mistake_is_named() {
    let cases = [
        ("\"0.000001\"", "0.000001", "in quotes"),
        ("\"0.000001\"", "\"-1\"", "negative"),
        ("prompt: \"0.000001\", ", "", "prompt"),
        ("id: a/e", "id: a/m", "twice"),
        ("id: a/e", "id: ae", "<provider>/<model>"),
        ("tier: pro", "tier: gold", "gold"),
        ("  slide: a/m\n", "", "slide"),
        ("  slide: a/m\n", "  slide: a/x\n", "a/x"),
        ("  slide: a/m\n", "  slide: a/e\n", "does not list"),
        ("  slide: a/m\n", "  slides: a/m\n", "slides"),
        ("targets: [ { provider: q, model: e } ]", "targets: []", "targets"),
        (
            "name: M\n",
            "name: M\n    image_tokens_max: 1000000001\n",
            "image_tokens_max",
        ),
        (
            "name: M\n",
            "name: M\n    min_completion_tokens: 0\n",
            "min_completion_tokens",
        ),
        (
            "name: M\n",
            "name: M\n    min_completion_tokens: 101\n",
            "min_completion_tokens",
        ),
        ("name: M\n", "name: M\n    tokens_per_second: 0\n", "tokens_per_second"),
        ("name: E", "nam: E", "nam"),
    ];
    for (from, to, says) in cases {
        let broken = yaml(|t| t.replacen(from, to, 1));
        let error = parse(&broken).expect_err(says).to_string();
        assert!(error.contains(says), "{from} -> {to}: {error}");
    }
}

#[test]
fn a_restricted_catalogue_loses_what_has_no_target() {
    let catalogue = parse(&yaml(|t| t)).unwrap();
    let only_p = catalogue.restricted_to(|t| t.provider == "p");
    assert_eq!(only_p.models().len(), 1);
    assert_eq!(only_p.model("a/m").unwrap().targets.len(), 1);
    assert!(only_p.default_for(Purpose::Embedding).is_none());
    assert!(only_p.default_for(Purpose::Chat).is_some());
}

#[test]
fn what_bounds_a_call_is_read() {
    let with = |keys: &str| {
        let text = yaml(|t| t.replacen("name: M\n", &format!("name: M\n{keys}"), 1));
        Arc::clone(parse(&text).unwrap().model("a/m").unwrap())
    };
    let plain = with("");
    assert_eq!(
        (plain.image_tokens_max, plain.audio_tokens_max, plain.file_tokens_max),
        (None, None, None)
    );
    assert_eq!(
        (plain.min_completion_tokens, plain.reasoning, plain.tokens_per_second),
        (1, false, None)
    );
    let bounded = with(
        "    image_tokens_max: 5\n    audio_tokens_max: 6\n    file_tokens_max: 7\n    min_completion_tokens: 8\n    reasoning: true\n",
    );
    assert_eq!(
        (
            bounded.image_tokens_max,
            bounded.audio_tokens_max,
            bounded.file_tokens_max
        ),
        (Some(5), Some(6), Some(7))
    );
    assert_eq!(
        (
            bounded.min_completion_tokens,
            bounded.reasoning,
            bounded.tokens_per_second
        ),
        (8, true, Some(50))
    );
    assert_eq!(
        with("    reasoning: true\n    tokens_per_second: 120\n").tokens_per_second,
        Some(120)
    );
}
