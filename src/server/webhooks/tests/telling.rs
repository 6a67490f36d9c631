//! An event that is being told.

use tokio::net::{TcpListener, TcpStream};

use super::super::telling::AGAIN_WITHIN_MS;
use super::*;

/// A webhook whose messages a test answers one by one.
pub(super) struct Steered {
    pub(super) webhook: Webhook,
    listener: TcpListener,
}

impl Steered {
    pub(super) async fn start() -> Steered {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let webhook = webhook(&format!("http://{}/x", listener.local_addr().unwrap()));
        Steered { webhook, listener }
    }

    /// The next message, which waits for its answer.
    pub(super) async fn message(&self) -> TcpStream {
        let (mut socket, _) = self.listener.accept().await.unwrap();
        let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
        // Where its data ends, and it.
        while !bytes.ends_with(b"}}") {
            let length = socket.read(&mut piece).await.unwrap();
            assert!(length > 0, "it ends too soon");
            bytes.extend_from_slice(&piece[..length]);
        }
        socket
    }
}

pub(super) async fn answer(mut message: TcpStream, status: &str) {
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n");
    message.write_all(head.as_bytes()).await.unwrap();
}

/// A gateway with one event that it tells: one webhook holds its message, and the other one has not taken it and gets it again.
struct Again {
    teller: Teller,
    telling: JoinSet<()>,
    slow: Steered,
    held: TcpStream,
    quick: Steered,
    again: TcpStream,
}

impl Again {
    async fn start(path: &Path) -> Again {
        let (slow, quick) = (Steered::start().await, Steered::start().await);
        let mut teller = Teller::start(path, &Clock::System);
        teller.make_account().await;
        teller.post(1).await;
        let mut telling = JoinSet::new();
        let webhooks = [slow.webhook.clone(), quick.webhook.clone()];
        teller.dispatcher.tell_due(&webhooks, &mut telling).await;
        let held = slow.message().await;
        answer(quick.message().await, "500").await;
        let again = tokio::select! {
            again = quick.message() => again,
            _ = telling.join_next() => panic!("it waited for the slow one"),
        };
        Again {
            teller,
            telling,
            slow,
            held,
            quick,
            again,
        }
    }
}

#[tokio::test]
async fn what_was_not_taken_is_sent_again_while_another_webhook_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let Again {
        mut teller,
        mut telling,
        slow,
        held,
        quick,
        again,
    } = Again::start(&folder.path().join("ledger.db")).await;
    let webhooks = [slow.webhook.clone(), quick.webhook.clone()];
    teller.dispatcher.tell_due(&webhooks, &mut telling).await;
    assert_eq!(telling.len(), 1, "it is claimed by nobody else meanwhile");
    answer(again, "204").await;
    answer(held, "204").await;
    while telling.join_next().await.is_some() {}
    assert_eq!(teller.open().await, 0);
    let results = teller.dispatcher.telemetry.deliveries.figures(NOW.0).results;
    assert_eq!(results, [2, 1, 0], "delivered, failed and given up");
}

/// It dies while both have the message, one of them for the second time: the next one tells both, when nobody can have the event any more.
#[tokio::test]
async fn an_event_that_was_sent_again_outlives_its_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let Again {
        teller,
        mut telling,
        slow,
        quick,
        ..
    } = Again::start(&path).await;
    telling.shutdown().await;
    let Teller { ledger, dispatcher } = teller;
    ledger.close();
    drop((ledger, dispatcher));
    let clock = Clock::manual(Clock::System.now());
    let mut teller = Teller::start(&path, &clock);
    let webhooks = [slow.webhook.clone(), quick.webhook.clone()];
    teller.dispatcher.tell_due(&webhooks, &mut telling).await;
    assert_eq!(telling.len(), 0, "it is still claimed");
    clock.advance(LEASE_MS + 1_000);
    teller.dispatcher.tell_due(&webhooks, &mut telling).await;
    assert_eq!(telling.len(), 1);
    for webhook in [&slow, &quick] {
        answer(webhook.message().await, "204").await;
    }
    while telling.join_next().await.is_some() {}
    assert_eq!(teller.open().await, 0);
}

fn event(at: Timestamp) -> Event {
    let mut event = Event::new(
        "evt_x".to_owned(),
        EventKind::CreditsAdded,
        at,
        None,
        serde_json::json!({}),
    );
    event.claimed = Some(at);
    event
}

