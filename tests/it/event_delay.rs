//! How long the gateway keeps an event, and a whole answer, beyond the time that the same takes without it.

use std::time::{Duration, Instant};

use crate::chat::{request, streaming};
use crate::harness::catalogue::SMALL;
use crate::harness::client::Client;
use crate::harness::{Cue, Gateway, Reply, Upstream};

/// The most that the median event may be late. Any fixed delay that somebody would notice is more.
const DELAY_MAX: Duration = Duration::from_millis(2);
const EVENTS: usize = 150;
const CALLS: usize = 60;

/// A stream each of whose events leaves when the test says so.
fn gated(cue: &Cue) -> Reply {
    let begun = Reply::stream().role();
    let words = (0..EVENTS).fold(begun, |reply, _| reply.wait(cue).text(" word"));
    words.finish().usage(9, 150).done()
}

/// From the word of the test to each event's arrival.
async fn event_times(client: &Client, path: &str, cue: &Cue) -> Vec<Duration> {
    let mut events = client.stream(path, streaming(SMALL)).await;
    assert_eq!(events.status, 200);
    events.next().await.unwrap();
    let mut took = Vec::new();
    for _ in 0..EVENTS {
        let said = Instant::now();
        cue.give();
        let event = events.next().await.unwrap();
        took.push(said.elapsed());
        assert!(event.contains(" word"), "{event}");
    }
    assert_eq!(events.rest().await.last().unwrap(), "[DONE]");
    took
}

fn median(mut took: Vec<Duration>) -> Duration {
    took.sort();
    took[took.len() / 2]
}

/// A client that asks the upstream itself.
fn direct(upstream: &Upstream) -> Client {
    Client::http1(upstream.address)
}

#[tokio::test]
async fn the_median_event_is_not_kept() {
    let cue = Cue::new();
    let upstream = Upstream::always(gated(&cue)).await;
    let gateway = Gateway::over(&upstream).await;
    for client in [&gateway.http1, &gateway.h2c] {
        let without = median(event_times(&direct(&upstream), "//v1/chat/completions", &cue).await);
        let with = median(event_times(client, "/llm/chat/stream", &cue).await);
        println!("an event: {with:?} with the gateway, {without:?} without");
        assert!(
            with < without + DELAY_MAX,
            "{with:?} with the gateway, {without:?} without"
        );
    }
    gateway.check_books().await;
}

/// The first event, too, and what is one of many that come at once.
#[tokio::test]
async fn the_median_first_event_and_the_median_burst_are_not_kept() {
    let words = (0..20).fold(Reply::stream().role(), |reply, _| reply.text(" word"));
    let upstream = Upstream::always(words.finish().usage(9, 20).done().at_once()).await;
    let gateway = Gateway::over(&upstream).await;
    let times = async |client: &Client, path: &str| {
        let (mut first, mut whole) = (Vec::new(), Vec::new());
        for _ in 0..CALLS {
            let asked = Instant::now();
            let mut events = client.stream(path, streaming(SMALL)).await;
            events.next().await.unwrap();
            first.push(asked.elapsed());
            events.rest().await;
            whole.push(asked.elapsed());
        }
        (median(first), median(whole))
    };
    for client in [&gateway.http1, &gateway.h2c] {
        let without = times(&direct(&upstream), "//v1/chat/completions").await;
        let with = times(client, "/llm/chat/stream").await;
        println!("first event and burst: {with:?} with the gateway, {without:?} without");
        assert!(
            with.0 < without.0 + CALL_MAX && with.1 < without.1 + CALL_MAX,
            "{with:?}, {without:?}"
        );
    }
}

#[tokio::test]
async fn the_median_whole_answer_is_not_kept() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let gateway = Gateway::over(&upstream).await;
    let times = async |client: &Client, path: &str| {
        let mut took = Vec::new();
        for _ in 0..CALLS {
            let asked = Instant::now();
            client.post(path, request(SMALL)).await;
            took.push(asked.elapsed());
        }
        median(took)
    };
    for client in [&gateway.http1, &gateway.h2c] {
        let without = times(&direct(&upstream), "//v1/chat/completions").await;
        let with = times(client, "/llm/chat").await;
        println!("a whole answer: {with:?} with the gateway, {without:?} without");
        assert!(
            with < without + CALL_MAX,
            "{with:?} with the gateway, {without:?} without"
        );
    }
}

/// The most that a call's admission and its way may add, in a build that is not optimised.
const CALL_MAX: Duration = Duration::from_millis(5);
