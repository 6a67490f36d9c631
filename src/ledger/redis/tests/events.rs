//! Events for webhooks, with several gateways on one Redis.

use futures::future::join_all;

use super::{RedisLedger, node, on_node, patient, request};
use crate::ledger::admin::accounts::AccountOp;
use crate::ledger::admin::events::{EventKind, EventOp};
use crate::ledger::admin::{AdminOp, AdminReply};
use crate::ledger::terms::TermsChange;
use crate::ledger::tests::cases::events::told;
use crate::ledger::tests::redis_server::{RedisServer, until};
use crate::ledger::tests::rig::{audit_is_clean, block_on, caller_of, credits, debit, on_workers, run};
use crate::pure::limits::LimitOverrides;

impl RedisLedger {
    /// The next claim looks through all accounts.
    pub(in crate::ledger) fn looks_for_events(&self) {
        self.shared.events.doubt();
    }
}

/// Three nodes, 2,000 callers around a threshold and the end of the credit: each is told once.
#[test]
fn of_many_racers_on_three_nodes_one_crosses() {
    const CALLERS: usize = 2_000;
    let server = RedisServer::start();
    let nodes = [(); 3].map(|()| node(&server, patient()));
    let [first, ..] = &nodes;
    let caller = caller_of(first, "acme", "300", LimitOverrides::default());
    let low = TermsChange {
        low_balance_pico: Some(Some(credits("100").pico())),
        ..TermsChange::default()
    };
    let account = caller.account.id.clone();
    run(first, AdminOp::Account(AccountOp::Terms { account, change: low })).unwrap();
    told(first, &caller);
    on_workers(nodes.len(), |worker| {
        let caller = on_node(&nodes[worker], &caller);
        let call = async |n: usize| {
            let asked = request(u64::try_from(n * nodes.len() + worker).unwrap(), "1");
            if let Ok(hold) = caller.reserve(&asked).await.unwrap() {
                hold.settle(debit("1"));
            }
        };
        block_on(join_all((0..CALLERS / nodes.len()).map(call)));
    });
    for ledger in &nodes {
        block_on(on_node(ledger, &caller).figures()).unwrap();
    }
    let mut kinds: Vec<EventKind> = told(first, &caller).iter().map(|event| event.kind).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, [EventKind::LowBalance, EventKind::Exhausted]);
    audit_is_clean(first);
}

/// What one gateway raises, another hears of and claims, and nobody else meanwhile.
#[test]
fn an_event_is_heard_of_and_claimed_once() {
    let server = RedisServer::start();
    let nodes = [(); 3].map(|()| node(&server, patient()));
    let claim = |node: usize| {
        let op = EventOp::Claim {
            limit: 10,
            lease_ms: 60_000,
        };
        match run(&nodes[node], AdminOp::Event(op)).unwrap() {
            AdminReply::Events { events } => events,
            other => panic!("{other:?}"),
        }
    };
    // From here on they only look where they hear of something.
    (0..3).for_each(|node| assert_eq!(claim(node), []));
    for n in 0..20 {
        let name = format!("account{n}");
        caller_of(&nodes[n % 3], &name, "1", LimitOverrides::default());
    }
    let mut claimed = Vec::new();
    until("all are claimed", || {
        (0..3).for_each(|node| claimed.extend(claim(node)));
        claimed.len() >= 20
    });
    claimed.extend((0..3).flat_map(claim));
    let mut ids: Vec<&str> = claimed.iter().map(|event| event.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((ids.len(), claimed.len()), (20, 20));
}

/// What was raised before a gateway was there, it has not heard of.
#[test]
fn a_gateway_that_comes_later_finds_the_events_that_are_open() {
    let server = RedisServer::start();
    let first = node(&server, patient());
    for name in ["acme", "beta"] {
        caller_of(&first, name, "1", LimitOverrides::default());
    }
    let later = node(&server, patient());
    let op = EventOp::Claim {
        limit: 10,
        lease_ms: 60_000,
    };
    let AdminReply::Events { events } = run(&later, AdminOp::Event(op)).unwrap() else {
        panic!("no events");
    };
    let mut accounts: Vec<String> = events
        .iter()
        .filter_map(|event| Some(event.account.as_ref()?.to_string()))
        .collect();
    accounts.sort();
    assert_eq!(accounts, ["acme", "beta"]);
}

/// It is deaf to what others raise, for its thread does not run: what it was not told, it finds where it looks.
#[test]
fn all_accounts_are_looked_through_once_and_again_where_something_may_have_been_missed() {
    let server = RedisServer::start();
    let raises = node(&server, patient());
    let (shared, _runtime) = RedisLedger::reach(&server.url(), patient()).unwrap();
    let claimed = || {
        let op = AdminOp::Event(EventOp::Claim {
            limit: 10,
            lease_ms: 60_000,
        });
        match block_on(async { shared.execute(&shared.link(), op).await }).unwrap() {
            AdminReply::Events { events } => events.len(),
            other => panic!("{other:?}"),
        }
    };
    caller_of(&raises, "acme", "1", LimitOverrides::default());
    assert_eq!(claimed(), 1);
    caller_of(&raises, "beta", "1", LimitOverrides::default());
    assert_eq!(claimed(), 0, "all accounts were looked through a moment ago");
    shared.events.doubt();
    assert_eq!(claimed(), 1);
}
