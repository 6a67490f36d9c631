//! Files that change under a running gateway.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use rust_decimal::Decimal;
use serde_json::{Value, json};
use tollgate::server::reload::Reloaded;

use crate::chat::{request, streaming};
use crate::harness::catalogue::{SMALL, catalogue, cost};
use crate::harness::{Cue, Gateway, Reply, Setup, Upstream};

/// The default catalogue with the prices of the cheap model ten times as high.
fn dearer() -> Value {
    let mut catalogue = catalogue();
    catalogue["models"][1]["pricing"] = json!({ "prompt": "0.0000015", "completion": "0.000006" });
    catalogue
}

#[tokio::test]
async fn a_new_price_is_for_new_requests_and_a_running_one_keeps_its_own() {
    let cue = Cue::new();
    let upstream = Upstream::always(
        Reply::stream()
            .role()
            .wait(&cue)
            .text("Hi")
            .finish()
            .usage(90, 10)
            .done(),
    )
    .await;
    let mut gateway = Gateway::over(&upstream).await;
    let running = gateway.http1.stream("/llm/chat", streaming(SMALL)).await.ok();
    gateway.write_catalogue(&dearer().to_string());
    assert!(matches!(gateway.check_files(), Reloaded::Changed));
    assert!(matches!(gateway.check_files(), Reloaded::Unchanged));
    cue.give_all();
    running.rest().await;
    assert_eq!(gateway.spent().await, cost(SMALL, 90, 10));
    gateway
        .http1
        .stream("/llm/chat", streaming(SMALL))
        .await
        .ok()
        .rest()
        .await;
    assert_eq!(gateway.spent().await, cost(SMALL, 90, 10) * Decimal::from(11));
    let listing = gateway.http1.get("/llm/models?search=small%20chat").await.ok().json();
    assert_eq!(listing["models"][0]["pricing"]["prompt"], "0.000001725");
    gateway.check_books().await;
}

#[tokio::test]
async fn a_broken_catalogue_is_refused_and_the_old_one_stays() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let mut gateway = Gateway::over(&upstream).await;
    let mut spent = Decimal::ZERO;
    let mut without_price = catalogue();
    without_price["models"][1]["pricing"]
        .as_object_mut()
        .unwrap()
        .remove("prompt");
    let mut as_float = catalogue();
    as_float["models"][1]["pricing"]["prompt"] = json!(0.00000015);
    let mut negative = catalogue();
    negative["models"][1]["pricing"]["prompt"] = json!("-0.1");
    let mut unknown_provider = catalogue();
    unknown_provider["models"][1]["targets"][0]["provider"] = json!("man");
    let mut no_default = catalogue();
    no_default["purposes"]["slide"] = json!("acme/none");
    let broken = [without_price, as_float, negative, unknown_provider, no_default].map(|value| value.to_string());
    for (number, text) in broken
        .iter()
        .map(String::as_str)
        .chain(["", "models: [", "models: []"])
        .enumerate()
    {
        gateway.write_catalogue(text);
        match gateway.check_files() {
            Reloaded::Refused(error) => assert!(error.path.ends_with("catalogue.yaml"), "{error}"),
            other => panic!("{number}: {other:?}"),
        }
        gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
        spent += cost(SMALL, 9, 1);
        assert_eq!(gateway.spent().await, spent);
        assert_eq!(gateway.http1.get("/llm/models").await.ok().json()["total"], 5);
    }
    gateway.write_catalogue(&dearer().to_string());
    assert!(
        matches!(gateway.check_files(), Reloaded::Changed),
        "a good file is taken again"
    );
}

#[tokio::test]
async fn a_file_is_read_again_once_it_may_be_read() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let mut gateway = Gateway::over(&upstream).await;
    let conf: Value = serde_json::from_str(&gateway.conf_text()).unwrap();
    let file = conf["catalogue"].as_str().unwrap();
    std::fs::set_permissions(file, Permissions::from_mode(0o000)).unwrap();
    // Nothing keeps root from reading it.
    assert!(!matches!(gateway.check_files(), Reloaded::Unchanged));
    assert!(matches!(gateway.check_files(), Reloaded::Unchanged));
    std::fs::set_permissions(file, Permissions::from_mode(0o600)).unwrap();
    assert!(matches!(gateway.check_files(), Reloaded::Changed));
    assert!(matches!(gateway.check_files(), Reloaded::Unchanged));
}

