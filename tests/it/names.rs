//! Host names of providers: nothing waits for them, and their addresses may change.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rust_decimal::Decimal;
use serde_json::json;
use tollgate::net::dns::Resolver;

use crate::chat::request;
use crate::harness::catalogue::{SMALL, TWIN};
use crate::harness::{Reply, Setup, Upstream, eventually};

/// A resolver whose answer a test changes.
#[derive(Clone, Default)]
struct Names(Arc<(Mutex<Answer>, Condvar)>);

#[derive(Clone, Default)]
enum Answer {
    /// It does not come.
    #[default]
    Stuck,
    Found(Vec<SocketAddr>),
    Failed,
}

impl Names {
    fn say(&self, answer: Answer) {
        *self.0.0.lock().unwrap() = answer;
        self.0.1.notify_all();
    }

    /// Every name is found here, asked for each millisecond.
    fn resolver(&self) -> Resolver {
        self.resolver_every(Duration::from_millis(1))
    }

    /// The same, asked for in these intervals.
    fn resolver_every(&self, every: Duration) -> Resolver {
        let names = self.clone();
        let resolve = move |_: &str, _: u16| {
            let (answer, changed) = &*names.0;
            let answer = changed
                .wait_while(answer.lock().unwrap(), |answer| matches!(answer, Answer::Stuck))
                .unwrap();
            match &*answer {
                Answer::Found(addresses) => Ok(addresses.clone()),
                Answer::Stuck | Answer::Failed => Err(io::Error::other("no such host")),
            }
        };
        Resolver::new(Arc::new(resolve), every)
    }
}

fn over_a_name(main: &Upstream, spare: &Upstream, names: &Names) -> Setup {
    let provider = json!({ "base_url": "http://provider.example:1/v1", "api_key_env": "SET_MAIN" });
    Setup::over(main)
        .spare(spare)
        .provider("main", provider)
        .resolver(names.resolver())
}

#[tokio::test]
async fn nothing_waits_for_a_name_that_is_not_resolved() {
    let names = Names::default();
    let main = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let spare = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let started = Instant::now();
    let gateway = over_a_name(&main, &spare, &names).start().await;
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "the start waits for 3 s at most"
    );

    // The resolver hangs all the while.
    let started = Instant::now();
    for _ in 0..50 {
        gateway.http1.get("/llm/health").await.ok();
        gateway.http1.post("/llm/chat", request(TWIN)).await.ok();
        let answer = gateway.http1.post("/llm/chat", request(SMALL)).await;
        answer.error(502, "upstream_error");
    }
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert_eq!((main.seen().len(), spare.seen().len()), (0, 50));

    names.say(Answer::Found(vec![main.address]));
    eventually("the name is resolved", async || {
        let answer = gateway.http1.post("/llm/chat", request(SMALL)).await;
        (answer.status == 200).then_some(())
    })
    .await;
    gateway.check_books().await;
}

#[tokio::test]
async fn a_name_that_was_not_found_is_asked_for_again_soon() {
    let names = Names::default();
    names.say(Answer::Failed);
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let rarely = names.resolver_every(Duration::from_secs(60 * 60));
    // Asked again and again below.
    let setup = over_a_name(&upstream, &upstream, &names)
        .resolver(rarely)
        .conf(|conf| conf["tiers"]["pro"] = json!({ "rpm": 1_000_000, "tpm": 1_000_000_000 }));
    let gateway = setup.start().await;
    let answer = gateway.http1.post("/llm/chat", request(SMALL)).await;
    answer.error(502, "upstream_error");

    names.say(Answer::Found(vec![upstream.address]));
    eventually("the name is resolved", async || {
        let answer = gateway.http1.post("/llm/chat", request(SMALL)).await;
        (answer.status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_address_that_changes_is_picked_up_and_the_last_good_one_is_kept() {
    let names = Names::default();
    let first = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    let second = Upstream::always(Reply::chat("Hi", 9, 1)).await;
    names.say(Answer::Found(vec![first.address]));
    let gateway = over_a_name(&first, &second, &names).start().await;
    gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    assert_eq!(first.seen().len(), 1);

    names.say(Answer::Found(vec![second.address]));
    eventually("the new address is used", async || {
        gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
        (!second.seen().is_empty()).then_some(())
    })
    .await;

    let before = first.seen().len();
    for answer in [Answer::Failed, Answer::Found(Vec::new()), Answer::Stuck] {
        names.say(answer);
        for _ in 0..20 {
            gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
        }
    }
    assert_eq!(first.seen().len(), before, "the last good address is kept");
    gateway.check_books().await;
}

#[tokio::test]
async fn several_addresses_take_turns_and_a_dead_one_is_passed_over() {
    let names = Names::default();
    let (first, second) = (
        Upstream::always(Reply::chat("Hi", 9, 1).close()).await,
        Upstream::always(Reply::chat("Hi", 9, 1).close()).await,
    );
    let nobody: SocketAddr = "127.0.0.1:1".parse().unwrap();
    names.say(Answer::Found(vec![first.address, second.address, nobody]));
    let spare = Upstream::unused().await;
    let gateway = over_a_name(&first, &spare, &names).start().await;
    for _ in 0..30 {
        gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    }
    let (from_first, from_second) = (first.seen().len(), second.seen().len());
    assert_eq!(from_first + from_second, 30);
    assert!(from_first >= 10 && from_second >= 10, "{from_first} and {from_second}");
}

/// A machine may have an address of IPv6, and no way out with it.
#[tokio::test]
async fn where_ipv6_leads_nowhere_ipv4_is_tried_and_then_comes_first() {
    let names = Names::default();
    let upstream = Upstream::always(Reply::chat("Hi", 9, 1).close()).await;
    // Nobody is there. Of IPv4 one is left: the third and last try of a call that begins with IPv6, and that may be the one where nobody is.
    let nowhere = ["[::1]:1", "[::1]:2", "127.0.0.1:1"].map(|address| address.parse::<SocketAddr>().unwrap());
    names.say(Answer::Found([&nowhere[..], &[upstream.address]].concat()));
    let spare = Upstream::unused().await;
    let rarely = names.resolver_every(Duration::from_secs(60 * 60));
    let gateway = over_a_name(&upstream, &spare, &names).resolver(rarely).start().await;
    eventually("a call has gone on over IPv4", async || {
        let answer = gateway.http1.post("/llm/chat", request(SMALL)).await;
        (answer.status == 200).then_some(())
    })
    .await;
    for _ in 0..8 {
        gateway.http1.post("/llm/chat", request(SMALL)).await.ok();
    }
    assert_eq!(upstream.seen().len(), 9);
    gateway.check_books().await;
}

/// No figure and no alarm told of it, and the log had a line for each call.
#[tokio::test]
async fn a_provider_without_an_address_has_failed() {
    let names = Names::default();
    names.say(Answer::Failed);
    let main = Upstream::unused().await;
    let gateway = over_a_name(&main, &main, &names).start().await;
    for _ in 0..6 {
        let answer = gateway.http1.post("/llm/chat", request(SMALL)).await;
        answer.error(502, "upstream_error");
    }
    gateway.counted(6).await;
    let metrics = gateway.metrics();
    let unreached = [("provider", "main"), ("kind", "connect")];
    let faults = metrics.sum("tollgate_upstream_errors_total", &unreached);
    assert_eq!(faults, Decimal::from(6));
    assert_eq!(
        metrics.sum("tollgate_breaker_open", &[("provider", "main")]),
        Decimal::ONE
    );
    gateway.check_books().await;
}
