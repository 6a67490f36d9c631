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

/// A webhook is away for three days: its events went, and no figure told of it.
#[tokio::test]
async fn an_event_that_a_webhook_did_not_get_for_three_days_counts_as_dropped() {
    let (away, _socket) = unheard();
    for (webhooks, dropped) in [
        (vec![away], 1),
        // Nobody wants it.
        (Vec::new(), 0),
    ] {
        let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::manual(NOW));
        let mut teller = Teller::start(&folder.path().join("ledger.db"), &clock);
        teller.make_account().await;
        teller.post(1).await;
        clock.advance(KEEP_MS + 1);
        teller = teller.look(&webhooks, None, || unreachable!()).await;
        assert_eq!(counted(&teller).await, (0, dropped));
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