#[tokio::test]
async fn a_changed_configuration_takes_effect_and_a_broken_one_does_not() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let mut gateway = Gateway::over(&upstream).await;
    let good = gateway.conf_text();
    let mut changed: Value = serde_json::from_str(&good).unwrap();
    changed["markup"] = json!("2");
    changed["tiers"]["pro"] = json!({ "rpm": 7 });
    gateway.write_conf(&changed.to_string());
    assert!(matches!(gateway.check_files(), Reloaded::Changed));
    let answer = gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    assert_eq!(answer.header("x-ratelimit-limit-requests"), "7");
    assert_eq!(
        gateway.spent().await,
        cost(SMALL, 9, 1) / Decimal::new(115, 2) * Decimal::TWO
    );
    for broken in [
        "marcup: \"2\"",
        "markup: 1.15",
        "markup: \"0.5\"",
        "providers: 1",
        "threads: 0",
        "\t",
    ] {
        gateway.write_conf(broken);
        assert!(matches!(gateway.check_files(), Reloaded::Refused(_)), "{broken}");
        assert_eq!(
            gateway
                .http1
                .get("/llm/balance")
                .await
                .ok()
                .header("x-ratelimit-limit-requests"),
            "7"
        );
    }
    gateway.write_conf(&good);
    assert!(matches!(gateway.check_files(), Reloaded::Changed));
    assert_eq!(
        gateway
            .http1
            .get("/llm/balance")
            .await
            .ok()
            .header("x-ratelimit-limit-requests"),
        "600"
    );
}

#[tokio::test]
async fn a_provider_without_its_credential_is_off_and_its_models_are_not_listed() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let setup = Setup::over(&upstream).provider(
        "off",
        json!({ "base_url": upstream.base_url(), "api_key_env": "NOT_SET" }),
    );
    let gateway = setup
        .model(SMALL, |model| {
            model["targets"] = json!([{ "provider": "off", "model": "x" }])
        })
        .start()
        .await;
    gateway
        .http1
        .post("/llm/chat", request(SMALL))
        .await
        .error(404, "not_found_error");
    let listing = gateway.http1.get("/llm/public/models").await.ok();
    assert!(!listing.text().contains(SMALL), "{}", listing.text());
    let purposes = gateway.http1.get("/llm/models/purposes").await.ok().json();
    assert_eq!(
        purposes["chat"], "acme/free",
        "the first model left that has the purpose"
    );
    assert_eq!(purposes.as_object().unwrap().len(), 11);
}

/// As a start: a reload that took them would leave webhooks unsigned, payments unknown, and a next start without its ledger.
#[tokio::test]
async fn a_secret_that_is_not_set_refuses_a_reload() {
    let upstream = Upstream::unused().await;
    let mut gateway = Gateway::over(&upstream).await;
    let good: Value = serde_json::from_str(&gateway.conf_text()).unwrap();
    for (key, value, told) in [
        ("stripe", json!({ "secret_env": "NOT_SET" }), "stripe.secret_env"),
        (
            "webhooks",
            json!([{ "url": "https://hooks.example", "secret_env": "NOT_SET" }]),
            "webhooks[0].secret_env",
        ),
        ("store_env", json!("NOT_SET"), "store_env"),
    ] {
        let mut conf = good.clone();
        conf["operator_listen"] = json!("127.0.0.1:1");
        conf[key] = value;
        gateway.write_conf(&conf.to_string());
        let error = match gateway.check_files() {
            Reloaded::Refused(error) => error.problem,
            other => panic!("{key}: {other:?}"),
        };
        let expected = format!("{told}: the environment variable NOT_SET is not set, or empty");
        assert_eq!(error, expected);
    }
    let mut set = good.clone();
    set["operator_listen"] = json!("127.0.0.1:1");
    set["stripe"] = json!({ "secret_env": "SET_STRIPE_SECRET" });
    gateway.write_conf(&set.to_string());
    assert!(matches!(gateway.check_files(), Reloaded::Changed));
}

/// Another try has the new credential.
#[tokio::test]
async fn a_call_whose_credential_is_refused_after_a_reload_that_changed_it_may_be_made_again() {
    let cue = Cue::new();
    let refused = Reply::default().wait(&cue).and(Reply::refusal(401, &[], "no such key"));
    let upstream = Upstream::always(refused).await;
    let mut gateway = Gateway::over(&upstream).await;
    let client = gateway.http1.clone();
    let call = tokio::spawn(async move { client.post("/llm/chat", request(SMALL)).await });
    upstream.asked(1).await;
    let mut conf: Value = serde_json::from_str(&gateway.conf_text()).unwrap();
    conf["providers"]["main"]["api_key_env"] = json!("SET_OTHER");
    gateway.write_conf(&conf.to_string());
    assert!(matches!(gateway.check_files(), Reloaded::Changed));
    cue.give_all();
    let answer = call.await.unwrap();
    answer.error(500, "upstream_error");
    assert_eq!(answer.headers.get("x-should-retry"), None);
    let refused = gateway.metrics().sum("tollgate_credential_refused", &[]);
    assert_eq!(refused, Decimal::ZERO, "of the new one nothing is known");
    gateway.check_books().await;
}
