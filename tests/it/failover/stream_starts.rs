//! Streams that fail behind their head and before their first event: nothing of them has left, so the next target is asked.

use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::chat::{PROMPT, request, streaming};
use crate::harness::catalogue::{SMALL, TWIN, cost};
use crate::harness::reply::whole_chat;
use crate::harness::{Cue, Gateway, Raw, Reply, Setup, Upstream, deltas};

/// An error event as OpenAI's shape has it.
pub(super) fn error_event(code: impl Into<Value>) -> String {
    json!({ "error": { "message": "Overloaded", "type": "overloaded_error", "code": code.into() } }).to_string()
}

/// What passes before an event, by the rules of server-sent events.
pub(super) fn no_event() -> Reply {
    Reply::stream()
        .chunk(": PROCESSING\n\n")
        .chunk("retry: 100\n\n")
        .chunk("event: ping\ndata:\n\n")
}

/// The ways of a stream to fail before its first event.
fn failures() -> Vec<(&'static str, Reply)> {
    let in_one = format!(": PROCESSING\n\ndata: {}\n\n", error_event(529));
    let (begun, rest) = in_one.split_at(in_one.len() / 2);
    let role = r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#;
    let said = format!("data: {role}\n\ndata: {}\n\n", error_event(529));
    vec![
        ("an error event", Reply::stream().event(&error_event(529)).end()),
        (
            "one without a code",
            Reply::stream().event(&error_event(Value::Null)).end(),
        ),
        (
            "one that says that it is busy",
            Reply::stream().event(&error_event(429)).end(),
        ),
        (
            "one that refuses the credential",
            Reply::stream().event(&error_event(401)).end(),
        ),
        (
            "one by its name",
            Reply::stream()
                .chunk("event: error\ndata: {\"message\":\"no\"}\n\n")
                .end(),
        ),
        (
            "one without its end",
            Reply::stream().chunk(format!("data: {}", error_event(529))).end(),
        ),
        ("one behind what is none", no_event().event(&error_event(529)).end()),
        ("one in two pieces", Reply::stream().chunk(begun).chunk(rest).end()),
        ("one in one piece with an event", Reply::stream().chunk(said).end()),
        ("its end", Reply::stream().end()),
        ("its end behind what is none", no_event().end()),
        ("it closes", Reply::stream().close()),
        ("it closes behind what is none", no_event().close()),
        (
            "it closes within an event",
            Reply::stream().chunk("data: {\"choices\":[").close(),
        ),
        ("it is reset", no_event().reset()),
        ("it is silent", no_event().silence()),
        ("HTML", Reply::stream().chunk("<html>\n<h1>No</h1>\n\n</html>\n").end()),
        ("an error as JSON", Reply::stream().chunk(error_event(500)).end()),
        (
            "an error as JSON that goes on",
            Reply::stream().chunk(error_event(429)).silence(),
        ),
        ("one in pieces", in_pieces(&format!("\n {}", error_event(500)))),
        (
            "a whole answer",
            in_pieces(&whole_chat("<h1>", Some((9, 1))).to_string()),
        ),
        (
            "a usage that nobody asked for",
            Reply::stream().usage(9, 0).event(&error_event(529)).end(),
        ),
    ]
}

/// This byte by byte behind the head of a stream.
fn in_pieces(text: &str) -> Reply {
    let bytes = text.as_bytes().iter();
    bytes.fold(Reply::stream(), |reply, byte| reply.chunk([*byte])).end()
}

/// The usual stream of the second target.
pub(super) async fn spare() -> Upstream {
    Upstream::always(Reply::stream_of(&["Hi"], 9, 1)).await
}

/// A model's first target says this.
pub(super) async fn over(main: &Upstream, spare: &Upstream) -> Gateway {
    Setup::over(main)
        .spare(spare)
        .conf(|conf| conf["timeouts"] = json!({ "idle_ms": 300, "first_event_ms": 60_000 }))
        .start()
        .await
}

