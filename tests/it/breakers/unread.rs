//! Calls whose client leaves before anything of their answer has left: what they cost, and what their target is held to.

use rust_decimal::Decimal;
use serde_json::json;

use super::{breaker_of_main, with_error};
use crate::bounds::billed;
use crate::chat::{request, streaming};
use crate::harness::broken::BlackHole;
use crate::harness::catalogue::{SMALL, TWIN, cost};
use crate::harness::redis_server::RedisServer;
use crate::harness::{Cue, Reply, Setup, Upstream, eventually};

/// What a call does whose client leaves before anything of its answer has left: its upstream fails then.
async fn fails_unread(failing: impl Fn(&Cue) -> Reply, body: String, has_key: bool) {
    let cue = Cue::new();
    let reply = failing(&cue);
    let main = Upstream::always(reply).await;
    let spare = Upstream::unused().await;
    let gateway = Setup::over(&main).spare(&spare).start().await;
    for call in 1..=5 {
        let mut asked = gateway.http1.post_request("/llm/chat", body.clone());
        if has_key {
            asked = asked.header("idempotency-key", format!("key-{call}"));
        }
        tokio::select! {
            answer = asked.send() => panic!("an answer came: {answer:?}"),
            _ = main.asked(call) => {}
        }
        // By the time that these are answered, on the same thread, the gateway has seen that the client left.
        for _ in 0..2 {
            gateway.http1.get("/llm/health").await.ok();
        }
        assert_eq!(breaker_of_main(&gateway.metrics()), Decimal::ZERO, "{call}");
        cue.give();
        assert_eq!(gateway.spent().await, Decimal::ZERO);
    }
    assert_eq!(breaker_of_main(&gateway.metrics()), Decimal::ONE);
    let failed = gateway
        .metrics()
        .sum("tollgate_upstream_errors_total", &[("provider", "main")]);
    assert_eq!(failed, Decimal::from(5));
    gateway.check_books().await;
}

/// Nobody got anything of them, and their calls cost nothing: their target fails all the same.
#[tokio::test]
async fn answers_that_fail_while_they_are_read_on_for_nobody_count_against_their_target() {
    let stream = |cue: &Cue| with_error(Reply::stream().chunk(": a comment\n\n").wait(cue), 529);
    fails_unread(stream, streaming(TWIN), true).await;
    fails_unread(
        |cue| Reply::json_head(100).bytes("{").wait(cue).close(),
        request(TWIN),
        true,
    )
    .await;
}

/// Clients are less patient than `first_byte_ms`.
#[tokio::test]
async fn targets_that_fail_before_their_head_for_clients_that_have_left_are_passed_over() {
    for body in [request(TWIN), streaming(TWIN)] {
        fails_unread(|cue| Reply::status(500).once(cue), body.clone(), false).await;
        fails_unread(|cue| Reply::refusal(429, &[], "busy").once(cue), body.clone(), false).await;
        fails_unread(|cue| Reply::default().wait(cue).close(), body.clone(), false).await;
        fails_unread(|cue| Reply::default().wait(cue).reset(), body, false).await;
    }
}

/// Nobody was told: not the client, which had left, and not the operator, whose account it is.
#[tokio::test]
async fn a_refusal_of_the_operators_account_alarms_though_its_client_has_left() {
    let words = json!({ "error": { "message": "Your credit balance is too low to access the API." } }).to_string();
    let json = [("content-type", "application/json")];
    for status in [400, 401, 429] {
        let cue = Cue::new();
        let main = Upstream::always(Reply::new(status, &json, &words).once(&cue)).await;
        let spare = Upstream::unused().await;
        let gateway = Setup::over(&main).spare(&spare).start().await;
        tokio::select! {
            answer = gateway.http1.post_request("/llm/chat", request(TWIN)).send() => panic!("an answer came: {answer:?}"),
            _ = main.asked(1) => {}
        }
        // By the time that these are answered, on the same thread, the gateway has seen that the client left.
        for _ in 0..2 {
            gateway.http1.get("/llm/health").await.ok();
        }
        cue.give();
        assert_eq!(gateway.spent().await, Decimal::ZERO);
        let metrics = gateway.metrics();
        let refused = metrics.sum("tollgate_credential_refused", &[("provider", "main")]);
        assert_eq!(refused, Decimal::ONE, "{status}");
        let failed = metrics.sum("tollgate_upstream_errors_total", &[("provider", "main")]);
        assert_eq!(failed, Decimal::ONE, "{status}");
        gateway.check_books().await;
    }
}

/// One that blames the request is no failure of the target, whether its client has left or not.
#[tokio::test]
async fn a_refusal_of_the_request_is_no_failure_though_its_client_has_left() {
    let cue = Cue::new();
    let main = Upstream::always(Reply::refusal(400, &[], "no").once(&cue)).await;
    let gateway = Setup::over(&main).start().await;
    tokio::select! {
        answer = gateway.http1.post_request("/llm/chat", request(SMALL)).send() => panic!("an answer came: {answer:?}"),
        _ = main.asked(1) => {}
    }
    for _ in 0..2 {
        gateway.http1.get("/llm/health").await.ok();
    }
    cue.give();
    assert_eq!(gateway.spent().await, Decimal::ZERO);
    let metrics = gateway.metrics();
    assert_eq!(metrics.sum("tollgate_upstream_errors_total", &[]), Decimal::ZERO);
    assert_eq!(metrics.sum("tollgate_credential_refused", &[]), Decimal::ZERO);
    gateway.check_books().await;
}

