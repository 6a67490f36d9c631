//! What a client is told where its provider told it otherwise, and what is remembered of that.

use serde_json::{Value, json};

use super::costs::{CATALOGUE, Call, cost_text, usages};
use super::*;
use crate::pure::bill::{Tariff, Used, prompt_limits};
use crate::pure::estimate::Bound;
use crate::pure::prompt_count::counted_prompt;
use crate::pure::usage::{CompletionTokens, PromptTokens, Usage};

/// A model whose tokens have prices by their kinds.
fn call() -> Call {
    Call::of(&CATALOGUE.replace(
        "completion: \"0.000002\"",
        "completion: \"0.000002\", input_cache_read: \"0.0000001\"",
    ))
}

/// What leaves of an answer that comes at once, and who put the cost into it.
fn whole(answer: &str, tariff: &Tariff<'_>) -> (String, WholeCost) {
    let (mut tap, mut cost) = (
        WholeTap::within(Encoding::O200k, Some(1_000), Default::default()),
        WholeCost::default(),
    );
    let bytes = match cost.chunk(&Bytes::copy_from_slice(answer.as_bytes()), &mut tap, tariff) {
        Forward::Unchanged => answer.to_owned(),
        Forward::Replace(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
    };
    (bytes, cost)
}

#[test]
fn a_usage_of_our_own_has_the_details_that_were_reported_and_no_empty_ones() {
    let call = call();
    let prompt = |read: u64, write: u64| json!({ "cached_tokens": read, "cache_write_tokens": write });
    for (details, of_prompt, of_completion) in [
        ("", Value::Null, Value::Null),
        (
            r#","prompt_tokens_details":{"cached_tokens":1}"#,
            prompt(1, 0),
            Value::Null,
        ),
        (
            r#","prompt_tokens_details":{"cache_write_tokens":1}"#,
            prompt(0, 1),
            Value::Null,
        ),
        (
            r#","prompt_tokens_details":{"cached_tokens":3,"cache_write_tokens":2}"#,
            prompt(3, 2),
            Value::Null,
        ),
        (
            r#","completion_tokens_details":{"reasoning_tokens":1}"#,
            Value::Null,
            json!({ "reasoning_tokens": 1 }),
        ),
    ] {
        let usage = format!(r#"{{"prompt_tokens":9,"completion_tokens":5{details}}}"#);
        let answer = format!(r#"{{"choices":[{{"message":{{"content":"Hi"}}}}],"x_groq":{{"usage":{usage}}}}}"#);
        let (told, cost) = whole(&answer, &call.tariff());
        let told: Value = serde_json::from_str(&told).unwrap();
        let told = &told["usage"];
        assert_eq!(told["total_tokens"], 14, "{details}");
        assert_eq!(told["prompt_tokens_details"], of_prompt, "{details}");
        assert_eq!(told["completion_tokens_details"], of_completion, "{details}");
        assert!(
            cost.told_bill().is_some() && cost.counted_prompt().is_none(),
            "{details}"
        );
    }
}

#[test]
fn a_usage_that_says_what_is_billed_stays_as_it_was_written() {
    let call = call();
    let said = r#""choices":[{"message":{"content":"Hi"}}]"#;
    for (choices, usage, stays) in [
        (
            said,
            r#""total_tokens":21,"prompt_tokens":9,"completion_tokens":12"#,
            true,
        ),
        (r#""data":[]"#, r#""total_tokens":8,"prompt_tokens":8"#, true),
        (
            said,
            r#""total_tokens":2009,"prompt_tokens":2000,"completion_tokens":9"#,
            false,
        ),
    ] {
        let answer = format!(r#"{{{choices},"usage":{{{usage}}}}}"#);
        let (told, cost) = whole(&answer, &call.tariff());
        let beginning = format!(r#"{{{choices},"usage":{{{usage},"cost":"#);
        assert_eq!(told.starts_with(&beginning), stays, "{told}");
        let bill = cost.told_bill().unwrap();
        assert!(told.contains(&format!("\"cost\":{},", bill.cost)), "{told}");
        assert!(
            told.contains(&format!("\"prompt_tokens\":{}", bill.usage.prompt.0)),
            "{told}"
        );
    }
}

#[test]
fn a_prompt_is_counted_for_an_answer_without_a_usage_alone() {
    let call = call();
    let (tariff, told) = (call.tariff(), |answer| whole(answer, &call.tariff()).1);
    let counted = counted_prompt(tariff.body, &tariff.model.id, &prompt_limits(tariff.model));
    assert!(counted.0 > 0);
    assert_eq!(tariff.counted_prompt(), Some(counted));
    let answer = told(r#"{"choices":[{"message":{"content":"Hi"}}]}"#);
    assert_eq!(answer.counted_prompt(), Some(counted));
    assert_eq!(answer.told_bill().unwrap().usage.prompt, counted);
    for no_answer in [r#"{"data":[]}"#, r#"{"error":"e","choices":[{}]}"#] {
        let cost = told(no_answer);
        assert_eq!((cost.counted_prompt(), cost.told_bill()), (None, None), "{no_answer}");
    }
}

#[test]
fn what_exceeds_the_models_own_maximum_has_no_bill_yet() {
    for (bound, completion, is_billed) in [
        (Bound::Client, 999, true),
        (Bound::Client, 1_001, true),
        (Bound::Model, 999, true),
        (Bound::Model, 1_000, true),
        (Bound::Model, 1_001, false),
    ] {
        let mut call = call();
        call.ceiling.bound = bound;
        let used = Used {
            usage: Usage {
                prompt: PromptTokens(1),
                completion: CompletionTokens(completion),
            },
            ..Used::default()
        };
        let bill = call.tariff().bill(&used);
        assert_eq!(bill.is_some(), is_billed, "{bound:?} {completion}");
    }
}

#[test]
fn an_event_of_our_own_has_the_first_identity_of_its_stream() {
    let chunk = |id: &str, created: u64| {
        format!(
            "data: {{\"id\":\"{id}\",\"created\":{created},\"model\":\"{id}\",\"choices\":[{{\"delta\":{{\"content\":\"Hi\"}},\"finish_reason\":\"stop\"}}]}}\n\n"
        )
    };
    // Azure's first event, of its filter.
    let empty = "data: {\"choices\":[],\"created\":0,\"id\":\"\",\"model\":\"\",\"object\":\"\"}\n\n".to_owned();
    let stream = [empty, chunk("one", 1), chunk("two", 2), DONE.to_owned()].concat();
    let (out, tap) = call().stream(&[stream.as_bytes()], TapOptions::default());
    let told = r#"data: {"id":"one","object":"chat.completion.chunk","created":1,"model":"one","choices":[],"usage":{"#;
    assert!(out.contains(told), "{out}");
    assert!(tap.told_bill().is_some());
}

/// By a tier that has no prices the dearest row is billed: the prompt by itself costs more by another.
#[test]
fn both_parts_of_a_cost_are_by_the_row_that_is_billed() {
    let call = Call::of(&CATALOGUE.replace(
        "completion: \"0.000002\"",
        "completion: \"0.000002\", tiers: { priority: { prompt: \"0.000001\", completion: \"0.00002\" } }",
    ));
    let usage = r#"{"prompt_tokens":100,"completion_tokens":100,"total_tokens":200}"#;
    let answer = format!(r#"{{"choices":[{{"message":{{"content":"A"}}}}],"service_tier":"scale","usage":{usage}}}"#);
    let (told, cost) = whole(&answer, &call.tariff());
    assert_eq!(cost.told_bill().unwrap().cost.to_string(), "0.002415");
    for (part, amount) in [("prompt", "0.000115"), ("completions", "0.0023")] {
        let part = format!("\"upstream_inference_{part}_cost\":{amount}");
        let (_, after) = told.split_once(&part).unwrap_or_else(|| panic!("{part} in {told}"));
        assert!(after.starts_with([',', '}']), "{told}");
    }
}

/// xAI's is a number of ticks, of which there are 10^10 in a dollar.
#[test]
fn a_cost_in_ticks_is_the_providers_own_and_taken_out() {
    let call = call();
    let usage = r#"{"prompt_tokens":9,"completion_tokens":5,"total_tokens":14,"cost_in_usd_ticks":37756000}"#;
    let answer = format!(r#"{{"choices":[{{"message":{{"content":"A"}}}}],"usage":{usage}}}"#);
    let (told, _) = whole(&answer, &call.tariff());
    assert!(told.contains("\"cost\":") && !told.contains("ticks"), "{told}");
    let stream = format!("{DELTA}{STOP}data: {{\"choices\":[],\"usage\":{usage}}}\n\n{DONE}");
    let (told, _) = call.stream(&[stream.as_bytes()], TapOptions::default());
    assert!(told.contains("\"cost\":") && !told.contains("ticks"), "{told}");
}

/// An id is what a client goes on from that connects again.
#[test]
fn the_lines_between_those_of_a_usage_that_is_told_otherwise_stay() {
    let call = call();
    let lines = [
        "event: message",
        "data: {\"choices\":[],",
        "id: 7",
        ": a comment",
        "data: \"usage\":{\"prompt_tokens\":9,",
        "data:\"completion_tokens\":12,\"cost\":99}}",
        "retry: 5",
    ];
    for end in ["\n", "\r\n", "\r"] {
        let event = lines.join(end);
        let stream = [DELTA, STOP, &event, end, end, DONE].concat();
        for cut in 0..=stream.len() {
            let (head, tail) = stream.as_bytes().split_at(cut);
            let (out, _) = call.stream(&[head, tail], TapOptions::default());
            let (_, told) = out.split_once("event: message").unwrap();
            let told: Vec<&str> = told.split(end).collect();
            let ["", data, "id: 7", ": a comment", "retry: 5", "", ..] = told[..] else {
                panic!("cut at {cut}: {out}")
            };
            assert!(data.starts_with("data: {") && data.contains("\"cost\":0."), "{out}");
            assert!(out.ends_with(DONE), "{out}");
        }
    }
}

/// As OpenRouter reports. A usage of our own behind it would be the second one, and some clients add them up.
#[test]
fn a_usage_beside_choices_that_have_ended_carries_the_cost_and_none_is_added() {
    let call = Call::of(CATALOGUE);
    let usage = r#""usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21}"#;
    for choice in [
        r#"{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}"#,
        r#"{"index":0,"delta":{}}"#,
        r#"{"index":0,"delta":{"content":""},"finish_reason":"stop"}"#,
    ] {
        let last = format!("data: {{\"choices\":[{choice}],{usage}}}\n\n");
        let stream = [DELTA, STOP, &last, DONE].concat();
        for cut in 0..=stream.len() {
            let (head, tail) = stream.as_bytes().split_at(cut);
            let (out, tap) = call.stream(&[head, tail], TapOptions::default());
            assert_eq!(usages(&out).len(), 1, "cut at {cut}: {out}");
            assert_eq!(cost_text(&out), call.cost(9, 12).to_string(), "cut at {cut}");
            assert_eq!(tap.told_use().unwrap().reported.unwrap().completion.0, 12);
        }
        // Who did not ask for it is told no cost, for what comes last may be left out.
        let (out, _) = call.stream(&[stream.as_bytes()], drop_usage());
        assert_eq!(out, stream);
    }
    // What more comes counts, and the end tells it.
    let last = format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{}}}}],{usage}}}\n\n");
    let more = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":14}}\n\n";
    let (out, _) = call.stream(
        &[[DELTA, STOP, &last, more, DONE].concat().as_bytes()],
        TapOptions::default(),
    );
    let costs: Vec<String> = usages(&out).iter().map(|usage| usage["cost"].to_string()).collect();
    assert_eq!(costs.len(), 2, "{out}");
    assert_ne!(costs[0], costs[1]);
    assert!(out.contains(&format!("\"cost\":{}", call.cost(9, 14))), "{out}");
}
