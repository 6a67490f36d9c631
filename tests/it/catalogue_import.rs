//! `tollgate catalogue import` on a running gateway: a list of 660 models, by hand and on its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::chat::request;
use crate::harness::catalogue::SMALL;
use crate::harness::metrics::Metrics;
use crate::harness::operator::Process;
use crate::harness::{Reply, Upstream, eventually};

#[path = "../support/openrouter_list.rs"]
pub mod openrouter_list;

use openrouter_list::{openrouter_id, openrouter_list};

/// The shipped rules, with this provider.
fn rules(provider: &str) -> String {
    let shipped = std::fs::read_to_string("conf/import.yaml").unwrap();
    shipped.replace("provider: openrouter", &format!("provider: {provider}"))
}

fn write(process: &Process, name: &str, text: &str) -> PathBuf {
    let path = process.path(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// The public list's total, once it is not `before`.
async fn total_after(process: &Process, before: u64) -> u64 {
    eventually("the new catalogue is in force", async || {
        let listing = process.client.get("/llm/public/models").await.ok().json();
        listing["total"].as_u64().filter(|total| *total != before)
    })
    .await
}

#[tokio::test]
async fn a_list_of_660_is_imported_under_load_without_a_failed_request() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    // However fast this machine is, no limit stands in the load's way.
    let tiers = json!({ "pro": { "rpm": 1_000_000, "tpm": 1_000_000_000 } });
    let process = Process::start(&upstream, |conf| conf["tiers"] = tiers).await;
    let rules = write(&process, "import.yaml", &rules("main"));
    let list = write(&process, "list.json", &openrouter_list(660, 0));
    let (rules, list) = (rules.to_str().unwrap(), list.to_str().unwrap());
    let import = ["catalogue", "import", list, "--rules", rules, "--json"];

    let stop = Arc::new(AtomicBool::new(false));
    let load: Vec<_> = (0..4)
        .map(|worker| {
            let (client, stop) = (process.client.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut calls = 0;
                while !stop.load(Ordering::Relaxed) {
                    match worker % 2 {
                        0 => client.post("/llm/chat", request(SMALL)).await.ok(),
                        _ => client.get("/llm/public/models?search=model&page=2").await.ok(),
                    };
                    calls += 1;
                }
                calls
            })
        })
        .collect();

    let dry: Value = serde_json::from_str(&process.command(&[&import[..], &["--dry-run"]].concat())).unwrap();
    assert_eq!(dry["written"], false);
    assert_eq!(total_after(&process, 0).await, 6);
    let done: Value = serde_json::from_str(&process.command(&import)).unwrap();
    assert_eq!((&done["written"], &done["changes"]), (&true.into(), &dry["changes"]));
    let models = done["models"].as_u64().unwrap();
    let skipped = done["skipped"].as_array().unwrap().len() as u64;
    assert_eq!(models, 660 - skipped + 6, "and the six that stood there");
    assert_eq!(total_after(&process, 6).await, models);

    // It lists, 24 a page, searches, and serves.
    let page = process.client.get("/llm/public/models?page=2").await.ok().json();
    assert_eq!(
        (page["models"].as_array().unwrap().len(), &page["per_page"]),
        (24, &24.into())
    );
    assert_eq!(page["total_pages"], models.div_ceil(24));
    let found = process.client.get("/llm/public/models?search=EMBER/").await.ok().json();
    let found = found["models"].as_array().unwrap();
    assert!(
        found.len() == 24
            && found
                .iter()
                .all(|model| model["id"].as_str().unwrap().starts_with("ember/"))
    );
    let answer = process.client.post("/llm/chat", request(&openrouter_id(0))).await.ok();
    assert_eq!(answer.json()["object"], "chat.completion");

    // Other prices, and a model less.
    write(&process, "list.json", &openrouter_list(659, 3));
    let again: Value = serde_json::from_str(&process.command(&import)).unwrap();
    assert_eq!(again["changes"]["removed"], json!([openrouter_id(659)]));
    assert_eq!(total_after(&process, models).await, models - 1);

    // A broken list is refused with its line, and everything stays.
    let before = std::fs::read_to_string(process.path("catalogue.yaml")).unwrap();
    let broken = openrouter_list(660, 5).replacen("\"prompt\": \"0.000", "\"prompt\": \"0,000", 1);
    write(&process, "list.json", &broken);
    let complaint = process.refused(&import);
    assert!(
        complaint.contains("list.json:") && complaint.contains("not a decimal number"),
        "{complaint}"
    );
    assert_eq!(std::fs::read_to_string(process.path("catalogue.yaml")).unwrap(), before);

    stop.store(true, Ordering::Relaxed);
    let mut calls = 0;
    for worker in load {
        calls += worker.await.unwrap();
    }
    assert!(calls > 20, "the load was too small: {calls}");
    let metrics = Metrics::read(process.admin.get("//metrics").await.text());
    assert_eq!(metrics.sum("tollgate_catalogue_models", &[]), (models - 1).into());
    let log = std::fs::read_to_string(process.path("log")).unwrap();
    assert!(
        log.contains(&format!("- {}", openrouter_id(659))),
        "what changed is logged: {log}"
    );
}