/// One that may be silent for long.
pub(super) async fn over_slow(main: &Upstream, spare: &Upstream) -> Gateway {
    Setup::over(main)
        .spare(spare)
        .conf(|conf| conf["timeouts"] = json!({ "first_event_ms": 60_000 }))
        .start()
        .await
}

#[tokio::test]
async fn the_second_target_answers_when_the_first_ones_stream_fails_before_its_first_event() {
    for (name, failure) in failures() {
        println!("{name}");
        let (main, spare) = (Upstream::always(failure).await, spare().await);
        let mut gateway = over(&main, &spare).await;
        for client in [&gateway.http1, &gateway.h2c] {
            let answer = client.post("/llm/chat", streaming(TWIN)).await.ok();
            assert_eq!(answer.header("content-type"), "text/event-stream");
            let events: Vec<&str> = answer.text().split_terminator("\n\n").collect();
            assert!(
                events.iter().all(|event| event.starts_with("data: ")),
                "{name}: {events:?}"
            );
            assert_eq!(events.last(), Some(&"data: [DONE]"), "{name}");
            let hi = |event: &&&str| event.contains("\"content\":\"Hi\"");
            assert_eq!(events.iter().filter(hi).count(), 1, "{name}: {events:?}");
            assert!(!answer.text().contains("error"), "{name}: {events:?}");
        }
        assert_eq!((main.seen().len(), spare.seen().len()), (2, 2), "{name}");
        assert_eq!(gateway.spent().await, cost(TWIN, 18, 2), "{name}");
        gateway.counted(2).await;
        let complete = [("status", "200"), ("outcome", "complete")];
        assert_eq!(
            gateway.metrics().sum("tollgate_requests_total", &complete),
            Decimal::TWO,
            "{name}"
        );
        let errors = [("provider", "main")];
        assert_eq!(
            gateway.metrics().sum("tollgate_upstream_errors_total", &errors),
            Decimal::TWO,
            "{name}"
        );
        // Who sends an error charges nothing.
        let breaks_off = name.starts_with("it") || ["HTML", "a whole answer"].contains(&name);
        let discarded = gateway.metrics().sum("tollgate_discarded_answers_total", &[]);
        assert_eq!(discarded, Decimal::from(2 * u8::from(breaks_off)), "{name}");
        let lines = gateway.access_log();
        assert!(
            lines.iter().all(|line| line.contains("\"attempts\":2")),
            "{name}: {lines:?}"
        );
        gateway.check_books().await;
    }
}

