//! What an upstream does over HTTP/2.

use h2::Reason;

use super::{Behaviour, Does};
use crate::harness::frames::{DATA, END_STREAM, FrameReply, PADDED};
use crate::harness::reply::Cue;

/// Over HTTP/2, each on a fresh connection and on one that was used before.
pub fn http2() -> Vec<Behaviour> {
    let mut all = Vec::new();
    for is_pooled in [false, true] {
        let rows = [answers(), resets(), goaways()];
        all.extend(rows.into_iter().flatten().map(|(name, reply)| Behaviour {
            name,
            does: Does::Http2(reply),
            is_pooled,
            body: 10,
        }));
    }
    all
}

type Frames = (&'static str, Box<dyn Fn(&Cue) -> FrameReply>);

fn row(name: &'static str, reply: impl Fn(&Cue) -> FrameReply + 'static) -> Frames {
    (name, Box::new(reply))
}

fn head() -> FrameReply {
    FrameReply::head(200, &[])
}

fn five() -> FrameReply {
    FrameReply::head(200, &[("content-length", "5")])
}

fn answers() -> Vec<Frames> {
    vec![
        row("a body without a length", |_| head().data("hel").last("lo")),
        row("a body with a length", |_| five().last("hello")),
        row("the end in an empty frame", |_| five().data("hello").last("")),
        row("a head alone", |_| FrameReply::only_head(200, &[])),
        row("a head alone with a length of 0", |_| {
            FrameReply::only_head(200, &[("content-length", "0")])
        }),
        row("a head alone with a length of 5", |_| {
            FrameReply::only_head(200, &[("content-length", "5")])
        }),
        row("204", |_| FrameReply::only_head(204, &[])),
        row("304", |_| FrameReply::only_head(304, &[("etag", "a")])),
        row("500", |_| FrameReply::head(500, &[]).last("sorry")),
        row("an interim answer", |_| {
            FrameReply::head(103, &[("link", "</a>")])
                .and_head(200, &[])
                .last("hello")
        }),
        row("100", |_| FrameReply::head(100, &[]).and_head(200, &[]).last("hello")),
        row("trailers", |_| head().data("hello").trailers(&[("x-a", "b")])),
        row("trailers alone", |_| head().trailers(&[("x-a", "b")])),
        row("padding", |_| {
            head().frame(DATA, PADDED | END_STREAM, b"\x03hello\0\0\0")
        }),
        row("empty frames", |_| {
            head().data("").data("he").data("").data("llo").last("")
        }),
        row("each piece when the client has the first", |cue| {
            head().data("he").wait(cue).last("llo")
        }),
        row("less than its length", |cue| five().data("he").wait(cue).last("")),
        row("more than its length", |cue| {
            five().data("he").wait(cue).last("llo there")
        }),
        row("connection: close", |_| {
            FrameReply::head(200, &[("connection", "close")]).last("hello")
        }),
        row("transfer-encoding", |_| {
            FrameReply::head(200, &[("transfer-encoding", "chunked")]).last("hello")
        }),
        row("room for one byte of the request", |_| five().last("hello").narrow()),
        row("an early answer", |_| five().last("hello").early()),
        row("an early answer and NO_ERROR", |_| {
            five().last("hello").reset_stream(Reason::NO_ERROR).early()
        }),
    ]
}

fn resets() -> Vec<Frames> {
    let before = |reason| move |_: &Cue| FrameReply::default().reset_stream(reason);
    let within = |reason| move |cue: &Cue| head().data("he").wait(cue).reset_stream(reason);
    vec![
        row("REFUSED_STREAM before the head", before(Reason::REFUSED_STREAM)),
        row("INTERNAL_ERROR before the head", before(Reason::INTERNAL_ERROR)),
        row("CANCEL before the head", before(Reason::CANCEL)),
        row("ENHANCE_YOUR_CALM before the head", before(Reason::ENHANCE_YOUR_CALM)),
        row("NO_ERROR before the head", before(Reason::NO_ERROR)),
        row("INTERNAL_ERROR within the body", within(Reason::INTERNAL_ERROR)),
        row("CANCEL within the body", within(Reason::CANCEL)),
        row("NO_ERROR within the body", within(Reason::NO_ERROR)),
        row("closed before the head", |_| FrameReply::default().close()),
        row("reset before the head", |_| FrameReply::default().reset()),
        row("closed within the body", |cue| head().data("he").wait(cue).close()),
        row("reset within the body", |cue| head().data("he").wait(cue).reset()),
    ]
}

fn goaways() -> Vec<Frames> {
    vec![
        row("GOAWAY below", |_| {
            FrameReply::default().go_away_below(Reason::NO_ERROR).close()
        }),
        row("GOAWAY below for an error", |_| {
            FrameReply::default().go_away_below(Reason::ENHANCE_YOUR_CALM).close()
        }),
        row("GOAWAY before the head", |_| {
            FrameReply::default()
                .go_away_after(Reason::NO_ERROR)
                .and_head(200, &[])
                .last("hello")
        }),
        row("GOAWAY within the body", |cue| {
            head().data("he").wait(cue).go_away_after(Reason::NO_ERROR).last("llo")
        }),
        row("GOAWAY for an error within the body", |cue| {
            head()
                .data("he")
                .wait(cue)
                .go_away_after(Reason::INTERNAL_ERROR)
                .close()
        }),
    ]
}