#[tokio::test]
async fn the_catalogue_follows_a_providers_list() {
    let upstream = Upstream::always(Reply::new(
        200,
        &[("content-type", "application/json")],
        openrouter_list(50, 0),
    ))
    .await;
    let folder = tempfile::tempdir().unwrap();
    let rules_path = folder.path().join("import.yaml");
    std::fs::write(&rules_path, rules("main")).unwrap();
    let process = Process::start(&upstream, |conf| {
        let rules = rules_path.to_str().unwrap();
        conf["catalogue_refresh"] = json!({ "provider": "main", "rules": rules, "every_minutes": 1 });
    })
    .await;
    let total = total_after(&process, 6).await;
    assert!(total > 40, "{total}");
    let metrics = Metrics::read(process.admin.get("//metrics").await.text());
    assert_eq!(
        metrics.sum("tollgate_catalogue_refreshes_total", &[("result", "done")]),
        1.into()
    );
    assert!(upstream.asked(1).await.head.starts_with("GET /v1/models HTTP/1.1\r\n"));
}

/// Entries that no list keeps up to date stay as old as they are, whatever a refresh does.
#[tokio::test]
async fn a_refresh_makes_no_price_younger_that_it_did_not_look_at() {
    let list = Reply::new(200, &[("content-type", "application/json")], openrouter_list(50, 0));
    let upstream = Upstream::always(list).await;
    let folder = tempfile::tempdir().unwrap();
    let rules_path = folder.path().join("import.yaml");
    std::fs::write(&rules_path, rules("main")).unwrap();
    let refreshing = json!({ "provider": "main", "rules": rules_path.to_str().unwrap(), "every_minutes": 1 });
    let mut process = Process::prepare(&upstream, |conf| conf["catalogue_refresh"] = refreshing);
    let catalogue = std::fs::File::options()
        .append(true)
        .open(process.path("catalogue.yaml"))
        .unwrap();
    let year = std::time::Duration::from_secs(365 * 86_400);
    catalogue.set_modified(std::time::SystemTime::now() - year).unwrap();
    let conf = process.path("tollgate.yaml").to_str().unwrap().to_owned();
    process
        .start_with(&[env!("CARGO_BIN_EXE_tollgate"), "serve", "--conf", &conf].map(str::to_owned))
        .await;
    assert!(total_after(&process, 6).await > 40, "the new prices are in force");
    let metrics = eventually("the refresh is told", async || {
        let metrics = Metrics::read(process.admin.get("//metrics").await.text());
        let done = metrics.sum("tollgate_catalogue_refreshes_total", &[("result", "done")]);
        (done == 1.into()).then_some(metrics)
    })
    .await;
    let age = metrics.sum("tollgate_catalogue_age_seconds", &[]);
    assert!(age >= (365 * 86_400).into(), "{age}");
}

#[tokio::test]
async fn a_refresh_that_is_not_configured_any_more_has_not_failed() {
    let upstream = Upstream::always(Reply::chat("no list", 9, 1)).await;
    let process = Process::start(&upstream, |conf| {
        conf["catalogue_refresh"] = json!({ "provider": "main", "rules": "conf/import.yaml", "every_minutes": 1 });
    })
    .await;
    let failed_is = async |expected: u64| {
        eventually("the refresh's state is told", async || {
            let metrics = Metrics::read(process.admin.get("//metrics").await.text());
            let failed = metrics.sum("tollgate_catalogue_refresh_failed", &[]);
            (failed == expected.into()).then_some(())
        })
        .await;
    };
    failed_is(1).await;
    let mut conf: Value = serde_json::from_slice(&std::fs::read(process.path("tollgate.yaml")).unwrap()).unwrap();
    conf.as_object_mut().unwrap().remove("catalogue_refresh");
    write(&process, "tollgate.yaml", &conf.to_string());
    failed_is(0).await;
}

#[tokio::test]
async fn a_mistake_in_the_catalogue_is_told_with_its_line() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let process = Process::start(&upstream, |_| ()).await;
    let good = std::fs::read_to_string(process.path("catalogue.yaml")).unwrap();
    for (from, to, problem) in [
        (
            "modality: text->embedding",
            "modality: vectors",
            "modality must have the form",
        ),
        ("  tier: lite", "  tier: silver", "unknown variant `silver`"),
        ("prompt: '0.000001'", "prompt: 0.000001", "a price per token in quotes"),
        (
            "  planner: acme/large",
            "  planner: acme/none",
            "is not among the models",
        ),
        ("id: acme/huge", "id: acme/free", "twice"),
        ("provider: spare", "provider: sparr", "did you mean spare?"),
    ] {
        let broken = good.replacen(from, to, 1);
        assert_ne!(broken, good, "{from} is not in:\n{good}");
        write(&process, "catalogue.yaml", &broken);
        let complaint = process.refused(&["catalogue", "check"]);
        let line = complaint
            .split("catalogue.yaml:")
            .nth(1)
            .and_then(|rest| rest.split(':').next()?.parse::<usize>().ok());
        let line = line.unwrap_or_else(|| panic!("no line in {complaint}"));
        // An id that stands twice is wrong where it stands for the second time.
        let lines: Vec<&str> = broken.lines().collect();
        let changed = lines.iter().rposition(|line| line.contains(to)).unwrap() + 1;
        assert!(complaint.contains(problem), "{complaint}");
        assert!(
            line.abs_diff(changed) <= 1,
            "line {line}, but {to} stands on {changed}: {complaint}"
        );
    }
}
