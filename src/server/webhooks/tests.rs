//! A webhook that rests, events that are too old, and a receiver that is away while gateways die: by a clock that moves when it is told.

mod given_up;
mod telling;
mod watching;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::message::Message;
use super::*;
use crate::ledger::admin::credits::{CreditOp, CreditPost};
use crate::ledger::admin::events::{EventCount, EventKind};
use crate::ledger::embedded::Embedded;
use crate::pure::ids::Tier;
use crate::pure::time::Timestamp;

const NOW: Timestamp = Timestamp(1_795_132_800_000);

fn webhook(url: &str) -> Webhook {
    let text = format!("webhooks:\n  - {{ url: '{url}', secret_env: A, allow_private: true }}\n");
    let secret = |_: &str| Some("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned());
    let config = crate::config::Config::parse(std::path::Path::new("t.yaml"), &text, &secret).unwrap();
    config.webhooks[0].clone()
}

fn message_of(kind: EventKind) -> Message {
    let data = serde_json::json!({});
    Message::of(&Event::new("evt_x".to_owned(), kind, NOW, None, data))
}

/// Nobody listens there for an hour: an event is sent again after growing pauses, at most a quarter of an hour apart; then it arrives.
#[tokio::test]
async fn a_receiver_that_is_away_for_an_hour_is_found_again() {
    // The port is taken, and nobody listens on it yet.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let receiver = Receiver::new(webhook(&format!("http://{address}/x")));
    let (clock, telemetry) = (Clock::manual(NOW), Telemetry::default());
    let time = LedgerTime::new(&clock, NOW);
    let message = message_of(EventKind::CreditsAdded);
    let mut delivery = Delivery {
        url: receiver.webhook.url.clone(),
        failed: 0,
        due: NOW,
        done: false,
    };
    let mut pauses = Vec::new();
    while clock.now().since(NOW) < 3_600_000 {
        let before = delivery.failed;
        delivery = receiver.tell(&delivery, &message, &time, &telemetry).await.unwrap();
        let pause = delivery.due.since(clock.now());
        if delivery.failed > before {
            pauses.push(pause);
        }
        clock.advance(pause);
    }
    assert!((1_000..1_200).contains(&pauses[0]), "{pauses:?}");
    assert!(
        pauses.windows(2).all(|two| two[1] > two[0] || two[1] >= 900_000),
        "{pauses:?}"
    );
    assert!(
        pauses.iter().all(|pause| *pause < 1_080_000) && pauses.len() >= 11,
        "{pauses:?}"
    );
    let listener = socket.listen(16).unwrap();
    let answers = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut bytes = [0; 4096];
        assert!(socket.read(&mut bytes).await.unwrap() > 0);
        socket.write_all(b"HTTP/1.1 204 X\r\n\r\n").await.unwrap();
    });
    while let Some(left) = receiver.tell(&delivery, &message, &time, &telemetry).await {
        assert_eq!(left.failed, delivery.failed, "it rests only");
        clock.advance(left.due.since(clock.now()));
        delivery = left;
    }
    answers.await.unwrap();
    let [delivered, failed, _] = telemetry.deliveries.figures(clock.now().0).results;
    assert_eq!((delivered, failed), (1, u64::from(delivery.failed)));
}

/// It rested by the wall clock: an hour longer, where that was set back by an hour.
#[tokio::test]
async fn a_clock_that_is_set_back_lengthens_no_rest() {
    let (webhook, _socket) = unheard();
    let receiver = Receiver::new(webhook);
    let (clock, telemetry) = (Clock::manual(NOW), Telemetry::default());
    let time = LedgerTime::new(&clock, NOW);
    let message = message_of(EventKind::CreditsAdded);
    let mut delivery = Delivery {
        url: receiver.webhook.url.clone(),
        failed: 0,
        due: NOW,
        done: false,
    };
    for failed in 1..=8 {
        delivery = receiver.tell(&delivery, &message, &time, &telemetry).await.unwrap();
        assert_eq!(delivery.failed, failed);
    }
    clock.set_by(-3_600_000);
    let rests = receiver.tell(&delivery, &message, &time, &telemetry).await.unwrap();
    assert_eq!(rests.failed, 8, "it rests");
    // A second, and what spreads those that were put off together.
    let pause = rests.due.since(time.now());
    assert!((1_000..4_000).contains(&pause), "{pause}");
    clock.advance(1_000);
    let tried = receiver.tell(&rests, &message, &time, &telemetry).await.unwrap();
    assert_eq!(tried.failed, 9, "its rest is over");
    // It rests again, but for a test, which is tried at once.
    let test = message_of(EventKind::Test);
    let mut delivery = Delivery { failed: 0, ..rests };
    for (message, failed) in [(&message, 0), (&test, 1), (&test, 1)] {
        delivery = receiver.tell(&delivery, message, &time, &telemetry).await.unwrap();
        assert_eq!(delivery.failed, failed);
    }
}

/// What a receiver got: id, time, signature and body of each message, and whether it took it.
type Got = Arc<Mutex<Vec<([String; 3], Vec<u8>, bool)>>>;

