//! `tollgate --operator URL`: the commands of the real binary, on a gateway elsewhere.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tollgate::pure::operator::Role;

use super::{Desk, GROUNDS, Ground, of, token_of};

impl Desk {
    /// Runs the binary in an empty folder, as an operator.
    async fn command(&self, token: &str, words: &[&str]) -> Output {
        self.command_into(Stdio::piped(), token, words).await
    }

    /// The same with another standard output.
    async fn command_into(&self, stdout: Stdio, token: &str, words: &[&str]) -> Output {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command
            .args(words)
            .args(["--operator", &format!("http://{}", self.address)])
            .env("TOLLGATE_OPERATOR_TOKEN", token)
            .env_remove("TOLLGATE_CONF")
            .current_dir(folder.path())
            .stdout(stdout);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap())
            .await
            .unwrap();
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            0,
            "it left something behind"
        );
        output
    }

    async fn json_of(&self, role: Role, words: &[&str]) -> Value {
        let words = [words, &["--json"]].concat();
        let output = self.command(&of(role), &words).await;
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{words:?}: {stderr}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The exit status of a command that fails, and what is said of it.
    async fn complaint(&self, token: &str, words: &[&str]) -> (Option<i32>, String) {
        let output = self.command(token, words).await;
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }
}

const WEBHOOK: &str = "https://billing.example.com/tollgate";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_work_on_a_gateway_elsewhere() {
    for ground in GROUNDS {
        let desk = Desk::with(ground, |conf| {
            conf["currency"] = "EUR".into();
            conf["tiers"]["pro"] = json!({ "monthly_quota": "77" });
            conf["webhooks"] = json!([{ "url": WEBHOOK, "secret_env": "SET_WEBHOOK" }]);
        })
        .await;
        let made = desk
            .json_of(Role::Admin, &["account", "create", "globex", "--tier", "pro"])
            .await;
        assert_eq!(
            (&made["currency"], made["monthly_quota"].to_string()),
            (&json!("EUR"), "77".to_owned())
        );
        desk.json_of(Role::Admin, &["account", "set", "globex", "--monthly-quota", "5"])
            .await;
        let added = desk
            .json_of(
                Role::Billing,
                &["credits", "add", "globex", "10.5", "--reference", "r1"],
            )
            .await;
        assert_eq!(
            (&added["added"], added["balance"].to_string()),
            (&json!(true), "10.5".to_owned())
        );
        let key = desk
            .json_of(Role::Support, &["key", "create", "--account", "globex", "--rpm", "7"])
            .await;
        let balance = desk
            .gateway
            .http1
            .with_key(key["key"].as_str().unwrap())
            .get("/llm/balance")
            .await;
        assert_eq!(balance.number("balance"), "10.5", "the key works");
        let id = key["id"].as_str().unwrap();
        desk.json_of(Role::Support, &["key", "set", id, "--label", "x"]).await;
        let keys = desk.json_of(Role::Read, &["key", "list", "globex"]).await;
        assert_eq!(
            (&keys["keys"][0]["label"], &keys["keys"][0]["rpm"]),
            (&json!("x"), &json!(7))
        );
        desk.json_of(Role::Support, &["key", "revoke", id]).await;
        let shown = desk.json_of(Role::Read, &["account", "show", "globex"]).await;
        assert_eq!(
            (shown["balance"].to_string(), &shown["keys"][0]["state"]),
            ("10.5".to_owned(), &json!("revoked"))
        );
        desk.json_of(Role::Support, &["account", "suspend", "globex"]).await;
        desk.json_of(Role::Support, &["account", "resume", "globex"]).await;
        let words = [
            "credits",
            "correct",
            "globex",
            "-0.5",
            "--reference",
            "fix",
            "--note",
            "typed twice",
        ];
        desk.json_of(Role::Billing, &words).await;
        let statement = desk.json_of(Role::Read, &["account", "statement", "globex"]).await;
        assert_eq!(statement["entries"].as_array().unwrap().len(), 2, "{statement}");
        let made = desk
            .json_of(Role::Admin, &["operator", "create", "Ann", "--role", "read"])
            .await;
        let token = made["token"].as_str().unwrap();
        assert!(desk.command(token, &["account", "list"]).await.status.success());
        desk.json_of(Role::Admin, &["operator", "revoke", made["id"].as_str().unwrap()])
            .await;
        desk.json_of(Role::Read, &["operator", "log"]).await;
        desk.json_of(Role::Read, &["account", "list"]).await;
        desk.json_of(Role::Read, &["usage", "globex"]).await;
        desk.json_of(Role::Read, &["generations", "globex"]).await;
        assert_eq!(desk.json_of(Role::Read, &["ledger", "audit"]).await["balanced"], true);
        desk.json_of(Role::Admin, &["ledger", "repair"]).await;
        assert_eq!(
            desk.json_of(Role::Admin, &["maintenance", "on"]).await["maintenance"],
            true
        );
        desk.json_of(Role::Admin, &["maintenance", "off"]).await;
        let open = desk.json_of(Role::Read, &["webhook", "list"]).await["events_open"].clone();
        let raised = desk.json_of(Role::Admin, &["webhook", "test", WEBHOOK]).await;
        assert!(raised["id"].as_str().unwrap().starts_with("evt_"), "{raised}");
        let list = desk.json_of(Role::Read, &["webhook", "list"]).await;
        assert_eq!(list["webhooks"][0]["url"], WEBHOOK);
        assert!(list["webhooks"][0]["events"].as_array().unwrap().len() > 6, "{list}");
        assert_eq!(list["events_open"], open.as_u64().unwrap() + 1);
        let log = desk.get("/v1/log").await;
        let acts = log["data"].as_array().unwrap();
        assert_eq!(acts.len(), 14, "{ground:?} {log}");
        assert!(
            acts.iter()
                .all(|act| act["actor"]["id"].as_str().unwrap().starts_with("op_")),
            "{log}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_keeps_a_command_from_a_gateway_is_said() {
    let desk = Desk::over(Ground::Embedded).await;
    let admin = of(Role::Admin);
    for (token, words, says) in [
        (token_of(99), &["account", "list"][..], "wrong, expired or revoked"),
        (
            String::new(),
            &["account", "list"],
            "TOLLGATE_OPERATOR_TOKEN is not set",
        ),
        (
            of(Role::Read),
            &["key", "create", "--account", "acme"],
            "answers 403: The role read may not do this: it takes support or admin",
        ),
        (
            of(Role::Support),
            &["credits", "add", "acme", "1", "--reference", "x"],
            "it takes billing or admin",
        ),
        (
            admin.clone(),
            &["account", "show", "nobody"],
            "no account is named nobody",
        ),
        (
            of(Role::Billing),
            &["webhook", "test"],
            "answers 403: The role billing may not do this: it takes admin",
        ),
        (
            admin.clone(),
            &["webhook", "test"],
            "answers 404: No webhooks are configured",
        ),
        (
            admin.clone(),
            &["webhook", "test", "https://x.example"],
            "no such webhook",
        ),
        (
            admin.clone(),
            &["ledger", "recover"],
            "error: this works on the gateway's own machine alone",
        ),
        (admin.clone(), &["serve"], "own machine alone"),
        (admin.clone(), &["check"], "own machine alone"),
        (admin.clone(), &["top"], "own machine alone"),
    ] {
        let (status, said) = desk.complaint(&token, words).await;
        assert!(said.contains(says), "{words:?}: {said}");
        // What cannot be meant with --operator is wrong usage.
        let expected = if says.ends_with("own machine alone") { 2 } else { 1 };
        assert_eq!(status, Some(expected), "{words:?}: {said}");
        assert!(token.is_empty() || !said.contains(&token), "{said}");
    }
    for (url, status, says) in [
        ("http://203.0.113.1:9091", 2, "plain HTTP to another machine"),
        (
            "http://127.0.0.1:1",
            1,
            "the gateway at 127.0.0.1:1 cannot be asked: nothing listens there\n",
        ),
        (
            "ftp://x",
            2,
            "--operator: \"ftp://x\" is not an address such as https://gateway.example.com:9091",
        ),
        (
            "http://me@127.0.0.1:1",
            2,
            "such as https://gateway.example.com:9091, without an @",
        ),
        (&format!("http://{}", desk.gateway.address), 1, "answers 404"),
    ] {
        let output = list_at(url, &admin);
        assert_eq!(output.status.code(), Some(status), "{url}: {output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(says), "{url}: {said}");
    }
}

/// Runs a command that only reads on the gateway that is named so.
fn list_at(url: &str, token: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command
        .args(["account", "list", "--operator", url])
        .env("TOLLGATE_OPERATOR_TOKEN", token);
    command.output().unwrap()
}

/// What is said where that fails.
fn refused(url: &str, token: &str) -> String {
    let output = list_at(url, token);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// The paths of the API stand below `/v1`, so it is typed, and was put before them once more: each answer was 404.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_address_may_have_the_v1_of_the_paths_behind_it() {
    let desk = Desk::over(Ground::Embedded).await;
    for end in ["", "/", "/v1", "/v1/"] {
        let output = list_at(&format!("http://{}{end}", desk.address), &of(Role::Read));
        assert!(output.status.success(), "{end}: {output:?}");
    }
    for end in ["/v1/v1", "/av1", "/v2"] {
        let said = refused(&format!("http://{}{end}", desk.address), &of(Role::Read));
        assert!(said.contains("answers 404"), "{end}: {said}");
    }
}

/// Pingora puts what it cannot read into its error.
#[test]
fn what_another_server_sends_is_not_repeated() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let head = BufReader::new(&stream).lines().map(Result::unwrap);
        assert!(head.take_while(|line| !line.is_empty()).count() > 1);
        stream.write_all(b"NOT-HTTP a private greeting\r\n\r\n").unwrap();
    });
    let said = refused(&url, &of(Role::Read));
    server.join().unwrap();
    assert!(said.contains("cannot be asked: InvalidHTTPHeader"), "{said}");
    assert!(!said.contains("greeting"), "{said}");
}

