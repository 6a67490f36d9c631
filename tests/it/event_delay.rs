//! How long the gateway keeps an event, and a whole answer, beyond the time that the same takes without it.

use std::time::{Duration, Instant};

use crate::chat::{request, streaming};
use crate::harness::catalogue::SMALL;
use crate::harness::client::Client;
use crate::harness::{Cue, Gateway, Reply, Upstream};

/// The most that the median event may be late. Any fixed delay that somebody would notice is more.
const DELAY_MAX: Duration = Duration::from_millis(2);
/// The most that nine of ten may be late, events and answers. A delay of some of them is more, and leaves the median where it is.
const P90_DELAY_MAX: Duration = Duration::from_millis(10);
/// How often it is measured, until nine of ten are on time: other work of the machine makes some late now and then.
const ROUNDS: usize = 3;
const EVENTS: usize = 150;
const CALLS: usize = 60;

/// How long the same took many times.
#[derive(Clone, Copy, Debug)]
struct Times {
    median: Duration,
    p90: Duration,
}

impl Times {
    fn of(mut took: Vec<Duration>) -> Times {
        took.sort();
        Times {
            median: took[took.len() / 2],
            p90: took[took.len() * 9 / 10],
        }
    }
}

/// What was measured in one round, each with the gateway and without it.
type Measured = Vec<[Times; 2]>;

/// Checks that the medians are at most so much later with the gateway in each round, and nine of ten of each are on time in one of them.
async fn check_times(what: &str, median_max: Duration, mut measure: impl AsyncFnMut() -> Measured) {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let measured = measure().await;
        println!("{what}: {measured:?} with the gateway and without");
        for [with, without] in &measured {
            let is_kept = with.median >= without.median + median_max;
            assert!(!is_kept, "{what}: {with:?} with the gateway, {without:?} without");
        }
        let on_time = |[with, without]: &[Times; 2]| with.p90 < without.p90 + P90_DELAY_MAX;
        if measured.iter().all(on_time) {
            return;
        }
        rounds.push(measured);
    }
    panic!("{what}: one of ten is late in each round: {rounds:?}");
}

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
        check_times("an event", DELAY_MAX, async || {
            let without = event_times(&direct(&upstream), "//v1/chat/completions", &cue).await;
            let with = event_times(client, "/llm/chat/stream", &cue).await;
            vec![[Times::of(with), Times::of(without)]]
        })
        .await;
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
        [Times::of(first), Times::of(whole)]
    };
    for client in [&gateway.http1, &gateway.h2c] {
        check_times("the first event, and a burst", CALL_MAX, async || {
            let without = times(&direct(&upstream), "//v1/chat/completions").await;
            let with = times(client, "/llm/chat/stream").await;
            vec![[with[0], without[0]], [with[1], without[1]]]
        })
        .await;
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
        Times::of(took)
    };
    for client in [&gateway.http1, &gateway.h2c] {
        check_times("a whole answer", CALL_MAX, async || {
            let without = times(&direct(&upstream), "//v1/chat/completions").await;
            let with = times(client, "/llm/chat").await;
            vec![[with, without]]
        })
        .await;
    }
}

/// The most that a call's admission and its way may add, in a build that is not optimised.
const CALL_MAX: Duration = Duration::from_millis(5);
