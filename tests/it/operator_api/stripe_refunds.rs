//! Stripe's refunds: what went back is taken from the account that had paid it, once, and at most what it has left.

use futures::future::join_all;
use rust_decimal::Decimal;
use serde_json::{Value, json};

use super::stripe::{
    Beside, COMPLETED, SECRET, balance_of, checkout, listens, prepared, send, signature, with_hook, words,
};
use super::{Desk, GROUNDS, Told};
use crate::chat::streaming;
use crate::harness::catalogue::{SMALL, cost};
use crate::harness::redis_server::{RedisServer, free_port};
use crate::harness::{Cue, KeySpec, Reply, Upstream, eventually};

/// A refund as Stripe shows one.
pub(super) fn refund(id: &str, payment: &str, cents: i64, status: &str) -> Value {
    json!({
        "id": id, "object": "refund", "amount": cents, "charge": "ch_1", "currency": "usd", "payment_intent": payment,
        "reason": "requested_by_customer", "status": status,
    })
}

pub(super) fn event(kind: &str, object: Value) -> String {
    json!({ "id": format!("evt_{kind}"), "object": "event", "type": kind, "data": { "object": object } }).to_string()
}

/// A charge with the refunds in it that earlier versions of Stripe's interface have there.
fn charge(payment: &str, refunds: Option<Vec<Value>>) -> Value {
    let mut charge = json!({
        "id": "ch_1", "object": "charge", "amount": 1050, "amount_refunded": 600, "currency": "usd", "payment_intent": payment,
        "refunded": false,
    });
    if let Some(data) = refunds {
        charge["refunds"] = json!({ "object": "list", "data": data, "has_more": false });
    }
    charge
}

impl Desk {
    /// What a message takes, and what it cannot.
    pub(super) async fn takes(&self, body: &str) -> (String, String) {
        let told = self.signed(body).await.done(200);
        let text = |name: &str| told[name].as_str().unwrap_or_else(|| panic!("{told}")).to_owned();
        (text("taken"), text("short"))
    }

    pub(super) async fn paid(&self, payment: &str, cents: i64) {
        let paid = checkout(COMPLETED, "paid", payment, "shop", cents);
        assert_eq!(self.signed(&paid).await.done(200)["credited"], true);
    }

    pub(super) async fn shop(&self) {
        let account = json!({ "name": "shop", "tier": "pro" });
        self.admin("POST", "/v1/accounts", account).await.done(201);
    }

    async fn correct(&self, amount: &str, reference: &str) -> Told {
        let post = json!({ "amount": amount, "reference": reference, "kind": "correction" });
        self.admin("POST", "/v1/accounts/shop/credits", post).await
    }

    async fn books_balance(&self) {
        assert_eq!(self.get("/v1/audit").await["balanced"], true);
        let statement = self.get("/v1/accounts/shop/statement").await;
        let number = |value: &Value| value.as_str().unwrap().parse::<Decimal>().unwrap();
        let entries = statement["entries"].as_array().unwrap();
        let sum: Decimal = entries.iter().map(|entry| number(&entry["amount"])).sum();
        let opening = number(&statement["opening_balance"]);
        assert_eq!(opening + sum, number(&statement["closing_balance"]), "{statement}");
    }
}

fn pair(taken: &str, short: &str) -> (String, String) {
    (taken.to_owned(), short.to_owned())
}

