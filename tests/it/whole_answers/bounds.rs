//! Beyond the bounds of what is gathered, in bytes, in time and of all together, a whole answer passes as it comes.

use rust_decimal::Decimal;
use serde_json::{Value, json};

use super::{Framed, USAGE, answer, ask, head, pieces, settled};
use crate::chat::{PROMPT, request};
use crate::harness::catalogue::{SMALL, TWIN, cost};
use crate::harness::told::without_cost;
use crate::harness::{Cue, Gateway, Reply, Setup, Upstream};

/// How long the first part of an answer is that comes in parts.
const FIRST: usize = 3_000;

#[tokio::test]
async fn an_answer_beyond_its_bound_passes_as_it_comes() {
    let (cue, body) = (Cue::new(), answer(2_000));
    let parts = [&body[..FIRST], &body[FIRST..FIRST + 10], &body[FIRST + 10..]];
    let reply = parts
        .iter()
        .fold(head(Framed::Chunks, 0), |reply, part| reply.chunk(part).wait(&cue));
    let upstream = Upstream::always(reply.end()).await;
    let setup = Setup::over(&upstream).conf(|conf| conf["whole_answer_bytes_max"] = 2_000.into());
    let gateway = setup.start().await;
    let mut raw = ask(&gateway, SMALL).await;
    let head = raw.head().await.ok();
    assert_eq!(head.header("transfer-encoding"), "chunked");
    // What comes from the usage on waits for the answer's end.
    let passes = body.find("\"usage\":").unwrap() + "\"usage\":".len();
    let (mut got, mut came) = (String::new(), 0);
    for part in parts {
        came += part.len();
        while got.len() < came.min(passes) {
            got.push_str(std::str::from_utf8(&raw.chunk().await).unwrap());
        }
        assert!(body.starts_with(&got) || came == body.len());
        cue.give();
    }
    loop {
        match raw.chunk().await {
            end if end.is_empty() => break,
            chunk => got.push_str(std::str::from_utf8(&chunk).unwrap()),
        }
    }
    assert!(without_cost(&got) == body);
    assert_eq!(gateway.spent().await, cost(SMALL, USAGE.0, USAGE.1));
    gateway.check_books().await;
}

#[tokio::test]
async fn beyond_the_bound_a_broken_answer_owes_what_was_delivered() {
    let (body, cue) = (answer(2_000), Cue::new());
    let start = body.find(" word").unwrap();
    let first = &body[..start + 5 * 400];
    let main = Upstream::always(pieces(Framed::Chunks, 0, &[first]).wait(&cue).close()).await;
    let spare = Upstream::unused().await;
    let setup = Setup::over(&main)
        .spare(&spare)
        .conf(|conf| conf["whole_answer_bytes_max"] = 1_024.into());
    let gateway = setup.start().await;
    let mut raw = ask(&gateway, TWIN).await;
    raw.head().await.ok();
    assert_eq!(raw.chunk().await.len(), first.len());
    cue.give();
    raw.closed().await;
    assert_eq!(gateway.spent().await, cost(TWIN, PROMPT, 400));
    assert!(spare.seen().is_empty());
    gateway.check_books().await;
}

#[tokio::test]
async fn an_answer_whose_time_is_over_passes_its_blank_lines_and_the_rest_as_they_come() {
    let (cue, body) = (Cue::new(), answer(3));
    let reply = head(Framed::Chunks, 0)
        .chunk("\n")
        .wait(&cue)
        .chunk("\n")
        .wait(&cue)
        .chunk(&body)
        .end();
    let upstream = Upstream::always(reply).await;
    let setup = Setup::over(&upstream).conf(|conf| conf["timeouts"]["whole_gather_ms"] = 30.into());
    let gateway = setup.start().await;
    for over_h2 in [false, true] {
        if over_h2 {
            let asked = gateway.h2c.post_request("/llm/chat", request(SMALL)).send();
            let mut answer = asked.await.unwrap();
            for _ in 0..2 {
                assert_eq!(answer.chunk().await.unwrap().unwrap(), "\n");
                cue.give();
            }
            assert_eq!(without_cost(&answer.text().await.unwrap()), body);
            continue;
        }
        let mut raw = ask(&gateway, SMALL).await;
        let head = raw.head().await.ok();
        assert_eq!(head.header("transfer-encoding"), "chunked");
        for _ in 0..2 {
            assert_eq!(raw.chunk().await, "\n");
            cue.give();
        }
        assert_eq!(without_cost(std::str::from_utf8(&raw.chunk().await).unwrap()), body);
        assert!(raw.chunk().await.is_empty());
    }
    assert_eq!(gateway.spent().await, cost(SMALL, 2 * USAGE.0, 2 * USAGE.1));
    gateway.check_books().await;
}

