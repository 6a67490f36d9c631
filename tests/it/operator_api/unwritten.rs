//! A key or a token is made for somebody to whom the answer cannot be written: nobody has its text, and it is revoked again.

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tollgate::pure::operator::Role;

use super::{Desk, GROUNDS, of};
use crate::harness::process::established_connections;
use crate::harness::{Raw, eventually};

impl Desk {
    /// Asks, and has ended the connection before anybody takes it, or has reset it: what was asked is read all the same, and nobody reads the
    /// answer, or it cannot be written.
    async fn asks_and_is_gone(&self, path: &str, body: &Value, resets: bool) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut gone = Raw::connect(address).await;
        let stand = async |count| {
            eventually("the kernel has passed it on", async || {
                (established_connections(address) == count).then_some(())
            })
            .await;
        };
        // On a busy machine the kernel is later than the call that asked for it.
        stand(1).await;
        let (token, body) = (of(Role::Admin), body.to_string());
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        gone.send(request).await;
        match resets {
            true => gone.reset(),
            false => gone.close(),
        }
        stand(0).await;
        self.gateway.serve_operators(listener);
    }

    /// The ids of what is revoked in a list, and of what is not, once so many are revoked.
    async fn once_revoked(&self, path: &str, count: usize) -> (Vec<String>, Vec<String>) {
        eventually("what was made is revoked again", async || {
            let listed = self.get(path).await;
            let text = |one: &Value, name: &str| one[name].as_str().unwrap().to_owned();
            let all = listed["data"].as_array().unwrap().iter();
            let (revoked, others): (Vec<_>, Vec<_>) = all.partition(|one| one["state"] == "revoked");
            let ids = |those: Vec<&Value>| those.into_iter().map(|one| text(one, "id")).collect();
            (revoked.len() == count).then(|| (ids(revoked), ids(others)))
        })
        .await
    }
}

#[tokio::test]
async fn what_was_made_for_somebody_who_was_not_given_it_is_revoked_again() {
    const KEYS: &str = "/v1/accounts/globex/keys";
    for ground in GROUNDS {
        let desk = Desk::over(ground).await;
        let account = json!({ "name": "globex", "tier": "pro" });
        desk.admin("POST", "/v1/accounts", account).await.done(201);
        let old = desk.admin("POST", KEYS, json!({})).await.done(201);
        let old = old["id"].as_str().unwrap();

        desk.asks_and_is_gone(KEYS, &json!({ "label": "lost" }), true).await;
        let (_, others) = desk.once_revoked(KEYS, 1).await;
        assert_eq!(others, [old], "{ground:?}");

        // The old key is as the rotation left it, and can be rotated again.
        let rotate = format!("/v1/keys/{old}/rotate");
        desk.asks_and_is_gone(&rotate, &json!({ "overlap": "1h" }), false).await;
        let (_, others) = desk.once_revoked(KEYS, 2).await;
        assert_eq!(others, [old], "{ground:?}");
        desk.admin("POST", &rotate, json!({ "overlap": "1h" })).await.done(201);

        let operators = desk.get("/v1/operators").await["data"].as_array().unwrap().len();
        let ann = json!({ "name": "ann", "role": "admin" });
        desk.asks_and_is_gone("/v1/operators", &ann, false).await;
        let (_, others) = desk.once_revoked("/v1/operators", 1).await;
        assert_eq!(others.len(), operators, "{ground:?}");
        let last = &desk.get("/v1/log?limit=1").await["data"][0];
        assert_eq!(
            (&last["action"], &last["actor"]["role"]),
            (&json!("operator.revoke"), &json!("admin")),
            "it is taken back in the name of who made it"
        );
    }
}
