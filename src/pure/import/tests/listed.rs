//! Prices that a list has in a form, or of a kind, that the catalogue has not: none is lost unsaid, and none becomes less.

use super::{imported, rules, sold};

/// What a model of these prices is sold at, or why it is not.
fn prices(pricing: &str) -> Result<String, String> {
    sold(pricing, "1").map(|(prices, _)| prices)
}

#[track_caller]
fn check(pricing: &str, expected: Result<&str, &str>) {
    let expected = expected.map(|more| format!(r#"prompt: "0.1", completion: "0.2"{more}"#));
    assert_eq!(prices(pricing), expected.map_err(str::to_owned), "{pricing}");
}

#[test]
fn a_price_of_more_decimals_than_are_held_is_rounded_up() {
    check(
        r#","audio":"0.00000008333333333333334""#,
        Ok(r#", audio: "0.000000083333333334""#),
    );
    check(
        r#","audio":"0.0000000833333333330000000000000000000000000""#,
        Ok(r#", audio: "0.000000083333333333""#),
    );
    check(
        r#","audio":"0.0000000000000000000001""#,
        Ok(r#", audio: "0.000000000000000001""#),
    );
}

#[test]
fn a_write_to_a_cache_that_costs_less_than_the_prompt_is_its_storage_and_comes_on_top() {
    check(
        r#","input_cache_write":"0.00000008333333333333334""#,
        Ok(r#", input_cache_write: "0.100000083333333334""#),
    );
    check(
        r#","input_cache_write":"0.125","input_cache_write_1h":"0.01""#,
        Ok(r#", input_cache_write: "0.125", input_cache_write_1h: "0.11""#),
    );
    // In long prompts too, whether their row says it or not.
    for row in [
        r#"{"min_prompt_tokens":5,"prompt":"0.3","input_cache_write":"0.01"}"#,
        r#"{"min_prompt_tokens":5,"prompt":"0.3"}"#,
    ] {
        check(
            &format!(r#","input_cache_write":"0.01","overrides":[{row}]"#),
            Ok(
                r#", input_cache_write: "0.11", overrides: [ { min_prompt_tokens: 5, prompt: "0.3", input_cache_write: "0.31" } ]"#,
            ),
        );
    }
    check(
        r#","input_cache_write":"0.125","overrides":[{"min_prompt_tokens":5,"prompt":"0.3"}]"#,
        Ok(
            r#", input_cache_write: "0.125", overrides: [ { min_prompt_tokens: 5, prompt: "0.3", input_cache_write: "0.3" } ]"#,
        ),
    );
    // One that costs more than the prompt does there stays what it is.
    check(
        r#","input_cache_write":"0.4","overrides":[{"min_prompt_tokens":5,"prompt":"0.3"}]"#,
        Ok(r#", input_cache_write: "0.4", overrides: [ { min_prompt_tokens: 5, prompt: "0.3" } ]"#),
    );
}

#[test]
fn a_price_that_is_no_text_is_a_reason_not_to_sell_the_model() {
    for key in ["request", "internal_reasoning", "input_cache_read", "audio"] {
        for value in ["0.01", "0", "{}", "[]", "true"] {
            let told = format!("its pricing.{key} is no text");
            check(&format!(r#","{key}":{value}"#), Err(&told));
        }
        check(&format!(r#","{key}":null"#), Ok(""));
    }
    check(
        r#","overrides":[{"min_prompt_tokens":5,"prompt":0.3}]"#,
        Err("its pricing.prompt is no text"),
    );
    check(r#","image_output":{"per":"image"},"discount":0"#, Ok(""));
}

#[test]
fn rows_that_cannot_be_read_are_a_reason_too() {
    let unread = "its pricing.overrides cannot be read";
    let good = r#"{"min_prompt_tokens":5,"prompt":"0.3"}"#;
    for rows in [
        r#"[{"min_prompt_tokens":"200000","prompt":"0.3"}]"#.to_owned(),
        r#"[{"min_prompt_tokens":2e5,"prompt":"0.3"}]"#.to_owned(),
        format!("[{good},7]"),
        good.to_owned(),
        r#""0.3""#.to_owned(),
    ] {
        check(&format!(r#","overrides":{rows}"#), Err(unread));
    }
    let twice = "its rows for long prompts are too many, or two are for the same";
    check(&format!(r#","overrides":[{good},{good}]"#), Err(twice));
    let row = |min: usize| format!(r#"{{"min_prompt_tokens":{min},"prompt":"0.3"}}"#);
    let rows = |count: usize| (1..=count).map(row).collect::<Vec<_>>().join(",");
    assert!(prices(&format!(r#","overrides":[{}]"#, rows(8))).is_ok());
    check(&format!(r#","overrides":[{}]"#, rows(9)), Err(twice));
    check(r#","overrides":null"#, Ok(""));
}

#[test]
fn a_row_that_makes_long_prompts_free_is_a_reason_too() {
    for side in ["prompt", "completion"] {
        check(
            &format!(r#","overrides":[{{"min_prompt_tokens":5,"{side}":"0"}}]"#),
            Err(&format!("its {side} would cost nothing in long prompts")),
        );
    }
    check(
        r#","request":"0.01","overrides":[{"min_prompt_tokens":5,"request":"0.02"}]"#,
        Ok(r#", request: "0.01", overrides: [ { min_prompt_tokens: 5, request: "0.02" } ]"#),
    );
}

#[test]
fn what_a_search_of_the_web_costs_is_told_for_nobody_is_charged() {
    let model = |id: &str, search: &str| {
        format!(
            r#"{{"id":"{id}","name":"A: B","context_length":99,"architecture":{{"modality":"text->text"}},
                "pricing":{{"prompt":"0.1","completion":"0.2","web_search":{search}}}}}"#
        )
    };
    let models = [
        model("a/a", r#""0.01""#),
        model("a/b", r#""0.00""#),
        model("a/c", "null"),
        model("a/d", "4"),
    ];
    let mut list = imported(&format!(r#"{{"data":[{}]}}"#, models.join(",")));
    assert_eq!((list.models.len(), list.skipped.len()), (4, 0));
    list.into_catalogue("", &rules()).unwrap();
    let [note] = &list.notes[..] else {
        panic!("{:?}", list.notes)
    };
    assert!(note.starts_with("web_search has a price"), "{note}");
    assert!(note.ends_with(". a/a 0.01, a/d 4"), "{note}");
}
