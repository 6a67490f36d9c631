//! The log of acts in Redis: its bound, when it cannot be written, and over several gateways.

use super::{node, parted, patient};
use crate::ledger::Ledger;
use crate::ledger::admin::Acted;
use crate::ledger::admin::operators::{Act, ActPage, ActQuery, Actor, OPERATORS_MAX, OperatorOp};
use crate::ledger::admin::{AdminError, AdminOp, AdminReply};
use crate::ledger::redis::acts::Begun;
use crate::ledger::redis::link::Link;
use crate::ledger::redis::nonce::nonce;
use crate::ledger::tests::redis_server::{RedisServer, until};
use crate::ledger::tests::rig::{block_on, credits, on_workers, redis_of, run};
use crate::pure::ids::Tier;
use crate::pure::operator::{Role, token};

fn actor(name: &str) -> Actor {
    Actor {
        id: "op_1".to_owned(),
        name: name.to_owned(),
        role: Role::Admin,
        address: None,
    }
}

fn by(name: &str, op: AdminOp) -> AdminOp {
    let actor = actor(name);
    AdminOp::By(Box::new(Acted { actor, op }))
}

fn page(ledger: &Ledger, limit: u32, account: Option<&str>) -> ActPage {
    let query = ActQuery {
        limit,
        account: account.map(|name| name.parse().unwrap()),
        ..ActQuery::default()
    };
    match run(ledger, AdminOp::Operator(OperatorOp::Log(query))).unwrap() {
        AdminReply::Acts(page) => page,
        other => panic!("{other:?}"),
    }
}

fn create(name: &str) -> AdminOp {
    AdminOp::AccountCreate {
        account: name.parse().unwrap(),
        tier: Tier::Pro,
        quota_pico: None,
        terms: Default::default(),
    }
}

#[test]
fn the_oldest_acts_make_room() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    run(&ledger, by("anna", create("acme"))).unwrap();
    let act = page(&ledger, 1, None).acts.remove(0);
    let shared = &redis_of(&ledger).shared;
    let text = serde_json::to_string(&Act {
        error: None,
        ..act.clone()
    })
    .unwrap();
    let numbers: Vec<String> = (0..9)
        .map(|n| {
            let account = ["acme", "", "other"][n % 3];
            block_on(shared.add_act(
                &Link::default(),
                (account, &text),
                (5, u64::MAX >> 12),
                &nonce().unwrap(),
            ))
            .unwrap()
        })
        .collect();
    let kept: Vec<String> = page(&ledger, 100, None)
        .acts
        .into_iter()
        .rev()
        .map(|act| act.id)
        .collect();
    assert_eq!(kept, numbers[4..]);
    let of = |account: &str| page(&ledger, 100, Some(account)).acts.len();
    assert_eq!((of("acme"), of("other")), (1, 2));
    // Nothing of the older ones is left: two bounds, a sum and an entry and its mark each; and those of accounts in the index.
    let (acts, index) = (server.ask("HLEN tg1:{:acts}"), server.ask("ZCARD tg1:{:acts}:accounts"));
    assert_eq!((acts.join(""), index.join("")), (":13".to_owned(), ":3".to_owned()));
    // A smaller bound is reached by and by, two for each new one.
    let add = || {
        let bound = (2, u64::MAX >> 12);
        block_on(shared.add_act(&Link::default(), ("", &text), bound, &nonce().unwrap())).unwrap()
    };
    add();
    assert_eq!(page(&ledger, 100, None).acts.len(), 4);
    add();
    add();
    assert_eq!(page(&ledger, 100, None).acts.len(), 2);
}