/// Takes messages, and answers 500 to every second or third.
fn receive(listener: tokio::net::TcpListener, got: Got) {
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
            let begin = loop {
                let length = socket.read(&mut piece).await.unwrap();
                bytes.extend_from_slice(&piece[..length]);
                if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                    break end + 4;
                }
                assert!(length > 0, "it ends in its head");
            };
            let head = String::from_utf8(bytes[..begin].to_vec()).unwrap().to_lowercase();
            let whole = String::from_utf8(bytes[..begin].to_vec()).unwrap();
            let field = |name: &str| {
                let at = head.find(&format!("\r\n{name}: ")).unwrap() + name.len() + 4;
                whole[at..].lines().next().unwrap().to_owned()
            };
            let length: usize = field("content-length").parse().unwrap();
            while bytes.len() < begin + length {
                let length = socket.read(&mut piece).await.unwrap();
                assert!(length > 0, "it ends in its body");
                bytes.extend_from_slice(&piece[..length]);
            }
            let is_taken = {
                let mut got = got.lock().unwrap();
                let number = got.len();
                let is_taken = (number * 7 + number / 5) % 5 > 1;
                let fields = ["webhook-id", "webhook-timestamp", "webhook-signature"].map(field);
                got.push((fields, bytes[begin..].to_vec(), is_taken));
                is_taken
            };
            let status = if is_taken { "204" } else { "500" };
            // The gateway may have died.
            drop(
                socket
                    .write_all(format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n").as_bytes())
                    .await,
            );
        }
    });
}

/// A gateway's part that tells webhooks, over the file.
struct Teller {
    ledger: Ledger,
    dispatcher: Dispatcher,
}

impl Teller {
    fn start(path: &Path, clock: &Clock) -> Teller {
        let ledger = Ledger::Embedded(Embedded::open(path, clock.clone()).unwrap());
        let dispatcher = Dispatcher {
            snapshot: Weak::new(),
            ledger: ledger.clone(),
            clock: clock.clone(),
            telemetry: Arc::new(Telemetry::default()),
            receivers: HashMap::new(),
            known: KnownWebhooks::default(),
            stops: Arc::default(),
            unclaimed: Unclaimed::default(),
        };
        Teller { ledger, dispatcher }
    }

    async fn run(&self, op: AdminOp) -> AdminReply {
        self.ledger.run(op).await.unwrap()
    }

    async fn open(&self) -> u64 {
        match self.run(AdminOp::Event(EventOp::Count)).await {
            AdminReply::EventCount(EventCount { open, .. }) => open,
            other => panic!("{other:?}"),
        }
    }

    async fn make_account(&self) {
        let (account, tier) = ("acme".parse().unwrap(), Tier::Pro);
        self.run(AdminOp::AccountCreate {
            account,
            tier,
            quota_pico: None,
            terms: Default::default(),
        })
        .await;
    }

    async fn post(&self, number: u64) {
        let amount = "1".parse().unwrap();
        let post = CreditPost::top_up("acme".parse().unwrap(), amount, format!("r{number}"));
        self.run(AdminOp::Credit(CreditOp::Post(post))).await;
    }

    /// Looks once, and dies after some steps of what is told, or sees that to its end.
    async fn look(mut self, webhooks: &[Webhook], dies_after: Option<u64>, reopen: impl FnOnce() -> Teller) -> Teller {
        let mut telling = JoinSet::new();
        self.dispatcher.tell_due(webhooks, &mut telling).await;
        let Some(steps) = dies_after else {
            while telling.join_next().await.is_some() {}
            return self;
        };
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
        telling.shutdown().await;
        let Teller { ledger, dispatcher } = self;
        ledger.close();
        drop((ledger, dispatcher));
        reopen()
    }
}

