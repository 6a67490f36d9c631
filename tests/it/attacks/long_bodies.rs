//! Bodies that take long to read hold up nobody else.

use std::pin::pin;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::catalogue::TWIN;
use crate::harness::{Answer, Gateway, Reply, Setup, Upstream};

/// Megabytes of small keys: a second of work for a build without optimisation.
fn keys() -> String {
    let members: Vec<String> = (0..800_000).map(|number| format!(r#""{number:x}":0"#)).collect();
    format!(r#"{{"x":{{{}}}}}"#, members.join(","))
}

/// As much of small messages, none of which is the system's.
fn messages() -> String {
    let messages = vec![r#"{"role":"user","content":""}"#; 300_000].join(",");
    format!(r#"{{"model":"{TWIN}","messages":[{messages}]}}"#)
}

/// The answer to this body, while which others are asked for: none of them takes a third of its time. The gateway has one thread, so what
/// is done there would keep the others.
async fn answer_beside_others(gateway: &Gateway, body: String) -> Answer {
    let began = Instant::now();
    let mut call = pin!(gateway.http1.post("/llm/chat", body));
    let (mut longest, mut answered) = (Duration::ZERO, 0);
    let answer = loop {
        let asked = Instant::now();
        let mut health = pin!(gateway.http1.get("/llm/health"));
        tokio::select! {
            biased;
            _ = &mut health => (longest, answered) = (longest.max(asked.elapsed()), answered + 1),
            answer = &mut call => {
                longest = longest.max(asked.elapsed());
                break answer;
            }
        }
    };
    let all = began.elapsed();
    println!("{longest:?} of {all:?}, {answered} answers");
    assert!(longest * 3 < all, "{longest:?} of {all:?}, {answered} answers");
    answer
}

#[tokio::test]
async fn a_body_that_takes_long_to_read_holds_up_no_other_request_of_its_thread() {
    let upstream = Upstream::unused().await;
    let setup = Setup::over(&upstream).conf(|conf| conf["threads"] = 1.into());
    let gateway = setup.start().await;
    let refused = answer_beside_others(&gateway, keys()).await;
    refused.error(400, "invalid_request_error");
}

#[tokio::test]
async fn a_long_body_whose_messages_choose_its_target_holds_up_no_other_request_of_its_thread() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let spare = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let setup = Setup::over(&upstream).spare(&spare).conf(|conf| {
        conf["threads"] = 1.into();
        conf["tiers"]["pro"] = json!({ "tpm": 100_000_000 });
    });
    let setup = setup.model(TWIN, |model| {
        for target in model["targets"].as_array_mut().unwrap() {
            target["weight"] = 1.into();
        }
    });
    let gateway = setup.start().await;
    answer_beside_others(&gateway, messages()).await.ok();
    assert_eq!(upstream.seen().len() + spare.seen().len(), 1);
}
