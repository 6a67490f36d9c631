//! One reference, posted many times at once at three gateways on one Redis: it is one entry, whatever is posted under it.

use futures::future::join_all;
use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::harness::fleet::Fleet;
use crate::harness::redis_server::RedisServer;
use crate::harness::{Upstream, eventually};
use crate::nodes::unlimited;

struct Desk {
    http: reqwest::Client,
    bases: Vec<String>,
    token: String,
}

impl Desk {
    /// Posts at a gateway: the status, and the answer.
    async fn post(&self, n: usize, body: &Value) -> (u16, Value) {
        let url = format!("{}/v1/accounts/acme/credits", self.bases[n % self.bases.len()]);
        let request = self.http.post(url).bearer_auth(&self.token).json(body);
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }
}

fn count(answers: &[(u16, Value)], status: u16) -> usize {
    answers.iter().filter(|(is, _)| *is == status).count()
}

#[tokio::test]
async fn of_100_posts_of_a_reference_at_three_gateways_one_counts() {
    let (redis, upstream) = (RedisServer::start(), Upstream::unused().await);
    let mut fleet = Fleet::prepared(&redis.url(), unlimited(), &upstream);
    fleet.configure(|conf| conf["operator_listen"] = json!("127.0.0.1:9091"));
    fleet.account("acme", "pro", Decimal::TEN).await;
    let made = fleet
        .command(&["operator", "create", "shop", "--role", "billing"])
        .await;
    let made: Value = serde_json::from_str(&made).unwrap();
    fleet.grow(3).await;
    let bases = (0..3).map(|n| format!("http://{}", fleet.conf_of(n)["operator_listen"].as_str().unwrap()));
    let desk = Desk {
        http: reqwest::Client::new(),
        bases: bases.collect(),
        token: made["token"].as_str().unwrap().to_owned(),
    };
    for base in &desk.bases {
        eventually("operators are listened to", async || {
            desk.http.get(format!("{base}/v1/session")).send().await.ok().map(drop)
        })
        .await;
    }
    let post = json!({ "amount": "5", "reference": "INVOICE-1" });
    let answers = join_all((0..100).map(|n| desk.post(n, &post))).await;
    assert_eq!((count(&answers, 201), count(&answers, 200)), (1, 99), "{answers:?}");
    let replayed = answers.iter().filter(|(status, _)| *status == 200);
    assert!(replayed.into_iter().all(|(_, answer)| answer["replayed"] == true));
    // Another amount, another kind, the same number written otherwise.
    for (body, status) in [
        (json!({ "amount": "5.000000000001", "reference": "INVOICE-1" }), 409),
        (json!({ "amount": "5", "reference": "INVOICE-1", "kind": "bonus" }), 409),
        (
            json!({ "amount": "-5", "reference": "INVOICE-1", "kind": "correction" }),
            409,
        ),
        (
            json!({ "amount": "5.000", "reference": "INVOICE-1", "note": "again" }),
            200,
        ),
    ] {
        for n in 0..3 {
            assert_eq!(desk.post(n, &body).await.0, status, "{body}");
        }
    }
    // Two amounts under one reference at once: one of them counts, and the other is refused each time.
    let answers = join_all((0..100).map(async |n| {
        let amount = if n % 2 == 0 { "1" } else { "2" };
        desk.post(n, &json!({ "amount": amount, "reference": "INVOICE-2" }))
            .await
    }))
    .await;
    let told = [201, 200, 409].map(|status| count(&answers, status));
    assert_eq!(told, [1, 49, 50], "{answers:?}");
    // Corrections at once take the balance to nothing, and not below it.
    let balance = fleet.figure("acme", "balance").await;
    let answers = join_all((0..60).map(async |n| {
        let correction = json!({ "amount": "-0.5", "reference": format!("C-{n}"), "kind": "correction" });
        desk.post(n, &correction).await
    }))
    .await;
    let taken = (balance / Decimal::new(5, 1)).floor();
    assert_eq!(Decimal::from(count(&answers, 201)), taken, "{balance} {answers:?}");
    assert_eq!(
        fleet.settled_balance("acme").await,
        balance - taken * Decimal::new(5, 1)
    );
}
