//! A webhook that rests, and events that are too old.

use super::*;
use crate::ledger::admin::events::EventKind;
use crate::pure::time::Timestamp;

const NOW: Timestamp = Timestamp(1_795_132_800_000);

fn webhook(url: &str) -> Webhook {
    let text = format!("webhooks:\n  - {{ url: '{url}', secret_env: A, allow_private: true }}\n");
    let secret = |_: &str| Some("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned());
    let config = crate::config::Config::parse(std::path::Path::new("t.yaml"), &text, &secret).unwrap();
    config.webhooks[0].clone()
}

/// Nobody listens there for an hour: an event is sent again after growing pauses, at most a quarter of an hour apart; then it arrives.
#[tokio::test]
async fn a_receiver_that_is_away_for_an_hour_is_found_again() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let receiver = Receiver::new(webhook(&format!("http://{address}/x")));
    let (clock, telemetry) = (Clock::manual(NOW), Telemetry::default());
    let data = serde_json::json!({});
    let message = Message::of(&Event::new("evt_x".to_owned(), EventKind::Test, NOW, None, data));
    let mut delivery = Delivery {
        url: receiver.webhook.url.clone(),
        failed: 0,
        due: NOW,
    };
    let mut pauses = Vec::new();
    while clock.now().since(NOW) < 3_600_000 {
        let before = delivery.failed;
        delivery = receiver.tell(&delivery, &message, &clock, &telemetry).await.unwrap();
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
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    let answers = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut bytes = [0; 4096];
        assert!(socket.read(&mut bytes).await.unwrap() > 0);
        socket.write_all(b"HTTP/1.1 204 X\r\n\r\n").await.unwrap();
    });
    while let Some(left) = receiver.tell(&delivery, &message, &clock, &telemetry).await {
        assert_eq!(left.failed, delivery.failed, "it rests only");
        clock.advance(left.due.since(clock.now()));
        delivery = left;
    }
    answers.await.unwrap();
    let [delivered, failed, _] = telemetry.deliveries.figures(clock.now().0).results;
    assert_eq!((delivered, failed), (1, u64::from(delivery.failed)));
}
