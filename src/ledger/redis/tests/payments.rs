//! A payment that is told for several accounts at several gateways, and claims whose posting never came, or comes late.

use futures::future::join_all;
use redis::Value;

use super::super::account::ended_claims_of_account;
use super::super::reply;
use super::super::script;
use super::{node, patient};
use crate::ledger::Ledger;
use crate::ledger::admin::credits::{CreditOp, CreditPost, Posted};
use crate::ledger::admin::{AdminError, AdminOp, AdminReply};
use crate::ledger::redis::{Options, RedisLedger};
use crate::ledger::tests::redis_group::RedisCluster;
use crate::ledger::tests::redis_server::{RedisServer, until};
use crate::ledger::tests::rig::{audit_is_clean, block_on, caller_of, credits, on_workers, redis_of, run};
use crate::pure::limits::LimitOverrides;
use crate::pure::money::Credits;

/// In slots of all three masters of a cluster.
const NAMES: [&str; 10] = [
    "acme", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa",
];

fn payment(account: &str, reference: &str) -> CreditPost {
    CreditPost {
        is_payment: true,
        ..CreditPost::top_up(account.parse().unwrap(), credits("5"), reference.to_owned())
    }
}

/// The same, as an operator adds it.
fn by_hand(account: &str, reference: &str) -> CreditPost {
    CreditPost {
        is_payment: false,
        ..payment(account, reference)
    }
}

fn post(ledger: &Ledger, post: CreditPost) -> Result<Posted, AdminError> {
    match run(ledger, AdminOp::Credit(CreditOp::Post(post)))? {
        AdminReply::Posted(posted) => Ok(posted),
        other => panic!("{other:?}"),
    }
}

fn conflict(reference: &str) -> Result<Posted, AdminError> {
    Err(AdminError::ReferenceConflict(reference.to_owned()))
}

/// Who was credited a payment.
fn payer(ledger: &Ledger, reference: &str) -> Option<String> {
    let (account, reference) = (None, reference.to_owned());
    match run(ledger, AdminOp::Credit(CreditOp::Find { account, reference })).unwrap() {
        AdminReply::CreditFound { account, entry } => account.filter(|_| entry.is_some()).map(|name| name.to_string()),
        other => panic!("{other:?}"),
    }
}

fn ask(ledger: &Ledger, words: &[&str]) -> Value {
    let shared = &redis_of(ledger).shared;
    let [name, arguments @ ..] = words else {
        panic!("no command")
    };
    let mut command = redis::cmd(name);
    command.arg(arguments);
    block_on(async { shared.command(&shared.link(), command).await.unwrap() })
}

fn balance(ledger: &Ledger, account: &str) -> Credits {
    let op = AdminOp::AccountShow {
        account: account.parse().unwrap(),
    };
    match run(ledger, op).unwrap() {
        AdminReply::Account(view) => view.figures.balance,
        other => panic!("{other:?}"),
    }
}

/// Posts as somebody who claimed the payment at this turn, whatever became of the claim since.
fn post_late(ledger: &Ledger, account: &str, reference: &str, turn: u64) -> bool {
    let shared = &redis_of(ledger).shared;
    let late = payment(account, reference);
    block_on(async { shared.post_claimed(&shared.link(), &late, Some(turn)).await.unwrap() }).is_some()
}