/// What comes behind blank lines, or behind a head alone, once its time is over, and is no answer.
const NO_ANSWERS: [(&str, bool); 4] = [
    (r#"{"error":{"code":402,"message":"acct_SECRET has no credit"}}"#, true),
    (r#"{"object":"error","code":400,"message":"too long"}"#, false),
    ("<html>SECRET</html>", true),
    (r#"{"object":"other"}"#, true),
];

/// Its client can be told no other status, so the answer breaks off; it is not passed on, not billed, not kept for its key, and its target
/// has failed, unless the request is to blame.
#[tokio::test]
async fn blank_lines_before_what_is_no_answer_cost_nothing_and_its_words_do_not_pass() {
    for (came, is_failure) in NO_ANSWERS {
        for over_h2 in [false, true] {
            let cue = Cue::new();
            let reply = head(Framed::Chunks, 0).chunk("\n").wait(&cue).chunk(came).end();
            let main = Upstream::always(reply).await;
            let spare = Upstream::always(Reply::chat("Ho", 9, 1)).await;
            let setup = Setup::over(&main)
                .spare(&spare)
                .conf(|conf| conf["timeouts"]["whole_gather_ms"] = 30.into());
            let gateway = setup.start().await;
            let client = if over_h2 { &gateway.h2c } else { &gateway.http1 };
            for _ in 0..5 {
                let mut answer = client.post_request("/llm/chat", request(TWIN)).send().await.unwrap();
                assert_eq!(answer.chunk().await.unwrap().unwrap(), "\n", "{came}");
                cue.give();
                assert!(answer.chunk().await.is_err(), "{came}: it must break off");
            }
            assert_eq!(gateway.spent().await, Decimal::ZERO, "{came}");
            gateway.check_books().await;
            let _next = client.post_request("/llm/chat", request(TWIN)).send().await.unwrap();
            let asked = if is_failure { (5, 1) } else { (6, 0) };
            assert_eq!((main.seen().len(), spare.seen().len()), asked, "{came}");
        }
    }
}

#[tokio::test]
async fn what_is_no_answer_and_comes_late_is_a_failed_target_while_nothing_has_left() {
    for (came, is_failure) in NO_ANSWERS {
        let cue = Cue::new();
        let main = Upstream::always(head(Framed::Chunks, 0).wait(&cue).chunk(came).wait(&cue).end()).await;
        let spare = Upstream::always(Reply::chat("Ho", 9, 1)).await;
        let setup = Setup::over(&main)
            .spare(&spare)
            .conf(|conf| conf["timeouts"]["whole_gather_ms"] = 1.into());
        let gateway = setup.start().await;
        let late = async {
            main.asked(1).await;
            settled(&gateway).await;
            cue.give();
            cue.give();
        };
        let (answer, ()) = tokio::join!(gateway.http1.post("/llm/chat", request(TWIN)), late);
        if is_failure {
            assert_eq!(answer.ok().json()["choices"][0]["message"]["content"], "Ho", "{came}");
            assert_eq!(gateway.spent().await, cost(TWIN, 9, 1), "{came}");
        } else {
            assert_eq!(answer.status, 400, "{came}");
            assert_eq!(gateway.spent().await, Decimal::ZERO, "{came}");
        }
        gateway.check_books().await;
    }
}

#[tokio::test]
async fn a_head_alone_waits_beyond_the_time_so_that_the_next_target_may_answer() {
    let main = Upstream::always(head(Framed::Chunks, 0).silence()).await;
    let spare = Upstream::always(Reply::chat("Ho", 9, 1)).await;
    let setup = Setup::over(&main)
        .spare(&spare)
        .conf(|conf| conf["timeouts"] = json!({ "whole_gather_ms": 1, "idle_ms": 100 }));
    let gateway = setup.start().await;
    gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
    assert_eq!(gateway.spent().await, cost(TWIN, 9, 1));
}

#[tokio::test]
async fn all_together_have_a_bound_and_what_ends_makes_room() {
    let (cue, body) = (Cue::new(), answer(1_000));
    let waits = pieces(Framed::Chunks, 0, &[&body[..FIRST]]);
    let whole = waits.clone().wait(&cue).chunk(&body[FIRST..]).end();
    let upstream = Upstream::by({
        let whole = whole.clone();
        // The third breaks off, the others are whole.
        move |number, _| {
            if number == 2 {
                waits.clone().close()
            } else {
                whole.clone()
            }
        }
    })
    .await;
    let setup = Setup::over(&upstream).conf(|conf| {
        conf["whole_answer_bytes_max"] = 5_500.into();
        conf["gathered_bytes_max"] = 5_500.into();
    });
    let gateway = setup.start().await;
    // Of two at once one has no room, and passes.
    let mut both = [ask(&gateway, SMALL).await, ask(&gateway, SMALL).await];
    upstream.asked(2).await;
    let mut passing = 0;
    while passing == 0 {
        settled(&gateway).await;
        passing = both.iter_mut().filter_map(|raw| raw.is_closed().then_some(())).count();
    }
    assert_eq!(passing, 1);
    cue.give();
    cue.give();
    let (mut lengths, mut length) = (Vec::new(), 0);
    for raw in &mut both {
        let got = raw.answer().await.ok();
        assert_eq!(without_cost(got.text()), body);
        lengths.push(got.header("content-length").to_owned());
        length = got.body.len();
    }
    lengths.sort();
    assert_eq!(lengths, ["".to_owned(), length.to_string()]);
    // Both have given back what they had, and so does one that breaks off.
    gateway
        .http1
        .post("/llm/chat", request(SMALL))
        .await
        .error(502, "upstream_error");
    cue.give_all();
    let last = gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    assert_eq!(last.header("content-length"), length.to_string());
    assert_eq!(gateway.spent().await, cost(SMALL, 3 * USAGE.0, 3 * USAGE.1));
    gateway.check_books().await;
}

#[tokio::test]
async fn the_bounds_are_those_of_the_file_as_it_was_read_last() {
    // More than is taken in at once, so that it has not ended when its first bytes are counted.
    let (first, last) = ("\n".repeat(8_000), answer(3));
    let reply = head(Framed::Chunks, 0).chunk(first).chunk(last).end();
    let upstream = Upstream::always(reply).await;
    let mut gateway = Gateway::over(&upstream).await;
    let whole = gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    assert_eq!(whole.header("content-length"), whole.body.len().to_string());
    let mut conf: Value = serde_json::from_str(&gateway.conf_text()).unwrap();
    conf["whole_answer_bytes_max"] = 1_024.into();
    gateway.write_conf(&conf.to_string());
    gateway.check_files();
    let passed = gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    assert_eq!(passed.header("content-length"), "");
    assert_eq!(passed.body, whole.body);
}