#[tokio::test]
async fn a_refund_is_taken_once_whatever_tells_of_it() {
    for ground in GROUNDS {
        let desk = Desk::with(ground, with_hook).await;
        desk.shop().await;
        desk.paid("pi_1", 1050).await;
        let created = event("refund.created", refund("re_1", "pi_1", 400, "pending"));
        assert_eq!(desk.takes(&created).await, pair("4", "0"));
        for (kind, status) in [
            ("refund.created", "pending"),
            ("refund.updated", "succeeded"),
            ("charge.refund.updated", "succeeded"),
        ] {
            let again = event(kind, refund("re_1", "pi_1", 400, status));
            assert_eq!(desk.takes(&again).await, pair("0", "0"), "{kind}");
        }
        let both = ["re_1", "re_2"].map(|id| refund(id, "pi_1", if id == "re_1" { 400 } else { 200 }, "succeeded"));
        let listed = event("charge.refunded", charge("pi_1", Some(both.to_vec())));
        assert_eq!(desk.takes(&listed).await, pair("2", "0"), "the one that is new");
        // It says how much went back, and not by which refunds: those have messages of their own.
        let unlisted = desk
            .signed(&event("charge.refunded", charge("pi_1", None)))
            .await
            .done(200);
        assert_eq!(unlisted, json!({ "received": true, "credited": false }));
        assert_eq!(desk.balance("shop").await, "4.5");
        let entries = desk.get("/v1/accounts/shop/credits").await;
        let told = entries["data"].as_array().unwrap().iter();
        let told: Vec<[&Value; 3]> = told
            .map(|entry| [&entry["kind"], &entry["reference"], &entry["amount"]])
            .collect();
        let expected = [
            ["refund", "re_2", "-2"],
            ["refund", "re_1", "-4"],
            ["top_up", "pi_1", "10.5"],
        ];
        assert_eq!(json!(told), json!(expected));
        let log = desk.get("/v1/log?account=shop&limit=1").await;
        assert_eq!(log["data"][0]["actor"]["id"], "stripe");
        assert_eq!(log["data"][0]["request"]["kind"], "refund", "{log}");
        desk.books_balance().await;
    }
}

/// What is spent is not there to be taken: that is told, counted, and never taken later.
#[tokio::test]
async fn a_refund_takes_at_most_what_is_left() {
    for ground in GROUNDS {
        let desk = Desk::with(ground, with_hook).await;
        desk.shop().await;
        desk.paid("pi_1", 1050).await;
        desk.correct("-9", "spent").await.done(201);
        let all = event("refund.created", refund("re_1", "pi_1", 1050, "succeeded"));
        assert_eq!(desk.takes(&all).await, pair("1.5", "9"));
        assert_eq!(desk.balance("shop").await, "0");
        desk.correct("20", "more").await.done(201);
        assert_eq!(desk.takes(&all).await, pair("0", "0"));
        assert_eq!(desk.balance("shop").await, "20");
        let short = desk.gateway.metrics().sum("tollgate_refunds_short_credits_total", &[]);
        assert_eq!(short, Decimal::from(9));
        desk.books_balance().await;
    }
}

/// One running call that holds some of it, or all of it, keeps nothing: what there is goes back at once, and what the call costs is owed.
#[tokio::test]
async fn a_refund_takes_what_running_calls_hold_as_well() {
    for ground in GROUNDS {
        let cue = Cue::new();
        let stream = Reply::stream().role().text("Hi").wait(&cue);
        let upstream = Upstream::always(stream.finish().usage(9, 1).done()).await;
        let desk = Desk::before(&upstream, ground, with_hook).await;
        desk.shop().await;
        let key = desk.gateway.new_key_of("shop", KeySpec::default()).await;
        let client = desk.gateway.http1.with_key(&key);
        let cost = cost(SMALL, 9, 1).normalize();
        desk.paid("pi_1", 1050).await;
        let mut call = client.stream("/llm/chat", streaming(SMALL)).await.ok();
        call.next().await.unwrap();
        let all = event("refund.created", refund("re_1", "pi_1", 1050, "succeeded"));
        assert_eq!(desk.takes(&all).await, pair("10.5", "0"));
        assert_eq!(desk.takes(&all).await, pair("0", "0"));
        assert_eq!(desk.balance("shop").await, "0");
        cue.give();
        call.rest().await;
        eventually("the call is billed", async || {
            (desk.balance("shop").await == format!("-{cost}")).then_some(())
        })
        .await;
        assert_eq!(desk.get("/v1/audit").await["balanced"], true);
    }
}

#[tokio::test]
async fn a_refund_takes_all_of_it_where_that_is_configured() {
    for ground in GROUNDS {
        let desk = Desk::with(ground, |conf| {
            with_hook(conf);
            conf["stripe"]["allow_negative"] = json!(true);
        })
        .await;
        desk.shop().await;
        desk.paid("pi_1", 1050).await;
        desk.correct("-9", "spent").await.done(201);
        let all = event("refund.created", refund("re_1", "pi_1", 1050, "succeeded"));
        assert_eq!(desk.takes(&all).await, pair("10.5", "0"));
        assert_eq!(desk.takes(&all).await, pair("0", "0"));
        assert_eq!(desk.balance("shop").await, "-9");
        desk.books_balance().await;
    }
}

