//! An event that is being told.

use super::*;

/// The gateway's clock is five minutes behind the ledger's. An event seemed to be due in five minutes, and was claimed again until then.
#[tokio::test]
async fn an_event_is_due_by_the_ledgers_clock() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::manual(NOW));
    let mut teller = Teller::start(&folder.path().join("ledger.db"), &clock);
    let (webhook, _socket) = unheard();
    let at = NOW.plus_millis(300_000);
    let data = serde_json::json!({});
    let mut event = Event::new("evt_x".to_owned(), EventKind::CreditsAdded, at, None, data);
    event.claimed = Some(at);
    let telling = teller.dispatcher.telling(event, &[webhook]);
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
