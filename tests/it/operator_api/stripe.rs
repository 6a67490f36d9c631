//! Stripe's hook: each payment is credited once, whatever becomes of its messages, and nothing is that Stripe did not sign.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use futures::future::join_all;
use hmac::{Hmac, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use super::{Desk, GROUNDS, Ground, Told, told};
use crate::harness::operator::Process;
use crate::harness::redis_server::{RedisServer, free_port};
use crate::harness::{Reply, Upstream, eventually};

pub(super) const SECRET: &str = "credential-SET_STRIPE_SECRET";

pub(super) fn with_hook(conf: &mut Value) {
    conf["operator_listen"] = json!("127.0.0.1:9091");
    conf["stripe"] = json!({ "secret_env": "SET_STRIPE_SECRET" });
}

pub(super) fn signature(secret: &str, at: i64, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(format!("{at}.{body}").as_bytes());
    let bytes = mac.finalize().into_bytes();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={at},v1={hex}")
}

pub(super) fn checkout(kind: &str, status: &str, payment: &str, account: &str, cents: i64) -> String {
    json!({
        "id": format!("evt_{kind}_{payment}"), "object": "event", "type": kind, "livemode": true,
        "data": { "object": {
            "id": "cs_1", "object": "checkout.session", "payment_status": status, "payment_intent": payment,
            "client_reference_id": account, "amount_total": cents, "currency": "usd", "mode": "payment",
        } },
    })
    .to_string()
}

pub(super) const COMPLETED: &str = "checkout.session.completed";
const SUCCEEDED: &str = "checkout.session.async_payment_succeeded";

impl Desk {
    pub(super) fn seconds(&self) -> i64 {
        self.gateway.clock.now().0 / 1_000
    }

    pub(super) async fn hook(&self, signature: &str, body: &str) -> Told {
        let request = self.request("POST", "/v1/hooks/stripe");
        let request = request.header("content-type", "application/json; charset=utf-8");
        told(request.header("stripe-signature", signature).body(body.to_owned())).await
    }

    pub(super) async fn signed(&self, body: &str) -> Told {
        self.hook(&signature(SECRET, self.seconds(), body), body).await
    }

    pub(super) async fn balance(&self, account: &str) -> String {
        let account = self.get(&format!("/v1/accounts/{account}")).await;
        account["balance"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn a_payment_is_credited_once_and_logged() {
    for ground in GROUNDS {
        let desk = Desk::with(ground, with_hook).await;
        let account = json!({ "name": "shop", "tier": "pro" });
        desk.admin("POST", "/v1/accounts", account).await.done(201);
        let paid = checkout(COMPLETED, "paid", "pi_1", "shop", 1050);
        let credited = desk.signed(&paid).await.done(200);
        assert_eq!(credited, json!({ "received": true, "credited": true }));
        assert_eq!(desk.balance("shop").await, "10.5");
        let again = desk.signed(&paid).await.done(200);
        assert_eq!(again["credited"], false);
        // Late payments: told as not paid first, and in any order.
        let pending = checkout(COMPLETED, "unpaid", "pi_2", "shop", 2000);
        let late = checkout(SUCCEEDED, "paid", "pi_2", "shop", 2000);
        for (body, is_credited) in [(&late, true), (&pending, false), (&late, false), (&pending, false)] {
            assert_eq!(desk.signed(body).await.done(200)["credited"], is_credited, "{body}");
        }
        // What is no payment is taken and credits nothing.
        for (kind, status) in [
            ("charge.refunded", "paid"),
            ("charge.dispute.created", "paid"),
            ("payment_intent.succeeded", "paid"),
            ("checkout.session.expired", "unpaid"),
            ("checkout.session.async_payment_failed", "unpaid"),
        ] {
            let body = checkout(kind, status, "pi_3", "shop", 900);
            assert_eq!(desk.signed(&body).await.done(200)["credited"], false, "{kind}");
        }
        let nobodys = checkout(COMPLETED, "paid", "pi_4", "no account", 900);
        assert_eq!(desk.signed(&nobodys).await.done(200)["credited"], false);
        assert_eq!(desk.balance("shop").await, "30.5");
        let entries = desk.get("/v1/accounts/shop/credits").await;
        let entry = &entries["data"][1];
        assert_eq!(
            (&entry["kind"], &entry["reference"], &entry["amount"]),
            (&json!("top_up"), &json!("pi_1"), &json!("10.5"))
        );
        let log = desk.get("/v1/log?account=shop&limit=1000").await;
        let acts = log["data"].as_array().unwrap();
        let stripes: Vec<&Value> = acts.iter().filter(|act| act["actor"]["id"] == "stripe").collect();
        assert_eq!(stripes.len(), 4, "each message of a payment is an act");
        assert!(
            stripes
                .iter()
                .all(|act| act["action"] == "credits.post" && act["error"].is_null())
        );
        assert_eq!(desk.get("/v1/audit").await["balanced"], true);
    }
}

/// Stripe does not tell it again: somebody has to hear of it.
#[tokio::test]
async fn what_nobody_is_credited_and_what_is_disputed_is_counted() {
    const COUNTS: [&str; 2] = ["tollgate_payments_unassigned_total", "tollgate_disputes_total"];
    for ground in GROUNDS {
        let desk = Desk::with(ground, with_hook).await;
        let page = desk.gateway.metrics_page();
        for name in COUNTS {
            assert!(page.contains(&format!("\n{name} 0\n")), "{page}");
        }
        let checkout = |kind: &str, account: &str| checkout(kind, "paid", "pi_1", account, 900);
        let unnamed = checkout(COMPLETED, "acme").replace("\"acme\"", "null");
        for (body, counts) in [
            (unnamed, [1, 0]),
            (checkout(COMPLETED, "no account"), [2, 0]),
            (checkout("charge.dispute.created", "acme"), [2, 1]),
            // It has messages of its own.
            (checkout("charge.refunded", "acme"), [2, 1]),
            (checkout(COMPLETED, "acme"), [2, 1]),
        ] {
            desk.signed(&body).await.done(200);
            let metrics = desk.gateway.metrics();
            let counted = COUNTS.map(|name| metrics.sum(name, &[]));
            assert_eq!(counted, counts.map(rust_decimal::Decimal::from), "{body}");
        }
    }
}

#[tokio::test]
async fn what_somebody_can_mend_is_refused_so_that_it_comes_again() {
    for ground in GROUNDS {
        let desk = Desk::with(ground, with_hook).await;
        let early = checkout(COMPLETED, "paid", "pi_1", "later", 700);
        desk.signed(&early).await.error(404, "not_found_error");
        let account = json!({ "name": "later", "tier": "pro" });
        desk.admin("POST", "/v1/accounts", account).await.done(201);
        assert_eq!(desk.signed(&early).await.done(200)["credited"], true);
        // The same payment with another amount, and another currency.
        let other = checkout(COMPLETED, "paid", "pi_1", "later", 701);
        desk.signed(&other).await.error(409, "conflict_error");
        let euros = checkout(COMPLETED, "paid", "pi_2", "later", 700).replace("\"usd\"", "\"eur\"");
        let message = desk.signed(&euros).await.error(409, "conflict_error");
        assert!(message.contains("not USD"), "{message}");
        let huge = checkout(COMPLETED, "paid", "pi_3", "later", i64::MAX);
        desk.signed(&huge).await.error(400, "invalid_request_error");
        let closed = json!({ "status": "closed" });
        desk.admin("PATCH", "/v1/accounts/later", closed).await.done(200);
        let late = checkout(COMPLETED, "paid", "pi_4", "later", 700);
        desk.signed(&late).await.error(409, "conflict_error");
        assert_eq!(desk.balance("later").await, "7");
        assert_eq!(desk.get("/v1/audit").await["balanced"], true);
    }
}

#[tokio::test]
async fn what_stripe_did_not_sign_a_moment_ago_credits_nothing() {
    for ground in GROUNDS {
        let desk = Desk::with(ground, |conf| {
            with_hook(conf);
            conf["auth_failures_per_minute"] = json!(100);
        })
        .await;
        let body = checkout(COMPLETED, "paid", "pi_1", "acme", 1000);
        let now = desk.seconds();
        let good = signature(SECRET, now, &body);
        let before = desk.balance("acme").await;
        let cut = &body[..body.len() - 1];
        let dearer = body.replace("1000", "9000");
        let forged = [
            (String::new(), body.as_str()),
            ("t=1,v1=00".to_owned(), &body),
            (signature("credential-SET_STRIPE_SECREt", now, &body), &body),
            (signature("", now, &body), &body),
            (good.clone(), cut),
            (good.clone(), &dearer),
            (good.replacen(&now.to_string(), &(now + 1).to_string(), 1), &body),
            (signature(SECRET, now - 301, &body), &body),
            (signature(SECRET, now + 301, &body), &body),
        ];
        for (signature, body) in forged {
            desk.hook(&signature, body).await.error(400, "invalid_request_error");
        }
        // An operator's token is no signature.
        let admin = desk.admin("POST", "/v1/hooks/stripe", serde_json::from_str(&body).unwrap());
        admin.await.error(400, "invalid_request_error");
        // Signed, and no event.
        for body in ["{}", "[]", "x", "{\"id\":1}"] {
            desk.signed(body).await.error(400, "invalid_request_error");
        }
        assert_eq!(desk.balance("acme").await, before);
        // What was recorded is of no use later; in time, beside a signature of another secret, it counts.
        let two = format!("{good},v1={}", "0".repeat(64));
        assert_eq!(desk.hook(&two, &body).await.done(200)["credited"], true);
        desk.gateway.clock.advance(301_000);
        desk.hook(&good, &body).await.error(400, "invalid_request_error");
        assert_eq!(desk.get("/v1/audit").await["balanced"], true);
    }
}

#[tokio::test]
async fn who_guesses_is_limited_and_without_a_secret_there_is_no_hook() {
    let desk = Desk::with(Ground::Embedded, |conf| {
        with_hook(conf);
        conf["auth_failures_per_minute"] = json!(3);
    })
    .await;
    for _ in 0..3 {
        desk.hook("t=1,v1=00", "{}").await.error(400, "invalid_request_error");
    }
    assert_eq!(desk.hook("t=1,v1=00", "{}").await.status, 429);
    let paid = checkout(COMPLETED, "paid", "pi_1", "acme", 1000);
    assert_eq!(
        desk.signed(&paid).await.done(200)["credited"],
        true,
        "a good one passes"
    );

    let desk = Desk::over(Ground::Embedded).await;
    desk.signed(&paid).await.error(404, "not_found_error");
    assert_eq!(desk.get("/v1/log").await["data"], json!([]));
}

/// A gateway's configuration with the hook at this port, and what it is started with.
pub(super) fn prepared(upstream: &Upstream, store: Option<&str>) -> (Process, u16) {
    let port = free_port();
    let process = Process::prepare(upstream, |conf| {
        with_hook(conf);
        conf["operator_listen"] = json!(format!("127.0.0.1:{port}"));
        if let Some(store) = store {
            conf["store"] = json!(store);
        }
    });
    (process, port)
}

pub(super) fn words(conf: &Path, crash_at: &str) -> Vec<String> {
    let (secret, crash) = (
        format!("SET_STRIPE_SECRET={SECRET}"),
        format!("TOLLGATE_CRASH_AT={crash_at}"),
    );
    let binary = env!("CARGO_BIN_EXE_tollgate");
    [
        "env",
        &secret,
        &crash,
        binary,
        "serve",
        "--conf",
        conf.to_str().unwrap(),
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Sends a message by the machine's own time: whether it credited something, or why there is no answer.
pub(super) async fn send(port: u16, body: &str) -> Result<Value, reqwest::Error> {
    let now = std::time::SystemTime::now();
    let now = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let request = reqwest::Client::new().post(format!("http://127.0.0.1:{port}/v1/hooks/stripe"));
    let request = request
        .header("content-type", "application/json")
        .header("stripe-signature", signature(SECRET, i64::try_from(now).unwrap(), body));
    let answer = request.body(body.to_owned()).send().await?;
    assert_eq!(answer.status(), 200);
    answer.json().await
}

pub(super) async fn listens(port: u16) {
    eventually("the operators' listener listens", async || {
        tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok().map(drop)
    })
    .await;
}

pub(super) fn balance_of(process: &Process) -> String {
    let shown = process.command(&["account", "show", "acme", "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    shown["balance"].to_string()
}

/// Another gateway beside one, on the same Redis. It is killed when the test lets go of it.
pub(super) struct Beside(Child);

impl Beside {
    pub(super) fn start(first: &Process, port: u16) -> Beside {
        let conf = std::fs::read_to_string(first.path("tollgate.yaml")).unwrap();
        let mut conf: Value = serde_json::from_str(&conf).unwrap();
        for key in ["listen", "admin_listen"] {
            conf[key] = json!(format!("127.0.0.1:{}", free_port()));
        }
        conf["operator_listen"] = json!(format!("127.0.0.1:{port}"));
        conf["data_dir"] = json!(first.path("data-beside"));
        conf["access_log"] = json!("off");
        let path = first.path("beside.yaml");
        std::fs::write(&path, conf.to_string()).unwrap();
        let words = words(&path, "");
        let mut serve = Command::new(&words[0]);
        Beside(serve.args(&words[1..]).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[tokio::test]
async fn of_50_copies_over_two_gateways_one_is_credited() {
    let (upstream, redis) = (Upstream::always(Reply::chat("Hi", 9, 1)).await, RedisServer::start());
    let (mut process, port) = prepared(&upstream, Some(&redis.url()));
    let conf = process.path("tollgate.yaml");
    process.start_with(&words(&conf, "")).await;
    let other = free_port();
    let _beside = Beside::start(&process, other);
    listens(port).await;
    listens(other).await;
    let body = checkout(COMPLETED, "paid", "pi_1", "acme", 1234);
    let copies = (0..50).map(|n| send(if n % 2 == 0 { port } else { other }, &body));
    let answers: Vec<Value> = join_all(copies).await.into_iter().map(Result::unwrap).collect();
    let credited = answers.iter().filter(|answer| answer["credited"] == true).count();
    assert_eq!((answers.len(), credited), (50, 1));
    assert_eq!(balance_of(&process), "112.34");
    let log = process.command(&["operator", "log", "--limit", "1000", "--json"]);
    let log: Value = serde_json::from_str(&log).unwrap();
    let of_stripe = log["acts"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|act| act["actor"]["id"] == "stripe");
    let added: Vec<&Value> = of_stripe.map(|act| &act["after"]["credit"]["added"]).collect();
    let counted = added.iter().filter(|added| **added == true).count();
    assert_eq!((added.len(), counted), (50, 1));
    let audit = process.command(&["ledger", "audit"]);
    assert!(audit.contains("the books balance"), "{audit}");
}

/// Killed when it has credited a payment, before it says so.
async fn killed_before_the_answer(store: Option<&str>) {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let (mut process, port) = prepared(&upstream, store);
    let conf = process.path("tollgate.yaml");
    process.start_with(&words(&conf, "stripe:credited:1")).await;
    listens(port).await;
    let body = checkout(COMPLETED, "paid", "pi_1", "acme", 550);
    assert!(send(port, &body).await.is_err(), "it dies before the answer");
    process.ended().await;
    process.start_with(&words(&conf, "")).await;
    listens(port).await;
    let again = send(port, &body).await.unwrap();
    assert_eq!(again["credited"], false, "it had counted");
    assert_eq!(balance_of(&process), "105.5");
    let audit = process.command(&["ledger", "audit"]);
    assert!(audit.contains("the books balance"), "{audit}");
}

#[tokio::test]
async fn a_crash_before_the_answer_adds_nothing_on_the_file() {
    killed_before_the_answer(None).await;
}

#[tokio::test]
async fn a_crash_before_the_answer_adds_nothing_in_redis() {
    let redis = RedisServer::start();
    killed_before_the_answer(Some(&redis.url())).await;
}

#[tokio::test]
async fn a_start_without_the_secret_is_refused_and_commands_are_not() {
    let upstream = Upstream::unused().await;
    let (process, _) = prepared(&upstream, None);
    let missing = "stripe.secret_env: the environment variable SET_STRIPE_SECRET is not set, or empty";
    for words in [&["check"][..], &["serve"]] {
        let said = process.refused(words);
        assert!(said.contains(missing), "{said}");
    }
    assert_eq!(balance_of(&process), "100");
}
