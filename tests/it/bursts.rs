//! Events that come at once leave together, and none of them waits for the next.

use crate::chat::{PROMPT, request};
use crate::harness::catalogue::{SMALL, cost};
use crate::harness::told::without_cost;
use crate::harness::{Cue, Gateway, Raw, Reply, Upstream};

/// A stream that begins with a role and so many words.
fn words(count: usize) -> Reply {
    (0..count).fold(Reply::stream().role(), |reply, _| reply.text(" word"))
}

/// A client that asks for a stream and has read its head.
async fn asked(gateway: &Gateway, more: &str) -> Raw {
    let mut raw = Raw::posted(gateway, "/llm/chat/stream", &request(SMALL)).await;
    raw.send(more).await;
    raw.head().await.ok();
    raw
}

/// Reads so many events, in chunks; how many chunks those were.
async fn read(raw: &mut Raw, events: usize) -> usize {
    let (mut text, mut chunks) = (Vec::new(), 0);
    while text.windows(2).filter(|end| end == b"\n\n").count() < events {
        text.extend_from_slice(&raw.chunk().await);
        chunks += 1;
    }
    chunks
}

#[tokio::test]
async fn events_that_come_at_once_do_not_wait_for_the_next() {
    let cue = Cue::new();
    for count in [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 16, 30, 60, 200] {
        let rest = Reply::default().text(" more").finish().usage(50, 30).done();
        let upstream = Upstream::always(words(count).at_once().wait(&cue).and(rest.at_once())).await;
        let gateway = Gateway::over(&upstream).await;
        for client in [&gateway.http1, &gateway.h2c] {
            let mut events = client.stream("/llm/chat/stream", request(SMALL)).await.ok();
            for _ in 0..=count {
                events.next().await.unwrap();
            }
            cue.give();
            let mut left = 0;
            while events.next().await.is_some() {
                left += 1;
            }
            assert_eq!(left, 3, "{count}: a word, the finish reason and [DONE]");
        }
        // What was sent beyond the request is no reason to wait either.
        for more in ["", "x"] {
            let mut raw = asked(&gateway, more).await;
            read(&mut raw, count + 1).await;
            cue.give();
            read(&mut raw, 3).await;
        }
        assert_eq!(gateway.spent().await, cost(SMALL, 4 * 50, 4 * 30), "{count}");
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn events_that_come_at_once_leave_together() {
    let upstream = Upstream::always(words(100).finish().usage(50, 100).done().at_once()).await;
    let gateway = Gateway::over(&upstream).await;
    let mut raw = asked(&gateway, "").await;
    let chunks = read(&mut raw, 103).await;
    // Pingora hands on four at a time.
    assert!(chunks < 10, "{chunks} chunks of 103 events");
    assert_eq!(raw.chunk().await, "");
}

#[tokio::test]
async fn the_head_leaves_with_the_first_event_and_the_last_with_the_end() {
    let (first, second) = (Cue::new(), Cue::new());
    let role = Reply::default().role();
    let rest = Reply::default().text(" word").finish().usage(50, 1).done().at_once();
    let together = Reply::stream().and(role.clone()).at_once().wait(&second);
    // A head that comes alone does not wait.
    let apart = Reply::stream().wait(&first).and(role).wait(&second);
    let upstream = Upstream::of([together.and(rest.clone()), apart.and(rest)]).await;
    let gateway = Gateway::over(&upstream).await;
    for alone in [0, 1] {
        let mut raw = asked(&gateway, "").await;
        assert_eq!(raw.segments(), 1, "the head, and what was there with it");
        if alone == 1 {
            assert_eq!(raw.came(), 0);
            first.give();
        }
        read(&mut raw, 1).await;
        assert_eq!(raw.segments(), 1 + alone);
        second.give();
        read(&mut raw, 3).await;
        assert_eq!(raw.chunk().await, "");
        assert_eq!(raw.segments(), 2 + alone, "the rest, and the end of the chunks");
    }
    gateway.check_books().await;
}

#[tokio::test]
async fn others_have_their_turn_within_a_burst() {
    let upstream = Upstream::always(words(200).finish().usage(50, 200).done().at_once()).await;
    let gateway = Gateway::over(&upstream).await;
    let mut raw = asked(&gateway, "").await;
    // The client shares the gateway's thread: what has come is what was passed on before it had its turn.
    let came = raw.came();
    read(&mut raw, 203).await;
    assert!(came < 12_000, "{came} bytes were passed on without a pause");
}

#[tokio::test]
async fn an_upstream_that_dies_within_a_burst_is_billed_for_what_the_client_got() {
    for count in [3, 4, 8, 40] {
        let upstream = Upstream::always(words(count).at_once().close()).await;
        let gateway = Gateway::over(&upstream).await;
        let mut events = gateway.http1.stream("/llm/chat/stream", request(SMALL)).await.ok();
        let mut all = Vec::new();
        while let Some(event) = events.next().await {
            all.push(event);
        }
        // The role, the words, the error and [DONE].
        assert_eq!(all.len(), 1 + count + 2, "{count}");
        assert_eq!(
            gateway.spent().await,
            cost(SMALL, PROMPT, u64::try_from(count).unwrap())
        );
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn the_pieces_of_a_whole_answer_leave_when_they_come() {
    let cue = Cue::new();
    let body = crate::harness::reply::whole_chat(&"word ".repeat(400), Some((9, 400))).to_string();
    let pieces: Vec<&[u8]> = body.as_bytes().chunks(body.len().div_ceil(5)).collect();
    let reply = pieces.iter().fold(Reply::json_head(body.len()), |reply, piece| {
        reply.bytes(piece).wait(&cue)
    });
    let upstream = Upstream::always(reply).await;
    let gateway = Gateway::over(&upstream).await;
    let mut raw = Raw::posted(&gateway, "/llm/chat", &request(SMALL)).await;
    assert_eq!(raw.head().await.status, 200);
    // The last is the usage, which leaves with the answer's end.
    let (last, before) = pieces.split_last().unwrap();
    for piece in before {
        let chunk = raw.chunk().await;
        assert_eq!(chunk, piece, "it has left, though the next has not come");
        cue.give();
    }
    let mut rest = Vec::new();
    while !without_cost(std::str::from_utf8(&rest).unwrap()).ends_with(std::str::from_utf8(last).unwrap()) {
        rest.extend_from_slice(&raw.chunk().await);
    }
    cue.give();
    assert_eq!(gateway.spent().await, cost(SMALL, 9, 400));
    gateway.check_books().await;
}
