//! Targets that share a model's calls: a conversation stays with its own.

use std::collections::HashMap;

use futures::future::join_all;
use serde_json::{Value, json};

use crate::harness::catalogue::TWIN;
use crate::harness::client::ask;
use crate::harness::{Gateway, Reply, Setup, Upstream};

const TARGETS: usize = 4;
const TURNS: usize = 20;

/// How many conversations are held. `TOLLGATE_CONVERSATIONS` says another number.
fn conversations() -> usize {
    std::env::var("TOLLGATE_CONVERSATIONS").map_or(60, |text| text.parse().unwrap())
}

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

/// Holds so many conversations' next turn, several at a time.
async fn converse(conversations: usize, say: impl AsyncFn(usize)) {
    const AT_ONCE: usize = 8;
    let lane = async |lane: usize| {
        for conversation in (lane..conversations).step_by(AT_ONCE) {
            say(conversation).await;
        }
    };
    join_all((0..AT_ONCE).map(lane)).await;
}

/// All conversations' turn of this number.
async fn hold_turn(gateway: &Gateway, n: usize) {
    let say = async |conversation| {
        let body = turn(conversation, n).to_string();
        gateway.http1.post("/llm/chat", body).await.ok();
    };
    converse(conversations(), say).await;
}

/// A conversation by the number in its first message.
fn conversation_of(body: &Value) -> usize {
    let first = body["messages"][1]["content"].as_str().unwrap();
    let number = first.trim_start_matches("conversation ").split(',').next().unwrap();
    number.parse().unwrap()
}

/// Which upstreams saw which conversations.
fn seen_by(upstreams: &[Upstream]) -> HashMap<usize, Vec<usize>> {
    let mut seen: HashMap<usize, Vec<usize>> = HashMap::new();
    for (n, upstream) in upstreams.iter().enumerate() {
        for request in upstream.seen() {
            seen.entry(conversation_of(&request.json())).or_default().push(n);
        }
    }
    seen
}

/// Those of them that did not have all of these turns at one target. No more may be than one in a hundred.
fn moved(seen: &HashMap<usize, Vec<usize>>, turns: usize) -> Vec<usize> {
    let mut moved = Vec::new();
    for (conversation, targets) in seen {
        assert_eq!(targets.len(), turns, "conversation {conversation}");
        if targets.iter().any(|target| *target != targets[0]) {
            moved.push(*conversation);
        }
    }
    println!("{} conversations, {} of them moved", seen.len(), moved.len());
    assert!(moved.len() * 100 <= seen.len(), "{moved:?} of {} moved", seen.len());
    moved
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_stays_with_its_target_by_any_of_its_names() {
    let upstreams = upstreams().await;
    let gateway = shared(&upstreams, |_| ()).await;
    let say = async |conversation: usize, n: usize| {
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
    };
    for n in 0..TURNS {
        converse(conversations(), async |conversation| say(conversation, n).await).await;
    }
    let seen = seen_by(&upstreams);
    assert_eq!(seen.len(), conversations());
    moved(&seen, TURNS);
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
    assert_eq!(with_key, (0..conversations()).filter(|n| n % 4 == 2).count() * TURNS);
    gateway.check_books().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_target_that_fails_its_conversations_go_to_the_others_and_the_others_stay() {
    const BEFORE: usize = TURNS / 2;
    let mut upstreams = upstreams().await;
    let gateway = shared(&upstreams, |_| ()).await;
    for n in 0..BEFORE {
        hold_turn(&gateway, n).await;
    }
    gateway.check_books().await;
    let before = seen_by(&upstreams);
    let strays = moved(&before, BEFORE);
    drop(gateway);
    // The same targets by their names: another gateway chooses as the first one did, and one of them fails.
    upstreams[0] = Upstream::always(Reply::status(500)).await;
    let gateway = shared(&upstreams, |_| ()).await;
    let earlier: Vec<usize> = upstreams.iter().map(|upstream| upstream.seen().len()).collect();
    for n in BEFORE..TURNS {
        hold_turn(&gateway, n).await;
    }
    let after = upstreams.iter().enumerate().skip(1).flat_map(|(target, upstream)| {
        let seen = upstream.seen().split_off(earlier[target]);
        seen.into_iter()
            .map(move |request| (conversation_of(&request.json()), target))
    });
    let mut answered: HashMap<usize, Vec<usize>> = HashMap::new();
    after.for_each(|(conversation, target)| answered.entry(conversation).or_default().push(target));
    assert_eq!(answered.len(), conversations());
    // All turns of each went to one target, those of the gone one's conversations too,
    let more_strays = moved(&answered, TURNS - BEFORE);
    let (mut share, mut spread) = (0, [0; TARGETS]);
    for (conversation, targets) in &answered {
        if strays.contains(conversation) || more_strays.contains(conversation) {
            continue;
        }
        let first = before[conversation][0];
        if first == 0 {
            share += 1;
            spread[targets[0]] += 1;
        } else {
            // and the others' did not move.
            assert_eq!(targets[0], first, "conversation {conversation}");
        }
    }
    println!(
        "{} conversations, {share} of them at the target that went: now {spread:?}",
        conversations()
    );
    assert!(share * 8 > conversations(), "{share}");
    // Each of the others has about a third of them: at least half of that.
    assert!(
        spread[1..].iter().all(|moved| moved * 6 >= share),
        "{spread:?} of {share}"
    );
    // Its breaker opened: it was not asked each time.
    let asked = upstreams[0].seen().len();
    assert!((1..=20).contains(&asked), "{asked}");
    gateway.check_books().await;
}

/// A long body is looked through on another thread.
#[tokio::test]
async fn a_turn_whose_body_is_long_goes_where_the_short_ones_went() {
    let upstreams = upstreams().await;
    let gateway = shared(&upstreams, |_| ()).await;
    for conversation in 0..8 {
        let mut body = turn(conversation, 0);
        gateway.http1.post("/llm/chat", body.to_string()).await.ok();
        let long = json!({ "role": "user", "content": "word ".repeat(60_000) });
        body["messages"].as_array_mut().unwrap().push(long);
        gateway.http1.post("/llm/chat", body.to_string()).await.ok();
    }
    let seen = seen_by(&upstreams);
    assert!(
        seen.values()
            .all(|targets| targets.len() == 2 && targets[0] == targets[1]),
        "{seen:?}"
    );
    assert!(upstreams.iter().filter(|upstream| !upstream.seen().is_empty()).count() > 1);
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
