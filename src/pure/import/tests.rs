//! A list of models in OpenRouter's form, made into entries of a catalogue.

use super::*;
use crate::pure::catalogue::changes::Changes;
use crate::pure::money::Markup;

mod chosen;
mod listed;

#[path = "../../../tests/support/openrouter_list.rs"]
mod openrouter_list;

use openrouter_list::{openrouter_id, openrouter_list};

fn rules() -> Rules {
    Rules::parse(include_str!("../../../conf/import.yaml")).unwrap()
}

fn imported(json: &str) -> Imported {
    Imported::read(json, &rules()).unwrap()
}

fn catalogue(text: &str) -> Catalogue {
    Catalogue::parse(text, Markup::default()).unwrap_or_else(|error| panic!("{error}:\n{text}"))
}

#[test]
fn a_list_of_660_becomes_a_catalogue() {
    let mut list = imported(&openrouter_list(660, 0));
    assert_eq!(list.models.len() + list.skipped.len(), 660);
    let text = list.into_catalogue("", &rules()).unwrap();
    let catalogue = catalogue(&text);
    assert_eq!(catalogue.models().len(), list.models.len());
    let model = catalogue.model(&openrouter_id(0)).unwrap();
    assert_eq!((model.name.as_str(), model.provider.as_str()), ("Model 0", "Maker 0"));
    assert_eq!(model.description, "The model of number 0, made up for tests.");
    assert_eq!(
        model.pricing.prompt.to_string(),
        "0.0000000575",
        "5 cents a million, and the markup"
    );
    assert_eq!(
        model.max_completion_tokens, 8192,
        "without a maximum the context bounds an answer"
    );
    assert_eq!(model.targets[0].model, openrouter_id(0));
    assert!(model.purposes.contains(&Purpose::Chat));
    let embedding = catalogue.model(&openrouter_id(13)).unwrap();
    assert_eq!(
        (embedding.modality.as_str(), embedding.max_completion_tokens),
        ("text->embedding", 0)
    );
    assert!(catalogue.model(&openrouter_id(5)).unwrap().pricing.is_free());
}

/// The list does not say which models reason where nobody sees it: a rule does. A model of vectors does not reason.
#[test]
fn models_that_reason_unseen_are_named_by_a_rule() {
    let yaml = "provider: openrouter\ntiers: [ { tier: free } ]\n";
    let (reasoning, embedding) = (openrouter_id(0), openrouter_id(13));
    let rules = Rules::parse(&format!("{yaml}reasoning: ['{reasoning}|{embedding}']\n")).unwrap();
    let mut list = Imported::read(&openrouter_list(660, 0), &rules).unwrap();
    let text = list.into_catalogue("", &rules).unwrap();
    let catalogue = catalogue(&text);
    let reasons: Vec<&str> = catalogue
        .models()
        .iter()
        .filter(|model| model.reasoning)
        .map(|model| &*model.id)
        .collect();
    assert_eq!(reasons, [reasoning]);
    assert!(catalogue.model(&embedding).is_some());
}

/// By the shipped rules, those do that the shipped catalogue has so.
#[test]
fn the_shipped_rules_name_models_that_reason_unseen() {
    let rules = rules();
    for (id, reasons) in [
        ("openai/gpt-6-sol", true),
        ("openai/gpt-5.4-mini", true),
        ("openai/o4-mini", true),
        ("google/gemini-3.6-flash", true),
        ("google/gemini-2.5-pro", true),
        ("openai/gpt-4o-mini", false),
        ("openai/gpt-oss-120b", false),
        ("google/gemma-4-31b-it:free", false),
        ("deepseek/deepseek-v4-pro", false),
    ] {
        assert_eq!(rules.reasons(id, "text"), reasons, "{id}");
    }
}

