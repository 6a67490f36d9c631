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
