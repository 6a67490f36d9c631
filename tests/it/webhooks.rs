//! Webhooks: what a receiver gets, and when, from the real binary: over failures and receivers that are dead.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use rust_decimal::Decimal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tollgate::pure::webhook::Secret;

use crate::chat::request;
use crate::harness::catalogue::TWIN;
use crate::harness::metrics::Metrics;
use crate::harness::operator::Process;
use crate::harness::redis_server::RedisServer;
use crate::harness::{Reply, Upstream, eventually};

/// Of one receiver.
#[derive(Clone, Debug)]
pub struct Got {
    pub head: BTreeMap<String, String>,
    pub body: Vec<u8>,
    pub answered: u16,
}

/// Takes webhooks on a port of its own, and answers each by its number, beginning with 0.
pub struct Receiver {
    address: SocketAddr,
    got: Arc<Mutex<Vec<Got>>>,
}

impl Receiver {
    pub async fn start(answer: impl Fn(usize) -> u16 + Send + Sync + 'static) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Receiver::on(listener, answer)
    }

    fn on(listener: TcpListener, answer: impl Fn(usize) -> u16 + Send + Sync + 'static) -> Receiver {
        let address = listener.local_addr().unwrap();
        let got = Arc::<Mutex<Vec<Got>>>::default();
        let (kept, answer) = (Arc::clone(&got), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (kept, answer) = (Arc::clone(&kept), Arc::clone(&answer));
                tokio::spawn(async move { take(socket, &kept, &*answer).await });
            }
        });
        Receiver { address, got }
    }

    pub fn url(&self) -> String {
        format!("http://{}/hook?a=b", self.address)
    }

    pub fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }

    /// What was taken, by its id.
    pub fn taken(&self) -> BTreeMap<String, Value> {
        let taken = self.got().into_iter().filter(|got| (200..300).contains(&got.answered));
        taken.map(|got| (got.head["webhook-id"].clone(), got.json())).collect()
    }

    /// Waits for so many events.
    pub async fn takes(&self, count: usize) -> BTreeMap<String, Value> {
        eventually("the receiver has the events", async || {
            Some(self.taken()).filter(|taken| taken.len() >= count)
        })
        .await
    }
}

impl Got {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

async fn take(mut socket: TcpStream, kept: &Mutex<Vec<Got>>, answer: &(dyn Fn(usize) -> u16 + Sync)) {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    let (head, begin) = loop {
        let Ok(length @ 1..) = socket.read(&mut piece).await else {
            return;
        };
        bytes.extend_from_slice(&piece[..length]);
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break (String::from_utf8(bytes[..end].to_vec()).unwrap(), end + 4);
        }
    };
    assert!(head.starts_with("POST /hook?a=b HTTP/1.1\r\n"), "{head}");
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    let head: BTreeMap<String, String> = fields
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let length: usize = head["content-length"].parse().unwrap();
    while bytes.len() < begin + length {
        let Ok(length @ 1..) = socket.read(&mut piece).await else {
            return;
        };
        bytes.extend_from_slice(&piece[..length]);
    }
    let answered = {
        let mut kept = kept.lock().unwrap();
        let answered = answer(kept.len());
        let body = bytes[begin..].to_vec();
        kept.push(Got { head, body, answered });
        answered
    };
    let location = if answered == 302 {
        "location: http://127.0.0.1:1/\r\n"
    } else {
        ""
    };
    let text = format!("HTTP/1.1 {answered} X\r\n{location}content-length: 2\r\n\r\nok");
    // The gateway may have gone.
    drop(socket.write_all(text.as_bytes()).await);
}

pub const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OLD_SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";

pub fn webhooks(conf: &mut Value, urls: &[String]) {
    let hook = |url: &String| json!({ "url": url, "secret_env": "NEW_SECRET,OLD_SECRET", "allow_private": true });
    conf["webhooks"] = urls.iter().map(hook).collect();
}

/// What starts a gateway with the secrets, and with this beside.
pub fn words(process: &Process, environment: &[&str]) -> Vec<String> {
    let conf = process.path("tollgate.yaml").to_str().unwrap().to_owned();
    let (new, old) = (format!("NEW_SECRET={SECRET}"), format!("OLD_SECRET={OLD_SECRET}"));
    let mut words = vec!["env", &new, &old];
    words.extend(environment);
    words.extend([env!("CARGO_BIN_EXE_tollgate"), "serve", "--conf", &conf]);
    words.into_iter().map(str::to_owned).collect()
}