#[test]
fn what_no_token_price_covers_is_not_sold() {
    let list = imported(&openrouter_list(660, 0));
    let reason = |number: usize| {
        let id = openrouter_id(number);
        let skipped = list.skipped.iter().find(|skipped| skipped.model == id);
        skipped.unwrap_or_else(|| panic!("{id} is sold")).reason.as_str()
    };
    assert_eq!(reason(17), "it answers with text+image, which no token price covers");
    assert_eq!(reason(19), "its price is not fixed");
    let sold = |number: usize| {
        list.models
            .iter()
            .find(|model| model.id == openrouter_id(number))
            .unwrap()
    };
    assert!(sold(41).prices.contains("request: \""), "a price for a call is one");
    assert!(
        list.models.iter().any(|model| model.id == openrouter_id(63)),
        "an object among the prices is not read"
    );
}

#[test]
fn an_import_replaces_the_one_before_and_nothing_else() {
    let own = "# Mine.\nmodels:\n  - id: acme/chat-0   # my own price\n    name: Mine\n    provider: Me\n    context_length: 1\n    \
               max_completion_tokens: 1\n    modality: text->text\n    pricing: { prompt: \"0.1\", completion: \"0.1\" }\n    tier: free\n    \
               purposes: [chat, vision, code, fast, router, planner, executor, free, slide, slot_extract]\n    targets: [ { provider: mine, model: m } ]\n\npurposes:\n";
    let whole = imported(&openrouter_list(100, 0)).into_catalogue("", &rules()).unwrap();
    let own = format!("{own}{}", whole.split_once("\npurposes:\n").unwrap().1);
    let own = own.replace("chat: \"acme/chat-0\"", "chat: acme/chat-0");

    let mut first = imported(&openrouter_list(100, 0));
    let first_text = first.into_catalogue(&own, &rules()).unwrap();
    assert!(first.skipped.iter().any(|skipped| skipped.model == "acme/chat-0"));
    let before = catalogue(&first_text);
    assert_eq!(before.model("acme/chat-0").unwrap().name, "Mine");

    let again = imported(&openrouter_list(100, 0))
        .into_catalogue(&first_text, &rules())
        .unwrap();
    assert_eq!(again, first_text, "the same list changes nothing");

    let second_text = imported(&openrouter_list(99, 1))
        .into_catalogue(&first_text, &rules())
        .unwrap();
    let changes = Changes::between(&before, &catalogue(&second_text));
    assert_eq!(changes.removed, [openrouter_id(99)]);
    assert!(changes.added.is_empty());
    assert!(changes.changed.iter().all(|changed| changed.model != "acme/chat-0"));
    assert!(
        changes.to_string().contains("prompt price 0.000000483 -> 0.0000004945"),
        "{changes}"
    );
    assert!(second_text.starts_with("# Mine.\n") && second_text.contains("# my own price"));
}

#[test]
fn a_broken_list_is_refused_with_its_line() {
    let good = openrouter_list(30, 0);
    let line = |what: &str| good.lines().position(|line| line.contains(what)).unwrap() + 1;
    let second = format!("\"id\": \"{}\"", openrouter_id(1));
    for (broken, at, problem) in [
        (
            good.replacen(&second, &format!("\"id\": \"{}\"", openrouter_id(0)), 1),
            line(&second),
            "twice",
        ),
        (
            good.replacen("\"prompt\": \"0.00000042\"", "\"prompt\": \"cheap\"", 1),
            line(&second),
            "not a decimal number",
        ),
        (good.replacen(&second, "\"ID\": 1", 1), 0, "missing field `id`"),
        (good[..good.len() / 2].to_owned(), 0, ""),
        ("{\"data\": []}".to_owned(), 0, "none of the 0 models"),
        ("<html>".to_owned(), 1, "expected value"),
    ] {
        let error = Imported::read(&broken, &rules()).unwrap_err();
        assert!(error.problem.contains(problem), "{error:?}");
        assert!(at == 0 || error.line == at, "{error:?} should be on line {at}");
    }
}

#[test]
fn a_catalogue_without_a_place_is_refused_and_left_alone() {
    let list = openrouter_list(30, 0);
    for text in [
        "purposes:\nmodels:\n",
        "models: []\n",
        "x",
        "models: []\npurposes: {\n  # --- End of what was imported from openrouter. ---\n",
    ] {
        assert!(imported(&list).into_catalogue(text, &rules()).is_err(), "{text}");
    }
}