#[test]
fn the_oldest_acts_make_room_for_bytes_too() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let shared = &redis_of(&ledger).shared;
    let add = |bytes: usize| {
        let text = "x".repeat(bytes);
        block_on(shared.add_act(&Link::default(), ("acme", &text), (100, 10_000), &nonce().unwrap())).unwrap()
    };
    let sum = || server.ask("HGET tg1:{:acts} bytes").join("");
    for _ in 0..19 {
        add(495);
    }
    // With "acme" and a blank, each has 500 bytes.
    assert!(sum().contains("9500"), "{}", sum());
    assert_eq!(add(495), "20");
    assert!(sum().contains("10000"), "{}", sum());
    assert_eq!(
        server.ask("HGET tg1:{:acts} first").join("").trim_start_matches("$1"),
        "1"
    );
    // One of 3,000 bytes takes the place of six, and not of two.
    assert_eq!(add(2_995), "21");
    assert!(sum().contains("10000"), "{}", sum());
    assert_eq!(
        server.ask("HGET tg1:{:acts} first").join("").trim_start_matches("$1"),
        "7"
    );
    assert_eq!(server.ask("ZCARD tg1:{:acts}:accounts").join(""), ":15");
    // The newest stays, however long.
    assert_eq!(add(20_000), "22");
    assert_eq!(server.ask("HLEN tg1:{:acts}").join(""), ":5");
}

#[test]
fn an_act_whose_log_is_lost_is_added_anew_and_changes_no_other() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    run(&ledger, by("anna", create("acme"))).unwrap();
    let act = Act {
        actor: actor("anna"),
        ..page(&ledger, 1, None).acts.remove(0)
    };
    let other = Act {
        actor: actor("bea"),
        error: Some("unknown".to_owned()),
        ..act.clone()
    };
    let shared = &redis_of(&ledger).shared;
    let link = Link::default();
    let begin = |act: &Act, nonce: &str| {
        let text = serde_json::to_string(act).unwrap();
        let number = block_on(shared.add_act(&link, ("acme", &text), (100, 1 << 20), nonce)).unwrap();
        let nonce = nonce.to_owned();
        Begun { number, nonce }
    };
    server.ask("DEL tg1:{:acts} tg1:{:acts}:accounts");
    let lost = begin(&act, "a");
    server.ask("DEL tg1:{:acts}");
    let running = begin(&other, "b");
    assert_eq!(lost.number, running.number);
    block_on(shared.end(&link, &lost, &act, true)).unwrap();
    let told = |acts: Vec<Act>| -> Vec<(String, String, Option<String>)> {
        acts.into_iter()
            .map(|act| (act.id, act.actor.name, act.error))
            .collect()
    };
    let unknown = Some("unknown".to_owned());
    let of = |id: &str, name: &str, error: &Option<String>| (id.to_owned(), name.to_owned(), error.clone());
    let expected = [of("2", "anna", &None), of("1", "bea", &unknown)];
    assert_eq!(told(page(&ledger, 10, None).acts), expected);
    assert_eq!(told(page(&ledger, 10, Some("acme")).acts), expected);
    // The other ends as its own; and an end that comes again adds nothing.
    let done = Act { error: None, ..other };
    for _ in 0..2 {
        block_on(shared.end(&link, &running, &done, true)).unwrap();
    }
    let expected = [of("2", "anna", &None), of("1", "bea", &None)];
    assert_eq!(told(page(&ledger, 10, None).acts), expected);
}

#[test]
fn what_cannot_be_logged_is_not_done() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    server.ask("SET tg1:{:acts} x");
    let refused = run(&ledger, by("anna", create("acme"))).unwrap_err();
    assert!(
        matches!(&refused, AdminError::Store(text) if text.contains("cannot be logged")),
        "{refused}"
    );
    let account = "acme".parse().unwrap();
    let shown = run(&ledger, AdminOp::AccountShow { account });
    assert!(matches!(shown, Err(AdminError::NoAccount(_))), "{shown:?}");
    server.ask("DEL tg1:{:acts}");
    run(&ledger, by("anna", create("acme"))).unwrap();
    assert_eq!(page(&ledger, 10, None).acts.len(), 1);
}