/// Whether its target is back was left open then, and the others waited ten seconds for it.
#[tokio::test]
async fn a_client_that_leaves_an_answer_which_finds_out_lets_the_next_call_find_out() {
    let cue = Cue::new();
    let long = Reply::stream().role().text("Hello").wait(&cue);
    let main = Upstream::by(move |number, _| match number {
        0..5 => Reply::status(500),
        5..8 => long.clone(),
        _ => Reply::stream_of(&["Hi"], 9, 1),
    })
    .await;
    let spare = Upstream::always(Reply::stream_of(&["Hi"], 9, 1)).await;
    let gateway = Setup::over(&main).spare(&spare).start().await;
    for _ in 0..5 {
        gateway.http1.post("/llm/chat", streaming(TWIN)).await.ok();
    }
    gateway.clock.advance(10_000);
    for call in 6..=8 {
        let mut events = gateway.http1.stream("/llm/chat", streaming(TWIN)).await.ok();
        events.next().await.unwrap();
        assert_eq!((main.seen().len(), spare.seen().len()), (call, 5));
        drop(events);
        // Its call is closed by then.
        gateway.spent().await;
    }
    for call in 9..=11 {
        gateway.http1.post("/llm/chat", streaming(TWIN)).await.ok();
        assert_eq!((main.seen().len(), spare.seen().len()), (call, 5));
    }
    gateway.check_books().await;
}

/// How long a connection may take: longer than a stalled machine takes to admit a call.
const CONNECT_MS: u64 = 1_500;

/// Nobody has begun to work when their client leaves, and nobody is to begin then.
#[tokio::test]
async fn a_client_that_leaves_while_a_connection_is_made_is_asked_for_nothing() {
    for over_h2 in [false, true] {
        let hole = BlackHole::new().await;
        let spare = Upstream::always(Reply::chat("Hi", 9, 1)).await;
        let provider = json!({ "base_url": hole.base_url(), "api_key_env": "SET_MAIN" });
        let setup = Setup::over(&spare).spare(&spare).provider("main", provider);
        let setup = setup.conf(|conf| conf["timeouts"] = json!({ "connect_ms": CONNECT_MS }));
        let gateway = setup.start().await;
        let client = if over_h2 { &gateway.h2c } else { &gateway.http1 };
        for _ in 0..5 {
            let call = client.post_request("/llm/chat", request(TWIN));
            tokio::select! {
                answer = call.send() => panic!("an answer came: {answer:?}"),
                () = eventually("it is admitted", async || {
                    (gateway.held().await > Decimal::ZERO).then_some(())
                }) => {}
            }
            assert_eq!(gateway.spent().await, Decimal::ZERO);
        }
        assert!(spare.seen().is_empty());
        // It was not reached all the same.
        assert_eq!(breaker_of_main(&gateway.metrics()), Decimal::ONE);
        client.post("/llm/chat", request(TWIN)).await.ok();
        assert_eq!(spare.seen().len(), 1);
        gateway.check_books().await;
    }
}

/// The same where there is no other, and the connection is made once the client has left.
#[tokio::test]
async fn a_client_that_left_before_its_connection_was_made_is_asked_for_nothing() {
    let hole = BlackHole::new().await;
    let unused = Upstream::unused().await;
    let provider = json!({ "base_url": hole.base_url(), "api_key_env": "SET_MAIN" });
    let gateway = Setup::over(&unused).provider("main", provider).start().await;
    let call = gateway.http1.post_request("/llm/chat", request(SMALL));
    tokio::select! {
        answer = call.send() => panic!("an answer came: {answer:?}"),
        () = eventually("it is admitted", async || {
            (gateway.held().await > Decimal::ZERO).then_some(())
        }) => {}
    }
    let main = hole.returns(Reply::chat("Hi", 9, 1)).await;
    assert_eq!(gateway.spent().await, Decimal::ZERO);
    assert!(main.seen().is_empty());
    assert_eq!(
        gateway.metrics().sum("tollgate_upstream_errors_total", &[]),
        Decimal::ZERO,
        "the connection was made"
    );
    gateway.check_books().await;
}

/// Nor where a connection to the provider waits already, so that nothing takes its time but the admission.
#[tokio::test]
async fn a_client_that_left_while_its_call_was_admitted_is_asked_for_nothing() {
    for over_h2 in [false, true] {
        let redis = RedisServer::start();
        let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
        let gateway = Setup::over(&upstream).redis(&redis.url()).start().await;
        let client = if over_h2 { &gateway.h2c } else { &gateway.http1 };
        client.post("/llm/chat", request(SMALL)).await.ok();
        billed(&gateway).await;
        assert_eq!(redis.ask("CLIENT PAUSE 400"), ["+OK"]);
        let call = client.post_request("/llm/chat", request(SMALL));
        tokio::select! {
            answer = call.send() => panic!("an answer came: {answer:?}"),
            () = eventually("it is there", async || {
                let running = gateway.metrics().sum("tollgate_requests_in_flight", &[]);
                (running > Decimal::ZERO).then_some(())
            }) => {}
        }
        gateway.counted(2).await;
        assert_eq!(upstream.seen().len(), 1);
        assert_eq!(gateway.spent().await, cost(SMALL, 9, 1));
        gateway.check_books().await;
    }
}