#[tokio::test]
async fn nobody_is_waited_for_without_another_who_is_sent_to_or_for_long_or_in_a_stop() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::manual(NOW));
    let mut teller = Teller::start(&folder.path().join("ledger.db"), &clock);
    let (webhook, _socket) = unheard();
    let telling = teller.dispatcher.telling(event(NOW), &[webhook]);
    let progress = telling.progress();
    let told = &progress.all[0];
    let (delivery, _) = &telling.receivers[0];
    for (due_ms, sending, stops, comes_due) in [
        (0, 1, false, true),
        (1, 1, false, true),
        (0, 0, false, false),
        (AGAIN_WITHIN_MS, 0, false, false),
        (AGAIN_WITHIN_MS + 1, 1, false, false),
        (0, 1, true, false),
    ] {
        told.set(Some(Delivery {
            due: NOW.plus_millis(due_ms),
            ..delivery.clone()
        }));
        progress.sending.send_replace(sending);
        telling.stops.store(stops, Ordering::Relaxed);
        let found = telling.comes_due(told, &progress).await;
        assert_eq!(
            found, comes_due,
            "due after {due_ms} ms, sent to {sending}, stops: {stops}"
        );
    }
    telling.stops.store(false, Ordering::Relaxed);
    progress.sending.send_replace(1);
    told.set(None);
    assert!(!telling.comes_due(told, &progress).await, "it has the event");
}

/// The process stood still for longer than its claim lasts.
#[tokio::test]
async fn an_event_is_kept_for_as_long_as_nobody_else_may_have_claimed_it() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::manual(NOW));
    let mut teller = Teller::start(&folder.path().join("ledger.db"), &clock);
    let (webhook, _socket) = unheard();
    let telling = teller.dispatcher.telling(event(NOW), &[webhook]);
    let progress = telling.progress();
    for (passes, is_ours) in [(LEASE_MS - 1, true), (LEASE_MS - 1, true), (LEASE_MS, false)] {
        clock.advance(passes);
        assert_eq!(telling.keep(&progress).await, is_ours, "after {passes} ms");
    }
}

/// Another process holds the file up while it is kept: what is left of the claim may not do for another attempt, which takes 16 seconds at most.
#[tokio::test]
async fn an_event_is_not_sent_again_for_longer_than_it_is_claimed() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::manual(NOW));
    let path = folder.path().join("ledger.db");
    let mut teller = Teller::start(&path, &clock);
    let (webhook, _socket) = unheard();
    let telling = teller.dispatcher.telling(event(NOW), &[webhook]);
    let other = rusqlite::Connection::open(&path).unwrap();
    for (after, takes, is_ours) in [
        (0, 4_000, true),
        (0, 4_001, false),
        (LEASE_MS - 1_000, 999, true),
        // Somebody else may have claimed it before it was kept.
        (LEASE_MS - 1_000, 1_000, false),
    ] {
        let progress = telling.progress();
        clock.advance(after);
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let keeps = telling.keep(&progress);
        let goes_on = async {
            clock.advance(takes);
            other.execute_batch("COMMIT").unwrap();
        };
        // In this order: it has begun when time passes.
        let (found, ()) = tokio::join!(biased; keeps, goes_on);
        assert_eq!(found, is_ours, "kept after {after} ms, which takes {takes} ms");
    }
}

/// The gateway's clock is five minutes behind the ledger's. An event seemed to be due in five minutes, and was claimed again until then.
#[tokio::test]
async fn an_event_is_due_by_the_ledgers_clock() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::manual(NOW));
    let mut teller = Teller::start(&folder.path().join("ledger.db"), &clock);
    let (webhook, _socket) = unheard();
    let at = NOW.plus_millis(300_000);
    let telling = teller.dispatcher.telling(event(at), &[webhook]);
    let message = Message::of(&telling.event);
    let (delivery, receiver) = &telling.receivers[0];
    for passed in [0, 2_000] {
        clock.advance(passed);
        let left = telling.tell(delivery, receiver, &message).await.unwrap();
        assert_eq!(left.failed, 1, "it was sent");
        let pause = left.due.since(at.plus_millis(passed));
        assert!((1_000..1_200).contains(&pause), "{pause}");
    }
}

#[tokio::test]
async fn an_event_that_is_dated_later_than_the_clock_says_is_told_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut teller = Teller::start(&folder.path().join("ledger.db"), &Clock::manual(NOW));
    let event = |at: Timestamp| Event {
        claimed: Some(NOW),
        ..Event::new(
            "evt_1".to_owned(),
            EventKind::CreditsAdded,
            at,
            None,
            serde_json::json!({}),
        )
    };
    let webhooks = [webhook("http://127.0.0.1:9/x")];
    for (after_ms, due) in [(20 * 60_000, NOW), (-5, NOW.plus_millis(-5))] {
        let receivers = teller
            .dispatcher
            .receivers_of(&event(NOW.plus_millis(after_ms)), &webhooks);
        let dues: Vec<Timestamp> = receivers.iter().map(|(delivery, _)| delivery.due).collect();
        assert_eq!(dues, [due]);
    }
}