fn one_is_credited(nodes: &[Ledger], payments: usize) {
    for name in NAMES {
        caller_of(&nodes[0], name, "0", LimitOverrides::default());
    }
    let mut credited = 0;
    for n in 0..payments {
        let names = if n % 2 == 0 { &NAMES[..2] } else { &NAMES[..] };
        let reference = format!("pi_{n}");
        let told = on_workers(nodes.len(), |worker| {
            let tell = async |name: &&str| {
                let op = AdminOp::Credit(CreditOp::Post(payment(name, &reference)));
                nodes[worker].run(op).await
            };
            let order = names.iter().cycle().skip(worker + n).take(names.len());
            block_on(join_all(order.map(tell)))
        });
        let mut added = 0;
        for posted in told.into_iter().flatten() {
            match posted {
                Ok(AdminReply::Posted(posted)) => added += usize::from(posted.added),
                Err(AdminError::ReferenceConflict(_)) => {}
                Err(AdminError::Store(text)) if text.contains("tell it again") => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(added, 1, "{reference}");
        credited += added;
        assert!(payer(&nodes[0], &reference).is_some());
    }
    let balances = NAMES.iter().map(|name| balance(&nodes[0], name));
    let all = balances.fold(Credits::ZERO, Credits::saturating_add);
    assert_eq!(all, credits(&(5 * credited).to_string()));
    audit_is_clean(&nodes[0]);
}

#[test]
fn of_many_accounts_at_several_gateways_one_is_credited_a_payment() {
    let server = RedisServer::start();
    one_is_credited(&[(); 4].map(|()| node(&server, patient())), 60);
}

#[test]
fn of_many_accounts_in_a_cluster_one_is_credited_a_payment() {
    let cluster = RedisCluster::start();
    let masters: Vec<usize> = NAMES.iter().map(|name| cluster.master_of(name)).collect();
    assert!((0..3).all(|master| masters.contains(&master)), "{masters:?}");
    let nodes = [(); 4].map(|()| Ledger::Redis(RedisLedger::connect(&cluster.url(), patient()).unwrap()));
    one_is_credited(&nodes, 40);
    // By hand too, whichever masters the account and the payment are at.
    for (name, other) in NAMES.iter().zip(NAMES.iter().skip(1)) {
        let reference = format!("pi_of_{name}");
        assert!(post(&nodes[0], by_hand(name, &reference)).unwrap().added);
        assert_eq!(payer(&nodes[1], &reference).as_deref(), Some(*name));
        assert_eq!(post(&nodes[2], payment(other, &reference)), conflict(&reference));
        assert!(!post(&nodes[3], payment(name, &reference)).unwrap().added);
    }
    audit_is_clean(&nodes[0]);
}

/// Its process died between claim and posting; or it was one of an earlier version, whose claims look the same.
#[test]
fn a_claim_that_was_never_posted_is_taken_over_and_posts_nothing_later() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    for name in &NAMES[..3] {
        caller_of(&ledger, name, "0", LimitOverrides::default());
    }
    ask(&ledger, &["SET", "tg1:payment:pi_1", "beta"]);
    assert_eq!(payer(&ledger, "pi_1"), None, "nobody was credited it");
    assert!(post(&ledger, payment("acme", "pi_1")).unwrap().added);
    // The process was not dead, but slow.
    assert!(!post_late(&ledger, "beta", "pi_1", 0));
    assert_eq!(post(&ledger, payment("beta", "pi_1")), conflict("pi_1"));
    assert_eq!(post(&ledger, payment("gamma", "pi_1")), conflict("pi_1"));
    assert!(!post(&ledger, payment("acme", "pi_1")).unwrap().added);
    assert_eq!(payer(&ledger, "pi_1").as_deref(), Some("acme"));

    // The same account tells it again.
    ask(&ledger, &["SET", "tg1:payment:pi_2", "beta"]);
    assert!(post(&ledger, payment("beta", "pi_2")).unwrap().added);
    assert_eq!(post(&ledger, payment("acme", "pi_2")), conflict("pi_2"));
    assert_eq!(payer(&ledger, "pi_2").as_deref(), Some("beta"));

    // Taken back and forth, with who took it dying each time before it posts: only the last one can.
    for (holder, turn, claim) in [("beta", 0, "beta"), ("gamma", 1, "gamma 1"), ("beta", 2, "beta 2")] {
        ask(&ledger, &["SET", "tg1:payment:pi_3", claim]);
        if turn < 2 {
            assert_eq!(end_claim(&ledger, holder, "pi_3", turn), "ended");
        }
    }
    assert!(!post_late(&ledger, "beta", "pi_3", 0));
    assert!(!post_late(&ledger, "gamma", "pi_3", 1));
    assert!(post_late(&ledger, "beta", "pi_3", 2));
    assert_eq!(end_claim(&ledger, "beta", "pi_3", 2), "posted");
    assert_eq!(post(&ledger, payment("acme", "pi_3")), conflict("pi_3"));
    assert_eq!(balance(&ledger, "acme"), credits("5"));
    assert_eq!(balance(&ledger, "beta"), credits("10"));
    assert_eq!(balance(&ledger, "gamma"), Credits::ZERO);
    audit_is_clean(&ledger);
}

/// By hand it is claimed as by a message: whoever was slower posts nothing later.
#[test]
fn a_top_up_by_hand_claims_its_payment() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    for name in &NAMES[..2] {
        caller_of(&ledger, name, "0", LimitOverrides::default());
    }
    // A message for another account came to a process that died, or is slow.
    ask(&ledger, &["SET", "tg1:payment:pi_1", "beta"]);
    assert!(post(&ledger, by_hand("acme", "pi_1")).unwrap().added);
    assert!(!post_late(&ledger, "beta", "pi_1", 0));
    assert_eq!(payer(&ledger, "pi_1").as_deref(), Some("acme"));
    assert_eq!(post(&ledger, payment("beta", "pi_1")), conflict("pi_1"));

    // Earlier versions claimed nothing: the same top-up once more does.
    let (shared, earlier) = (&redis_of(&ledger).shared, by_hand("acme", "pi_2"));
    let posted = block_on(async { shared.post_unclaimed(&shared.link(), &earlier).await.unwrap() });
    assert!(posted.added);
    assert_eq!(payer(&ledger, "pi_2"), None);
    assert!(!post(&ledger, earlier).unwrap().added);
    assert_eq!(payer(&ledger, "pi_2").as_deref(), Some("acme"));
    assert_eq!(post(&ledger, payment("beta", "pi_2")), conflict("pi_2"));
    assert_eq!(balance(&ledger, "acme"), credits("10"));
    assert_eq!(balance(&ledger, "beta"), Credits::ZERO);
    audit_is_clean(&ledger);
}