/// For an hour nobody listens, then every second or third message gets a 500; a gateway dies at each fifth look, and another one begins.
#[tokio::test]
async fn every_event_arrives_over_an_hour_without_a_receiver_and_many_deaths() {
    const EVENTS: u64 = 60;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    // Nobody listens, and nobody else can.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let (address, mut socket): (SocketAddr, _) = (socket.local_addr().unwrap(), Some(socket));
    let webhooks = [webhook(&format!("http://{address}/x"))];
    let (clock, got) = (Clock::manual(NOW), Got::default());
    let mut teller = Teller::start(&path, &clock);
    teller.make_account().await;
    let mut looks = 0;
    while looks < 720 || teller.open().await > 0 {
        if looks < EVENTS {
            teller.post(looks).await;
        }
        if looks == 720 {
            assert_eq!(teller.open().await, EVENTS, "after an hour all of them wait");
            let listener = socket.take().map(|socket| socket.listen(64).unwrap());
            receive(listener.unwrap(), Arc::clone(&got));
        }
        let dies_after = (looks % 5 == 3).then_some(looks % 17 * 3);
        teller = teller
            .look(&webhooks, dies_after, || Teller::start(&path, &clock))
            .await;
        clock.advance(5_000);
        looks += 1;
        assert!(looks < 5_000, "{} events still wait", teller.open().await);
    }
    let got = got.lock().unwrap();
    let taken: BTreeSet<&str> = got
        .iter()
        .filter(|(.., taken)| *taken)
        .map(|([id, ..], ..)| id.as_str())
        .collect();
    assert_eq!(
        taken.len() as u64,
        EVENTS,
        "each of them, {} messages in all",
        got.len()
    );
    let mut bodies: BTreeMap<&str, &[u8]> = BTreeMap::new();
    for ([id, at, signature], body, _) in got.iter() {
        assert_eq!(
            *bodies.entry(id).or_insert(body),
            body.as_slice(),
            "an event is the same each time"
        );
        let [secret] = webhooks[0].secrets.as_slice() else {
            panic!("one secret")
        };
        assert_eq!(*signature, secret.signature(id, at.parse().unwrap(), body));
    }
    assert_eq!(bodies.len() as u64, EVENTS, "an event has one id");
    let references: BTreeSet<String> = bodies
        .values()
        .map(|body| {
            let event: serde_json::Value = serde_json::from_slice(body).unwrap();
            event["data"]["reference"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(references.len() as u64, EVENTS);
}

/// Tells an event to webhooks that change while it waits: each time for longer than the longest pause between two tries, 18 minutes.
async fn told_over(changes: &[Vec<Webhook>]) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let clock = Clock::manual(NOW);
    let mut teller = Teller::start(&path, &clock);
    teller.make_account().await;
    teller.post(1).await;
    for webhooks in changes {
        for _ in 0..260 {
            teller = teller.look(webhooks, None, || unreachable!()).await;
            clock.advance(5_000);
        }
    }
    teller.open().await
}

/// A webhook where nobody listens, and nobody else can.
fn unheard() -> (Webhook, tokio::net::TcpSocket) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    (webhook(&format!("http://{address}/x")), socket)
}

/// One that takes each event at its second message, and what it got.
async fn heard() -> (Webhook, Got) {
    let (listener, got) = (
        tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap(),
        Got::default(),
    );
    let address = listener.local_addr().unwrap();
    receive(listener, Arc::clone(&got));
    (webhook(&format!("http://{address}/x")), got)
}

/// The clock is four days ahead for a moment in which the webhook cannot be reached: by it the event is too old.
#[tokio::test]
async fn a_clock_that_is_ahead_for_a_moment_gives_no_event_up() {
    const FOUR_DAYS_MS: i64 = 4 * 86_400_000;
    let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::manual(NOW));
    let mut teller = Teller::start(&folder.path().join("ledger.db"), &clock);
    teller.make_account().await;
    teller.post(1).await;
    let (webhook, socket) = unheard();
    let webhooks = [webhook];
    clock.set_by(FOUR_DAYS_MS);
    teller = teller.look(&webhooks, None, || unreachable!()).await;
    assert_eq!(teller.open().await, 1);
    clock.set_by(-FOUR_DAYS_MS);
    let got = Got::default();
    receive(socket.listen(64).unwrap(), Arc::clone(&got));
    // Taken at the second message, some seconds after the first: not four days later.
    for _ in 0..10 {
        teller = teller.look(&webhooks, None, || unreachable!()).await;
        clock.advance(1_000);
    }
    let taken: Vec<bool> = got.lock().unwrap().iter().map(|(.., taken)| *taken).collect();
    assert_eq!((taken, teller.open().await), (vec![false, true], 0));
    let [delivered, failed, given_up] = teller.dispatcher.telemetry.deliveries.figures(clock.now().0).results;
    assert_eq!((delivered, failed, given_up), (1, 2, 0));
}

/// A webhook's address was wrong and is corrected: the events that waited for it are told there.
#[tokio::test]
async fn events_that_wait_are_told_to_an_address_that_is_corrected() {
    let (wrong, _socket) = unheard();
    let (right, got) = heard().await;
    let open = told_over(&[vec![wrong], vec![right]]).await;
    let taken: Vec<bool> = got.lock().unwrap().iter().map(|(.., taken)| *taken).collect();
    assert_eq!((taken, open), (vec![false, true], 0));
}

/// An event waits for a webhook that fails: one that is added meanwhile is told of it, once, and the first goes on being told.
#[tokio::test]
async fn a_webhook_that_is_added_is_told_of_events_that_wait_for_another() {
    let (failing, _socket) = unheard();
    let (added, got) = heard().await;
    let open = told_over(&[vec![failing.clone()], vec![failing.clone(), added.clone()]]).await;
    let taken = |got: &Got| -> Vec<bool> { got.lock().unwrap().iter().map(|(.., taken)| *taken).collect() };
    assert_eq!((taken(&got), open), (vec![false, true], 1));
    // One that has it is not told again when its list changes.
    let (other, of_other) = heard().await;
    let both = vec![failing, other.clone()];
    assert_eq!(told_over(&[both, vec![other, added]]).await, 0);
    assert_eq!(taken(&of_other), vec![false, true]);
}
