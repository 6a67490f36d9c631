//! Operators, and the log: every command that writes is an act of this user's, on both stores, on the file and through its owner.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;

use serde_json::json;

use super::*;
use crate::ledger::tests::redis_server::RedisServer;

/// The acts of the log, newest first.
fn acts(place: &Place) -> Vec<Value> {
    let (_, log) = place.json("operator log --limit 1000");
    assert_eq!(log["next"], Value::Null);
    log["acts"].as_array().unwrap().clone()
}

pub(super) fn on_redis(server: &RedisServer) -> Place {
    let place = Place::new();
    let conf = std::fs::read_to_string(place.conf()).unwrap() + &format!("store: {:?}\n", server.url());
    std::fs::write(place.conf(), conf).unwrap();
    place
}

/// Runs a command that writes, and says what it answers and its act, which must be the only new one and this user's.
fn act(place: &Place, words: &str) -> (Value, Value) {
    let before = acts(place).len();
    let (_, answer) = place.json(words);
    let mut all = acts(place);
    assert_eq!(all.len(), before + 1, "{words}");
    let act = all.remove(0);
    let user = crate::cli::user::this_user().name;
    let actor = json!({ "id": "cli", "name": user, "role": "admin", "address": null });
    assert_eq!((&act["actor"], &act["error"]), (&actor, &Value::Null), "{words}");
    (answer, act)
}

/// What an act is about, in one text.
fn about(act: &Value) -> String {
    let text = |name: &str| act[name].as_str().unwrap_or("-").to_owned();
    [text("action"), text("account"), text("subject")].join(" ")
}

/// What a field of it was before and after.
fn change(act: &Value, field: &str) -> [Value; 2] {
    ["before", "after"].map(|side| act[side][field].clone())
}

/// Every command that writes: who, what, before and after.
fn every_act(place: &Place) {
    let null = Value::Null;
    let (_, made) = act(place, "account create acme --tier pro");
    assert_eq!(about(&made), "account.create acme -");
    assert_eq!((&made["before"], &made["after"]["tier"]), (&null, &json!("pro")));
    let (_, paid) = act(place, "credits add acme 10.5 --reference A");
    assert_eq!(about(&paid), "credits.post acme A");
    assert_eq!(change(&paid, "balance"), [json!("0"), json!("10.5")]);
    assert_eq!(paid["after"]["credit"]["amount"], "10.5");
    let (_, set) = act(place, "account set acme --monthly-quota 7");
    assert_eq!(about(&set), "account.set acme -");
    assert_eq!(change(&set, "monthly_quota"), [null.clone(), json!("7")]);

    let (key, made) = act(place, "key create --account acme --label first");
    let (id, secret) = (key["id"].as_str().unwrap(), key["key"].as_str().unwrap());
    assert_eq!(about(&made), format!("key.create acme {id}"));
    assert_eq!((&made["before"], &made["after"]["label"]), (&null, &json!("first")));
    let (_, set) = act(place, &format!("key set {secret} --label second --limit 2"));
    assert_eq!(about(&set), format!("key.set acme {id}"));
    assert_eq!(change(&set, "label"), [json!("first"), json!("second")]);
    let limit = json!({ "amount": "2", "reset": "none" });
    assert_eq!(change(&set, "limit"), [null.clone(), limit]);
    let (new, rotated) = act(place, &format!("key rotate {secret} --overlap 2h"));
    assert_eq!(about(&rotated), format!("key.rotate acme {id}"));
    assert_eq!((&new["replaces"], &new["overlap_seconds"]), (&json!(id), &json!(7200)));
    assert_eq!(
        (&rotated["before"]["id"], &rotated["before"]["expires_at"]),
        (&json!(id), &null)
    );
    assert_eq!(
        (&rotated["after"]["key"]["id"], &rotated["after"]["key"]["label"]),
        (&new["id"], &json!("second"))
    );
    assert!(
        rotated["after"]["old"]["id"] == id && rotated["after"]["old"]["expires_at"].is_string(),
        "{rotated}"
    );
    let text = place.run("operator log --limit 1").stdout;
    let made = format!("  new key  {}\n", new["id"].as_str().unwrap());
    assert!(
        text.contains(&made) && text.contains("  expires_at: null -> ") && !text.contains("  old: "),
        "{text}"
    );
    let (_, revoked) = act(place, &format!("key revoke {id}"));
    assert_eq!(about(&revoked), format!("key.revoke acme {id}"));
    let [before, after] = change(&revoked, "revoked_at");
    assert!(before.is_null() && after.is_string(), "{revoked}");

    let (anna, made) = act(place, "operator create anna --role billing --expires-in 90d");
    let (token, operator) = (anna["token"].as_str().unwrap(), anna["id"].as_str().unwrap());
    assert!(token.starts_with("tgop_") && operator.starts_with("op_"), "{anna}");
    assert!(anna["role"] == "billing" && anna["expires"].is_string(), "{anna}");
    assert_eq!(about(&made), format!("operator.create - {operator}"));
    assert_eq!((&made["before"], &made["after"]["role"]), (&null, &json!("billing")));
    let (gone, revoked) = act(place, &format!("operator revoke {operator}"));
    assert_eq!(gone["state"], "revoked");
    assert_eq!(about(&revoked), format!("operator.revoke - {operator}"));
    assert_eq!(change(&revoked, "name"), [json!("anna"), json!("anna")]);
    let (_, listed) = place.json("operator list");
    assert_eq!(
        (&listed["operators"][0]["id"], &listed["operators"][0]["state"]),
        (&json!(operator), &json!("revoked"))
    );
    for state in ["on", "off"] {
        let (_, switched) = act(place, &format!("maintenance {state}"));
        assert_eq!(about(&switched), "maintenance - -");
        assert_eq!(change(&switched, "on"), [json!(state == "off"), json!(state == "on")]);
    }

    // What fails is an act too, and what only reads is none.
    let before = acts(place).len();
    let error = place.error("credits add acme 11 --reference A");
    let failed = acts(place).remove(0);
    assert!(
        failed["after"].is_null() && error.contains(failed["error"].as_str().unwrap()),
        "{failed}"
    );
    let unknown = place.error("operator revoke op_0123456789abcdef");
    assert!(
        unknown.contains("no operator has the id op_0123456789abcdef; `tollgate operator list`"),
        "{unknown}"
    );
    for reads in [
        "account show acme",
        "key list acme",
        "usage acme",
        "ledger audit",
        "ledger repair",
        "ledger recover",
    ] {
        place.json(reads);
    }
    let all = acts(place);
    assert_eq!(all.len(), before + 2);
    let text = serde_json::to_string(&all).unwrap();
    for secret in [secret, token] {
        let prefix = if secret == token { "tgop_" } else { "tg_" };
        let digest = ApiKey::parse(prefix, secret).unwrap().digest().to_hex();
        assert!(
            !text.contains(secret) && !text.contains(&digest),
            "a secret is in the log"
        );
    }

    pages(place, &all);
}

