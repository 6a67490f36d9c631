//! The operator's commands on the real binary: `check` with every mistake, `top`, completions, the man page; and the commands of the systemd
//! unit, as systemd would run them.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rust_decimal::Decimal;
use serde_json::Value;

use crate::chat::request;
use crate::harness::catalogue::SMALL;
use crate::harness::metrics::Metrics;
use crate::harness::operator::Process;
use crate::harness::redis_server::RedisServer;
use crate::harness::{Reply, Upstream, eventually};

/// It had to be made by hand: the folder that a start makes was missing before the first one.
#[tokio::test]
async fn a_start_makes_the_folder_of_an_access_log_within_data_dir() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let process = Process::start(&upstream, |conf| {
        let data = conf["data_dir"].as_str().unwrap().to_owned();
        conf["access_log"] = format!("{data}/logs/access.log").into();
    })
    .await;
    process.client.post("/llm/chat", request(SMALL)).await.ok();
    let log = process.path("data/logs/access.log");
    eventually("the call's line", async || {
        let lines = std::fs::read_to_string(&log).ok()?;
        lines.contains(SMALL).then_some(())
    })
    .await;
    let folder = std::fs::metadata(process.path("data/logs")).unwrap();
    assert_eq!(folder.permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn check_tells_every_mistake_with_file_and_line() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let process = Process::start(&upstream, |_| ()).await;
    let path = |name: &str| process.path(name).to_str().unwrap().to_owned();
    let catalogue = std::fs::read_to_string(path("catalogue.yaml")).unwrap();
    let broken = catalogue
        .replacen("modality: text->embedding", "modality: vectors", 1)
        .replacen("provider: spare", "provider: sparr", 1)
        .replacen("planner: acme/large", "planner: acme/none", 1);
    std::fs::write(path("catalogue.yaml"), &broken).unwrap();
    let complaint = process.refused(&["check"]);
    for mistake in [
        "modality must have the form",
        "did you mean spare?",
        "its default acme/none is not among the models",
    ] {
        let line = complaint
            .lines()
            .find(|line| line.contains(mistake))
            .unwrap_or_else(|| panic!("{mistake}: {complaint}"));
        let number = line
            .split("catalogue.yaml:")
            .nth(1)
            .and_then(|rest| rest.split(':').next()?.parse::<usize>().ok());
        assert!(number.is_some_and(|number| number > 1), "no line in {line}");
    }

    let conf = format!(
        "listen: here\nmarcup: \"2\"\nthreads: 0\ncatalogue: {}\ntimeouts:\n  conect_ms: 1\nproviders:\n  main: {{ base_url: \"ftp://x\" }}\n  \
         spare: {{ base_url: \"http://x\" }}\n",
        path("catalogue.yaml")
    );
    std::fs::write(path("tollgate.yaml"), conf).unwrap();
    let complaint = process.refused(&["check"]);
    for (line, mistake) in [
        (1, "listen: \"here\""),
        (2, "unknown key marcup (did you mean markup?)"),
        (3, "threads: 0 is not from 1 to 256"),
        (6, "unknown key conect_ms (did you mean connect_ms?)"),
        (8, "providers.main: base_url"),
    ] {
        let told = format!("tollgate.yaml:{line}: ");
        assert!(
            complaint
                .lines()
                .any(|text| text.contains(&told) && text.contains(mistake)),
            "{told}{mistake}: {complaint}"
        );
    }
    let of_conf = complaint.lines().filter(|line| line.contains("tollgate.yaml:"));
    assert_eq!(of_conf.count(), 5, "{complaint}");
    // The catalogue is looked at all the same, by the providers' names.
    for mistake in [
        "modality must have the form",
        "did you mean spare?",
        "its default acme/none is not among the models",
    ] {
        let told = complaint
            .lines()
            .any(|line| line.contains("catalogue.yaml:") && line.contains(mistake));
        assert!(told, "{mistake}: {complaint}");
    }
}