#[tokio::test]
async fn messages_of_a_refund_come_in_any_order() {
    for ground in GROUNDS {
        let desk = Desk::with(ground, with_hook).await;
        desk.shop().await;
        let created = event("refund.created", refund("re_1", "pi_1", 300, "pending"));
        let failed = event("refund.failed", refund("re_1", "pi_1", 300, "failed"));
        for early in [&created, &failed] {
            desk.signed(early).await.error(404, "not_found_error");
        }
        desk.paid("pi_1", 1000).await;
        desk.signed(&failed).await.error(404, "not_found_error");
        assert_eq!(desk.takes(&created).await, pair("3", "0"));
        // It came to nothing: what was taken is given again, once.
        for is_credited in [true, false] {
            assert_eq!(desk.signed(&failed).await.done(200)["credited"], is_credited);
            assert_eq!(desk.takes(&created).await, pair("0", "0"));
            assert_eq!(desk.balance("shop").await, "10");
        }
        desk.books_balance().await;
    }
}

/// A payment that named no account was credited to nobody, and its refund raises an alarm, until somebody adds it by hand, as the runbook says.
#[tokio::test]
async fn a_refund_of_a_payment_that_was_added_by_hand_is_taken() {
    for ground in GROUNDS {
        let desk = Desk::with(ground, with_hook).await;
        desk.shop().await;
        let other = json!({ "name": "other", "tier": "pro" });
        desk.admin("POST", "/v1/accounts", other).await.done(201);
        let unnamed = checkout(COMPLETED, "paid", "pi_1", "shop", 1050).replace("\"shop\"", "null");
        assert_eq!(desk.signed(&unnamed).await.done(200)["credited"], false);
        let counted = || desk.gateway.metrics().sum("tollgate_refunds_unassigned_total", &[]);
        let back = event("refund.created", refund("re_1", "pi_1", 400, "succeeded"));
        for times in 1..=2 {
            desk.signed(&back).await.error(404, "not_found_error");
            assert_eq!(counted(), Decimal::from(times));
        }
        let by_hand = json!({ "amount": "10.5", "reference": "pi_1" });
        let added = desk.admin("POST", "/v1/accounts/shop/credits", by_hand).await;
        added.done(201);
        assert_eq!(desk.takes(&back).await, pair("4", "0"));
        // It was paid once: nobody else is credited it.
        let told = checkout(COMPLETED, "paid", "pi_1", "other", 1050);
        desk.signed(&told).await.error(409, "conflict_error");
        let again = checkout(COMPLETED, "paid", "pi_1", "shop", 1050);
        assert_eq!(desk.signed(&again).await.done(200)["credited"], false);
        let balances = [desk.balance("shop").await, desk.balance("other").await];
        assert_eq!(
            (balances, counted()),
            (["6.5", "0"].map(str::to_owned), Decimal::from(2))
        );
        desk.books_balance().await;
    }
}

#[tokio::test]
async fn a_refund_that_is_not_taken_holds_up_none_behind_it() {
    for ground in GROUNDS {
        let desk = Desk::with(ground, with_hook).await;
        desk.shop().await;
        desk.paid("pi_1", 1050).await;
        let refunds = [
            // Nothing was taken for it that could be given again.
            refund("re_1", "pi_1", 100, "failed"),
            refund("re_2", "pi_1", 200, "succeeded"),
            refund("re_3", "pi_0", 100, "succeeded"),
            refund("re_4", "pi_1", 300, "succeeded"),
        ];
        let listed = event("charge.refunded", charge("pi_1", Some(refunds.to_vec())));
        for _ in 0..2 {
            let message = desk.signed(&listed).await.error(404, "not_found_error");
            assert!(message.contains("Nothing was taken for this refund"), "{message}");
            assert_eq!(desk.balance("shop").await, "5.5");
        }
        desk.books_balance().await;
    }
}

