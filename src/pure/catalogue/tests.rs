//! Catalogues that are read, and those that are refused with the line that is wrong.

mod bounds;
mod changes;
mod doubts;

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
        ("id: a/e", "id: /e", "<provider>/<model>"),
        ("id: a/e", "id: a/", "<provider>/<model>"),
        ("tier: pro", "tier: gold", "gold"),
        (
            "max_completion_tokens: 100\n",
            "description: D\n",
            "max_completion_tokens is missing",
        ),
        (", completion: \"0.000002\"", "", "no price for completion"),
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

/// A model that is sold alone, as somebody writes it who wants no more.
const ALONE: &str = "\
models:
  - id: a/m
    name: M
    provider: A
    context_length: 1000
    max_completion_tokens: 100
    modality: text->text
    pricing: { prompt: \"0.000001\", completion: \"0.000002\" }
    tier: free
    purposes: [chat, code]
    targets: [ { provider: p, model: m } ]
";

#[test]
fn one_chat_model_is_a_catalogue() {
    let catalogue = parse(ALONE).unwrap();
    let id = |purpose| catalogue.default_for(purpose).map(|model| model.id.to_string());
    assert_eq!(id(Purpose::Code).as_deref(), Some("a/m"), "the first that lists it");
    assert_eq!((id(Purpose::Slide), id(Purpose::Embedding)), (None, None));
    let warning = catalogue.unserved_warning().unwrap();
    assert!(warning.ends_with(": vision, fast, router, planner, executor, embedding, free, slide, slot_extract"));
    assert_eq!(parse(&yaml(|t| t)).unwrap().unserved_warning(), None);
    assert!(parse("models: []\n").is_err(), "a list that was emptied is a mistake");
}

#[test]
fn an_embedding_model_needs_nothing_about_completions() {
    let text = yaml(|t| {
        let (chat, embedding) = t.split_once("  - id: a/e").unwrap();
        let embedding = embedding
            .replacen("    max_completion_tokens: 0\n", "", 1)
            .replacen(", completion: \"0\"", "", 1)
            .replacen("purposes: [embedding]", "purposes: [embedding, free]", 1);
        format!("{chat}  - id: a/e{embedding}")
    });
    let catalogue = parse(&text).unwrap();
    let model = catalogue.model("a/e").unwrap();
    assert_eq!(model.max_completion_tokens, 0);
    assert!(model.pricing.completion.is_zero() && !model.pricing.prompt.is_zero());
    let only_q = parse(&text.replacen(
        "provider: p, model: m }, { provider: q, model: m2",
        "provider: p, model: m",
        1,
    ));
    let only_q = only_q.unwrap().restricted_to(|t| t.provider == "q");
    assert!(only_q.model("a/m").is_none());
    assert!(only_q.default_for(Purpose::Free).is_none(), "it does not chat");
}

#[test]
fn an_alias_means_one_model_and_nothing_else() {
    let with = |first: &str, second: &str| {
        yaml(|t| {
            t.replacen("name: M\n", &format!("name: M\n    aliases: [{first}]\n"), 1)
                .replacen(
                    "name: E\n",
                    &format!("name: E\n    aliases:\n      - e\n      - {second}\n"),
                    1,
                )
        })
    };
    let catalogue = parse(&with("gpt-4o-mini, b/m", "embed")).unwrap();
    for name in ["a/m", "gpt-4o-mini", "b/m"] {
        assert_eq!(catalogue.resolve(name).unwrap().id.as_ref(), "a/m", "{name}");
    }
    assert_eq!(catalogue.named("embed").unwrap().id.as_ref(), "a/e");
    assert!(catalogue.model("embed").is_none() && catalogue.resolve("gpt-4o").is_none());
    let without = catalogue.restricted_to(|target| target.provider == "p");
    assert!(without.resolve("embed").is_none() && without.resolve("b/m").is_some());

    for (first, second, says, line) in [
        ("x", "x", "a/e: aliases: x is an alias of a/m already", 17),
        ("x, x", "y", "a/m: aliases: x is an alias of a/m already", 4),
        ("x", "a/m", "a/e: aliases: a/m is the id of the model a/m", 17),
        ("a/e", "y", "a/m: aliases: a/e is the id of the model a/e", 4),
        ("chat", "y", "a/m: aliases: chat is kept for a purpose", 4),
        (
            "purpose/chat",
            "y",
            "a/m: aliases: purpose/chat is kept for a purpose",
            4,
        ),
        ("x", "'a#b'", "a/e: aliases: a#b must have a name's form", 17),
    ] {
        let text = with(first, second);
        let Err(error) = parse(&text) else {
            panic!("{first} {second}");
        };
        assert!(error.to_string().starts_with(says), "{error}");
        assert_eq!(error.line(&text), Some(line), "{error}\n{text}");
    }
    let names = |count: usize| (0..count).map(|n| format!("n{n}")).collect::<Vec<_>>().join(", ");
    assert!(parse(&with(&names(32), "y")).is_ok());
    assert!(parse(&with(&names(33), "y")).unwrap_err().to_string().contains("32"));
}

#[test]
fn an_entry_has_its_shape_or_is_told_what_is_wrong() {
    let entry = "id: a/m\nname: M\nprovider: A\ncontext_length: 1\nmodality: text->text\n\
                 pricing: { prompt: \"0\", completion: \"0\" }\ntier: free\npurposes: [chat]\ntargets: []\n";
    assert_eq!(Catalogue::entry_shape(entry), Ok(()));
    let wrong = Catalogue::entry_shape(&entry.replace("name:", "nam:")).unwrap_err();
    assert!(wrong.to_string().contains("nam"), "{wrong}");
}

#[test]
fn purposes_have_the_names_of_the_interface() {
    let mut sorted = names();
    sorted.sort_unstable();
    let mut expected: Vec<&str> = PURPOSES.split(' ').chain(["embedding"]).collect();
    expected.sort_unstable();
    assert_eq!(sorted, expected);
}

#[test]
fn an_id_that_stands_twice_is_shown_where_it_stands_last() {
    let text = yaml(|text| text.replace("id: a/e", "id: a/m"));
    let error = parse(&text).unwrap_err();
    let lines: Vec<usize> = (1..)
        .zip(text.lines())
        .filter(|(_, line)| line.contains("id: a/m"))
        .map(|(at, _)| at)
        .collect();
    assert_eq!((lines.len(), error.line(&text)), (2, lines.last().copied()));
    let text = yaml(|text| text.replacen("tier: free", "tier: free\n    tokens_per_second: 0", 1));
    let error = parse(&text).unwrap_err();
    let line = (1..)
        .zip(text.lines())
        .find(|(_, line)| line.contains("tokens_per_second"))
        .map(|(at, _)| at);
    assert_eq!(error.line(&text), line);
}