pub fn credit(process: &Process, reference: &str) {
    process.command(&["credits", "add", "acme", "1", "--reference", reference]);
}

#[tokio::test]
async fn a_receiver_gets_what_the_convention_says() {
    let receiver = Receiver::start(|_| 204).await;
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let mut process = Process::prepare(&upstream, |conf| webhooks(conf, &[receiver.url()]));
    process.start_with(&words(&process, &[])).await;
    let taken = receiver.takes(1).await;
    let (id, event) = taken.first_key_value().unwrap();
    assert_eq!(event["id"], id.as_str());
    assert_eq!(event["type"], "credits.added");
    assert_eq!(
        event["data"],
        json!({ "account": "acme", "kind": "top_up", "amount": "100", "balance": "100", "reference": "first" })
    );
    assert!(event["timestamp"].as_str().unwrap().ends_with('Z'), "{event}");
    let [got] = receiver.got().try_into().unwrap();
    assert_eq!(got.head["content-type"], "application/json");
    assert_eq!(got.head["host"], receiver.address.to_string());
    let seconds: i64 = got.head["webhook-timestamp"].parse().unwrap();
    let signatures = [SECRET, OLD_SECRET].map(|secret| {
        let secret: Secret = secret.parse().unwrap();
        secret.signature(id, seconds, &got.body)
    });
    assert_eq!(got.head["webhook-signature"], signatures.join(" "));
    let shown: Value = serde_json::from_str(&process.command(&["webhook", "test", "--json"])).unwrap();
    let test = shown["id"].as_str().unwrap();
    assert_eq!(receiver.takes(2).await[test]["type"], "webhook.test");
    let list: Value = serde_json::from_str(&process.command(&["webhook", "list", "--json"])).unwrap();
    assert_eq!(list["webhooks"][0]["url"], receiver.url());
    assert!(
        process
            .refused(&["webhook", "test", "https://other.example"])
            .contains("no webhook has the url")
    );
}

/// Every second message is taken; the others are answered by errors or redirections.
#[tokio::test]
async fn what_is_not_taken_is_sent_again() {
    let receiver = Receiver::start(|n| [500, 200, 302, 200, 404, 200, 429, 200, 503, 200][n % 10]).await;
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let mut process = Process::prepare(&upstream, |conf| webhooks(conf, &[receiver.url()]));
    process.start_with(&words(&process, &[])).await;
    for n in 0..3 {
        credit(&process, &format!("r{n}"));
    }
    let taken = receiver.takes(4).await;
    assert_eq!(taken.len(), 4);
    let bodies: BTreeSet<(String, Vec<u8>)> = receiver
        .got()
        .into_iter()
        .map(|got| (got.head["webhook-id"].clone(), got.body))
        .collect();
    assert_eq!(bodies.len(), 4, "an event is the same each time");
    let log = std::fs::read_to_string(process.path("log")).unwrap();
    let warned = log.lines().filter(|line| line.contains("does not take events")).count();
    let mended = log.lines().filter(|line| line.contains("takes events again")).count();
    assert!((1..=mended + 1).contains(&warned), "once for each outage: {log}");
}

#[tokio::test]
async fn a_dead_receiver_holds_up_no_other_and_a_410_ends_an_event() {
    // It takes connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dead = format!("http://{}/hook?a=b", silent.local_addr().unwrap());
    let (alive, gone) = (Receiver::start(|_| 200).await, Receiver::start(|_| 410).await);
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let urls = [dead, gone.url(), alive.url()];
    let mut process = Process::prepare(&upstream, |conf| webhooks(conf, &urls));
    process.start_with(&words(&process, &[])).await;
    for n in 0..30 {
        credit(&process, &format!("r{n}"));
    }
    alive.takes(31).await;
    eventually("the one that wants nothing is asked", async || {
        (gone.got().len() >= 31).then_some(())
    })
    .await;
    assert_eq!(gone.got().len(), 31, "and once for each");
    let list: Value = serde_json::from_str(&process.command(&["webhook", "list", "--json"])).unwrap();
    assert_eq!(list["events_open"], 31, "they wait for the dead one");
}