fn pages(place: &Place, all: &[Value]) {
    let (_, page) = place.json("operator log --limit 2");
    assert_eq!(page["acts"].as_array().unwrap(), &all[..2]);
    let (_, next) = place.json(&format!(
        "operator log --limit 2 --before {}",
        page["next"].as_str().unwrap()
    ));
    assert_eq!(next["acts"].as_array().unwrap(), &all[2..4]);
    let (_, of_account) = place.json("operator log --account acme");
    let expected: Vec<&Value> = all.iter().filter(|act| act["account"] == "acme").collect();
    assert_eq!(
        of_account["acts"].as_array().unwrap().iter().collect::<Vec<_>>(),
        expected
    );
    let text = place.run("operator log --account acme").stdout;
    for line in [
        "  balance: \"0\" -> \"10.5\"",
        "  monthly_quota: null -> \"7\"",
        "  account  acme",
        "  error    reference A",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(place.run("operator log --limit 1").stdout.contains("more: --before "));
    assert!(place.error("operator log --before x").contains("a number"));
    let table = place.run("operator list").stdout;
    assert!(
        table.contains("anna") && table.contains("billing") && table.contains("revoked"),
        "{table}"
    );
}

#[test]
fn every_command_that_writes_is_logged_on_the_file() {
    let place = Place::with_ledger();
    assert!(place.run("operator list").stdout.contains("no operators"));
    assert_eq!(place.run("operator log").stdout, "no acts\n");
    every_act(&place);
}

#[test]
fn every_command_that_writes_is_logged_through_the_owner() {
    let place = Place::new();
    let store = Embedded::open(&place.ledger(), Clock::System).unwrap();
    control::listen(&store).unwrap();
    every_act(&place);
}

#[test]
fn every_command_that_writes_is_logged_in_redis() {
    let server = RedisServer::start();
    every_act(&on_redis(&server));
}

/// An owner of a version that knows no acts: nothing is done without its entry, and what only reads works.
#[test]
fn an_owner_of_an_earlier_version_has_to_be_upgraded_first() {
    let place = Place::new();
    std::fs::create_dir_all(place.ledger().parent().unwrap()).unwrap();
    let listener = UnixListener::bind(place.ledger().with_extension("control")).unwrap();
    let owner = std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            if line.is_empty() {
                continue; // A probe.
            }
            let answer = match line.contains("\"op\":\"by\"") {
                true => {
                    r#"{"Err":{"error":"invalid","text":"not a command: unknown variant `by`, expected one of `account_create`"}}"#
                }
                false => r#"{"Ok":{"reply":"accounts","accounts":[]}}"#,
            };
            stream.write_all(format!("{answer}\n").as_bytes()).unwrap();
            if answer.starts_with("{\"Ok") {
                return;
            }
        }
    });
    let error = place.error("account create acme --tier pro");
    assert!(error.contains("nothing was done: upgrade the gateway first"), "{error}");
    assert_eq!(place.json("account list").1["accounts"], json!([]));
    owner.join().unwrap();
}

#[test]
fn check_warns_of_operators_tokens_over_plain_http() {
    let place = Place::with_free_ports();
    let before = std::fs::read_to_string(place.conf()).unwrap();
    for (host, is_warned) in [("127.0.0.1", false), ("0.0.0.0", true)] {
        let listener = std::net::TcpListener::bind((host, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        std::fs::write(place.conf(), format!("{before}operator_listen: {address}\n")).unwrap();
        let (_, findings) = place.json("check");
        let warnings = findings["warnings"].to_string();
        let says = format!("operator_listen: {address} takes operators' tokens over plain HTTP");
        assert_eq!(warnings.contains(&says), is_warned, "{warnings}");
    }
}
