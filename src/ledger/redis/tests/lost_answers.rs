//! Redis runs a command and its answer is lost: the connection breaks in its place. The command is sent again, and knows what it has done.

pub(in crate::ledger::redis) mod ground;

use serde_json::json;

use self::ground::{Ground, create};
use crate::ledger::admin::credits::{CreditKind, CreditOp, CreditPost, Posted};
use crate::ledger::admin::events::EventOp;
use crate::ledger::admin::operators::OperatorOp;
use crate::ledger::admin::{AdminError, AdminOp, AdminReply, KeyRef};
use crate::ledger::redis::acts::Begun;
use crate::ledger::redis::link::Link;
use crate::ledger::redis::reply;
use crate::ledger::redis::script;
use crate::ledger::redis::shared::key_name;
use crate::ledger::terms::TermsChange;
use crate::ledger::tests::rig::{audit_is_clean, block_on, credits, key_create, redis_of, run};
use crate::pure::ids::{ApiKey, KeyDigest, KeyId, Tier};
use crate::pure::operator::{Role, token};

fn digest(number: u8) -> KeyDigest {
    ApiKey::from_random("tg_", [number; 32]).digest()
}

fn rotate(old: &KeyDigest, new: &KeyDigest, overlap_ms: i64) -> AdminOp {
    AdminOp::KeyRotate {
        key: KeyRef::Id(KeyId::of(old)),
        digest: new.to_hex(),
        overlap_ms,
    }
}

fn add(reference: &str) -> AdminOp {
    AdminOp::CreditsAdd {
        account: "acme".parse().unwrap(),
        amount: credits("5"),
        reference: reference.to_owned(),
    }
}

