//! Answers whose client is told what they cost: in the last usage, exactly, however they are cut, and nothing else of them changes.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::pure::bill::{Tariff, Used, bill};
use crate::pure::catalogue::{Catalogue, Model};
use crate::pure::charge::Ceiling;
use crate::pure::estimate::Bound;
use crate::pure::money::{Credits, Markup};
use crate::pure::request_body::{Endpoint, RequestBody};
use crate::pure::usage::{CompletionTokens, PromptTokens, TokenKinds, Usage};

pub(super) const CATALOGUE: &str = r#"
models:
  - id: a/m
    name: M
    provider: A
    context_length: 100000
    max_completion_tokens: 1000
    modality: text->text
    pricing: { prompt: "0.000001234567890123", completion: "0.000002" }
    tier: free
    purposes: [chat]
    targets: [ { provider: p, model: m } ]
purposes: { chat: a/m }
"#;

pub(super) struct Call {
    pub(super) model: Arc<Model>,
    pub(super) body: RequestBody,
    pub(super) ceiling: Ceiling,
    pub(super) cost_markup: Option<Markup>,
}

impl Call {
    fn new() -> Call {
        Call::of(CATALOGUE)
    }

    pub(super) fn of(catalogue: &str) -> Call {
        let catalogue = Catalogue::parse(catalogue, Markup::default()).unwrap();
        let body = json!({ "model": "a/m", "messages": [{ "role": "user", "content": "one two three" }] });
        Call {
            model: Arc::clone(catalogue.model("a/m").unwrap()),
            body: RequestBody::parse(Bytes::from(body.to_string()), Endpoint::Chat).unwrap(),
            ceiling: Ceiling {
                prompt: PromptTokens(1_000),
                completion: CompletionTokens(1_000),
                bound: Bound::Client,
            },
            cost_markup: None,
        }
    }

    pub(super) fn tariff(&self) -> Tariff<'_> {
        Tariff {
            model: &self.model,
            body: &self.body,
            ceiling: &self.ceiling,
            held: "1".parse().unwrap(),
            cost_markup: self.cost_markup.as_ref(),
        }
    }

    pub(super) fn cost(&self, prompt: u64, completion: u64) -> Credits {
        let usage = Usage {
            prompt: PromptTokens(prompt),
            completion: CompletionTokens(completion),
        };
        let held = self.tariff().held;
        let used = Used {
            usage,
            ..Used::default()
        };
        bill(&self.model.prices, &self.ceiling, held, &used).unwrap().cost
    }

    /// What a client gets of the stream's chunks, and the tap.
    pub(super) fn stream(&self, chunks: &[&[u8]], options: TapOptions) -> (String, StreamTap) {
        let (tariff, mut tap, mut out) = (self.tariff(), StreamTap::new(options), Vec::new());
        for chunk in chunks {
            match tap.billed_chunk(&Bytes::copy_from_slice(chunk), || Some(tariff)) {
                Forward::Unchanged => out.extend_from_slice(chunk),
                Forward::Replace(bytes) => out.extend_from_slice(&bytes),
            }
        }
        out.extend_from_slice(&tap.billed_end(Framing::Framed, ("m", "t", 502), Some(&tariff)));
        (String::from_utf8(out).unwrap(), tap)
    }

    pub(super) fn whole(&self, chunks: &[&[u8]]) -> String {
        let (tariff, mut tap, mut cost, mut out) = (
            self.tariff(),
            WholeTap::within(Encoding::O200k, Some(self.ceiling.completion.0), Default::default()),
            WholeCost::default(),
            Vec::new(),
        );
        for chunk in chunks {
            match cost.chunk(&Bytes::copy_from_slice(chunk), &mut tap, &tariff) {
                Forward::Unchanged => out.extend_from_slice(chunk),
                Forward::Replace(bytes) => out.extend_from_slice(&bytes),
            }
        }
        String::from_utf8(out).unwrap()
    }
}

/// The usages in a stream's events, in order.
pub(super) fn usages(stream: &str) -> Vec<Value> {
    let data = stream.lines().filter_map(|line| line.strip_prefix("data:"));
    let events = data.filter_map(|data| serde_json::from_str::<Value>(data).ok());
    events
        .filter_map(|event| event.get("usage").filter(|usage| usage.is_object()).cloned())
        .collect()
}

