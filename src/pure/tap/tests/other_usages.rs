//! A provider's own cost is told to nobody, wherever it repeats its usage.

use serde_json::Value;

use super::costs::{CATALOGUE, Call, usages};
use super::*;

/// What no client reads of a usage: it stands in each of these as the provider's own cost.
const SECRET: &str = "0.000777";
const OWN: &str = concat!(
    r#"{"prompt_tokens":9,"cost":0.000777,"completion_tokens":12,"cost_details":{"x":[0.000777]},"#,
    r#""cost_in_usd_ticks":"0.000777","estimated_cost":0.000777,"market_cost":"0.000777","c\u006fst":0.000777}"#
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

/// How an answer goes on behind the text of its first choice: with the usage of the root, with others before and behind it, and without it.
fn ends() -> [String; 7] {
    [
        format!(r#""}}}}],"usage":{OWN}}}"#),
        format!(r#""}}}}],"usage":{OWN},"z":[1]}}"#),
        format!(r#""}}}}],"usage":{OWN},"usage":{OWN}}}"#),
        format!(r#""}}}},{{"usage":{OWN},"message":{{"content":"b"}}}}],"usage":{OWN}}}"#),
        format!(r#""}}}}],"x_groq":{{"id":"r","usage":{OWN}}}}}"#),
        format!(r#""}}}}],"x_groq":{{"usage":{OWN}}},"usage":{OWN}}}"#),
        format!(r#""}}}}],"usage":{OWN},"x_groq":{{"usage":{OWN}}}}}"#),
    ]
}

/// A usage in a choice, and what follows it up to a text that nobody counts.
fn since_the_first() -> String {
    format!(r#"{OWN},"message":{{"content":"a","annotations":""#)
}

/// What leaves of an answer that comes at once: valid JSON that tells our cost, and no other.
fn at_once(call: &Call, answer: &str) -> String {
    let out = call.whole(&[answer.as_bytes()]);
    let value: Value = serde_json::from_str(&out).unwrap();
    assert!(!out.contains(SECRET), "{}", last_bytes(&out));
    let cost = format!("\"cost\":{},", call.cost(9, 12));
    assert_eq!(out.matches("\"cost\":").count(), 1, "{}", last_bytes(&out));
    assert_eq!(out.matches(&cost).count(), 1, "{}", last_bytes(&out));
    assert_eq!(value["usage"]["completion_tokens"], 12);
    assert!(others(&value).into_iter().all(|usage| *usage == without()));
    out
}

fn last_bytes(out: &str) -> &str {
    &out[out.len().saturating_sub(600)..]
}

#[test]
fn the_usage_at_the_end_of_a_long_answer_tells_the_cost_wherever_that_is_cut() {
    let call = Call::of(CATALOGUE);
    let since = since_the_first();
    let begin = format!(r#"{{"choices":[{{"usage":{since}{}"#, "x".repeat(40 << 10));
    let text = "y".repeat(30 << 10);
    for end in ends() {
        let rest = [text.as_str(), &end].concat();
        let expected = at_once(&call, &[begin.as_str(), &rest].concat());
        for cut in text.len() - 1..=rest.len() {
            let (head, tail) = rest.as_bytes().split_at(cut);
            let out = call.whole(&[begin.as_bytes(), head, tail]);
            assert!(out == expected, "cut at {cut} of {end}: {}", last_bytes(&out));
        }
    }
}

#[test]
fn the_usage_at_the_end_of_an_answer_tells_the_cost_at_whichever_of_its_bytes_too_much_waits() {
    let call = Call::of(CATALOGUE);
    let since = since_the_first();
    for end in ends() {
        for came in 0..end.len() {
            let text = "x".repeat((64 << 10) - since.len() - came);
            let begin = format!(r#"{{"choices":[{{"usage":{since}{text}"#);
            let expected = at_once(&call, &[begin.as_str(), &end].concat());
            let (head, rest) = end.as_bytes().split_at(came);
            let (byte, rest) = rest.split_at(1);
            let out = call.whole(&[begin.as_bytes(), head, byte, rest]);
            assert!(out == expected, "too much at {came} of {end}: {}", last_bytes(&out));
        }
    }
}

#[test]
fn behind_a_usage_that_is_too_far_from_the_end_an_open_one_loses_its_cost_too() {
    let call = Call::of(CATALOGUE);
    let begin = format!(
        r#"{{"usage":{OWN},"choices":[{{"message":{{"content":"a","annotations":"{}"#,
        "x".repeat(40 << 10)
    );
    let text = "y".repeat(30 << 10);
    let rest = format!(r#"{text}"}},"usage":{OWN}}}],"x_groq":{{"usage":{OWN}}}}}"#);
    let pass = |cut: usize| {
        let (head, tail) = rest.as_bytes().split_at(cut);
        call.whole(&[begin.as_bytes(), head, tail])
    };
    let expected = pass(text.len());
    let value: Value = serde_json::from_str(&expected).unwrap();
    assert!(!expected.contains(SECRET), "{}", last_bytes(&expected));
    assert_eq!(value["usage"], without());
    assert_eq!(others(&value), [&without(), &without()]);
    for cut in text.len()..rest.len() {
        let out = pass(cut);
        assert!(out == expected, "cut at {cut}: {}", last_bytes(&out));
    }
}

#[test]
fn of_an_answer_with_many_usages_no_more_waits_than_may_and_it_leaves_the_same_in_pieces_of_any_size() {
    let call = Call::of(CATALOGUE);
    let text = "x".repeat(900);
    let choice = format!(r#"{{"usage":{OWN},"message":{{"content":"a","annotations":"{text}"}}}}"#);
    let choices = vec![choice; 200].join(",");
    let repeated = format!(r#""usage":{OWN},"z":"{text}","#).repeat(200);
    for answer in [
        format!(r#"{{"choices":[{choices}],"usage":{OWN}}}"#),
        format!(r#"{{"choices":[{choices}]}}"#),
        format!(r#"{{"choices":[{{"message":{{"content":"a"}}}}],{repeated}"usage":{OWN}}}"#),
    ] {
        let expected = at_once(&call, &answer);
        for step in [7, 1_000, 9_000, 65_536, 65_537, 100_000] {
            let out = in_pieces(&call, &answer, step);
            assert!(out == expected, "in pieces of {step}: {}", last_bytes(&out));
        }
    }
}

/// What leaves of an answer in pieces of so many bytes, of which at most 64 KiB wait.
fn in_pieces(call: &Call, answer: &str, step: usize) -> String {
    let (tariff, mut tap, mut cost) = (
        call.tariff(),
        WholeTap::within(Encoding::O200k, Some(call.ceiling.completion.0), Default::default()),
        WholeCost::default(),
    );
    let (mut came, mut out) = (0, Vec::new());
    for piece in answer.as_bytes().chunks(step) {
        came += piece.len();
        match cost.chunk(&Bytes::copy_from_slice(piece), &mut tap, &tariff) {
            Forward::Unchanged => out.extend_from_slice(piece),
            Forward::Replace(bytes) => out.extend_from_slice(&bytes),
        }
        // A cost that was taken out of a usage which has left is spaces.
        assert!(out.len() + (64 << 10) >= came, "in pieces of {step}");
    }
    String::from_utf8(out).unwrap()
}
