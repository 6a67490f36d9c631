//! A request is sent again only where no work on it can have begun, and to the same target at most once.

use std::time::Duration;

use futures::future::join_all;
use h2::Reason;
use rust_decimal::Decimal;

use super::over_frames;
use crate::chat::{request, streaming};
use crate::harness::catalogue::{SMALL, TWIN, cost};
use crate::harness::frames::{FrameReply, FrameUpstream};
use crate::harness::reply::whole_chat;
use crate::harness::{Cue, Gateway, Reply, Setup, Upstream};

/// Longer than an upstream may take to close a connection that it had given up before the request came.
const AT_WORK: Duration = Duration::from_millis(300);

fn chat() -> Reply {
    Reply::chat("Hi", 9, 1)
}

/// An upstream that lets so many connections wait for their next request, of which it then treats each so; a gateway over it, and a
/// spare.
async fn pooled(connections: usize, then: Vec<Reply>) -> (Upstream, Upstream, Gateway) {
    let cue = Cue::new();
    let first = Reply::default().wait(&cue).and(chat());
    let main = Upstream::of(std::iter::repeat_n(first, connections).chain(then)).await;
    let spare = Upstream::by(|_, seen| match seen.json()["stream"].as_bool() {
        Some(true) => Reply::stream_of(&["Hi"], 9, 1),
        _ => chat(),
    })
    .await;
    let gateway = Setup::over(&main).spare(&spare).start().await;
    let calls = join_all((0..connections).map(|_| gateway.http1.post("/llm/chat", request(SMALL))));
    let (answers, _) = tokio::join!(calls, async {
        main.asked(connections).await;
        cue.give_all();
    });
    answers.into_iter().for_each(|answer| drop(answer.ok()));
    assert_eq!(main.connections(), connections);
    (main, spare, gateway)
}