/// The number's own text: it may have more digits than a float.
pub(super) fn cost_text(text: &str) -> &str {
    let (_, after) = text.split_once("\"cost\":").unwrap();
    after.split([',', '}']).next().unwrap()
}

#[test]
fn the_last_usage_of_a_stream_has_the_exact_cost_however_it_is_cut() {
    let call = Call::new();
    let stream = [DELTA, STOP, USAGE, DONE].concat();
    let expected = call.cost(9, 12).to_string();
    for cut in 0..=stream.len() {
        let (head, tail) = stream.as_bytes().split_at(cut);
        let (out, tap) = call.stream(&[head, tail], TapOptions::default());
        assert_eq!(cost_text(&out), expected, "cut at {cut}");
        assert_eq!(out.matches("\"cost\"").count(), 1);
        assert_eq!(usages(&out).len(), 1);
        assert!(
            out.starts_with(&[DELTA, STOP].concat()) && out.ends_with(DONE),
            "cut at {cut}: {out}"
        );
        assert_eq!(tap.told_use().unwrap().reported, Some(tap.reported().unwrap()));
    }
}

#[test]
fn a_client_that_did_not_ask_is_told_no_cost_not_even_the_providers() {
    let call = Call::new();
    let (out, _) = call.stream(&[[DELTA, STOP, USAGE, DONE].concat().as_bytes()], drop_usage());
    assert_eq!(out, [DELTA, STOP, DONE].concat());
    let last = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":12,\"cost\":99.5}}\n\n";
    let stream = [DELTA, last, DONE].concat();
    for cut in 0..=stream.len() {
        let (head, tail) = stream.as_bytes().split_at(cut);
        for options in [TapOptions::default(), drop_usage()] {
            let (out, _) = call.stream(&[head, tail], options);
            assert_eq!(usages(&out).len(), 1, "{out}");
            assert!(!out.contains("99.5"), "the provider's own cost was passed on: {out}");
            match options.drop_usage_chunk {
                // Another usage, which is left out, may correct this one.
                true => assert!(!out.contains("\"cost\""), "{out}"),
                false => assert_eq!(cost_text(&out), call.cost(9, 12).to_string()),
            }
        }
    }
}

#[test]
fn a_usage_that_more_may_follow_has_no_cost_and_the_end_tells_it() {
    let call = Call::new();
    let early = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" a b\"}}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,\"cost\":7}}\n\n";
    let (out, tap) = call.stream(&[[early, STOP, DONE].concat().as_bytes()], TapOptions::default());
    let told = usages(&out);
    assert_eq!(told.len(), 2, "{out}");
    assert!(told[0].get("cost").is_none());
    assert_eq!(told[1]["total_tokens"], 11);
    assert_eq!(cost_text(&out), call.cost(9, 2).to_string());
    assert_eq!(tap.told_use().unwrap().reported.unwrap().completion.0, 2);
}

#[test]
fn a_provider_that_reports_nothing_or_a_lie_is_counted_and_that_is_told() {
    let call = Call::new();
    let lie = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4000000000}}\n\n";
    for stream in [
        [DELTA, STOP, DONE].concat(),
        [DELTA, STOP, lie, DONE].concat(),
        [DELTA, STOP].concat(),
    ] {
        let options = TapOptions {
            completion_max: Some(1_000),
            ..TapOptions::default()
        };
        let (out, tap) = call.stream(&[stream.as_bytes()], options);
        let told = usages(&out).pop().unwrap();
        let prompt = told["prompt_tokens"].as_u64().unwrap();
        assert_eq!(
            (told["completion_tokens"].as_u64(), tap.delivered().0),
            (Some(1), 1),
            "{out}"
        );
        assert_eq!(cost_text(&out), call.cost(prompt, 1).to_string());
        assert_eq!(tap.counted_prompt().or(tap.reports().prompt()).unwrap().0, prompt);
        assert!(out.ends_with(DONE));
    }
}

