//! Bodies that take long to read hold up nobody else.

use std::pin::pin;
use std::time::{Duration, Instant};

use crate::harness::{Setup, Upstream};

/// Megabytes of small keys: a second of work for a build without optimisation.
fn keys() -> String {
    let members: Vec<String> = (0..800_000).map(|number| format!(r#""{number:x}":0"#)).collect();
    format!(r#"{{"x":{{{}}}}}"#, members.join(","))
}

/// The gateway has one thread, so a body that is read there would keep the other answers for all of its time.
#[tokio::test]
async fn a_body_that_takes_long_to_read_holds_up_no_other_request_of_its_thread() {
    let upstream = Upstream::unused().await;
    let setup = Setup::over(&upstream).conf(|conf| conf["threads"] = 1.into());
    let gateway = setup.start().await;
    let began = Instant::now();
    let mut refused = pin!(gateway.http1.post("/llm/chat", keys()));
    let (mut longest, mut answered) = (Duration::ZERO, 0);
    let answer = loop {
        let asked = Instant::now();
        let mut health = pin!(gateway.http1.get("/llm/health"));
        tokio::select! {
            biased;
            _ = &mut health => (longest, answered) = (longest.max(asked.elapsed()), answered + 1),
            answer = &mut refused => {
                longest = longest.max(asked.elapsed());
                break answer;
            }
        }
    };
    let all = began.elapsed();
    answer.error(400, "invalid_request_error");
    assert!(longest * 3 < all, "{longest:?} of {all:?}, {answered} answers");
    println!("{longest:?} of {all:?}, {answered} answers");
}