#[test]
fn the_marks_of_an_import_are_a_pair_in_their_own_order_alone() {
    let (begin, end) = marks(&rules().provider);
    for (first, second, is_pair) in [(&begin, &end, true), (&end, &begin, false)] {
        let text = format!("models:\n{first}{second}purposes: {{}}\n");
        let put = imported(&openrouter_list(30, 0)).into_catalogue(&text, &rules());
        assert_eq!(put.is_ok(), is_pair, "{text}");
    }
}

/// The list with one model's prices changed.
fn priced(change: impl FnOnce(&mut serde_json::Value)) -> Imported {
    let mut list: serde_json::Value = serde_json::from_str(&openrouter_list(3, 0)).unwrap();
    change(&mut list["data"][1]["pricing"]);
    imported(&list.to_string())
}

#[test]
fn prices_of_kinds_and_of_long_prompts_are_taken_over() {
    let mut list = priced(|pricing| {
        *pricing = serde_json::json!({
            "prompt": "0.000002", "completion": "0.00001", "input_cache_read": "0.0000002", "input_cache_write": "0.0000025",
            "internal_reasoning": "0", "image": "0.003",
            "overrides": [
                { "min_prompt_tokens": 400000, "prompt": "0.000008" },
                { "min_prompt_tokens": 272000, "prompt": "0.000004", "completion": "0.000015", "input_cache_read": "0.0000004" },
                { "utc_start": "1630", "utc_end": "0030", "prompt": "0.000001", "completion": "0.000005" },
            ],
        });
    });
    let text = list.into_catalogue("", &rules()).unwrap();
    let catalogue = catalogue(&text);
    let prices = &catalogue.model(&openrouter_id(1)).unwrap().prices;
    let shown = |price: Option<crate::pure::money::ListPrice>| price.map(|price| price.to_string());
    let usual = prices.usual();
    assert_eq!(usual.pricing.prompt.to_string(), "0.0000023");
    assert_eq!(shown(usual.kinds.input_cache_read).as_deref(), Some("0.00000023"));
    assert_eq!(shown(usual.kinds.input_cache_write).as_deref(), Some("0.000002875"));
    assert_eq!(
        usual.kinds.internal_reasoning, None,
        "0 stands for what has no price of its own"
    );
    let [first, second] = prices.long() else {
        panic!("{prices:?}")
    };
    assert_eq!((first.min_prompt_tokens, second.min_prompt_tokens), (272_000, 400_000));
    assert_eq!(first.row.pricing.completion.to_string(), "0.00001725");
    assert_eq!(shown(first.row.kinds.input_cache_read).as_deref(), Some("0.00000046"));
    assert_eq!(second.row.pricing.prompt.to_string(), "0.0000092");
    assert_eq!(
        second.row.pricing.completion, usual.pricing.completion,
        "what a row leaves out is as usual"
    );
}

#[test]
fn a_price_that_rises_at_certain_hours_is_none_to_sell_at() {
    let list = priced(|pricing| {
        pricing["overrides"] = serde_json::json!([{ "utc_start": "0100", "utc_end": "0900", "prompt": "0.5" }]);
    });
    let skipped = list
        .skipped
        .iter()
        .find(|skipped| skipped.model == openrouter_id(1))
        .unwrap();
    assert_eq!(
        skipped.reason,
        "its price depends on more than the length of the prompt"
    );
}