#[test]
fn data_in_several_lines_is_told_in_one() {
    let call = Call::new();
    let lines = "event: message\ndata: {\"choices\":[],\ndata: \"usage\":{\"prompt_tokens\":9,\r\ndata:\"completion_tokens\":12}}\nid: 7\n\n";
    let bare = "event: message\nid: 7\ndata\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":12,\"cost\":99}}\n\n";
    for event in [lines, bare] {
        let stream = [DELTA, STOP, event, DONE].concat();
        for cut in 0..=stream.len() {
            let (head, tail) = stream.as_bytes().split_at(cut);
            let (out, _) = call.stream(&[head, tail], TapOptions::default());
            assert_eq!(cost_text(&out), call.cost(9, 12).to_string(), "cut at {cut}");
            assert_eq!(usages(&out).len(), 1, "{out}");
            assert!(out.contains("event: message\n") && out.contains("id: 7\n"), "{out}");
            assert!(!out.contains("99"), "the provider's own");
        }
    }
    let first =
        "\u{FEFF}data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":12,\"cost\":99}}\n\n";
    let (out, _) = call.stream(&[[first, STOP, DONE].concat().as_bytes()], TapOptions::default());
    assert!(!out.contains("99") && out.starts_with('\u{FEFF}'), "{out}");
}

#[test]
fn a_stream_that_is_ended_at_its_maximum_tells_its_cost() {
    let call = Call::new();
    let (tariff, mut tap) = (call.tariff(), StreamTap::new(TapOptions::default()));
    tap.billed_chunk(&Bytes::from_static(DELTA.as_bytes()), || Some(tariff));
    let end = String::from_utf8(tap.end_as_length(1, Some(&tariff)).to_vec()).unwrap();
    let prompt = usages(&end)[0]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(cost_text(&end), call.cost(prompt, 1).to_string());
    assert!(
        end.find("length") < end.find("\"cost\"") && end.ends_with(DONE),
        "{end}"
    );
}

const WHOLE: &str = r#"{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"A \"b\" c"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21},"x":[1]}"#;

/// What a client is told of kinds is what was billed by them.
#[test]
fn a_bill_of_a_model_whose_kinds_have_no_prices_has_none() {
    let call = Call::new();
    let usage = Usage {
        prompt: PromptTokens(9),
        completion: CompletionTokens(12),
    };
    let kinds = TokenKinds {
        cache_read: 3,
        ..TokenKinds::default()
    };
    let used = Used {
        usage,
        kinds,
        ..Used::default()
    };
    assert_eq!(call.tariff().bill(&used).unwrap().kinds, TokenKinds::default());
}

#[test]
fn a_whole_answer_has_the_exact_cost_however_it_is_cut() {
    let call = Call::new();
    let own = WHOLE.replace(
        "\"total_tokens\":21",
        "\"total_tokens\":21,\"cost_details\":{},\"c\\u006fst\":7",
    );
    for answer in [WHOLE, &own, &format!(" {WHOLE}\n")] {
        for cut in 0..=answer.len() {
            let (head, tail) = answer.as_bytes().split_at(cut);
            let out = call.whole(&[head, tail]);
            assert_eq!(cost_text(&out), call.cost(9, 12).to_string(), "cut at {cut}");
            let mut value: Value = serde_json::from_str(&out).unwrap();
            let usage = value["usage"].as_object_mut().unwrap();
            let details = usage.remove("cost_details").unwrap();
            let sum = ["upstream_inference_prompt_cost", "upstream_inference_completions_cost"]
                .map(|name| details[name].to_string().parse::<f64>().unwrap());
            assert_eq!(sum[0], call.cost(9, 0).to_string().parse::<f64>().unwrap());
            assert!((sum[0] + sum[1] - usage.remove("cost").unwrap().as_f64().unwrap()).abs() < 1e-12);
            assert_eq!(value, serde_json::from_str::<Value>(WHOLE).unwrap());
        }
    }
}

#[test]
fn a_whole_answer_without_a_usage_gets_one() {
    let call = Call::new();
    let answer = r#"{"choices":[{"message":{"content":"one two"},"finish_reason":"stop"}]} "#;
    for cut in 0..=answer.len() {
        let (head, tail) = answer.as_bytes().split_at(cut);
        let out = call.whole(&[head, tail]);
        let value: Value = serde_json::from_str(&out).unwrap();
        let prompt = value["usage"]["prompt_tokens"].as_u64().unwrap();
        assert_eq!(value["usage"]["completion_tokens"], 2);
        assert_eq!(cost_text(&out), call.cost(prompt, 2).to_string(), "cut at {cut}");
    }
}

