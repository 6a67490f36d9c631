//! The bounds of a model's numbers, and of its rows of prices: the last that is good, and the first that is not.

use std::fmt::Write;

use super::{parse, yaml};

/// Whether a catalogue with `from` in place of `to` is read; else what is wrong with it.
fn read(from: &str, to: &str) -> Result<(), String> {
    let text = yaml(|text| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    });
    parse(&text).map(drop).map_err(|error| error.to_string())
}

#[test]
fn numbers_of_a_model_have_bounds() {
    let bounds = [
        ("context_length: 1000", "context_length: 1", "context_length: 0"),
        (
            "context_length: 1000",
            "context_length: 1000000000",
            "context_length: 1000000001",
        ),
        (
            "max_completion_tokens: 100",
            "max_completion_tokens: 1",
            "max_completion_tokens: 0",
        ),
        (
            "max_completion_tokens: 100",
            "max_completion_tokens: 1000000000",
            "max_completion_tokens: 1000000001",
        ),
        (
            "name: M",
            "name: M\n    tokens_per_second: 100000",
            "name: M\n    tokens_per_second: 100001",
        ),
        (
            "name: M",
            "name: M\n    min_completion_tokens: 100",
            "name: M\n    min_completion_tokens: 101",
        ),
        (
            "name: M",
            "name: M\n    image_tokens_max: 1000000000",
            "name: M\n    image_tokens_max: 1000000001",
        ),
        (
            "name: M",
            "name: M\n    audio_tokens_max: 1000000000",
            "name: M\n    audio_tokens_max: 1000000001",
        ),
        (
            "name: M",
            "name: M\n    file_tokens_max: 1000000000",
            "name: M\n    file_tokens_max: 1000000001",
        ),
    ];
    for (from, good, wrong) in bounds {
        read(from, good).unwrap();
        let field = wrong.rsplit("  ").next().unwrap().split(':').next().unwrap();
        let told = read(from, wrong).unwrap_err();
        assert!(told.contains(field), "{wrong}: {told}");
    }
}

#[test]
fn a_model_that_answers_with_vectors_needs_no_completion() {
    read("max_completion_tokens: 0", "description: E").unwrap();
    read(", completion: \"0\" }", " }").unwrap();
    read("name: E", "name: E\n    min_completion_tokens: 7").unwrap();
    assert!(read("name: E", "name: E\n    min_completion_tokens: 0").is_err());
    for sign in ["\"", "\\", "?", "#", "%", " "] {
        let id = format!("id: 'a/m{sign}'");
        assert!(read("id: a/m", &id).is_err(), "{id}");
    }
}

#[test]
fn rows_for_long_prompts_have_bounds() {
    let with = |count: usize, first: u64, missing: bool| {
        let mut rows = String::new();
        for n in 0..count {
            let at = first * u64::try_from(n + 1).unwrap();
            let at = if missing {
                String::new()
            } else {
                format!("min_prompt_tokens: {at}, ")
            };
            write!(rows, "{{ {at}prompt: \"0.1\" }}, ").unwrap();
        }
        read(
            "completion: \"0.000002\" }",
            &format!("completion: \"0.000002\", overrides: [{rows}] }}"),
        )
    };
    with(8, 10, false).unwrap();
    assert_eq!(with(9, 10, false).unwrap_err().matches("more than 8 rows").count(), 1);
    assert!(with(1, 10, true).unwrap_err().contains("no min_prompt_tokens"));
    assert!(with(2, 0, false).unwrap_err().contains("smallest"));
}

#[test]
fn tiers_have_names_and_a_bound() {
    let with = |names: &[String]| {
        let tiers: Vec<String> = names
            .iter()
            .map(|name| format!("\"{name}\": {{ prompt: \"0.1\" }}"))
            .collect();
        read(
            "completion: \"0.000002\" }",
            &format!("completion: \"0.000002\", tiers: {{ {} }} }}", tiers.join(", ")),
        )
    };
    let numbered = |count: usize| (0..count).map(|n| format!("t{n}")).collect::<Vec<_>>();
    with(&numbered(8)).unwrap();
    assert!(with(&numbered(9)).unwrap_err().contains("more than 8"));
    for good in ["flex", "a", "a_b-9", &"a".repeat(32)] {
        with(&[good.to_owned()]).unwrap();
    }
    for wrong in ["", "Flex", "a b", "a.b", "\u{e9}", &"a".repeat(33)] {
        let told = with(&[wrong.to_owned()]).unwrap_err();
        assert!(told.contains("no tier's name"), "{wrong}: {told}");
    }
}
