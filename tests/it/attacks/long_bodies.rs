//! Bodies that take long to read hold up nobody else.

use std::pin::pin;
use std::time::Duration;

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

/// What this thread and the whole process have worked so far: what else the machine does counts for neither.
fn worked() -> (Duration, Duration) {
    let clock = |clock: libc::clockid_t| {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel writes one time, for which there is room.
        let told = unsafe { libc::clock_gettime(clock, &raw mut time) };
        assert_eq!(told, 0);
        Duration::new(
            u64::try_from(time.tv_sec).unwrap(),
            u32::try_from(time.tv_nsec).unwrap(),
        )
    };
    let here = clock(libc::CLOCK_THREAD_CPUTIME_ID);
    (here, clock(libc::CLOCK_PROCESS_CPUTIME_ID))
}

/// The answer to this body, while which others are asked for. The gateway has one thread, which is the test's: what it does for the body keeps
/// the others. While one of them waits it works for less than half as long as other threads do for the body in all.
async fn answer_beside_others(gateway: &Gateway, body: String) -> Answer {
    let (began_here, began) = worked();
    let mut call = pin!(gateway.http1.post("/llm/chat", body));
    let (mut longest, mut answered) = (Duration::ZERO, 0);
    let answer = loop {
        let (asked, _) = worked();
        let mut health = pin!(gateway.http1.get("/llm/health"));
        tokio::select! {
            biased;
            _ = &mut health => (longest, answered) = (longest.max(worked().0 - asked), answered + 1),
            answer = &mut call => {
                longest = longest.max(worked().0 - asked);
                break answer;
            }
        }
    };
    let (here, all) = worked();
    let elsewhere = (all - began).saturating_sub(here - began_here);
    println!("{longest:?} here, {elsewhere:?} elsewhere, {answered} answers");
    assert!(
        longest * 2 < elsewhere,
        "{longest:?} here, {elsewhere:?} elsewhere, {answered} answers"
    );
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
