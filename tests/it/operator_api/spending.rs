//! What operators are shown of a key's limit: what is spent, held and left of it, and when it begins anew.

use rust_decimal::Decimal;
use serde_json::{Value, json};
use tollgate::pure::spend::Reset;

use super::{Desk, GROUNDS};
use crate::chat::streaming;
use crate::harness::catalogue::SMALL;
use crate::harness::{Cue, Reply, Upstream};

const FIGURES: [&str; 3] = ["limit_spent", "limit_held", "limit_remaining"];
const DAY_MS: i64 = 86_400_000;

/// What is spent, held and left.
fn figures(key: &Value) -> [Decimal; 3] {
    FIGURES.map(|name| {
        let text = key[name].as_str().unwrap_or_else(|| panic!("no {name}: {key}"));
        text.parse().unwrap()
    })
}

fn path(key: &Value) -> String {
    format!("/v1/keys/{}", key["id"].as_str().unwrap())
}

#[tokio::test]
async fn an_operator_sees_what_is_spent_and_held_of_a_keys_limit() {
    let (nothing, whole) = (Decimal::ZERO, "0.5".parse::<Decimal>().unwrap());
    for ground in GROUNDS {
        let cue = Cue::new();
        let stream = Reply::stream().role().text("Hi").wait(&cue);
        let upstream = Upstream::always(stream.finish().usage(9, 1).done()).await;
        let desk = Desk::before(&upstream, ground, |_| ()).await;
        let new = json!({ "limit": "0.5", "limit_reset": "monthly" });
        let made = desk.admin("POST", "/v1/accounts/acme/keys", new).await.done(201);
        let client = desk.gateway.http1.with_key(made["key"].as_str().unwrap());
        let resets = Reset::Monthly.next(desk.gateway.clock.now().day()).unwrap();

        let unused = desk.get(&path(&made)).await;
        assert_eq!(figures(&unused), [nothing, nothing, whole], "{ground:?}");
        assert_eq!(unused["limit_resets_at"], resets.to_string(), "{ground:?}");

        let mut call = client.stream("/llm/chat", streaming(SMALL)).await.ok();
        call.next().await.unwrap();
        let [spent, held, left] = figures(&desk.get(&path(&made)).await);
        assert!(held > nothing, "{ground:?}: a call runs");
        assert_eq!((spent, left), (nothing, whole - held), "{ground:?}");
        cue.give_all();
        call.rest().await;

        let cost = desk.gateway.spent().await;
        assert!(cost > nothing);
        let used = [cost, nothing, whole - cost];
        assert_eq!(figures(&desk.get(&path(&made)).await), used, "{ground:?}");
        let own = client.get("/key").await.ok().json();
        let left: Decimal = own["data"]["limit_remaining"].to_string().parse().unwrap();
        assert_eq!(left, used[2], "what the key is told, {ground:?}");

        // Both keys of a rotation spend one limit.
        let rotation = json!({ "overlap": "1h" });
        let rotated = desk.admin("POST", &format!("{}/rotate", path(&made)), rotation).await;
        let rotated = desk.get(&path(&rotated.done(201))).await;
        assert_eq!(figures(&rotated), used, "{ground:?}");

        desk.gateway.clock.advance(40 * DAY_MS);
        let later = desk.get(&path(&rotated)).await;
        assert_eq!(figures(&later), [nothing, nothing, whole], "{ground:?}");
        assert!(later["limit_resets_at"].as_str().unwrap() > rotated["limit_resets_at"].as_str().unwrap());
    }
}

#[tokio::test]
async fn what_has_no_limit_has_nothing_to_show_of_it() {
    for ground in GROUNDS {
        let desk = Desk::over(ground).await;
        let key = async |new: Value| {
            let made = desk.admin("POST", "/v1/accounts/acme/keys", new).await.done(201);
            desk.get(&path(&made)).await
        };
        let unlimited = key(json!({ "end_user_limit": "1" })).await;
        for name in FIGURES.iter().chain(&["limit_resets_at"]) {
            assert_eq!(unlimited.get(name), Some(&Value::Null), "{name}: {unlimited}");
        }
        let for_ever = key(json!({ "limit": "1" })).await;
        assert_eq!(figures(&for_ever)[2], Decimal::ONE, "{ground:?}");
        assert_eq!(for_ever.get("limit_resets_at"), Some(&Value::Null), "{ground:?}");
    }
}