#[tokio::test]
async fn what_is_no_refund_of_a_payment_takes_nothing() {
    for ground in GROUNDS {
        let desk = Desk::with(ground, with_hook).await;
        desk.shop().await;
        desk.paid("pi_1", 1000).await;
        desk.correct("1", "pi_2").await.done(201);
        for (payment, status, kind) in [("pi_0", 404, "not_found_error"), ("pi_2", 404, "not_found_error")] {
            let body = event("refund.created", refund("re_1", payment, 100, "succeeded"));
            desk.signed(&body).await.error(status, kind);
        }
        let euros = event("refund.created", refund("re_1", "pi_1", 100, "succeeded")).replace("\"usd\"", "\"eur\"");
        desk.signed(&euros).await.error(409, "conflict_error");
        for (from, to) in [
            ("100", "0"),
            ("100", "-100"),
            ("\"re_1\"", "\"\""),
            ("\"re_1\"", "7"),
            ("100", "1e99"),
        ] {
            let body = event("refund.created", refund("re_1", "pi_1", 100, "succeeded")).replace(from, to);
            desk.signed(&body).await.error(400, "invalid_request_error");
        }
        let nobodys = event("refund.created", refund("re_1", "pi_1", 100, "succeeded")).replace("\"pi_1\"", "null");
        assert_eq!(desk.signed(&nobodys).await.done(200)["credited"], false);
        // Forged, cut short, and of an hour ago.
        let good = event("refund.created", refund("re_1", "pi_1", 100, "succeeded"));
        let now = desk.gateway.clock.now().0 / 1_000;
        for (signature, body) in [
            (signature("credential-OF_SOMEBODY_ELSE", now, &good), good.as_str()),
            (signature(SECRET, now, &good), &good[..good.len() - 1]),
            (signature(SECRET, now - 3_600, &good), &good),
        ] {
            desk.hook(&signature, body).await.error(400, "invalid_request_error");
        }
        assert_eq!(desk.balance("shop").await, "11");
        desk.books_balance().await;
    }
}

#[tokio::test]
async fn of_50_copies_of_a_refund_over_two_gateways_one_is_taken() {
    let (upstream, redis) = (Upstream::always(Reply::chat("Hi", 9, 1)).await, RedisServer::start());
    let (mut process, port) = prepared(&upstream, Some(&redis.url()));
    let conf = process.path("tollgate.yaml");
    process.start_with(&words(&conf, "")).await;
    let other = free_port();
    let _beside = Beside::start(&process, other);
    listens(port).await;
    listens(other).await;
    send(port, &checkout(COMPLETED, "paid", "pi_1", "acme", 1000))
        .await
        .unwrap();
    let body = event("refund.created", refund("re_1", "pi_1", 700, "succeeded"));
    let copies = (0..50).map(|n| send(if n % 2 == 0 { port } else { other }, &body));
    let answers: Vec<Value> = join_all(copies).await.into_iter().map(Result::unwrap).collect();
    let taken = answers.iter().filter(|answer| answer["taken"] == "7").count();
    let nothing = answers.iter().filter(|answer| answer["taken"] == "0").count();
    assert_eq!((taken, nothing), (1, 49), "{answers:?}");
    assert_eq!(balance_of(&process), "103");
    let audit = process.command(&["ledger", "audit"]);
    assert!(audit.contains("the books balance"), "{audit}");
}

/// Killed when it has taken a refund, before it says so.
async fn killed_before_the_answer(store: Option<&str>) {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let (mut process, port) = prepared(&upstream, store);
    let conf = process.path("tollgate.yaml");
    process.start_with(&words(&conf, "stripe:credited:2")).await;
    listens(port).await;
    send(port, &checkout(COMPLETED, "paid", "pi_1", "acme", 1000))
        .await
        .unwrap();
    let body = event("refund.created", refund("re_1", "pi_1", 700, "succeeded"));
    assert!(send(port, &body).await.is_err(), "it dies before the answer");
    process.ended().await;
    process.start_with(&words(&conf, "")).await;
    listens(port).await;
    assert_eq!(send(port, &body).await.unwrap()["taken"], "0", "it was taken");
    assert_eq!(balance_of(&process), "103");
    let audit = process.command(&["ledger", "audit"]);
    assert!(audit.contains("the books balance"), "{audit}");
}

#[tokio::test]
async fn a_crash_after_a_refund_takes_nothing_more_on_the_file() {
    killed_before_the_answer(None).await;
}

#[tokio::test]
async fn a_crash_after_a_refund_takes_nothing_more_in_redis() {
    let redis = RedisServer::start();
    killed_before_the_answer(Some(&redis.url())).await;
}
