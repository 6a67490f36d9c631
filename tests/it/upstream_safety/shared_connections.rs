//! Calls on one HTTP/2 connection: a client that does not read its answer holds up no other, and a connection that takes no new calls is
//! replaced while it finishes those that it has.

use h2::Reason;

use super::{over_frames, over_tls};
use crate::chat::{PROMPT, request};
use crate::harness::catalogue::{SMALL, cost};
use crate::harness::frames::{FrameReply, FrameUpstream};
use crate::harness::h2_upstream::{Frame, H2Upstream};
use crate::harness::reply::whole_chat;
use crate::harness::tls::Authority;
use crate::harness::{Cue, Events, Gateway, Raw, Setup, Upstream};

const HELLO: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello\"}}]}\n\n";
const WORLD: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" world\"}}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";
/// What costs nothing, however much of it comes, and passes.
const FREE: &str =
    "data: {\"choices\":[],\"x\":\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"}\n\n";
const EVENTS: &str = "text/event-stream";
/// Events that come while others do not read. A frame of 16 KiB of theirs is sent with each of them, at least, so half as many use up the
/// window of a connection that sets none.
const EVENTS_MEANWHILE: usize = 1_000;
/// More than the windows of a connection that sets none (8 MiB), with all buffers on the way.
const UNREAD_BYTES: usize = 16 << 20;
/// Frames of DATA that are not read, most of them: far above what h2 lets wait of such on a connection that sets no window (16,513), and
/// together less than the window of one stream.
const UNREAD_FRAMES: usize = 100_000;
/// What the gateway tells the kernel to keep of an answer; it keeps twice as much.
const SEND_BUFFER: u32 = 16 << 10;

/// A gateway that keeps little of what a client does not read.
async fn over_narrow(base_url: &str, authority: &Authority) -> Gateway {
    let spare = Upstream::unused().await;
    over_tls(base_url, authority, Setup::over(&spare).send_buffer_bytes(SEND_BUFFER)).await
}

async fn stream(gateway: &Gateway) -> Events {
    gateway.http1.stream("/llm/chat/stream", request(SMALL)).await.ok()
}

/// A client that reads the head of its stream and then no more.
async fn does_not_read(gateway: &Gateway) -> Raw {
    let mut raw = Raw::connect_narrow(gateway.address).await;
    raw.post(gateway, "/llm/chat/stream", &request(SMALL)).await;
    assert_eq!(raw.head().await.status, 200);
    raw
}

async fn check_next(events: &mut Events, text: &str) {
    assert_eq!(events.next_json().await["choices"][0]["delta"]["content"], text);
}

#[tokio::test]
async fn clients_that_do_not_read_hold_up_no_other_on_the_same_connection() {
    let cue = Cue::new();
    let mut read = vec![Frame::Data(HELLO)];
    for _ in 0..EVENTS_MEANWHILE {
        read.extend([Frame::Wait(cue.clone()), Frame::Data(WORLD)]);
    }
    read.extend([Frame::Data(DONE), Frame::End]);
    let unread: &'static str = FREE.repeat(UNREAD_BYTES / FREE.len()).leak();
    let answers = vec![
        (EVENTS, read),
        (EVENTS, vec![Frame::Data(unread), Frame::Wait(Cue::new())]),
    ];
    let authority = Authority::new();
    let main = H2Upstream::of(&authority.identity("localhost"), answers).await;
    let gateway = over_narrow(&main.base_url(), &authority).await;
    let mut events = stream(&gateway).await;
    check_next(&mut events, "Hello").await;
    // One is stopped by its own window, when that of the connection is not quite used up.
    let others = [does_not_read(&gateway).await, does_not_read(&gateway).await];
    for _ in 0..EVENTS_MEANWHILE {
        cue.give();
        check_next(&mut events, " world").await;
    }
    assert_eq!(events.rest().await, ["[DONE]"]);
    assert_eq!(main.connections(), 1);
    others.into_iter().for_each(Raw::close);
    gateway.check_books().await;
}

#[tokio::test]
async fn many_small_frames_to_a_client_that_does_not_read_end_no_other_call_on_the_same_connection() {
    let cue = Cue::new();
    let head = || FrameReply::head(200, &[("content-type", EVENTS)]);
    let replies = vec![
        head().data(HELLO).wait(&cue).data(WORLD).last(DONE),
        head().data_frames(UNREAD_FRAMES, ":\n").wait(&Cue::new()),
    ];
    let authority = Authority::new();
    let main = FrameUpstream::tls(&authority.identity("localhost"), replies).await;
    let gateway = over_narrow(&main.base_url(), &authority).await;
    let mut events = stream(&gateway).await;
    check_next(&mut events, "Hello").await;
    let other = does_not_read(&gateway).await;
    // It leaves the upstream behind all of those frames.
    cue.give();
    check_next(&mut events, " world").await;
    assert_eq!(events.rest().await, ["[DONE]"]);
    assert!(main.seen().iter().all(|seen| seen.connection == 0));
    other.close();
    gateway.check_books().await;
}

#[tokio::test]
async fn a_connection_that_an_error_closes_to_new_calls_is_replaced_and_finishes_its_stream() {
    for reason in [Reason::INTERNAL_ERROR, Reason::ENHANCE_YOUR_CALM] {
        println!("{reason:?}");
        let cue = Cue::new();
        let begun = FrameReply::head(200, &[("content-type", EVENTS)]).data(HELLO);
        let told = begun.go_away_after(reason).data(WORLD).wait(&cue).last(DONE);
        let body = whole_chat("Hi", Some((9, 1))).to_string();
        let whole = FrameReply::head(200, &[("content-type", "application/json")]).last(body);
        let spare = Upstream::unused().await;
        let (main, gateway) = over_frames(vec![told, whole], &spare).await;
        let mut events = stream(&gateway).await;
        // The second event came behind the GOAWAY, so that is known.
        check_next(&mut events, "Hello").await;
        check_next(&mut events, " world").await;
        for client in [&gateway.http1, &gateway.h2c] {
            client.post("/llm/chat", request(SMALL)).await.ok();
        }
        cue.give();
        assert_eq!(events.rest().await, ["[DONE]"]);
        gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
        let connections: Vec<usize> = main.seen().iter().map(|seen| seen.connection).collect();
        assert_eq!(connections, [0, 1, 1, 1]);
        assert_eq!(gateway.spent().await, cost(SMALL, PROMPT + 27, 2 + 3));
        gateway.check_books().await;
    }
}
