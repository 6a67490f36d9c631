//! An export held against receipts in Redis, by the real binary.

use serde_json::Value;

use crate::chat::request;
use crate::harness::catalogue::SMALL;
use crate::harness::fleet::Fleet;
use crate::harness::redis_server::RedisServer;
use crate::harness::{Reply, Upstream};
use crate::nodes::unlimited;

#[tokio::test]
async fn an_export_is_held_against_the_receipts_in_redis() {
    let redis = RedisServer::start();
    let upstream = Upstream::always(Reply::chat("Hi", 9, 2)).await;
    let fleet = Fleet::start(1, &redis.url(), unlimited(), &upstream).await;
    let key = fleet.account("acme", "pro", 10.into()).await;
    fleet.account("other", "pro", 0.into()).await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        let answer = fleet.http1(0, &key).post("/llm/chat", request(SMALL)).await.ok();
        ids.push(answer.header("x-request-id").to_owned());
        // Receipts stand in the order in which their calls were billed.
        fleet.settled_balance("acme").await;
    }

    let listed = fleet.command(&["ledger", "receipts", "acme", "--limit", "3"]).await;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let newest: Vec<&str> = listed["receipts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|receipt| receipt["id"].as_str().unwrap())
        .collect();
    assert_eq!(newest, [&ids[3], &ids[2], &ids[1]]);
    let one = fleet.command(&["ledger", "receipts", "acme", "--id", &ids[2]]).await;
    let one: Value = serde_json::from_str(&one).unwrap();
    assert_eq!(one["receipts"][0], listed["receipts"][1]);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("export.csv");
    let reconcile = async |rows: &[(&str, u64)]| {
        let rows: String = rows.iter().map(|(id, tokens)| format!("{id},9,{tokens}\n")).collect();
        std::fs::write(&path, format!("request_id,input_tokens,output_tokens\n{rows}")).unwrap();
        let ended = fleet.run(&["ledger", "reconcile", path.to_str().unwrap()]).await;
        let sums: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(ended.succeeded, sums["agrees"] == true, "{}", ended.stderr);
        ["rows", "receipts", "matched", "missing", "doubled", "different"].map(|name| sums[name].as_u64().unwrap())
    };
    let all: Vec<(&str, u64)> = ids.iter().map(|id| (id.as_str(), 2)).collect();
    assert_eq!(reconcile(&all).await, [4, 4, 4, 0, 0, 0]);
    let wrong = [all[0], all[1], (all[2].0, 3), all[1], ("gen-unknown", 2)];
    assert_eq!(reconcile(&wrong).await, [5, 4, 1, 1, 1, 1]);
}
