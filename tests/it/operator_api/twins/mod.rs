//! Each act of the command line has its twin over HTTP: what `tollgate …` leaves in the ledger and in the log when it is typed beside the
//! gateway, the same leaves with `--operator URL`, and so does the request.

mod table;

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::process::Command;
use tollgate::clock::Clock;

use self::table::{Act, act_of, sample, twin};
use super::roles::ENDPOINTS;
use super::{Desk, GROUNDS, Ground, falsify};
use crate::harness::fleet::Fleet;
use crate::harness::redis_server::RedisServer;
use crate::harness::{Upstream, eventually, within};
use crate::nodes::unlimited;
use crate::webhooks::Receiver;

/// How an act is done, each on an account of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Typed on the gateway's machine.
    Typed,
    /// Typed elsewhere, with `--operator`.
    Elsewhere,
    /// Asked for over HTTP.
    Http,
}

const WAYS: [Way; 3] = [Way::Typed, Way::Elsewhere, Way::Http];

impl Way {
    fn account(self) -> &'static str {
        match self {
            Way::Typed => "typed",
            Way::Elsewhere => "elsewhere",
            Way::Http => "http",
        }
    }
}

/// A gateway, and who asks it.
struct Site {
    fleet: Fleet,
    redis: Option<RedisServer>,
    receiver: Receiver,
    http: reqwest::Client,
    operators: String,
    token: String,
}

/// What stands for KEY and OPERATOR.
#[derive(Default)]
struct Made {
    key: String,
    operator: String,
}

impl Made {
    fn fill(&self, text: &str, way: Way, hook: &str) -> String {
        let text = text.replace("NAME", way.account()).replace("HOOK", hook);
        text.replace("KEY", &self.key).replace("OPERATOR", &self.operator)
    }
}

impl Site {
    async fn over(ground: Ground) -> Site {
        let (upstream, receiver) = (Upstream::unused().await, Receiver::start(|_| 200).await);
        let redis = (ground == Ground::Redis).then(RedisServer::start);
        let store = redis
            .as_ref()
            .map_or_else(|| "sqlite://{dir}/ledger.db".to_owned(), RedisServer::url);
        let mut fleet = Fleet::prepared(&store, unlimited(), &upstream);
        fleet.configure(|conf| {
            conf["operator_listen"] = json!("127.0.0.1:9091");
            conf["webhooks"] =
                json!([{ "url": receiver.url(), "secret_env": "FLEET_WEBHOOK_SECRET", "allow_private": true }]);
        });
        let made = fleet.command(&["operator", "create", "desk", "--role", "admin"]).await;
        let made: Value = serde_json::from_str(&made).unwrap();
        fleet.grow(1).await;
        let site = Site {
            operators: format!("http://{}", fleet.conf_of(0)["operator_listen"].as_str().unwrap()),
            token: made["token"].as_str().unwrap().to_owned(),
            redis,
            http: reqwest::Client::new(),
            receiver,
            fleet,
        };
        eventually("operators are listened to", async || {
            site.http.get(&site.operators).send().await.ok().map(drop)
        })
        .await;
        site
    }