#[test]
fn what_is_no_answer_passes_as_it_came() {
    let call = Call::new();
    let long = format!(
        "{{\"usage\":{{\"prompt_tokens\":1,\"completion_tokens\":1}},\"choices\":[{{\"message\":{{\"content\":\"{}\"}}}}]}}",
        "x".repeat(70_000)
    );
    for answer in [
        "",
        "{}",
        "[]",
        "[{\"usage\":{\"prompt_tokens\":1}}]",
        "{\"error\":{\"message\":\"no\"},\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}",
        "<html>\"usage\":{}</html>",
        "{\"usage\":{\"prompt_tokens\":1},}",
        "{\"usage\":7,\"object\":\"list\"}",
        "{\"choices\":[{\"message\":{\"content\":\"a\"}}],\"usage\":null}",
        "{\"choices\":[{\"message\":{\"content\":\"a\"}}],\"usage\":\"no\"}",
    ] {
        for cut in 0..=answer.len() {
            let (head, tail) = answer.as_bytes().split_at(cut);
            assert_eq!(call.whole(&[head, tail]), answer, "cut at {cut}");
        }
    }
    let (head, tail) = long.as_bytes().split_at(long.len() - 3);
    assert!(call.whole(&[head, tail]) == long, "more would have to wait than may");
    let with_cost = long.replacen("\"completion_tokens\":1", "\"completion_tokens\":1,\"cost\":99", 1);
    let (head, tail) = with_cost.as_bytes().split_at(with_cost.len() - 3);
    assert!(
        !call.whole(&[head, tail]).contains("99"),
        "the provider's own cost is told to nobody"
    );
    assert!(call.whole(&[long.as_bytes()]).contains("\"cost\""), "it is all there");
}

#[test]
fn an_answer_of_which_as_much_waits_as_may_is_told_its_cost() {
    let call = Call::new();
    let begin = r#"{"choices":[{"message":{"content":"a"}}],"usage":"#;
    let usage = r#"{"prompt_tokens":9,"completion_tokens":12},"x":""#;
    for (waits, is_told) in [(65_536, true), (65_537, false)] {
        let head = format!("{begin}{usage}{}", "x".repeat(waits - usage.len()));
        let out = call.whole(&[head.as_bytes(), b"\"}"]);
        assert_eq!(out.contains("\"cost\""), is_told, "{waits}");
    }
}

#[test]
fn more_than_was_admitted_is_told_as_it_is_charged() {
    let call = Call::new();
    let answer = WHOLE.replace("\"prompt_tokens\":9", "\"prompt_tokens\":5000");
    let out = call.whole(&[answer.as_bytes()]);
    let value: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        value["usage"]["prompt_tokens"], 1_000,
        "what is billed is told, not what was reported"
    );
    assert_eq!(cost_text(&out), call.cost(1_000, 12).to_string());
}

#[test]
fn an_aggregators_own_cost_is_billed_with_the_markup_where_its_report_is_believed() {
    let mut call = Call::new();
    call.cost_markup = Some(Markup::default());
    for (own, expected) in [
        ("0.00014", "0.000161"),
        ("1.4e-04", "0.000161"),
        ("\"0.00014\"", "0.000161"),
        ("0", "0"),
        ("0.0000000000005", "0.000000000001"),
    ] {
        let answer = WHOLE.replace("\"total_tokens\":21", &format!("\"total_tokens\":21,\"cost\":{own}"));
        let out = call.whole(&[answer.as_bytes()]);
        assert_eq!(cost_text(&out), expected, "{own}");
        assert_eq!(out.matches("\"cost\"").count(), 1);
    }
    // What cannot be is no cost: its tokens are billed.
    for own in ["-1", "null", "true", "\"much\"", "1e9", "{}"] {
        let answer = WHOLE.replace("\"total_tokens\":21", &format!("\"total_tokens\":21,\"cost\":{own}"));
        assert_eq!(
            cost_text(&call.whole(&[answer.as_bytes()])),
            call.cost(9, 12).to_string(),
            "{own}"
        );
    }
    // Nor above what is held.
    let answer = WHOLE.replace("\"total_tokens\":21", "\"total_tokens\":21,\"cost\":999");
    assert_eq!(cost_text(&call.whole(&[answer.as_bytes()])), "1");
}
