//! Events that are told no more: they are too old, or their webhook wants no more of them.

use std::pin::pin;

use super::telling::{Steered, answer};
use super::*;
use crate::ledger::events::KEEP_MS;

/// How many events are open, and how many were dropped.
async fn counted(teller: &Teller) -> (u64, u64) {
    match teller.run(AdminOp::Event(EventOp::Count)).await {
        AdminReply::EventCount(EventCount { open, dropped, .. }) => (open, dropped),
        other => panic!("{other:?}"),
    }
}

/// A webhook is away for three days: its events went, and no figure told of it. Then those of before it was configured counted, too.
#[tokio::test]
async fn an_event_that_a_webhook_did_not_get_for_three_days_counts_as_dropped() {
    let ((away, _socket), (added, _other)) = (unheard(), unheard());
    let none: Vec<Webhook> = Vec::new();
    for (before, webhooks, dropped, what) in [
        (vec![away.clone()], vec![away.clone()], 1, "it was away"),
        (
            vec![away.clone()],
            vec![away.clone(), added.clone()],
            1,
            "one of them waited",
        ),
        (vec![away.clone()], none.clone(), 0, "nobody wants it any more"),
        (vec![away], vec![added.clone()], 0, "another one was put in its place"),
        (none, vec![added], 0, "there was no webhook, and nobody was told"),
    ] {
        let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::manual(NOW));
        let mut teller = Teller::start(&folder.path().join("ledger.db"), &clock);
        teller.make_account().await;
        teller.post(1).await;
        // Without webhooks a gateway does not look.
        if !before.is_empty() {
            teller = teller.look(&before, None, || unreachable!()).await;
        }
        assert_eq!(counted(&teller).await, (1, 0), "{what}");
        clock.advance(KEEP_MS + 1);
        teller = teller.look(&webhooks, None, || unreachable!()).await;
        assert_eq!(counted(&teller).await, (0, dropped), "{what}");
    }
}

/// It counted as given up alone, for nobody had begun to tell it.
#[tokio::test]
async fn an_event_that_nobody_began_to_tell_counts_as_dropped_where_its_webhook_was_there() {
    let ((away, _socket), (added, _other)) = (unheard(), unheard());
    let changed = Webhook {
        events: vec![EventKind::CreditsAdded],
        ..away.clone()
    };
    for (before, webhook, dropped, what) in [
        (vec![away.clone()], &away, 1, "it was configured"),
        (Vec::new(), &away, 0, "it was configured later"),
        (vec![added], &away, 0, "another one was"),
        (vec![away.clone()], &changed, 0, "it may have wanted no such event"),
    ] {
        let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::manual(NOW));
        let mut teller = Teller::start(&folder.path().join("ledger.db"), &clock);
        teller.make_account().await;
        teller.dispatcher.known.note(&before, NOW);
        teller.post(1).await;
        clock.advance(KEEP_MS + 1);
        let webhooks = std::slice::from_ref(webhook);
        teller.dispatcher.known.note(webhooks, clock.now());
        teller = teller.look(webhooks, None, || unreachable!()).await;
        assert_eq!(counted(&teller).await, (0, dropped), "{what}");
        let [.., given_up] = teller.dispatcher.telemetry.deliveries.figures(clock.now().0).results;
        assert_eq!(given_up, 1, "{what}");
    }
}

#[tokio::test]
async fn an_operators_test_that_nobody_got_is_not_dropped() {
    let ((away, _socket), clock) = (unheard(), Clock::manual(NOW));
    let folder = tempfile::tempdir().unwrap();
    let mut teller = Teller::start(&folder.path().join("ledger.db"), &clock);
    let data = serde_json::json!({ "url": away.url });
    let test = Event::new("evt_x".to_owned(), EventKind::Test, NOW, None, data);
    teller.run(AdminOp::Event(EventOp::Raise(test))).await;
    for open in [1, 0] {
        assert_eq!(counted(&teller).await.1, 0);
        teller = teller.look(std::slice::from_ref(&away), None, || unreachable!()).await;
        assert_eq!(counted(&teller).await, (open, 0));
        clock.advance(KEEP_MS + 1);
    }
}

#[tokio::test]
async fn an_event_that_its_webhook_wants_no_more_of_is_not_dropped() {
    let (folder, gone) = (tempfile::tempdir().unwrap(), Steered::start().await);
    let teller = Teller::start(&folder.path().join("ledger.db"), &Clock::manual(NOW));
    teller.make_account().await;
    teller.post(1).await;
    let webhooks = [gone.webhook.clone()];
    let answers = async { answer(gone.message().await, "410").await };
    let (teller, ()) = tokio::join!(teller.look(&webhooks, None, || unreachable!()), answers);
    assert_eq!(counted(&teller).await, (0, 0));
}

/// Once it answered with 410, events that were due to it waited for up to half a minute more, each after another.
#[tokio::test]
async fn a_410_ends_a_rest_as_a_message_that_is_taken_does() {
    for status in ["204", "410"] {
        let steered = Steered::start().await;
        let receiver = Receiver::new(steered.webhook.clone());
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
            let answers = async { answer(steered.message().await, "500").await };
            let told = receiver.tell(&delivery, &message, &time, &telemetry);
            let (left, ()) = tokio::join!(told, answers);
            delivery = left.unwrap();
            assert_eq!(delivery.failed, failed);
        }
        let rests = receiver.tell(&delivery, &message, &time, &telemetry).await.unwrap();
        assert_eq!(rests.failed, 8, "it rests");
        clock.advance(1_000);
        // The first finds out whether it is back, and the next is sent at once.
        for status in [status, "204"] {
            let mut told = pin!(receiver.tell(&delivery, &message, &time, &telemetry));
            let sent = tokio::select! {
                sent = steered.message() => sent,
                left = &mut told => panic!("after a {status} it rests: {left:?}"),
            };
            answer(sent, status).await;
            assert_eq!(told.await, None, "{status}");
        }
    }
}
