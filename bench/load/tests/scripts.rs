//! What the simulated upstream is asked, and answers.

use crate::{
    answers::{Answers, WORDS},
    events::Events,
    process,
    script::{Ending, Form, Script, Writes},
    tag::Tag,
    upstream::{Asked, asked},
    wire::Chunked,
};

fn scripts() -> Vec<Script> {
    let plain = Script::stream(3);
    vec![
        plain,
        Script::whole(),
        Script {
            pace_ms: 20,
            form: Form::Tools,
            tag: u32::MAX,
            ..plain
        },
        Script {
            writes: Writes::Each,
            form: Form::Choices,
            ..plain
        },
        Script {
            form: Form::Logprobs,
            ending: Ending::Cut,
            prompt: u32::MAX,
            ..plain
        },
        Script {
            form: Form::Words,
            ending: Ending::Stall,
            completion: 0,
            ..plain
        },
        Script {
            ending: Ending::Error,
            ..plain
        },
    ]
}

#[test]
fn a_script_is_found_as_it_was_written() {
    for script in scripts() {
        let body = format!(
            r#"{{"messages":[{{"content":"{}","role":"system"}},{{"content":"more; sim events=9"}}]}}"#,
            script.text()
        );
        assert_eq!(Script::find(body.as_bytes()), Some(script), "{body}");
    }
}

#[test]
fn what_is_no_script_is_none() {
    let text = Script::stream(3).text();
    for bad in [
        String::new(),
        text.replace(';', ""),
        text.replace("events=3", "events=-3"),
        text.replace("form=plain", "form=other"),
        text.replace(" end=done", ""),
        text.replace(";", " more=1;"),
        format!("{}{text}", " ".repeat(1024)),
    ] {
        assert_eq!(Script::find(bad.as_bytes()), None, "{bad}");
    }
}

#[test]
fn what_is_asked_follows_from_target_and_body() {
    let script = Script::stream(3);
    let body = |more: &str| format!(r#"{{"messages":"{}"{more}}}"#, script.text()).into_bytes();
    let chat = b"/v1/chat/completions";
    assert_eq!(asked(chat, &body("")), Asked::Whole(script));
    assert_eq!(asked(chat, &body(r#","stream":false"#)), Asked::Whole(script));
    assert_eq!(
        asked(chat, &body(r#","stream": true"#)),
        Asked::Stream { script, usage: false }
    );
    let with_usage = body(r#","stream":true,"stream_options":{"include_usage" : true}"#);
    assert_eq!(asked(chat, &with_usage), Asked::Stream { script, usage: true });
    assert_eq!(asked(b"/v1/embeddings", &body("")), Asked::Embeddings(script));
    assert_eq!(asked(b"/v1/models", &body("")), Asked::Nothing);
    assert_eq!(asked(chat, b"{}"), Asked::Nothing);
    let failing = Script {
        ending: Ending::Error,
        ..script
    };
    assert_eq!(asked(chat, failing.text().as_bytes()), Asked::Error);
}

fn body_of(answer: &[u8]) -> serde_json::Value {
    let start = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let head = std::str::from_utf8(&answer[..start]).unwrap();
    assert!(
        head.contains(&format!("content-length: {}\r\n", answer.len() - start)),
        "{head}"
    );
    serde_json::from_slice(&answer[start..]).unwrap()
}

#[test]
fn answers_report_the_tokens_of_their_script() {
    let answers = Answers::new();
    for (prompt, completion) in [(0, 0), (7, 12_345), (u32::MAX, u32::MAX)] {
        let script = Script {
            prompt,
            completion,
            tag: 4711,
            ..Script::whole()
        };
        let (mut whole, mut embeddings) = (Vec::new(), Vec::new());
        answers.whole.push(&mut whole, script);
        answers.embeddings.push(&mut embeddings, script);
        let total = u64::from(prompt) + u64::from(completion);
        let usage =
            serde_json::json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total});
        assert_eq!(body_of(&whole)["usage"], usage);
        let answer = body_of(&whole);
        let content = answer["choices"][0]["message"]["content"].as_str().unwrap();
        assert!(content.starts_with("To request 0000004711: "), "{content}");
        assert!(String::from_utf8_lossy(&embeddings).contains("[0.0000004711,"));
        assert_eq!(
            body_of(&embeddings)["usage"],
            serde_json::json!({"prompt_tokens": prompt, "total_tokens": prompt})
        );
    }
}

#[test]
fn every_event_is_json_with_the_time_at_which_it_was_written() {
    let (answers, begun) = (Answers::new(), process::monotonic_ns());
    for form in Form::ALL {
        let stream = answers.stream(form).unwrap();
        for number in 0..100 {
            let (mut chunk, mut text, mut stamps) = (Vec::new(), Vec::new(), Vec::new());
            stream.push(&mut chunk, number, Tag::of(4711));
            Chunked::default()
                .feed(&chunk, |piece| text.extend_from_slice(piece))
                .unwrap();
            Events::default().feed(&text, |stamp| stamps.push(stamp));
            assert_eq!(stamps.len(), 1, "{form:?} {number}");
            assert!((begun..=process::monotonic_ns()).contains(&stamps[0]));
            let json: serde_json::Value = serde_json::from_slice(text.strip_prefix(b"data: ").unwrap()).unwrap();
            assert_eq!(json["system_fingerprint"], "fp_0000004711");
            let choice = &json["choices"][0];
            let index = if form == Form::Choices { number % 2 } else { 0 };
            assert_eq!(choice["index"], index, "{form:?} {number}");
            assert_eq!(choice["delta"]["tool_calls"].is_array(), form == Form::Tools);
            assert_eq!(
                choice["logprobs"]["content"][0]["top_logprobs"]
                    .as_array()
                    .map(Vec::len),
                (form == Form::Logprobs).then_some(5)
            );
        }
    }
}

#[test]
fn a_client_sees_as_many_events_as_the_script_says() {
    let answers = Answers::new();
    for form in Form::ALL {
        let script = Script {
            form,
            tag: 4711,
            ..Script::stream(7)
        };
        let (stream, mut coded) = (answers.stream(form).unwrap(), Vec::new());
        (0..script.events).for_each(|number| stream.push(&mut coded, number, Tag::of(script.tag)));
        stream.finish.push(&mut coded, script);
        answers.usage.push(&mut coded, script);
        coded.extend_from_slice(&answers.done);
        let events = Events::tagged(Some(Tag::of(4711)));
        let (mut coding, mut events, mut content) = (Chunked::default(), events, 0);
        coding
            .feed(&coded, |piece| events.feed(piece, |_| content += 1))
            .unwrap();
        assert!(
            coding.is_done() && events.done && !events.failed && !events.foreign,
            "{form:?}"
        );
        assert_eq!((events.count, content), (script.events_seen(), 7), "{form:?}");
    }
}

#[test]
fn each_word_is_one_token_wherever_it_stands() {
    let encoding = tiktoken_rs::o200k_base_singleton();
    for word in WORDS {
        assert_eq!(encoding.encode_ordinary(word).len(), 1, "{word:?}");
    }
    assert_eq!(encoding.encode_ordinary(&WORDS.concat()).len(), WORDS.len());
}
