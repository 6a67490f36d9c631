//! Calls whose stream waits for its first event: who pays, what is given again, and what ends them.

use rust_decimal::Decimal;
use serde_json::json;
use tollgate::ledger::admin::AdminOp;
use tollgate::ledger::admin::accounts::AccountOp;
use tollgate::ledger::terms::{AccountStatus, TermsChange};

use super::stream_starts::{error_event, no_event, over, over_slow, spare};
use crate::chat::{PROMPT, request, streaming};
use crate::harness::catalogue::{TWIN, cost};
use crate::harness::{Answer, Cue, Raw, Reply, Setup, Upstream, eventually, within};
use crate::idempotency::again;

/// What is given again is the answer of the target that gave one.
#[tokio::test]
async fn a_call_with_a_key_keeps_the_second_targets_stream() {
    let failing = no_event().event(&error_event(529)).end();
    let (main, spare) = (Upstream::always(failing).await, spare().await);
    let gateway = over(&main, &spare).await;
    let call = || {
        let call = gateway.http1.post_request("/llm/chat", streaming(TWIN));
        call.header("idempotency-key", "once")
    };
    let first = Answer::read(call().send().await.unwrap()).await.ok();
    eventually("it is given again", async || {
        let again = Answer::read(call().send().await.unwrap()).await;
        (again.status == 200).then(|| assert_eq!(again.text(), first.text()))
    })
    .await;
    assert_eq!(spare.seen().len(), 1);
    assert_eq!(gateway.spent().await, cost(TWIN, 9, 1));
    gateway.check_books().await;
}

/// What a call with a key does once its client has left before the first event: it goes on, and is billed once and given again, or it fails,
/// and is free and frees its key. Nobody waits for another target's answer.
#[tokio::test]
async fn a_stream_that_is_read_on_for_a_client_that_left_before_its_first_event_is_billed_once_or_free() {
    for over_h2 in [false, true] {
        for fails in [false, true] {
            let cue = Cue::new();
            let rest = match fails {
                true => Reply::default().event(&error_event(529)).end(),
                false => Reply::default().role().text("Hi").finish().usage(9, 1).done(),
            };
            let first = no_event().wait(&cue).and(rest);
            let main = Upstream::by(move |call, _| match call {
                0 => first.clone(),
                _ => Reply::stream_of(&["Again"], 5, 2),
            })
            .await;
            let spare = Upstream::unused().await;
            let gateway = over_slow(&main, &spare).await;
            let client = if over_h2 { &gateway.h2c } else { &gateway.http1 };
            let call = || {
                client
                    .post_request("/llm/chat", streaming(TWIN))
                    .header("idempotency-key", "k")
            };
            tokio::select! {
                answer = call().send() => panic!("an answer came: {answer:?}"),
                _ = main.asked(1) => {}
            }
            // By the time that these are answered, on the same thread, the gateway has seen that the client left.
            for _ in 0..2 {
                client.get("/llm/health").await.ok();
            }
            assert!(gateway.held().await > Decimal::ZERO, "the call goes on");
            cue.give();
            let spent = match fails {
                true => Decimal::ZERO,
                false => cost(TWIN, 9, 1),
            };
            assert_eq!(gateway.spent().await, spent);
            let again = again(client, "/llm/chat", &streaming(TWIN), "k").await.ok();
            let (text, calls, spent) = match fails {
                true => ("Again", 2, cost(TWIN, 5, 2)),
                false => ("Hi", 1, spent),
            };
            assert!(again.text().contains(text), "{}", again.text());
            assert_eq!((main.seen().len(), gateway.spent().await), (calls, spent));
            let errors = [("provider", "main"), ("kind", "status_5xx")];
            let errors = gateway.metrics().sum("tollgate_upstream_errors_total", &errors);
            assert_eq!(errors, Decimal::from(u8::from(fails)), "its target failed");
            gateway.check_books().await;
        }
    }
}

/// The receipt names who answered.
#[tokio::test]
async fn the_receipt_of_a_call_whose_first_target_failed_is_the_second_ones() {
    let (main, spare) = (
        Upstream::always(no_event().event(&error_event(529)).end()).await,
        spare().await,
    );
    let gateway = over(&main, &spare).await;
    gateway.http1.post("/llm/chat", streaming(TWIN)).await.ok();
    gateway.check_books().await;
    let receipts = gateway.receipts().await;
    let [receipt] = &receipts[..] else {
        panic!("{receipts:?}")
    };
    let told = format!("{receipt:?}");
    assert!(told.contains("up-twin-2") && !told.contains("\"up-twin\""), "{told}");
}

/// The operator is told, whether the provider says so by a status or behind one.
#[tokio::test]
async fn an_error_behind_a_200_that_is_about_the_operators_account_is_told_as_its_status_is() {
    for code in [401, 402] {
        for body in [request(TWIN), streaming(TWIN)] {
            let error = error_event(code);
            let main = Upstream::by(move |_, seen| match seen.json()["stream"] == true {
                true => Reply::stream().event(&error).end(),
                false => Reply::json(&serde_json::from_str(&error).unwrap()),
            })
            .await;
            let spare = Upstream::by(|_, seen| match seen.json()["stream"] == true {
                true => Reply::stream_of(&["Hi"], 9, 1),
                false => Reply::chat("Hi", 9, 1),
            })
            .await;
            let gateway = over(&main, &spare).await;
            gateway.http1.post("/llm/chat", body).await.ok();
            let refused = [("provider", "main")];
            let refused = gateway.metrics().sum("tollgate_credential_refused", &refused);
            assert_eq!(refused, Decimal::ONE, "{code}");
            gateway.check_books().await;
        }
    }
}

/// As behind a head that has left: a provider that works is paid.
#[tokio::test]
async fn a_client_that_leaves_before_the_first_event_pays_the_prompt() {
    let (main, spare) = (Upstream::always(no_event().silence()).await, Upstream::unused().await);
    let gateway = over_slow(&main, &spare).await;
    let raw = Raw::posted(&gateway, "/llm/chat", &streaming(TWIN)).await;
    main.asked(1).await;
    raw.close();
    main.hung_up().await;
    assert_eq!(gateway.spent().await, cost(TWIN, PROMPT, 0));
    gateway.check_books().await;
}

#[tokio::test]
async fn a_call_that_is_stopped_before_its_first_event_gets_a_status() {
    let (main, spare) = (Upstream::always(no_event().silence()).await, Upstream::unused().await);
    let setup = Setup::over(&main).spare(&spare).conf(|conf| {
        conf["suspended_streams"] = json!("end");
        conf["timeouts"] = json!({ "first_event_ms": 60_000 });
    });
    let gateway = setup.start().await;
    let client = gateway.http1.clone();
    let call = tokio::spawn(async move { client.post("/llm/chat", streaming(TWIN)).await });
    main.asked(1).await;
    // The gateway runs on this test's thread: it has read what its upstream has sent it.
    for _ in 0..5 {
        gateway.http1.get("/llm/health").await.ok();
    }
    let change = TermsChange {
        status: Some(AccountStatus::Suspended),
        ..TermsChange::default()
    };
    let account = gateway.account().await.record.id;
    gateway
        .run(AdminOp::Account(AccountOp::Terms { account, change }))
        .await;
    within("the end of the call", call)
        .await
        .unwrap()
        .error(403, "permission_error");
    assert_eq!(gateway.spent().await, Decimal::ZERO);
    let discarded = gateway.metrics().sum("tollgate_discarded_answers_total", &[]);
    assert_eq!(discarded, Decimal::ONE, "its provider may charge for it");
    gateway.check_books().await;
}
