//! The gateway's transport is held to Pingora's own proxy loop: one scripted upstream, the same plug-in that changes nothing on both
//! sides, and for each behaviour of the upstream what a client sees, what the upstream is asked, and whether its connection is used again.
//! Where they differ on purpose, [`differences`] says why and what each shows. An upgrade of Pingora starts here.
//!
//! A new behaviour is a row of [`behaviours`].

mod behaviours;
mod differences;
mod observed;
mod sides;
mod upstream;

use std::collections::HashSet;

use futures::StreamExt as _;
use tokio::sync::watch;

use self::behaviours::{Behaviour, Does};
use self::differences::{DIFFERENCES, Listed};
use self::observed::{Client, Observed, body, framing, short};
use self::sides::Side;
use self::upstream::{Script, Scripted};
use crate::harness::eventually;
use crate::harness::frames::{FrameReply, FrameUpstream};
use crate::harness::reply::Cue;

/// Has the upstream do this behind one side, between two answers that are right; the first only where the connection is to have served.
async fn observe(behaviour: &Behaviour, side: Side) -> Observed {
    let (has, client_has) = watch::channel(0);
    match &behaviour.does {
        Does::Http1(script) => {
            let right = Script::sends("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nright");
            let scripts = sequence(behaviour, right, script.clone());
            let mut upstream = Scripted::start(scripts, client_has).await;
            let served = sides::serve(side, sides::http1(upstream.address)).await;
            let mut client = Client::new(served.address, has);
            let before = warm(behaviour, side, &mut client).await;
            let seen = client.post(behaviour.body).await;
            // What it was asked until here is this request, and perhaps again.
            upstream.done(before + 1).await;
            let asked = upstream.asked().split_off(before);
            let next = client.post(5).await;
            let last = upstream.asked().last().map(|asked| asked.connection);
            let is_again =
                asked.last().map(|asked| asked.connection) == last && upstream.asked().len() > before + asked.len();
            let said = asked.iter().map(|asked| {
                let line = asked.head.split("\r\n").next().unwrap_or("");
                let is_whole = asked.body == body(behaviour.body);
                let body = if is_whole {
                    "the body".to_owned()
                } else {
                    short(&asked.body)
                };
                format!("{line} [{}] {body}", framing(&asked.head).join(", "))
            });
            Observed {
                client: seen,
                upstream: said.collect::<Vec<_>>().join("; "),
                next: next_words(is_again, &next),
            }
        }
        Does::Http2(reply) => {
            let cue = Cue::new();
            let (reply, right) = (
                reply(&cue),
                FrameReply::head(200, &[("content-length", "5")]).last("right"),
            );
            let ends = reply.ends();
            let upstream = FrameUpstream::clear(sequence(behaviour, right, reply)).await;
            let served = sides::serve(side, sides::http2(upstream.address)).await;
            let mut client = Client::new(served.address, has);
            let before = warm(behaviour, side, &mut client).await;
            let (seen, ()) = tokio::join!(client.post(behaviour.body), give_when_begun(cue, client_has));
            if ends {
                eventually("the connection's end", async || (upstream.ended() > 0).then_some(())).await;
            }
            let asked = upstream.seen().split_off(before);
            let next = client.post(5).await;
            let last = upstream.seen().last().map(|asked| asked.connection);
            let is_again =
                asked.last().map(|asked| asked.connection) == last && upstream.seen().len() > before + asked.len();
            let said = asked.iter().map(|asked| {
                let end = if asked.is_whole { "ended" } else { "not ended" };
                format!("{} bytes, {end}", asked.body_length)
            });
            Observed {
                client: seen,
                upstream: said.collect::<Vec<_>>().join("; "),
                next: next_words(is_again, &next),
            }
        }
    }
}

fn sequence<R: Clone>(behaviour: &Behaviour, right: R, this: R) -> Vec<R> {
    let first = behaviour.is_pooled.then(|| right.clone());
    first.into_iter().chain([this, right]).collect()
}

