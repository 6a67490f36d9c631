//! A provider's own cost is told to nobody, wherever it repeats its usage.

use serde_json::Value;

use super::costs::{CATALOGUE, Call, usages};
use super::*;

/// What no client reads of a usage: it stands in each of these as the provider's own cost.
const SECRET: &str = "0.000777";
const OWN: &str = concat!(
    r#"{"prompt_tokens":9,"cost":0.000777,"completion_tokens":12,"cost_details":{"x":[0.000777]},"#,
    r#""cost_in_usd_ticks":"0.000777","c\u006fst":0.000777}"#
);

/// The same usage without a cost of any kind.
fn without() -> Value {
    serde_json::json!({ "prompt_tokens": 9, "completion_tokens": 12 })
}

/// The places beside its root where a document may have the usage.
fn documents(choice: &str) -> [String; 3] {
    [
        format!(r#"{{"choices":[{{{choice}}}],"x_groq":{{"id":"r","usage":{OWN}}}}}"#),
        format!(r#"{{"choices":[{{{choice},"usage":{OWN}}}],"z":1}}"#),
        format!(r#"{{"x_groq":{{"usage":{OWN}}},"choices":[{{"usage":{OWN},{choice}}}]}}"#),
    ]
}

fn others(value: &Value) -> Vec<&Value> {
    let places = [&value["x_groq"]["usage"], &value["choices"][0]["usage"]];
    places.into_iter().filter(|usage| usage.is_object()).collect()
}

#[test]
fn an_event_has_none_of_it_whether_usage_was_asked_for_or_not() {
    let call = Call::of(CATALOGUE);
    for event in documents(r#""index":0,"delta":{"content":" a"},"finish_reason":"stop""#) {
        let stream = format!("{DELTA}data: {event}\n\n{DONE}");
        for cut in 0..=stream.len() {
            let (head, tail) = stream.as_bytes().split_at(cut);
            for options in [TapOptions::default(), drop_usage()] {
                let (out, _) = call.stream(&[head, tail], options);
                assert!(!out.contains(SECRET), "cut at {cut}: {out}");
                let data = out.lines().filter_map(|line| line.strip_prefix("data: "));
                let last: Value = serde_json::from_str(data.clone().nth(1).unwrap()).unwrap();
                assert!(!others(&last).is_empty());
                assert!(others(&last).into_iter().all(|usage| *usage == without()), "{last}");
                // It is no usage that a client reads: where that was asked for, an event of our own tells it.
                let told = usize::from(!options.drop_usage_chunk);
                assert_eq!(
                    (usages(&out).len(), data.count()),
                    (told, 3 + told),
                    "cut at {cut}: {out}"
                );
            }
        }
    }
}

#[test]
fn beside_the_usage_that_tells_the_cost_the_others_tell_none() {
    let call = Call::of(CATALOGUE);
    for document in documents(r#""index":0,"delta":{"content":" a"},"finish_reason":"stop""#) {
        for event in [
            document.replacen('{', &format!(r#"{{"usage":{OWN},"#), 1),
            format!(r#"{},"usage":{OWN}}}"#, document.strip_suffix('}').unwrap()),
            // Of two in the root a client reads the last.
            document.replacen('{', &format!(r#"{{"usage":{OWN},"usage":{OWN},"#), 1),
        ] {
            let stream = format!("{DELTA}data: {event}\n\n{DONE}");
            for cut in 0..=stream.len() {
                let (head, tail) = stream.as_bytes().split_at(cut);
                let (out, tap) = call.stream(&[head, tail], TapOptions::default());
                assert!(!out.contains(SECRET), "cut at {cut}: {out}");
                assert_eq!(usages(&out).len(), 1, "cut at {cut}: {out}");
                let cost = tap.told_bill().unwrap().cost;
                assert_eq!(cost, call.cost(9, 12));
                assert!(out.contains(&format!("\"cost\":{cost},")), "cut at {cut}: {out}");
            }
            let (out, _) = call.stream(&[stream.as_bytes()], drop_usage());
            assert!(!out.contains(SECRET), "{out}");
        }
    }
}

#[test]
fn an_event_without_a_cost_of_the_providers_own_stays_as_it_came() {
    let call = Call::of(CATALOGUE);
    let own = without().to_string();
    for usage in [own.clone(), own.replacen('{', r#"{"costs":1,"#, 1)] {
        for event in documents(r#""index":0,"delta":{"content":" a"},"finish_reason":"stop""#) {
            let event = format!("{DELTA}data: {}\n\n", event.replace(OWN, &usage));
            let (out, _) = call.stream(&[event.as_bytes(), DONE.as_bytes()], drop_usage());
            assert_eq!(out, [event.as_str(), DONE].concat());
        }
    }
}

#[test]
fn a_whole_answer_has_none_of_it_and_is_told_its_cost_however_it_is_cut() {
    let call = Call::of(CATALOGUE);
    let cost = format!("\"cost\":{},", call.cost(9, 12));
    for document in documents(r#""index":0,"message":{"content":"a"},"finish_reason":"stop""#) {
        let end = document.strip_suffix('}').unwrap();
        for answer in [
            document.clone(),
            document.replacen('{', &format!(r#"{{"usage":{OWN},"#), 1),
            format!(r#"{end},"usage":{OWN}}}"#),
            format!(r#"{end},"usage":{OWN},"usage":{OWN}}}"#),
        ] {
            for cut in 0..=answer.len() {
                let (head, tail) = answer.as_bytes().split_at(cut);
                let out = call.whole(&[head, tail]);
                assert!(!out.contains(SECRET), "cut at {cut}: {out}");
                assert_eq!(out.matches(&cost).count(), 1, "cut at {cut}: {out}");
                let value: Value = serde_json::from_str(&out).unwrap();
                assert_eq!(value["usage"]["completion_tokens"], 12, "cut at {cut}: {out}");
                assert!(others(&value).into_iter().all(|usage| *usage == without()), "{out}");
            }
        }
    }
}

/// What waits for its end is bounded, and so are the usages that are looked for.
#[test]
fn a_long_answer_behind_a_usage_that_is_repeated_is_told_its_cost_at_its_end() {
    let call = Call::of(CATALOGUE);
    let text = "x".repeat(70_000);
    let begin = format!(r#"{{"choices":[{{"usage":{OWN},"message":{{"content":""#);
    let end = format!(r#""}}}}],"x_groq":{{"usage":{OWN}}}"#);
    for (usage, is_last) in [(format!(r#","usage":{OWN}}}"#), true), ("}".to_owned(), false)] {
        let out = call.whole(&[begin.as_bytes(), text.as_bytes(), end.as_bytes(), usage.as_bytes()]);
        assert!(!out.contains(SECRET) && out.contains(&text), "{}", out.len());
        assert_eq!(out.matches("\"cost\":").count(), 1, "{is_last}");
        let value: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(
            value["usage"]["total_tokens"],
            if is_last { Value::Null } else { 21.into() }
        );
    }
    let many: Vec<String> = (0..300).map(|_| format!(r#"{{"usage":{OWN}}}"#)).collect();
    let answer = format!(r#"{{"choices":[{}],"usage":{OWN}}}"#, many.join(","));
    let out = call.whole(&[answer.as_bytes()]);
    assert_eq!(out.matches(r#""cost":0.000777"#).count(), 300 - 256);
}