fn posted(answer: Result<AdminReply, AdminError>) -> Posted {
    match answer {
        Ok(AdminReply::Posted(posted)) => posted,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_key_that_was_made_is_answered_and_one_of_before_is_there_already() {
    let ground = Ground::new();
    let (key, id) = (digest(7), KeyId::of(&digest(7)));
    let made = ground.run(&script::KEY_CREATE, key_create("acme", &key));
    assert!(matches!(&made, Ok(AdminReply::Key(made)) if made.id == id), "{made:?}");
    assert_eq!(ground.keys(), [(id.clone(), false)]);
    assert_eq!(ground.only_act().action, "key.create");
    let again = ground.run(&script::KEY_CREATE, key_create("acme", &key));
    assert!(
        matches!(&again, Err(AdminError::Invalid(text)) if text.contains("there already")),
        "{again:?}"
    );
    assert_eq!(ground.keys(), [(id, false)]);
}

/// Whichever of its steps it is, the customer has a key afterwards.
#[test]
fn a_rotation_that_was_done_is_answered_and_leaves_the_new_key() {
    for (script, overlap_ms) in [
        (&script::REVOKE, 0),
        (&script::KEY_CREATE, 0),
        (&script::KEY_SHARE, 0),
        (&script::KEY_SET, 60_000),
    ] {
        let ground = Ground::new();
        let (old, new) = (digest(7), digest(8));
        run(&ground.direct, key_create("acme", &old)).unwrap();
        let rotated = ground.run(script, rotate(&old, &new, overlap_ms));
        let new = KeyId::of(&new);
        assert!(
            matches!(&rotated, Ok(AdminReply::Key(key)) if key.id == new),
            "{rotated:?}"
        );
        let mut keys = ground.keys();
        keys.sort_by_key(|(id, _)| *id != new);
        assert_eq!(keys, [(new, false), (KeyId::of(&old), overlap_ms == 0)]);
        assert_eq!(ground.only_act().action, "key.rotate");
    }
}

/// A rotation that was slower is refused, as where no answer is lost.
#[test]
fn the_end_of_a_key_by_another_rotation_is_not_taken_for_ones_own() {
    let ground = Ground::new();
    let (old, shared) = (digest(7), &redis_of(&ground.direct).shared);
    run(&ground.direct, key_create("acme", &old)).unwrap();
    let name = key_name(&old);
    let end = |successor: &str| {
        let arguments = ["", "channel", "message", successor];
        let ended = block_on(shared.run_script(&Link::default(), &script::REVOKE, &[&name], &arguments));
        !reply::list(&ended.unwrap()).unwrap().is_empty()
    };
    assert_eq!(["key_a", "key_b", "key_a"].map(end), [true, false, true]);
}

#[test]
fn an_operator_that_was_made_is_answered_and_one_of_before_is_there_already() {
    let ground = Ground::new();
    let digest = token([8; 32]).digest();
    let create = || {
        AdminOp::Operator(OperatorOp::Create {
            digest: digest.to_hex(),
            name: "bea".to_owned(),
            role: Role::Admin,
            expires_in_ms: None,
        })
    };
    let made = match ground.run(&script::OPERATOR_CREATE, create()) {
        Ok(AdminReply::Operator(made)) => made,
        other => panic!("{other:?}"),
    };
    assert_eq!(ground.operators(), std::slice::from_ref(&made));
    assert_eq!(ground.only_act().action, "operator.create");
    let again = ground.run(&script::OPERATOR_CREATE, create());
    assert_eq!(
        again,
        Err(AdminError::Invalid("the token is an operator's already".to_owned()))
    );
    assert_eq!(ground.operators(), [made]);
}

#[test]
fn an_account_that_was_made_is_answered_and_one_of_before_exists() {
    let ground = Ground::new();
    let made = ground.run(&script::CREATE, create("other"));
    assert!(matches!(&made, Ok(AdminReply::Account(_))), "{made:?}");
    assert_eq!(ground.only_act().action, "account.create");
    assert_eq!(ground.account("other").record.tier, Tier::Pro);
    let again = ground.run(&script::CREATE, create("other"));
    assert_eq!(again, Err(AdminError::AccountExists("other".parse().unwrap())));
    audit_is_clean(&ground.direct);
}

#[test]
fn credit_that_was_added_is_answered_so_and_what_counted_before_is_not() {
    let ground = Ground::new();
    for (reference, is_added) in [("one", true), ("one", false), ("two", true)] {
        let answer = ground.run(&script::POST, add(reference));
        assert!(
            matches!(&answer, Ok(AdminReply::Credited { added, .. }) if *added == is_added),
            "{answer:?}"
        );
        let act = ground.acts().remove(0);
        assert_eq!((act.error, &act.after["credit"]["added"]), (None, &json!(is_added)));
    }
    assert_eq!(ground.account("acme").figures.balance, credits("10"));
    audit_is_clean(&ground.direct);
}

/// What Stripe's messages are posted as: what is answered of them is counted as taken, and as short.
#[test]
fn a_payment_and_a_refund_that_were_posted_are_answered_with_what_they_did() {
    let ground = Ground::new();
    let post = |script, post| posted(ground.run(script, AdminOp::Credit(CreditOp::Post(post))));
    let pay = |reference: &str| CreditPost {
        is_payment: true,
        ..CreditPost::top_up("acme".parse().unwrap(), credits("1"), reference.to_owned())
    };
    assert!(post(&script::POST, pay("pi_1")).added);
    assert!(!post(&script::POST, pay("pi_1")).added);
    assert!(post(&script::CLAIM, pay("pi_2")).added);
    let refund = || CreditPost {
        kind: CreditKind::Refund,
        as_available: true,
        ..CreditPost::top_up("acme".parse().unwrap(), credits("-5"), "re_1".to_owned())
    };
    let taken = post(&script::POST, refund());
    assert_eq!((taken.added, taken.entry.amount), (true, credits("-2")));
    let again = post(&script::POST, refund());
    assert_eq!((again.added, again.entry.amount), (false, credits("-2")));
    audit_is_clean(&ground.direct);
}

/// It found the turn taken, by itself, and no gateway looked for an hour.
#[test]
fn a_turn_to_look_at_keys_that_was_taken_is_known_for_ones_own() {
    let ground = Ground::new();
    let mut create = key_create("acme", &digest(7));
    if let AdminOp::KeyCreate { expires_in_ms, .. } = &mut create {
        *expires_in_ms = Some(3 * 86_400_000);
    }
    run(&ground.direct, create).unwrap();
    let look = || run(&ground.lossy, AdminOp::Event(EventOp::RaiseExpiring));
    let looked = ground.losing_answer_to(b"tg1:events:keys".to_vec(), look);
    assert_eq!(looked, Ok(AdminReply::Done));
    match run(&ground.direct, AdminOp::Event(EventOp::Count)) {
        Ok(AdminReply::EventCount(count)) => assert_eq!(count.open, 1),
        other => panic!("{other:?}"),
    }
}

/// Another one may have begun between.
#[test]
fn an_act_has_one_entry_also_where_it_is_begun_twice() {
    let ground = Ground::new();
    let set = AdminOp::AccountSet {
        account: "acme".parse().unwrap(),
        tier: Some(Tier::Free),
        quota_pico: None,
        terms: TermsChange::default(),
    };
    ground.run(&script::ACT_BEGIN, set.clone()).unwrap();
    let act = ground.only_act();
    assert_eq!(act.action, "account.set");
    ground.run(&script::ACT_END, set).unwrap();
    let told: Vec<_> = ground.acts().into_iter().map(|act| act.error).collect();
    assert_eq!(told, [None, None]);
    // One that the log has not any more is added anew, complete, and once.
    let shared = &redis_of(&ground.lossy).shared;
    let lost = Begun {
        number: "99".to_owned(),
        nonce: "lost".to_owned(),
    };
    let ended = ground.losing(&script::ACT_BEGIN, || {
        block_on(shared.end(&Link::default(), &lost, &act, true))
    });
    ended.unwrap();
    assert_eq!(ground.acts().len(), 3);
    let begin = |nonce: &str| {
        let text = serde_json::to_string(&act).unwrap();
        block_on(shared.add_act(&Link::default(), ("acme", &text), (100, 1 << 20), nonce)).unwrap()
    };
    assert_eq!(["a", "b", "a", "b"].map(begin), ["4", "5", "4", "5"]);
    assert_eq!(ground.acts().len(), 5);
}