#[test]
fn a_model_is_sold_when_its_answer_its_context_and_its_prices_are_known() {
    let other = r#"{"id":"z/z","name":"Z: Z","context_length":9,"architecture":{"modality":"text->text"},"pricing":{"prompt":"0","completion":"0"}}"#;
    for (modality, context, pricing, prices) in [
        (
            "text->text",
            1,
            r#""prompt":"0.1","completion":"0.2""#,
            Some(r#"prompt: "0.1", completion: "0.2""#),
        ),
        ("text->text", 0, r#""prompt":"0.1","completion":"0.2""#, None),
        ("text->", 9, r#""prompt":"0.1","completion":"0.2""#, None),
        ("text->text", 9, r#""prompt":"0.1""#, None),
        (
            "text->embedding",
            9,
            r#""prompt":"0.1""#,
            Some(r#"prompt: "0.1", completion: "0""#),
        ),
        (
            "text->text",
            9,
            r#""prompt":"0.1","completion":"0.2","request":"0""#,
            Some(r#"prompt: "0.1", completion: "0.2""#),
        ),
    ] {
        let model = format!(
            r#"{{"id":"a/b","name":"A: B","context_length":{context},"architecture":{{"modality":"{modality}"}},"pricing":{{{pricing}}}}}"#
        );
        let list = imported(&format!(r#"{{"data":[{model},{other}]}}"#));
        let sold = list
            .models
            .iter()
            .find(|model| model.id == "a/b")
            .map(|model| model.prices.as_str());
        assert_eq!(
            sold,
            prices,
            "{model}: {:?}",
            list.skipped.first().map(|skipped| &skipped.reason)
        );
    }
}

/// What a model of these prices and this maximum is sold at, or why it is not.
fn sold(pricing: &str, max: &str) -> Result<(String, u64), String> {
    let model = format!(
        r#"{{"id":"a/b","name":"A: B","context_length":99,"architecture":{{"modality":"text->text"}},
            "top_provider":{{"max_completion_tokens":{max}}},"pricing":{{"prompt":"0.1","completion":"0.2"{pricing}}}}}"#
    );
    let other = model.replace("a/b", "z/z").replace(pricing, "");
    let list = imported(&format!(r#"{{"data":[{model},{other}]}}"#));
    match list.models.iter().find(|model| model.id == "a/b") {
        Some(model) => Ok((model.prices.clone(), model.max_completion_tokens)),
        None => Err(list.skipped[0].reason.clone()),
    }
}

#[test]
fn without_a_maximum_the_context_bounds_an_answer() {
    for (max, expected) in [("null", 99), ("0", 99), ("1", 1), ("7", 7)] {
        assert_eq!(sold("", max).unwrap().1, expected, "{max}");
    }
}

#[test]
fn rows_of_hours_are_left_out_where_they_are_no_dearer() {
    let dear = "its price depends on more than the length of the prompt";
    for (row, told) in [
        (
            r#""min_prompt_tokens":5,"prompt":"0.3""#,
            Ok(", overrides: [ { min_prompt_tokens: 5, prompt: \"0.3\" } ]"),
        ),
        (
            r#""min_prompt_tokens":5,"prompt":"0.3","input_cache_read":"0""#,
            Ok(", overrides: [ { min_prompt_tokens: 5, prompt: \"0.3\" } ]"),
        ),
        (r#""min_prompt_tokens":5,"utc_start":"0100","prompt":"0.1""#, Ok("")),
        (r#""min_prompt_tokens":5,"utc_end":"0100","prompt":"0.1""#, Ok("")),
        (r#""min_prompt_tokens":5,"utc_end":"0100","prompt":"0.11""#, Err(dear)),
        (r#""utc_start":"0100","utc_end":"0200","completion":"0.2""#, Ok("")),
        (r#""utc_start":"0100","utc_end":"0200","completion":"0.21""#, Err(dear)),
    ] {
        let found = sold(&format!(r#","overrides":[{{{row}}}]"#), "1").map(|(prices, _)| prices);
        let usual = r#"prompt: "0.1", completion: "0.2""#;
        assert_eq!(
            found,
            told.map(|more| format!("{usual}{more}")).map_err(str::to_owned),
            "{row}"
        );
    }
}

#[test]
fn a_list_that_does_not_say_what_a_model_answers_with_sells_it_to_nobody() {
    let list = imported(
        r#"{"data":[
            {"id":"a/b","name":"B","context_length":9,"architecture":{"modality":"text->"},"pricing":{"prompt":"0","completion":"0"}},
            {"id":"a/c","name":"C","context_length":9,"architecture":{"modality":"text->text"},"pricing":{"prompt":"0","completion":"0"}}
        ]}"#,
    );
    assert_eq!(list.skipped[0].reason, "the list does not say what it answers with");
}