/// Two retries, a second and two after what failed, while another webhook has the event and does not answer.
async fn retried_beside_a_silent_one(store: Option<&RedisServer>) {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook?a=b", silent.local_addr().unwrap());
    // Until the gateway waits for it no longer.
    let left = tokio::spawn(async move {
        let (mut socket, _) = silent.accept().await.unwrap();
        let mut piece = [0; 4096];
        while socket.read(&mut piece).await.is_ok_and(|length| length > 0) {}
    });
    let receiver = Receiver::start(|n| if n < 2 { 500 } else { 200 }).await;
    let upstream = Upstream::unused().await;
    let mut process = Process::prepare(&upstream, |conf| {
        webhooks(conf, &[url, receiver.url()]);
        if let Some(server) = store {
            conf["store"] = server.url().into();
        }
    });
    process.start_with(&words(&process, &[])).await;
    receiver.takes(1).await;
    assert!(!left.is_finished(), "the silent one was waited for");
    assert_eq!(receiver.got().len(), 3);
}

#[tokio::test]
async fn a_retry_waits_for_no_other_webhook_on_the_file() {
    retried_beside_a_silent_one(None).await;
}

#[tokio::test]
async fn a_retry_waits_for_no_other_webhook_on_redis() {
    let server = RedisServer::start();
    retried_beside_a_silent_one(Some(&server)).await;
}

/// Five failures open the breaker of the one target of `spare`, and of the one that is asked of the many of `main`; while they are open
/// nothing more is told.
#[tokio::test]
async fn a_provider_that_is_down_is_told_once() {
    let receiver = Receiver::start(|_| 200).await;
    let upstream = Upstream::always(Reply::status(500)).await;
    let mut process = Process::prepare(&upstream, |conf| webhooks(conf, &[receiver.url()]));
    process.start_with(&words(&process, &[])).await;
    for _ in 0..10 {
        let answer = process.client.post("/llm/chat", request(TWIN)).await;
        assert!((500..600).contains(&answer.status), "{answer:?}");
    }
    let down = |taken: &BTreeMap<String, Value>| {
        let events = taken.values().filter(|event| event["type"] == "provider.down");
        let mut down: Vec<String> = events.map(|event| event["data"].to_string()).collect();
        down.sort();
        down
    };
    eventually("both are told", async || {
        (down(&receiver.taken()).len() >= 2).then_some(())
    })
    .await;
    process.command(&["webhook", "test"]);
    let test = |taken: &BTreeMap<String, Value>| taken.values().any(|event| event["type"] == "webhook.test");
    eventually("a later one", async || test(&receiver.taken()).then_some(())).await;
    let told = [("main", "up-twin"), ("spare", "up-twin-2")];
    let told = told.map(|(provider, target)| json!({ "provider": provider, "targets": [target] }).to_string());
    assert_eq!(down(&receiver.taken()), told);
}

/// A name that resolves to this machine is not told unless that is allowed, and neither start nor reload takes a secret that is not set.
#[tokio::test]
async fn inside_addresses_and_missing_secrets_are_refused() {
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let mut process = Process::prepare(&upstream, |conf| {
        conf["webhooks"] = json!([{ "url": "https://localhost:9/x", "secret_env": "NEW_SECRET" }]);
    });
    for words in [&["check"][..], &["serve"]] {
        let complaint = process.refused(words);
        assert!(
            complaint.contains("webhooks[0].secret_env: the environment variable NEW_SECRET is not set"),
            "{complaint}"
        );
    }
    process.start_with(&words(&process, &[])).await;
    eventually("it is refused", async || {
        let log = std::fs::read_to_string(process.path("log")).unwrap();
        log.contains("which is no address of the internet").then_some(())
    })
    .await;
}

/// An event waits for a webhook that does not take it; then the webhook is taken out of the file.
#[tokio::test]
async fn an_event_that_no_webhook_is_told_of_any_more_does_not_grow_older_in_the_metrics() {
    let receiver = Receiver::start(|_| 500).await;
    let upstream = Upstream::unused().await;
    let mut process = Process::prepare(&upstream, |conf| webhooks(conf, &[receiver.url()]));
    process.start_with(&words(&process, &[])).await;
    let waiting = async || {
        let metrics = Metrics::read(process.admin.get("//metrics").await.text());
        let names = [
            "tollgate_webhook_events_open",
            "tollgate_webhook_oldest_event_age_seconds",
        ];
        names.map(|name| metrics.sum(name, &[]))
    };
    eventually("an event waits, and grows older", async || {
        let [open, age] = waiting().await;
        (open == Decimal::ONE && age > Decimal::ZERO).then_some(())
    })
    .await;
    let file = process.path("tollgate.yaml");
    let mut conf: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    conf.as_object_mut().unwrap().remove("webhooks");
    std::fs::write(&file, conf.to_string()).unwrap();
    eventually("nobody is waited for", async || {
        (waiting().await == [Decimal::ZERO; 2]).then_some(())
    })
    .await;
}