fn end_claim(ledger: &Ledger, account: &str, reference: &str, turn: u64) -> String {
    let shared = &redis_of(ledger).shared;
    let (name, ended) = (
        format!("tg1:{{{account}}}"),
        ended_claims_of_account(&account.parse().unwrap()),
    );
    let answer = block_on(async {
        let keys = [name.as_str(), &ended];
        let turn = turn.to_string();
        let (link, arguments) = (shared.link(), [reference, &turn]);
        let ended = shared.run_script(&link, &script::CLAIM_END, &keys, &arguments);
        ended.await.unwrap()
    });
    reply::text(&answer).unwrap().to_owned()
}

/// Who wanted to take the claim over died when it had ended it: the account whose claim it was posts all the same.
#[test]
fn a_claim_that_was_ended_and_not_taken_is_claimed_again() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    for name in &NAMES[..2] {
        caller_of(&ledger, name, "0", LimitOverrides::default());
    }
    for (reference, next) in [("pi_1", "beta"), ("pi_2", "acme")] {
        ask(&ledger, &["SET", &format!("tg1:payment:{reference}"), "beta"]);
        assert_eq!(end_claim(&ledger, "beta", reference, 0), "ended");
        assert!(post(&ledger, payment(next, reference)).unwrap().added);
        assert_eq!(payer(&ledger, reference).as_deref(), Some(next));
    }
    assert_eq!(post(&ledger, payment("acme", "pi_1")), conflict("pi_1"));
    assert_eq!(post(&ledger, payment("beta", "pi_2")), conflict("pi_2"));
    audit_is_clean(&ledger);
}

/// Of many who take a payment from each other the last is left alone: who has taken it over, and lost it, does not take it once more.
#[test]
fn who_took_a_payment_over_and_lost_it_is_to_tell_it_again() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    for name in &NAMES[..2] {
        caller_of(&ledger, name, "0", LimitOverrides::default());
    }
    ask(&ledger, &["SET", "tg1:payment:pi_1", "beta"]);
    // The turn that it is about to take was ended by another one, which did not go on.
    assert_eq!(end_claim(&ledger, "acme", "pi_1", 1), "ended");
    let told = post(&ledger, payment("acme", "pi_1"));
    assert!(
        matches!(&told, Err(AdminError::Store(text)) if text.contains("tell it again")),
        "{told:?}"
    );
    assert_eq!(payer(&ledger, "pi_1"), None);
    assert!(post(&ledger, payment("acme", "pi_1")).unwrap().added);
    assert_eq!(balance(&ledger, "acme"), credits("5"));
    assert_eq!(post(&ledger, payment("beta", "pi_1")), conflict("pi_1"));
    audit_is_clean(&ledger);
}

/// Whose it is must outlive a fail-over before it is credited: else the next message could credit another account.
#[test]
fn a_claim_that_no_replica_has_credits_nothing() {
    let (server, replica) = (RedisServer::start(), RedisServer::start());
    let options = Options {
        timeout: std::time::Duration::from_secs(1),
        ..patient()
    };
    let ledger = node(&server, options);
    caller_of(&ledger, "acme", "0", LimitOverrides::default());
    replica.ask(&format!("REPLICAOF 127.0.0.1 {}", server.port()));
    until("the replica follows", || {
        let replication = server.ask("INFO replication");
        replication.iter().any(|line| line.contains("state=online"))
    });
    replica.freeze();
    let told = post(&ledger, payment("acme", "pi_1"));
    assert!(
        matches!(&told, Err(AdminError::Store(text)) if text.contains("nothing was credited")),
        "{told:?}"
    );
    assert_eq!(balance(&ledger, "acme"), Credits::ZERO);
    replica.thaw();
    until("a replica has whose it is", || {
        post(&ledger, payment("acme", "pi_1")).is_ok()
    });
    assert_eq!(balance(&ledger, "acme"), credits("5"));
}
