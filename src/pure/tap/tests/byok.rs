//! `cost_from: usage` where an aggregator called the model's own provider with the operator's key: its cost is its fee alone.

use super::costs::{CATALOGUE, Call, cost_text};
use super::*;
use crate::pure::money::Markup;

/// A usage with these members beside its sides.
fn usage_with(members: &str) -> String {
    format!(r#"{{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21{members}}}"#)
}

fn call() -> Call {
    let mut call = Call::of(CATALOGUE);
    call.cost_markup = Some(Markup::default());
    call
}

/// What a whole answer and a stream with this usage are told to cost, however each is cut.
#[track_caller]
fn check(members: &str, expected: &str) {
    let (call, usage) = (call(), usage_with(members));
    let whole =
        format!(r#"{{"choices":[{{"index":0,"message":{{"content":"A"}},"finish_reason":"stop"}}],"usage":{usage}}}"#);
    for cut in 0..=whole.len() {
        let (head, tail) = whole.as_bytes().split_at(cut);
        assert_eq!(
            cost_text(&call.whole(&[head, tail])),
            expected,
            "{members}, cut at {cut}"
        );
    }
    let stream = format!("{DELTA}{STOP}data: {{\"choices\":[],\"usage\":{usage}}}\n\n{DONE}");
    for cut in 0..=stream.len() {
        let (head, tail) = stream.as_bytes().split_at(cut);
        let (out, _) = call.stream(&[head, tail], TapOptions::default());
        assert_eq!(cost_text(&out), expected, "{members}, cut at {cut}");
    }
}

#[test]
fn the_fee_and_what_the_models_provider_charges_are_billed() {
    for (members, expected) in [
        (
            r#","cost":0,"is_byok":true,"cost_details":{"upstream_inference_cost":0.0002}"#,
            "0.00023",
        ),
        (
            r#","cost":0.00001,"is_byok":true,"cost_details":{"upstream_inference_cost":0.0002}"#,
            "0.0002415",
        ),
        // Its members may stand in any order, and be texts.
        (
            r#","cost_details":{"x":{"upstream_inference_cost":7},"upstream_inference_cost":"2e-4"},"is_byok":true,"cost":"0.00001""#,
            "0.0002415",
        ),
        (
            r#","cost":0,"is_byok":"true","cost_details":{"upstream_inference_cost":0.0002}"#,
            "0.00023",
        ),
        (
            r#","cost":0.0001,"is_byok":"false","cost_details":{"upstream_inference_cost":0.0002}"#,
            "0.000115",
        ),
        (
            r#","cost":0.000000000001,"is_byok":true,"cost_details":{"upstream_inference_cost":0.123456789012}"#,
            "0.141975307365",
        ),
        // Of other calls the cost is all.
        (
            r#","cost":0.0002,"is_byok":false,"cost_details":{"upstream_inference_cost":0.0002}"#,
            "0.00023",
        ),
        (
            r#","cost":0.0002,"cost_details":{"upstream_inference_cost":null}"#,
            "0.00023",
        ),
    ] {
        check(members, expected);
    }
}

/// Perplexity names the parts of its cost, of which its fee for a request is most.
#[test]
fn of_a_cost_in_parts_the_sum_is_billed() {
    for (members, expected) in [
        (
            r#","cost":{"input_tokens_cost":0.00001,"output_tokens_cost":0.00002,"request_cost":0.005,"total_cost":0.00503}"#,
            "0.0057845",
        ),
        (r#","cost":{"total_cost":"2e-4"}"#, "0.00023"),
    ] {
        check(members, expected);
    }
    let tokens = call().cost(9, 12).to_string();
    for cost in ["{}", r#"{"request_cost":0.005}"#, r#"{"total_cost":null}"#, "[0.005]"] {
        check(&format!(r#","cost":{cost}"#), &tokens);
    }
}

#[test]
fn a_fee_alone_is_no_cost_and_the_tokens_are_billed() {
    let tokens = call().cost(9, 12).to_string();
    for details in [
        "",
        r#","cost_details":null"#,
        r#","cost_details":{}"#,
        r#","cost_details":7"#,
        r#","cost_details":{"upstream_inference_cost":null}"#,
        r#","cost_details":{"upstream_inference_cost":-1}"#,
        r#","cost_details":{"upstream_inference_cost":1e9}"#,
        r#","cost_details":{"upstream_inference_cost":"much"}"#,
        r#","cost_details":{"upstream_inference_cost":{}}"#,
    ] {
        check(&format!(r#","cost":0,"is_byok":true{details}"#), &tokens);
    }
    let only_upstream = r#","is_byok":true,"cost_details":{"upstream_inference_cost":0.0002}"#;
    check(only_upstream, &tokens);
}

/// An earlier report of a stream may not know yet whose key it was.
#[test]
fn a_fee_that_an_earlier_report_named_is_no_cost_either() {
    let call = call();
    let early = format!("data: {{\"choices\":[],\"usage\":{}}}\n\n", usage_with(r#","cost":0"#));
    let last = format!(
        "data: {{\"choices\":[],\"usage\":{}}}\n\n",
        usage_with(r#","cost":0,"is_byok":true"#)
    );
    let stream = [DELTA, STOP, &early, &last, DONE].concat();
    let (out, _) = call.stream(&[stream.as_bytes()], TapOptions::default());
    let (_, told) = out.rsplit_once("\"cost\":").unwrap();
    let told = told.split([',', '}']).next().unwrap();
    assert_eq!(told, call.cost(9, 12).to_string(), "{out}");
}
