//! What the tests stand on: a gateway of its own for each test on a free port, upstreams that do as they are told, and clients.
//!
//! Nothing here sleeps to wait for something: [`eventually`] polls a condition until a deadline, and [`within`] bounds every wait.

pub mod answer;
pub mod broken;
pub mod catalogue;
pub mod client;
pub mod collector;
pub mod fleet;
pub mod frames;
pub mod gateway;
pub mod h2_upstream;
pub mod listener;
pub mod metrics;
pub mod operator;
pub mod process;
pub mod raw;
#[path = "../../support/redis_group.rs"]
#[expect(dead_code, reason = "the tests of the library use more of it")]
pub mod redis_group;
#[path = "../../support/redis_server.rs"]
pub mod redis_server;
pub mod reply;
pub mod simulated;
pub mod tls;
pub mod told;
pub mod upstream;

use std::time::{Duration, Instant};

pub use answer::{Answer, Events, deltas};
pub use collector::Collector;
pub use gateway::{Gateway, KeySpec, Setup};
pub use raw::Raw;
pub use reply::{Cue, Reply};
pub use upstream::Upstream;

/// The longest that a test waits for one thing. Far above what it takes, so that a slow machine fails no test.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Polls until `probe` gives something.
pub async fn eventually<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(started.elapsed() < WAIT_MAX, "not seen in {WAIT_MAX:?}: {what}");
        // Sleeps: between two looks.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Waits for `what`, but not for ever.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(WAIT_MAX, future).await {
        Ok(value) => value,
        Err(_) => panic!("took longer than {WAIT_MAX:?}: {what}"),
    }
}