/// Nobody is left to be asked, so its head leaves at once.
#[tokio::test]
async fn the_last_targets_stream_leaves_as_it_comes_and_fails_within() {
    for (name, failure) in failures() {
        println!("{name}");
        let first = Upstream::always(Reply::stream().close()).await;
        let last = Upstream::always(failure).await;
        let gateway = over(&first, &last).await;
        for client in [&gateway.http1, &gateway.h2c] {
            let answer = client.post("/llm/chat", streaming(TWIN)).await.ok();
            let events: Vec<&str> = answer.text().split_terminator("\n\n").collect();
            let [.., error, done] = &events[..] else {
                panic!("{name}: {events:?}")
            };
            let code = match name {
                "one that says that it is busy" | "an error as JSON that goes on" => 429,
                _ => 502,
            };
            assert!(error.contains(&format!("\"code\":{code},")), "{name}: {events:?}");
            assert_eq!(*done, "data: [DONE]", "{name}");
            let is_theirs = |words: &&&str| answer.text().contains(**words);
            assert_eq!(["Overloaded", "<h1>", "\"no\""].iter().find(is_theirs), None, "{name}");
        }
        assert_eq!((first.seen().len(), last.seen().len()), (2, 2), "{name}");
        assert_eq!(gateway.spent().await, Decimal::ZERO, "{name}");
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn the_head_of_a_stream_that_no_other_target_could_answer_leaves_by_itself() {
    let cue = Cue::new();
    let reply = Reply::stream()
        .wait(&cue)
        .and(Reply::default().role().text("Hi").finish().done());
    let main = Upstream::always(reply).await;
    let failing = Upstream::always(Reply::stream().close()).await;
    let alone = over(&main, &failing).await;
    let last = over(&failing, &main).await;
    for (gateway, model) in [(&alone, SMALL), (&last, TWIN)] {
        for client in [&gateway.http1, &gateway.h2c] {
            let events = client.stream("/llm/chat", streaming(model)).await.ok();
            cue.give();
            assert_eq!(deltas(&events.rest().await), "Hi");
        }
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn the_first_event_of_a_stream_is_passed_on_as_it_comes_and_then_nothing_is_tried_again() {
    let cues = [Cue::new(), Cue::new(), Cue::new()];
    let reply = Reply::stream()
        .wait(&cues[0])
        .role()
        .wait(&cues[1])
        .text("Hello")
        .wait(&cues[2])
        .event(&error_event(529))
        .end();
    let (main, spare) = (Upstream::always(reply).await, Upstream::unused().await);
    let gateway = over(&main, &spare).await;
    for client in [&gateway.http1, &gateway.h2c] {
        cues[0].give();
        let mut events = client.stream("/llm/chat", streaming(TWIN)).await.ok();
        assert_eq!(events.next_json().await["choices"][0]["delta"]["role"], "assistant");
        cues[1].give();
        assert_eq!(events.next_json().await["choices"][0]["delta"]["content"], "Hello");
        cues[2].give();
        assert!(events.rest().await[0].contains("\"code\":502"));
    }
    assert_eq!((main.seen().len(), spare.seen().len()), (2, 0));
    assert_eq!(gateway.spent().await, cost(TWIN, 2 * PROMPT, 2));
    gateway.check_books().await;
}

#[tokio::test]
async fn nothing_is_tried_again_once_something_was_delivered() {
    let main = Upstream::always(Reply::stream().role().text("Hello").close()).await;
    let spare = Upstream::unused().await;
    let gateway = Setup::over(&main).spare(&spare).start().await;
    let events = gateway
        .http1
        .stream("/llm/chat/stream", request(TWIN))
        .await
        .ok()
        .rest()
        .await;
    assert!(events[events.len() - 2].contains("\"code\":502"), "{events:?}");
    assert!(spare.seen().is_empty());
    assert_eq!(gateway.spent().await, cost(TWIN, PROMPT, 1));
}

#[tokio::test]
async fn a_head_waits_no_longer_than_configured_and_what_came_with_it_passes_then() {
    for first_event_ms in [0, 40] {
        let cue = Cue::new();
        let reply = no_event().wait(&cue).event(&error_event(529)).end();
        let (main, spare) = (Upstream::always(reply).await, Upstream::unused().await);
        let setup = Setup::over(&main)
            .spare(&spare)
            .conf(|conf| conf["timeouts"] = json!({ "first_event_ms": first_event_ms, "comment_ms": 20 }));
        let gateway = setup.start().await;
        let mut raw = Raw::posted(&gateway, "/llm/chat", &streaming(TWIN)).await;
        assert_eq!(raw.head().await.status, 200);
        let mut came = String::new();
        // Comments of the gateway's own come behind what the provider sent, as in any stream.
        while !came.contains(": waiting\n\n") {
            came.push_str(std::str::from_utf8(&raw.chunk().await).unwrap());
        }
        assert!(came.starts_with(": PROCESSING\n\n"), "{came}");
        cue.give();
        while !came.contains("[DONE]") {
            came.push_str(std::str::from_utf8(&raw.chunk().await).unwrap());
        }
        assert!(came.contains("\"code\":502"), "{came}");
        assert_eq!((main.seen().len(), spare.seen().len()), (1, 0));
        assert_eq!(gateway.spent().await, Decimal::ZERO);
        gateway.check_books().await;
    }
}

/// More than comments is not kept.
#[tokio::test]
async fn a_long_start_of_a_stream_does_not_wait() {
    let comment = format!(": {}\n\n", "x".repeat(1 << 10));
    let cue = Cue::new();
    let reply = (0..80).fold(Reply::stream(), |reply, _| reply.chunk(&comment));
    let (main, spare) = (
        Upstream::always(reply.wait(&cue).close()).await,
        Upstream::unused().await,
    );
    let gateway = over(&main, &spare).await;
    let events = gateway.http1.stream("/llm/chat", streaming(TWIN)).await.ok();
    cue.give();
    let events = events.rest().await;
    assert!(events[events.len() - 2].contains("\"code\":502"), "{events:?}");
    assert_eq!((events.len(), spare.seen().len()), (82, 0));
    assert_eq!(gateway.spent().await, Decimal::ZERO);
}

/// Its head leaves at once, so the error can only be told in the stream. Clients try again after a 502.
#[tokio::test]
async fn an_error_in_the_stream_of_an_only_target_says_what_a_whole_answer_says_by_its_status() {
    for (code, status) in [
        (json!("context_length_exceeded"), 400),
        (json!("content_filter"), 400),
        (json!(400), 400),
        (json!(404), 404),
        (json!(413), 413),
        (json!(422), 422),
        (json!(429), 429),
        // The operator's key and account, and a failure.
        (json!(401), 500),
        (json!(402), 500),
        (json!(403), 500),
        (json!(529), 500),
        (Value::Null, 500),
    ] {
        let error = error_event(code.clone());
        let upstream = Upstream::by(move |number, _| match number % 5 {
            0 => Reply::json(&serde_json::from_str(&error).unwrap()),
            1 => Reply::stream().event(&error).end(),
            2 => no_event().event(&error).end(),
            3 => Reply::stream().role().text("Hello").event(&error).end(),
            _ => Reply::stream().chunk(&error).end(),
        })
        .await;
        let gateway = Gateway::over(&upstream).await;
        for client in [&gateway.http1, &gateway.h2c] {
            let whole = client.post("/llm/chat", request(SMALL)).await;
            assert_eq!(whole.status, status, "{code}");
            let whole = whole.json();
            let (told, kind) = match status {
                500 => (json!(502), json!("upstream_error")),
                _ => (whole["error"]["code"].clone(), whole["error"]["type"].clone()),
            };
            for _ in 1..5 {
                let answer = client.post("/llm/chat", streaming(SMALL)).await.ok();
                let events: Vec<&str> = answer.text().split_terminator("\n\n").collect();
                let [.., error, "data: [DONE]"] = events[..] else {
                    panic!("{code}: {events:?}")
                };
                let error: Value = serde_json::from_str(error.strip_prefix("data: ").unwrap()).unwrap();
                assert_eq!(error["choices"][0]["finish_reason"], "error", "{code}");
                assert_eq!(error["error"]["code"], told, "{code}: {events:?}");
                assert_eq!(error["error"]["type"], kind, "{code}: {events:?}");
                assert!(!answer.text().contains("verloaded"), "{code}: {events:?}");
            }
        }
        // What was delivered before it is paid, and nothing else.
        assert_eq!(gateway.spent().await, cost(SMALL, 2 * PROMPT, 2), "{code}");
        if status < 429 {
            let open = gateway.metrics().sum("tollgate_breaker_open", &[("provider", "main")]);
            assert_eq!(open, Decimal::ZERO, "{code}: the target works");
        }
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn an_error_event_at_a_streams_start_that_blames_the_request_is_its_status() {
    for code in [400, 404, 413, 422] {
        let main = Upstream::always(Reply::stream().event(&error_event(code)).end()).await;
        let spare = Upstream::unused().await;
        let gateway = over(&main, &spare).await;
        for client in [&gateway.http1, &gateway.h2c] {
            let answer = client.post("/llm/chat", streaming(TWIN)).await;
            assert_eq!((answer.status, answer.header("x-should-retry")), (code, "false"));
        }
        assert_eq!(gateway.spent().await, Decimal::ZERO);
        assert_eq!(gateway.usage().await, []);
        gateway.check_books().await;
    }
}