#[tokio::test]
async fn top_shows_what_happens_within_80_columns() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let process = Process::start(&upstream, |_| ()).await;
    process.client.post("/llm/chat", request(SMALL)).await.ok();
    let text = process.command(&["top", "--once", "--interval", "1"]);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(
        text.contains(SMALL) && text.contains("PROVIDER") && text.contains("ready"),
        "{text}"
    );
    let status: Value = serde_json::from_str(&process.command(&["top", "--json"])).unwrap();
    let metrics = Metrics::read(process.admin.get("//metrics").await.text());
    assert_eq!(metrics.sum("tollgate_tokens_total", &[]), 10.into());
    assert_eq!(status["totals"]["prompt_tokens"], 9);
    let page = process.admin.get("//").await;
    assert!(page.header("content-type").starts_with("text/html") && page.text().contains("<title>Tollgate"));
}

#[test]
fn completions_and_the_man_page_know_every_command() {
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let man = run(&["man"]);
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completions", shell]);
        for command in ["serve", "account", "catalogue", "maintenance", "webhook", "top"] {
            assert!(
                script.contains(command) && man.contains(&command.to_uppercase()),
                "{shell} {command}"
            );
        }
    }
    assert!(man.starts_with(".ie") || man.contains(".TH"), "{man}");
}

/// It named a kind that is never taken, and left out a tier that is.
#[test]
fn help_names_the_kinds_and_tiers_that_are_taken() {
    for (command, names) in [
        (["credits", "add"], "top_up, bonus or correction"),
        (["key", "create"], "free, lite, pro or enterprise"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(command)
            .arg("--help")
            .output()
            .unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        // It is wrapped where a line would be too long.
        let words: Vec<&str> = help.split_whitespace().collect();
        assert!(words.join(" ").contains(names), "{help}");
    }
}

/// The words of each line of a setting of the unit.
fn lines_of_unit(setting: &str) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string("conf/systemd/tollgate.service").unwrap();
    let key = format!("{setting}=");
    let lines = text.lines().filter_map(|line| line.strip_prefix(&key));
    lines.map(|line| line.split(' ').map(str::to_owned).collect()).collect()
}

/// The words of a setting that stands in the unit once.
fn unit(setting: &str) -> Vec<String> {
    let [words] = lines_of_unit(setting).try_into().unwrap();
    words
}

#[tokio::test]
async fn the_units_commands_check_start_reload_stop_and_upgrade_the_binary() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let mut process = Process::prepare(&upstream, |_| ());
    let installed = process.path("installed-tollgate");
    let install = || std::fs::copy(env!("CARGO_BIN_EXE_tollgate"), &installed).unwrap();
    let here = |word: String, process: &Process| match word.as_str() {
        "/usr/local/bin/tollgate" => process.path("installed-tollgate").to_str().unwrap().to_owned(),
        "/etc/tollgate/tollgate.yaml" => process.path("tollgate.yaml").to_str().unwrap().to_owned(),
        "$MAINPID" => process.id().to_string(),
        _ => word,
    };
    install();
    let words = |setting: &str, process: &Process| -> Vec<String> {
        unit(setting).into_iter().map(|word| here(word, process)).collect()
    };
    let check = words("ExecStartPre", &process);
    assert!(
        Command::new(&check[0])
            .args(&check[1..])
            .output()
            .unwrap()
            .status
            .success()
    );
    let start = words("ExecStart", &process);
    process.start_with(&start).await;
    process.client.post("/llm/chat", request(SMALL)).await.ok();

    let catalogue = std::fs::read_to_string(process.path("catalogue.yaml")).unwrap();
    std::fs::write(
        process.path("catalogue.yaml"),
        catalogue.replacen("name: Small Chat", "name: Renamed", 1),
    )
    .unwrap();
    let reload = |process: &Process| {
        lines_of_unit("ExecReload").into_iter().all(|line| {
            let words: Vec<String> = line.into_iter().map(|word| here(word, process)).collect();
            let output = Command::new(&words[0]).args(&words[1..]).output().unwrap();
            output.status.success()
        })
    };
    assert!(reload(&process));
    eventually("the new name", async || {
        let listing = process
            .client
            .get("/llm/public/models?search=renamed")
            .await
            .ok()
            .json();
        (listing["total"] == 1).then_some(())
    })
    .await;

    // A file that the gateway refuses.
    let good = std::fs::read_to_string(process.path("catalogue.yaml")).unwrap();
    std::fs::write(process.path("catalogue.yaml"), "models: []\n").unwrap();
    assert!(!reload(&process));
    std::fs::write(process.path("catalogue.yaml"), good).unwrap();
    assert!(reload(&process));

    // An upgrade: another file in the binary's place, then stop and start.
    let balance = process.client.get("/llm/balance").await.ok().number("balance");
    std::fs::remove_file(&installed).unwrap();
    install();
    process.signal(unit("KillSignal")[0].strip_prefix("SIG").unwrap());
    assert!(process.ended().await.success());
    process.start_with(&start).await;
    assert_eq!(process.client.get("/llm/balance").await.ok().number("balance"), balance);
    assert!(balance.parse::<Decimal>().unwrap() < 100.into());
    process.signal("TERM");
    assert!(process.ended().await.success());
}