/// It has an entry there, of which nobody knows how it ended.
#[test]
fn what_was_done_is_answered_also_when_the_log_is_away_by_then() {
    let (books, mut log) = (RedisServer::start(), RedisServer::start());
    let shared = parted(&books, &log, "tg1:{:acts}");
    // What is done waits until the log is gone.
    books.freeze();
    std::thread::scope(|threads| {
        let acted = Acted {
            actor: actor("anna"),
            op: AdminOp::Repair,
        };
        let act = threads.spawn(|| block_on(async { shared.act(acted).await }));
        until("its entry is confirmed", || {
            let commands = log.ask("INFO commandstats");
            commands.iter().any(|line| line.starts_with("cmdstat_role:"))
        });
        // What was answered before is on its way by now.
        assert_eq!(log.ask("PING"), ["+PONG"]);
        log.kill();
        books.thaw();
        let done = act.join().unwrap();
        assert!(done.is_ok(), "{done:?}");
    });
}

#[test]
fn the_acts_of_all_gateways_are_in_one_log_and_a_revocation_is_seen_by_all_at_once() {
    const EACH: usize = 50;
    let server = RedisServer::start();
    let nodes = [(); 3].map(|()| node(&server, patient()));
    run(&nodes[0], create("acme")).unwrap();
    on_workers(nodes.len(), |worker| {
        for n in 0..EACH {
            let add = AdminOp::CreditsAdd {
                account: "acme".parse().unwrap(),
                amount: credits("1"),
                reference: format!("{worker}-{n}"),
            };
            run(&nodes[worker], by(&format!("node {worker}"), add)).unwrap();
        }
    });
    let acts = page(&nodes[1], 1_000, Some("acme")).acts;
    assert_eq!(acts.len(), nodes.len() * EACH);
    for worker in 0..nodes.len() {
        let own: Vec<&Act> = acts
            .iter()
            .filter(|act| act.actor.name == format!("node {worker}"))
            .collect();
        let references: Vec<_> = own.iter().rev().map(|act| act.subject.clone().unwrap()).collect();
        assert_eq!(
            references,
            (0..EACH).map(|n| format!("{worker}-{n}")).collect::<Vec<_>>()
        );
        assert!(
            own.iter()
                .all(|act| act.error.is_none() && act.after["credit"]["added"] == true)
        );
    }
    let digest = token([1; 32]).digest().to_hex();
    let make = OperatorOp::Create {
        digest: digest.clone(),
        name: "anna".to_owned(),
        role: Role::Read,
        expires_in_ms: None,
    };
    run(&nodes[0], AdminOp::Operator(make)).unwrap();
    let find = |node: &Ledger| {
        let digest = digest.clone();
        match run(node, AdminOp::Operator(OperatorOp::Find { digest })).unwrap() {
            AdminReply::Operators { operators } => operators,
            other => panic!("{other:?}"),
        }
    };
    let made = find(&nodes[2]).remove(0);
    assert_eq!(made.revoked, None);
    run(&nodes[1], AdminOp::Operator(OperatorOp::Revoke { id: made.id })).unwrap();
    assert!(find(&nodes[0])[0].revoked.is_some());
}

/// A revoked operator has two fields, and counts once.
#[test]
fn there_are_as_many_operators_as_the_embedded_ledger_takes() {
    let server = RedisServer::start();
    let ledger = node(&server, patient());
    let create = |n: u8| {
        let op = OperatorOp::Create {
            digest: token([n; 32]).digest().to_hex(),
            name: "bea".to_owned(),
            role: Role::Read,
            expires_in_ms: None,
        };
        run(&ledger, AdminOp::Operator(op))
    };
    create(1).unwrap();
    let fields = "for n = 3, tonumber(ARGV[1]) do redis.call('HSET', 'tg1:operators', 'op_' .. n, '{}') if n % 2 == 0 then \
                  redis.call('HSET', 'tg1:operators', 'rop_' .. n, 1) end end return redis.call('HLEN', 'tg1:operators')";
    let most = OPERATORS_MAX;
    let count = server.ask(&format!("EVAL \"{fields}\" 0 {most}"));
    assert_eq!(count, [format!(":{}", most - 1 + most / 2 - 1)]);
    create(2).unwrap();
    let full = create(3).unwrap_err();
    assert_eq!(full.to_string(), format!("there are {most} operators already"));
}