    /// What a request is answered; it must succeed.
    async fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let request = self.http.request(method, format!("{}{path}", self.operators));
        let request = request.bearer_auth(&self.token);
        let request = if body.is_null() { request } else { request.json(body) };
        let answer = within("an answer", request.send()).await.unwrap();
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert!(status.is_success(), "{path} {body}: {status} {text}");
        serde_json::from_str(&text).unwrap()
    }

    async fn get(&self, path: &str) -> Value {
        self.ask("GET", path, &Value::Null).await
    }

    /// What a command typed elsewhere writes to both outputs, and whether it succeeds.
    async fn elsewhere(&self, words: &[&str]) -> (bool, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(words).args(["--json", "--operator", &self.operators]);
        command
            .env("TOLLGATE_OPERATOR_TOKEN", &self.token)
            .env_remove("TOLLGATE_CONF");
        let output = within("a command", command.output()).await.unwrap();
        let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.success(), stdout, stderr)
    }

    /// Does a step of an act, and gives what it answers in the command line's words.
    async fn does(&self, act: Act, way: Way, (words, body): &(&str, Value), made: &Made) -> Value {
        let hook = self.receiver.url();
        let words = made.fill(words, way, &hook);
        let words: Vec<&str> = words.split_whitespace().collect();
        match way {
            Way::Typed => serde_json::from_str(&self.fleet.command(&words).await).unwrap(),
            Way::Elsewhere => {
                let (succeeds, stdout, stderr) = self.elsewhere(&words).await;
                assert!(succeeds, "{words:?}: {stderr}");
                serde_json::from_str(&stdout).unwrap()
            }
            Way::Http => {
                let twin = twin(act);
                let path = made.fill(twin.path, way, &hook);
                let body: Value = serde_json::from_str(&made.fill(&body.to_string(), way, &hook)).unwrap();
                in_the_words_of_commands(act, self.ask(twin.method, &path, &body).await)
            }
        }
    }

    /// All that an account and an operator are, without what tells them from those of another way.
    async fn standing(&self, way: Way, made: &Made) -> Value {
        let path = format!("/v1/accounts/{}", way.account());
        let mut keys = self.get(&format!("{path}/keys")).await["data"].take();
        let operators = self.get("/v1/operators").await;
        let mut operators = operators["data"].as_array().unwrap().iter();
        let standing = json!({
            "account": self.get(&path).await,
            "keys": keys.take(),
            "credits": self.get(&format!("{path}/credits")).await["data"],
            "operator": operators.find(|operator| operator["id"] == made.operator.as_str()),
            "maintenance": self.get("/v1/maintenance").await,
        });
        let mut standing = plain(standing, way);
        // Of keys that were made in one millisecond the order is open.
        let keys = standing["keys"].as_array_mut().unwrap();
        keys.sort_by_key(Value::to_string);
        standing
    }

    /// The newest act of the log, which is of this way, without what tells it from that of another one.
    async fn logged(&self, act: Act, way: Way) -> Value {
        let mut entry = self.get("/v1/log?limit=1").await["data"][0].take();
        assert_eq!(entry["action"], twin(act).action, "{act:?} {way:?}: {entry}");
        assert_eq!(entry["error"], Value::Null, "{act:?} {way:?}: {entry}");
        let actor = entry["actor"].take();
        if way == Way::Typed {
            assert_eq!(
                (&actor["id"], &actor["address"]),
                (&json!("cli"), &Value::Null),
                "{actor}"
            );
        } else {
            assert_eq!(
                (&actor["name"], &actor["address"]),
                (&json!("desk"), &json!("127.0.0.1")),
                "{actor}"
            );
        }
        if act == Act::CreditsAdd {
            // Typed, it asks as earlier versions did: they did not answer with the entry.
            let credit = entry["after"]["credit"].as_object_mut().unwrap();
            for field in ["at", "balance"] {
                credit.remove(field);
            }
        }
        entry["id"].take();
        plain(entry, way)
    }
}

/// What a request is answered, as a command says it.
fn in_the_words_of_commands(act: Act, answer: Value) -> Value {
    match act {
        Act::CreditsAdd | Act::CreditPost => {
            let mut told = answer["entry"].clone();
            told["account"] = answer["account"].clone();
            told["balance"] = answer["balance"].clone();
            told["added"] = json!(answer["replayed"] == false);
            told
        }
        Act::Maintenance => json!({ "maintenance": answer["on"] }),
        Act::Repair => answer["mended"].clone(),
        Act::Recover => answer["Ok"].clone(),
        _ => answer,
    }
}

/// A value without moments, and with one name for each account, id and secret.
fn plain(value: Value, way: Way) -> Value {
    match value {
        Value::String(text) => {
            let is_moment = text.len() >= 20 && text.ends_with('Z') && text.as_bytes()[10] == b'T';
            let mut secrets = ["key_", "op_", "evt_", "tg_", "tgop_"].into_iter();
            match secrets.find(|prefix| text.starts_with(prefix)) {
                Some(prefix) => prefix.into(),
                None if is_moment => "MOMENT".into(),
                None if text == way.account() => "NAME".into(),
                None => text.into(),
            }
        }
        Value::Array(values) => values.into_iter().map(|value| plain(value, way)).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter();
            Value::Object(fields.map(|(name, value)| (name, plain(value, way))).collect())
        }
        other => other,
    }
}

/// Two answers are the same in each field that both have, whether an amount is a number or a text.
fn are_alike(one: &Value, other: &Value) -> bool {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let are_empty = one.is_empty() && other.is_empty();
            let mut both = one
                .iter()
                .filter_map(|(name, value)| Some((value, other.get(name)?)))
                .peekable();
            (are_empty || both.peek().is_some()) && both.all(|(one, other)| are_alike(one, other))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| are_alike(one, other))
        }
        _ => text(one) == text(other),
    }
}