/// An output whose reader has gone.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

/// A key or a token whose text nobody got was active, and the command succeeded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_command_could_not_show_is_revoked_again() {
    for ground in GROUNDS {
        let desk = Desk::over(ground).await;
        let admin = of(Role::Admin);
        desk.json_of(Role::Admin, &["account", "create", "globex", "--tier", "pro"])
            .await;
        let key = desk
            .json_of(Role::Support, &["key", "create", "--account", "globex"])
            .await;
        let old = key["id"].as_str().unwrap();
        for (words, next) in [
            (&["key", "create", "--account", "globex"][..], "run the command again"),
            (
                &["key", "create", "--account", "globex", "--json"],
                "run the command again",
            ),
            (
                &["key", "rotate", old, "--overlap", "24h"],
                "works until the overlap is over",
            ),
            (
                &["operator", "create", "ann", "--role", "admin"],
                "run the command again",
            ),
            (
                &["key", "rotate", old, "--overlap", "0"],
                "has ended as well, for the overlap was 0",
            ),
        ] {
            let output = desk.command_into(unread(), &admin, words).await;
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{ground:?} {words:?}: {said}");
            assert!(
                said.contains("is revoked again") && said.contains(next),
                "{words:?}: {said}"
            );
            assert!(!said.contains("tg_") && !said.contains("tgop_"), "{words:?}: {said}");
        }
        let keys = desk.json_of(Role::Read, &["key", "list", "globex"]).await;
        let keys = keys["keys"].as_array().unwrap();
        assert_eq!(keys.len(), 5, "{keys:?}");
        assert!(keys.iter().all(|key| key["state"] == "revoked"), "{keys:?}");
        let operators = desk.json_of(Role::Admin, &["operator", "list"]).await;
        let operators = operators["operators"].as_array().unwrap();
        let ann = operators.iter().find(|one| one["name"] == "ann").unwrap();
        assert_eq!(ann["state"], "revoked", "{ground:?}");
    }
}