/// A demo in a folder of its own, which is ended when this is dropped.
struct RunningDemo {
    process: std::process::Child,
    conf: String,
}

impl RunningDemo {
    fn start(folder: &std::path::Path) -> RunningDemo {
        let mut process = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(["demo", "--simulated", "--listen", "127.0.0.1:0", "--json"])
            .current_dir(folder)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = process.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
        let greeting: serde_json::Value = serde_json::from_str(&line).unwrap();
        let conf = greeting["conf"].as_str().unwrap().to_owned();
        RunningDemo { process, conf }
    }
}

impl Drop for RunningDemo {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[test]
fn commands_beside_a_demo_say_which_ledger_they_are_about() {
    let folder = tempfile::tempdir().unwrap();
    let demo = RunningDemo::start(folder.path());
    let conf = folder.path().join("conf");
    std::fs::create_dir(&conf).unwrap();
    std::fs::write(conf.join("tollgate.yaml"), "store: sqlite://other.db\n").unwrap();
    let run = |arguments: &[&str], variable: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command
            .args(arguments)
            .current_dir(folder.path())
            .env_remove("TOLLGATE_CONF");
        command.envs(variable.map(|conf| ("TOLLGATE_CONF", conf)));
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (text(&output.stdout), text(&output.stderr))
    };
    // Another ledger than the demo's: said.
    let (accounts, note) = run(&["account", "list"], None);
    assert!(!accounts.contains("demo"), "{accounts}");
    assert!(note.contains("--conf data/demo/tollgate.yaml"), "{note}");
    // The demo's, however it is named.
    for (arguments, variable) in [
        (vec!["account", "list"], Some(demo.conf.as_str())),
        (vec!["account", "list", "--conf", demo.conf.as_str()], None),
        (
            vec!["account", "list", "--conf", demo.conf.as_str()],
            Some("nowhere.yaml"),
        ),
    ] {
        let (accounts, note) = run(&arguments, variable);
        assert!(accounts.contains("demo"), "{accounts}{note}");
        assert_eq!(note, "");
    }
    drop(demo);
    let (_, note) = run(&["account", "list"], None);
    assert!(
        note.starts_with("error: there is no ledger at /") && note.contains("/other.db: ") && note.lines().count() == 1,
        "no demo runs any more: {note}"
    );
}

/// The configuration is named by the environment: a line of usage that shows it says that it has to be typed.
#[test]
fn a_line_of_usage_asks_for_nothing_that_the_environment_has() {
    let folder = tempfile::tempdir().unwrap();
    let conf = folder.path().join("named.yaml");
    std::fs::write(&conf, "store: sqlite://named.db\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["account", "create"])
        .current_dir(folder.path())
        .env("TOLLGATE_CONF", &conf)
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("Usage: tollgate account create") && !stderr.contains("--conf"),
        "{stderr}"
    );
}

#[test]
fn what_is_logged_of_the_store_is_json_where_the_answer_is() {
    let redis = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let conf = folder.path().join("tollgate.yaml");
    std::fs::write(&conf, format!("store: \"{}\"\n", redis.url())).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["account", "list", "--json"])
        .current_dir(folder.path())
        .env("TOLLGATE_CONF", &conf)
        .env_remove("RUST_LOG")
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    let warnings: Vec<Value> = stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told = |warning: &&Value| {
        let message = warning["warning"]["message"].as_str();
        message.is_some_and(|message| message.contains("has no AOF"))
    };
    assert_eq!(warnings.iter().filter(told).count(), 1, "{stderr}");
}
