//! The log of acts when a command's process dies in its middle: nothing takes effect without an entry, and the entry says that its end is
//! not known.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::harness::redis_server::RedisServer;

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
            assert_eq!(
                (&act["subject"], &act["actor"]["name"]),
                (&format!("R{n}").into(), &"anna".into())
            );
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