/// A standard output that is closed is the null device by the time `main` runs, and one that is not open for writing took each answer: the
/// command succeeded, and nobody had the key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_went_where_nobody_can_read_is_revoked_again() {
    let desk = Desk::over(Ground::Embedded).await;
    let (admin, create) = (of(Role::Admin), ["key", "create", "--account", "globex"]);
    desk.json_of(Role::Admin, &["account", "create", "globex", "--tier", "pro"])
        .await;
    let mut closed = Command::new("sh");
    closed
        .args(["-c", "exec \"$0\" \"$@\" >&-", env!("CARGO_BIN_EXE_tollgate")])
        .args(create)
        .args(["--operator", &format!("http://{}", desk.address)])
        .env("TOLLGATE_OPERATOR_TOKEN", &admin);
    let (for_reading, _writer) = std::io::pipe().unwrap();
    for output in [
        tokio::task::spawn_blocking(move || closed.output().unwrap())
            .await
            .unwrap(),
        desk.command_into(Stdio::null(), &admin, &create).await,
        desk.command_into(for_reading.into(), &admin, &create).await,
    ] {
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains("cannot write the answer") && said.contains("is revoked again"),
            "{said}"
        );
    }
    let keys = desk.json_of(Role::Read, &["key", "list", "globex"]).await;
    let keys = keys["keys"].as_array().unwrap();
    assert_eq!(keys.len(), 3, "{keys:?}");
    assert!(keys.iter().all(|key| key["state"] == "revoked"), "{keys:?}");
    let list = desk.command_into(Stdio::null(), &admin, &["account", "list"]).await;
    assert!(list.status.success(), "without a secret it may go there: {list:?}");
}