/// What a way leaves, step by step: the answer, the act in the log, and what stands afterwards.
async fn traces(site: &Site, act: Act, way: Way, made: &mut Made) -> Vec<[Value; 3]> {
    let mut traces = Vec::new();
    for step in &twin(act).steps {
        if act == Act::Repair {
            let file = site.fleet.path("ledger.db");
            falsify(site.redis.as_ref(), &file, way.account(), Clock::System.now().month());
        }
        let answer = site.does(act, way, step, made).await;
        let id = || answer["id"].as_str().unwrap().to_owned();
        match act {
            Act::KeyCreate | Act::KeyRotate => made.key = id(),
            Act::OperatorCreate => made.operator = id(),
            _ => {}
        }
        // Nothing has died, so nothing is recovered, and the log has nothing of it.
        let logged = match act {
            Act::Recover => Value::Null,
            _ => site.logged(act, way).await,
        };
        traces.push([plain(answer, way), logged, site.standing(way, made).await]);
    }
    traces
}

async fn each_act_has_its_twin(ground: Ground) {
    let site = Site::over(ground).await;
    let mut made = WAYS.map(|_| Made::default());
    for act in Act::ALL {
        let mut typed = Vec::new();
        for (way, made) in WAYS.into_iter().zip(&mut made) {
            if (*act, way) == (Act::Recover, Way::Elsewhere) {
                let (_, _, stderr) = site.elsewhere(&["ledger", "recover"]).await;
                assert!(stderr.contains("own machine alone"), "{stderr}");
                continue;
            }
            let traces = traces(&site, *act, way, made).await;
            if way == Way::Typed {
                typed = traces;
                continue;
            }
            assert_eq!(typed.len(), traces.len());
            for ([answer, logged, standing], [answer_here, logged_here, standing_here]) in typed.iter().zip(&traces) {
                assert!(
                    are_alike(answer, answer_here),
                    "{act:?} {way:?}: {answer:#} {answer_here:#}"
                );
                assert_eq!(logged, logged_here, "{act:?} {way:?}");
                assert_eq!(standing, standing_here, "{act:?} {way:?}");
            }
        }
    }
    let tests = eventually("each test of the webhook is told", async || {
        let taken = site.receiver.taken().into_values();
        let tests: Vec<Value> = taken.filter(|event| event["type"] == "webhook.test").collect();
        (tests.len() == WAYS.len()).then_some(tests)
    })
    .await;
    let url = json!({ "url": site.receiver.url() });
    assert!(tests.iter().all(|event| event["data"] == url), "{tests:?}");
    let standing = site.standing(Way::Http, &made[2]).await;
    assert_eq!(standing["account"]["balance"], "-10.499999999999", "{standing:#}");
    assert_eq!(site.get("/v1/audit").await["balanced"], true);
}

#[tokio::test]
async fn each_act_typed_has_its_twin_over_http_on_the_file() {
    each_act_has_its_twin(Ground::Embedded).await;
}

#[tokio::test]
async fn each_act_typed_has_its_twin_over_http_on_redis() {
    each_act_has_its_twin(Ground::Redis).await;
}

/// Each command that writes is an act of the table, and the log has it by the name that the table says.
#[tokio::test]
async fn the_table_has_every_command_that_writes() {
    for ground in GROUNDS {
        let desk = Desk::over(ground).await;
        for act in Act::ALL {
            let op = sample(*act);
            assert_eq!(act_of(&op), Some(*act));
            assert!(op.writes() || op.is_act(), "{act:?}");
            if matches!(act, Act::Repair | Act::Recover) {
                continue; // Logged only where something was mended or recovered.
            }
            desk.admin("POST", "/v1/commands", serde_json::to_value(&op).unwrap())
                .await;
            let newest = desk.get("/v1/log?limit=1").await["data"][0].take();
            assert_eq!(newest["action"], twin(*act).action, "{act:?}");
        }
        let log = desk.get("/v1/log?limit=1000").await;
        assert_eq!(
            log["data"].as_array().unwrap().len(),
            Act::ALL.len() - 2,
            "{ground:?} {log}"
        );
    }
}

/// Each request that changes something is the twin of something typed.
#[test]
fn the_table_has_every_request_that_writes() {
    let template = |path: &str| {
        path.replace("NAME", "{name}")
            .replace("KEY", "{id}")
            .replace("OPERATOR", "{id}")
    };
    let twins = Act::ALL
        .iter()
        .map(|act| (twin(*act).method, template(twin(*act).path)));
    let writes = ENDPOINTS
        .iter()
        .filter(|(method, path, ..)| *method != "GET" && *path != "/v1/session");
    let writes: BTreeSet<(&str, String)> = writes.map(|(method, path, ..)| (*method, (*path).to_owned())).collect();
    assert_eq!(twins.collect::<BTreeSet<_>>(), writes);
}