/// A first request, after which the connection waits in the pool, if the behaviour wants that. How many were sent.
async fn warm(behaviour: &Behaviour, side: Side, client: &mut Client) -> usize {
    if behaviour.is_pooled {
        let first = client.post(5).await;
        assert!(
            first.starts_with("200") && first.ends_with("\"right\", whole"),
            "{} on {side:?}: {first}",
            behaviour.name()
        );
    }
    usize::from(behaviour.is_pooled)
}

fn next_words(is_again: bool, answer: &str) -> String {
    let connection = if is_again {
        "the same connection"
    } else {
        "another connection"
    };
    let is_right = answer.starts_with("200") && answer.ends_with("\"right\", whole");
    let answer = if is_right { "right" } else { answer };
    format!("{connection}, {answer}")
}

async fn give_when_begun(cue: Cue, mut client_has: watch::Receiver<usize>) {
    let begun = client_has.wait_for(|has| *has > 0);
    // A side that holds the first bytes back shows another answer.
    let _held_back = tokio::time::timeout(upstream::CLIENT_MAX, begun).await;
    cue.give_all();
}

/// The names of a listed behaviour, on a fresh connection and on one that has waited.
fn names_of(listed: &Listed) -> [String; 2] {
    ["fresh", "pooled"].map(|connection| listed.behaviour.replacen(':', &format!(", {connection}:"), 1))
}

/// Compares the sides, and says how they differ from what is expected of them.
async fn compare(behaviour: Behaviour) -> Option<String> {
    let (pingora, transport) = tokio::join!(observe(&behaviour, Side::Pingora), observe(&behaviour, Side::Transport));
    let name = behaviour.name();
    println!(
        "{name}\n  {}\n  {}\n  {}",
        pingora.client, pingora.upstream, pingora.next
    );
    let listed = DIFFERENCES.iter().find(|listed| names_of(listed).contains(&name));
    let is_expected = match listed {
        None => transport == pingora,
        Some(listed) => listed.is_seen(&pingora, &transport),
    };
    (!is_expected).then(|| {
        let listed = listed.map_or("not listed", |_| "listed otherwise");
        format!("{name} ({listed}):\n  Pingora   {pingora:?}\n  transport {transport:?}")
    })
}

async fn compare_all(behaviours: Vec<Behaviour>) {
    let compared = futures::stream::iter(behaviours.into_iter().map(compare)).buffered(8);
    let wrong: Vec<String> = compared.filter_map(async |wrong| wrong).collect().await;
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test]
async fn the_transport_does_as_pingora_over_http1() {
    compare_all(behaviours::http1()).await;
}

#[tokio::test]
async fn the_transport_does_as_pingora_over_http2() {
    compare_all(behaviours::http2()).await;
}

/// Pingora's own loop shows the same twice: what is compared is no luck.
#[tokio::test]
async fn what_is_observed_does_not_change() {
    let behaviours = behaviours::http1().into_iter().chain(behaviours::http2());
    let again = futures::stream::iter(behaviours.map(async |behaviour| {
        let (first, second) = (
            observe(&behaviour, Side::Pingora).await,
            observe(&behaviour, Side::Pingora).await,
        );
        (first != second).then(|| format!("{}: {first:?}, then {second:?}", behaviour.name()))
    }));
    let wrong: Vec<String> = again.buffered(8).filter_map(async |wrong| wrong).collect().await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_table_is_long_and_its_names_are_unique() {
    let all: Vec<Behaviour> = behaviours::http1().into_iter().chain(behaviours::http2()).collect();
    let names: HashSet<String> = all.iter().map(Behaviour::name).collect();
    assert_eq!(names.len(), all.len());
    let kinds: HashSet<(&str, bool)> = all.iter().map(Behaviour::kind).collect();
    assert!(kinds.len() >= 60, "{}", kinds.len());
    for listed in DIFFERENCES {
        assert!(
            names_of(listed).iter().all(|name| names.contains(name)),
            "{}",
            listed.behaviour
        );
        assert!(!listed.reason.is_empty());
    }
}
