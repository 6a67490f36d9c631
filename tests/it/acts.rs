//! The log of acts when a command's process dies in its middle: nothing takes effect without an entry, and the entry says that its end is
//! not known.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::harness::catalogue::SMALL;
use crate::harness::operator::Process;
use crate::harness::redis_server::RedisServer;
use crate::harness::{Reply, Upstream};

fn tollgate(folder: &Path, words: &str, crash_at: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command
        .args(words.split(' '))
        .arg("--conf")
        .arg(folder.join("tollgate.yaml"));
    if let Some(point) = crash_at {
        command.env("TOLLGATE_CRASH_AT", point);
    }
    command.env("USER", "anna").env_remove("SUDO_USER").output().unwrap()
}

fn json(folder: &Path, words: &str) -> Value {
    let output = tollgate(folder, &format!("{words} --json"), None);
    assert!(output.status.success(), "{words}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn killed_in_the_middle(store: &str) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let conf = format!(
        "data_dir: {:?}\ncatalogue: {:?}\n{store}providers: {{}}\n",
        folder.join("data"),
        folder.join("none.yaml")
    );
    std::fs::write(folder.join("tollgate.yaml"), conf).unwrap();
    json(folder, "account create acme --tier pro");
    // Where it is killed, whether it is logged then, and whether it took effect.
    let steps = [
        ("act:before:1", false, false),
        ("act:begun:1", true, false),
        ("act:done:1", true, true),
    ];
    let (mut logged, mut balance) = (1, 0);
    for (n, (point, is_logged, is_done)) in steps.into_iter().enumerate() {
        let output = tollgate(folder, &format!("credits add acme 5 --reference R{n}"), Some(point));
        assert!(
            !output.status.success() && output.status.code().is_none(),
            "{point}: {output:?}"
        );
        (logged, balance) = (logged + usize::from(is_logged), balance + 5 * u64::from(is_done));
        let log = json(folder, "operator log");
        let acts = log["acts"].as_array().unwrap();
        assert_eq!(acts.len(), logged, "{point}");
        if is_logged {
            let act = &acts[0];
            assert_eq!(
                (&act["action"], &act["error"]),
                (&"credits.post".into(), &"unknown".into()),
                "{point}"
            );
            assert_eq!(act["subject"], format!("R{n}"));
            // Who it is the system says: what the environment says is added.
            let name = act["actor"]["name"].as_str().unwrap();
            assert!(name.ends_with(" (USER anna)"), "{name}");
            assert!(act["before"].is_object() && act["after"].is_null(), "{act}");
        }
        let shown = json(folder, "account show acme");
        assert_eq!(shown["balance"].as_u64(), Some(balance), "{point}");
    }
    // The command again says that its reference had counted, and is an act of its own.
    assert_eq!(json(folder, "credits add acme 5 --reference R2")["added"], false);
    assert_eq!(json(folder, "ledger audit")["balanced"], true);
}

#[test]
fn a_command_that_is_killed_leaves_an_entry_in_the_file() {
    killed_in_the_middle("");
}

#[test]
fn a_command_that_is_killed_leaves_an_entry_in_redis() {
    let server = RedisServer::start();
    killed_in_the_middle(&format!("store: {:?}\n", server.url()));
}

/// A gateway is killed in the middle of a stream, and somebody recovers what it left by hand.
async fn recovered_by_hand(store: Option<&str>) {
    let upstream = Upstream::always(Reply::stream().role().text(" word").text(" word").silence()).await;
    let mut process = Process::start(&upstream, |conf| {
        if let Some(store) = store {
            conf["store"] = store.into();
        }
    })
    .await;
    let body = json!({ "model": SMALL, "messages": [{ "role": "user", "content": "Hello" }], "max_tokens": 50 });
    let mut events = process.client.stream("/llm/chat/stream", body.to_string()).await.ok();
    for _ in 0..3 {
        events.next().await.unwrap();
    }
    process.signal("KILL");
    process.ended().await;
    let acts = |process: &Process| -> Vec<Value> {
        let log: Value = serde_json::from_str(&process.command(&["operator", "log", "--json"])).unwrap();
        let acts = log["acts"].as_array().unwrap().clone();
        acts.into_iter()
            .filter(|act| act["action"] == "ledger.recover")
            .collect()
    };
    assert_eq!(acts(&process), [] as [Value; 0]);
    let report: Value = serde_json::from_str(&process.command(&["ledger", "recover", "--json"])).unwrap();
    assert_eq!(report["settled"], 1, "{report}");
    let logged = acts(&process);
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert_eq!(
        (&logged[0]["actor"]["id"], &logged[0]["error"]),
        (&json!("cli"), &Value::Null)
    );
    assert_eq!(logged[0]["after"]["settled"], 1, "{logged:?}");
    // Nothing is left, and nothing is logged of it.
    let again: Value = serde_json::from_str(&process.command(&["ledger", "recover", "--json"])).unwrap();
    assert_eq!((&again["settled"], acts(&process).len()), (&json!(0), 1));
}

#[tokio::test]
async fn what_is_recovered_by_hand_is_logged_on_the_file() {
    recovered_by_hand(None).await;
}

#[tokio::test]
async fn what_is_recovered_by_hand_is_logged_in_redis() {
    let server = RedisServer::start();
    recovered_by_hand(Some(&server.url())).await;
}
