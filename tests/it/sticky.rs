//! Targets that share a model's calls: a conversation stays with its own.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::harness::catalogue::TWIN;
use crate::harness::client::ask;
use crate::harness::{Gateway, Reply, Setup, Upstream};

const TARGETS: usize = 4;

/// A gateway over four upstreams that share the calls of one model.
async fn shared(upstreams: &[Upstream], change: impl FnOnce(&mut Value)) -> Gateway {
    let name = |n: usize| format!("shares-{n}");
    let mut setup = Setup::over(&upstreams[0]);
    for (n, upstream) in upstreams.iter().enumerate() {
        setup = setup.provider(&name(n), json!({ "base_url": upstream.base_url() }));
    }
    let target = |n: usize| json!({ "provider": name(n), "model": "m", "weight": 1 });
    let targets: Vec<Value> = (0..upstreams.len()).map(target).collect();
    let unlimited = json!({ "rpm": 1_000_000, "tpm": 1_000_000_000_000_u64, "concurrency": 1_000 });
    let setup = setup
        .conf(|conf| conf["tiers"]["pro"] = unlimited)
        .conf(change)
        .model(TWIN, |model| {
            model["targets"] = targets.into();
            model["tier"] = "free".into();
        });
    setup.start().await
}

async fn upstreams() -> Vec<Upstream> {
    let mut upstreams = Vec::new();
    for _ in 0..TARGETS {
        upstreams.push(Upstream::always(Reply::chat("Hi", 9, 1)).await);
    }
    upstreams
}

/// The turn of a conversation: all its messages up to now.
fn turn(conversation: usize, turn: usize) -> Value {
    let mut messages = vec![json!({ "role": "system", "content": "You help." })];
    for n in 0..=turn {
        let content = format!("conversation {conversation}, turn {n}");
        messages.push(json!({ "role": if n % 2 == 0 { "user" } else { "assistant" }, "content": content }));
    }
    json!({ "model": TWIN, "messages": messages })
}

/// Which upstreams saw which conversations, by their first message's number.
fn seen_by(upstreams: &[Upstream]) -> HashMap<usize, Vec<usize>> {
    let mut seen: HashMap<usize, Vec<usize>> = HashMap::new();
    for (n, upstream) in upstreams.iter().enumerate() {
        for request in upstream.seen() {
            let body = request.json();
            let first = body["messages"][1]["content"].as_str().unwrap().to_owned();
            let number = first.trim_start_matches("conversation ").split(',').next().unwrap();
            seen.entry(number.parse().unwrap()).or_default().push(n);
        }
    }
    seen
}

#[tokio::test]
async fn a_conversation_stays_with_its_target_by_any_of_its_names() {
    const CONVERSATIONS: usize = 60;
    const TURNS: usize = 5;
    let upstreams = upstreams().await;
    let gateway = shared(&upstreams, |_| ()).await;
    for n in 0..TURNS {
        for conversation in 0..CONVERSATIONS {
            let mut body = turn(conversation, n);
            let name = format!("session {conversation}");
            let call = gateway.http1.post_request("/llm/chat", "");
            let call = match conversation % 4 {
                0 => {
                    body["session_id"] = name.into();
                    call
                }
                1 => call.header("x-session-id", name),
                2 => {
                    body["prompt_cache_key"] = name.into();
                    call
                }
                _ => call,
            };
            ask(call.body(body.to_string())).await.ok();
        }
    }
    let seen = seen_by(&upstreams);
    assert_eq!(seen.len(), CONVERSATIONS);
    for (conversation, targets) in &seen {
        assert_eq!(targets.len(), TURNS, "conversation {conversation}");
        assert!(
            targets.iter().all(|target| *target == targets[0]),
            "conversation {conversation}: {targets:?}"
        );
    }
    assert!(upstreams.iter().all(|upstream| !upstream.seen().is_empty()));
    // The field is this gateway's: no provider was sent it. The key for its cache is the provider's.
    let sent: Vec<Value> = upstreams
        .iter()
        .flat_map(Upstream::seen)
        .map(|request| request.json())
        .collect();
    assert!(sent.iter().all(|body| body.get("session_id").is_none()));
    let with_key = sent
        .iter()
        .filter(|body| body.get("prompt_cache_key").is_some())
        .count();
    assert_eq!(with_key, CONVERSATIONS / 4 * TURNS);
    gateway.check_books().await;
}

#[tokio::test]
async fn of_a_target_that_fails_its_conversations_go_to_the_others_and_the_others_stay() {
    const CONVERSATIONS: usize = 80;
    let mut upstreams = upstreams().await;
    let gateway = shared(&upstreams, |_| ()).await;
    for conversation in 0..CONVERSATIONS {
        gateway
            .http1
            .post("/llm/chat", turn(conversation, 0).to_string())
            .await
            .ok();
    }
    let before = seen_by(&upstreams);
    drop(gateway);
    // The same targets by their names: another gateway chooses as the first one did, and one of them fails.
    upstreams[0] = Upstream::always(Reply::status(500)).await;
    let gateway = shared(&upstreams, |_| ()).await;
    let earlier: Vec<usize> = upstreams.iter().map(|upstream| upstream.seen().len()).collect();
    for n in 1..4 {
        for conversation in 0..CONVERSATIONS {
            gateway
                .http1
                .post("/llm/chat", turn(conversation, n).to_string())
                .await
                .ok();
        }
    }
    let mut moved = [0; TARGETS];
    for (conversation, targets) in seen_by(&upstreams) {
        let answered: Vec<usize> = targets.iter().copied().filter(|target| *target != 0).collect();
        let first = before[&conversation][0];
        if first != 0 {
            assert!(
                answered.iter().all(|target| *target == first),
                "conversation {conversation}: {answered:?}"
            );
            continue;
        }
        // All its turns went to one of the others.
        assert_eq!(answered.len(), 3, "conversation {conversation}");
        assert!(
            answered.iter().all(|target| *target == answered[0]),
            "conversation {conversation}: {answered:?}"
        );
        moved[answered[0]] += 1;
    }
    assert!(moved[1..].iter().all(|moved| *moved > 0), "{moved:?}");
    // Its breaker opened: it was not asked each time.
    let asked = upstreams[0].seen().len() - earlier[0];
    assert!((1..CONVERSATIONS / 4).contains(&asked), "{asked}");
    gateway.check_books().await;
}

#[tokio::test]
async fn a_provider_that_knows_sessions_may_be_sent_them() {
    let upstreams = upstreams().await;
    let gateway = shared(&upstreams, |conf| {
        for n in 0..TARGETS {
            conf["providers"][format!("shares-{n}")]["allow_fields"] = json!(["session_id"]);
        }
    })
    .await;
    let mut body = turn(0, 0);
    body["session_id"] = "a session".into();
    gateway.http1.post("/llm/chat", body.to_string()).await.ok();
    let sent: Vec<Value> = upstreams
        .iter()
        .flat_map(Upstream::seen)
        .map(|request| request.json())
        .collect();
    assert_eq!(sent[0]["session_id"], "a session");
}