#[tokio::test]
async fn an_upstream_that_dies_at_work_is_asked_once() {
    for body in [request, streaming] {
        let (main, _spare, gateway) = pooled(4, vec![Reply::default().close().after(AT_WORK)]).await;
        let before = gateway.spent().await;
        let answer = gateway.http1.post("/llm/chat", body(SMALL)).await;
        answer.error(502, "upstream_error");
        assert_eq!(main.seen().len(), 4 + 1, "it may have worked: it is not asked again");
        assert_eq!(gateway.spent().await, before);
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn an_upstream_that_resets_the_connection_at_work_is_asked_once() {
    let (main, _spare, gateway) = pooled(4, vec![Reply::default().reset().after(AT_WORK)]).await;
    let before = gateway.spent().await;
    let answer = gateway.http1.post("/llm/chat", request(SMALL)).await;
    answer.error(502, "upstream_error");
    assert_eq!(main.seen().len(), 4 + 1);
    assert_eq!(gateway.spent().await, before);
}

#[tokio::test]
async fn an_upstream_that_dies_within_a_head_is_asked_once() {
    let begun = Reply::default().bytes("HTTP/1.1 200 OK\r\ncontent-ty").close();
    let (main, _spare, gateway) = pooled(4, vec![begun]).await;
    let before = gateway.spent().await;
    let answer = gateway.http1.post("/llm/chat", request(SMALL)).await;
    answer.error(502, "upstream_error");
    assert_eq!(main.seen().len(), 4 + 1, "it had begun to answer");
    assert_eq!(gateway.spent().await, before);
}

#[tokio::test]
async fn another_target_answers_for_one_that_dies_at_work() {
    for body in [request, streaming] {
        let (main, spare, gateway) = pooled(4, vec![Reply::default().close().after(AT_WORK)]).await;
        let before = gateway.spent().await;
        gateway.http1.post("/llm/chat", body(TWIN)).await.ok();
        assert_eq!((main.seen().len(), spare.seen().len()), (4 + 1, 1));
        assert_eq!(gateway.spent().await - before, cost(TWIN, 9, 1));
        gateway.check_books().await;
    }
}

/// The connection was closed when the request arrived: nobody has read it, so it is sent again, once.
#[tokio::test]
async fn an_upstream_that_closes_at_once_is_asked_once_more() {
    for body in [request, streaming] {
        for end in [Reply::default().close(), Reply::default().reset()] {
            let answer = match body(SMALL) == streaming(SMALL) {
                true => Reply::stream_of(&["Hi"], 9, 1),
                false => chat(),
            };
            let (main, _spare, gateway) = pooled(4, vec![end.clone(), answer]).await;
            gateway.http1.post("/llm/chat", body(SMALL)).await.ok();
            assert_eq!(main.seen().len(), 4 + 2);
            assert_eq!(gateway.spent().await, cost(SMALL, 9 * 5, 5));

            let (main, spare, gateway) = pooled(4, vec![end]).await;
            let before = gateway.spent().await;
            let refused = gateway.http1.post("/llm/chat", body(SMALL)).await;
            refused.error(502, "upstream_error");
            assert_eq!(main.seen().len(), 4 + 2, "at most once more");
            assert_eq!(gateway.spent().await, before);
            assert_eq!(spare.seen().len(), 0);
        }
    }
}

/// It closes its connections after each answer and does not say so.
#[tokio::test]
async fn a_pooled_connection_that_was_closed_is_replaced() {
    let main = Upstream::always(chat().close()).await;
    let gateway = Gateway::over(&main).await;
    for _ in 0..10 {
        gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    }
    assert_eq!(main.seen().len(), 10);
    assert_eq!(gateway.spent().await, cost(SMALL, 90, 10));
}

fn whole() -> FrameReply {
    let body = whole_chat("Hi", Some((9, 1))).to_string();
    FrameReply::head(200, &[("content-type", "application/json")]).last(body)
}

/// After a first call, whose connection is used again, the upstream does this with every request.
async fn reused(then: Vec<FrameReply>) -> (FrameUpstream, Upstream, Gateway) {
    let spare = Upstream::always(chat()).await;
    let (main, gateway) = over_frames([vec![whole()], then].concat(), &spare).await;
    gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    assert_eq!(main.seen().len(), 1);
    (main, spare, gateway)
}

#[tokio::test]
async fn over_http2_a_request_that_may_have_been_worked_on_is_sent_once() {
    for reason in [
        Reason::INTERNAL_ERROR,
        Reason::CANCEL,
        Reason::ENHANCE_YOUR_CALM,
        Reason::PROTOCOL_ERROR,
        Reason::NO_ERROR,
    ] {
        println!("{reason:?}");
        let resets = FrameReply::default().pause(AT_WORK).reset_stream(reason);
        let (main, spare, gateway) = reused(vec![resets]).await;
        let before = gateway.spent().await;
        let answer = gateway.http1.post("/llm/chat", request(SMALL)).await;
        answer.error(502, "upstream_error");
        assert_eq!(main.seen().len(), 2, "{reason:?}");
        assert_eq!(gateway.spent().await, before);

        gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
        assert_eq!((main.seen().len(), spare.seen().len()), (3, 1), "{reason:?}");
        assert_eq!(gateway.spent().await - before, cost(TWIN, 9, 1));
        gateway.check_books().await;
    }
}

/// The whole connection ends while the upstream works.
#[tokio::test]
async fn over_http2_a_request_on_a_connection_that_dies_at_work_is_sent_once() {
    let work = || FrameReply::default().pause(AT_WORK);
    for (name, end) in [
        ("closed", work().close()),
        ("reset", work().reset()),
        (
            "GOAWAY that includes it",
            work().go_away_after(Reason::INTERNAL_ERROR).close(),
        ),
    ] {
        println!("{name}");
        let (main, _spare, gateway) = reused(vec![end]).await;
        let before = gateway.spent().await;
        let answer = gateway.http1.post("/llm/chat", request(SMALL)).await;
        answer.error(502, "upstream_error");
        assert_eq!(main.seen().len(), 2, "{name}");
        assert_eq!(gateway.spent().await, before);
        gateway.check_books().await;
    }
}

/// The upstream says itself that it has not begun.
#[tokio::test]
async fn over_http2_a_request_that_was_refused_is_sent_once_more() {
    for (name, refused) in [
        (
            "REFUSED_STREAM",
            FrameReply::default().reset_stream(Reason::REFUSED_STREAM),
        ),
        (
            "GOAWAY below it",
            FrameReply::default().go_away_below(Reason::NO_ERROR).close(),
        ),
        (
            "GOAWAY below it that waits",
            FrameReply::default().go_away_below(Reason::NO_ERROR),
        ),
    ] {
        println!("{name}");
        let (main, _spare, gateway) = reused(vec![refused.clone(), whole()]).await;
        gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
        assert_eq!(main.seen().len(), 3, "{name}");
        assert_eq!(gateway.spent().await, cost(SMALL, 18, 2));

        let (main, spare, gateway) = reused(vec![refused]).await;
        let before = gateway.spent().await;
        let answer = gateway.http1.post("/llm/chat", request(SMALL)).await;
        answer.error(502, "upstream_error");
        assert_eq!(main.seen().len(), 3, "{name}: at most once more");
        assert_eq!(gateway.spent().await, before);

        gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
        assert_eq!(spare.seen().len(), 1, "{name}");
        assert!(main.seen().len() <= 5, "{name}: {}", main.seen().len());
        assert_eq!(gateway.spent().await - before, cost(TWIN, 9, 1));
        gateway.check_books().await;
    }
}

/// How an upstream says that it has not begun.
fn refusals() -> [FrameReply; 2] {
    [
        FrameReply::default().reset_stream(Reason::REFUSED_STREAM),
        FrameReply::default().go_away_below(Reason::NO_ERROR).close(),
    ]
}

/// How many breakers of the upstream are open.
fn breakers_open(gateway: &Gateway) -> Decimal {
    gateway.metrics().sum("tollgate_breaker_open", &[("provider", "main")])
}

/// It was a failure like any other: while a provider replaced its connections, each model of it could be passed over.
#[tokio::test]
async fn over_http2_an_upstream_that_refuses_a_request_once_and_answers_its_repeat_has_not_failed() {
    for refused in refusals() {
        let then = (0..6).flat_map(|_| [refused.clone(), whole()]).collect();
        let (main, _spare, gateway) = reused(then).await;
        for _ in 0..6 {
            gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
        }
        assert_eq!(main.seen().len(), 1 + 2 * 6);
        for asked in main.seen()[1..].chunks(2) {
            assert_ne!(asked[0].connection, asked[1].connection, "the repeat is over a new one");
        }
        assert_eq!(breakers_open(&gateway), Decimal::ZERO);
        gateway.check_books().await;
    }
}

/// One that refused all requests was never passed over.
#[tokio::test]
async fn over_http2_an_upstream_that_refuses_the_repeats_too_is_passed_over_after_five() {
    for refused in refusals() {
        let (main, spare, gateway) = reused(vec![refused]).await;
        for calls in 1..=5 {
            assert_eq!(breakers_open(&gateway), Decimal::ZERO);
            gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
            assert_eq!((main.seen().len(), spare.seen().len()), (1 + 2 * calls, calls));
        }
        assert_eq!(breakers_open(&gateway), Decimal::ONE);
        gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
        assert_eq!((main.seen().len(), spare.seen().len()), (1 + 2 * 5, 6));
        gateway.check_books().await;
    }
}

/// It worked when the request came, and the upstream may have handed that on: it was sent again, as by a connection that had waited.
#[tokio::test]
async fn over_http2_a_request_on_a_connection_in_use_that_dies_is_sent_once() {
    for end in [FrameReply::default().close(), FrameReply::default().reset()] {
        let hello = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello\"}}]}\n\n";
        let begun = FrameReply::head(200, &[("content-type", "text/event-stream")]).data(hello);
        let (main, _spare, gateway) = reused(vec![begun.wait(&Cue::new()), end, whole()]).await;
        let mut events = gateway.http1.stream("/llm/chat/stream", request(SMALL)).await.ok();
        events.next().await.unwrap();
        let answer = gateway.http1.post("/llm/chat", request(SMALL)).await;
        answer.error(502, "upstream_error");
        let connections: Vec<usize> = main.seen().iter().map(|seen| seen.connection).collect();
        assert_eq!(connections, [0, 0, 0]);
        assert_eq!(events.rest().await.last().unwrap(), "[DONE]");
        gateway.check_books().await;
    }
}
