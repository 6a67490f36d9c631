//! The operator's commands.

use crate::ledger::admin::operators::OperatorOp;
use crate::ledger::admin::{AdminError, AdminOp, AdminReply, KeyRef};
use crate::ledger::terms::AccountStatus;
use crate::ledger::tests::rig::{NOW, Rig, audit_is_clean, block_on, credits, key_create, request};
use crate::pure::ids::{AccountId, ApiKey, KeyId, Tier};
use crate::pure::limits::LimitOverrides;
use crate::pure::money::Credits;
use crate::pure::operator::Role;

pub(super) fn a_reference_counts_once(rig: &Rig) {
    let caller = rig.caller("0");
    let credited = |added, balance: &str| {
        Ok(AdminReply::Credited {
            added,
            balance: credits(balance),
        })
    };
    assert_eq!(rig.credit(&caller, "10", "A 1"), credited(true, "10"));
    assert_eq!(rig.credit(&caller, "10", "A 1"), credited(false, "10"));
    assert_eq!(
        rig.credit(&caller, "11", "A 1"),
        Err(AdminError::ReferenceConflict("A 1".to_owned()))
    );
    assert_eq!(rig.credit(&caller, "0.5", "A 2"), credited(true, "10.5"));
    assert!(matches!(rig.credit(&caller, "0", "A 3"), Err(AdminError::Invalid(_))));
    assert!(matches!(rig.credit(&caller, "1", ""), Err(AdminError::Invalid(_))));
    let nobody = AdminOp::CreditsAdd {
        account: "nobody".parse().unwrap(),
        amount: credits("1"),
        reference: "B".to_owned(),
    };
    assert!(matches!(rig.run(nobody), Err(AdminError::NoAccount(_))));
    audit_is_clean(&rig.ledger);
}

/// A store may keep references beside other facts of the account, under names that it makes of them.
pub(super) fn any_text_is_a_reference(rig: &Rig) {
    let caller = rig.caller("0");
    let before = rig.show(&caller).record;
    let references = ["ier", "tier", "t", "-", "avail", "0", "created", "\u{1f4b6}", "a b"];
    for reference in references {
        let paid = rig.credit(&caller, "1", reference);
        assert!(
            matches!(paid, Ok(AdminReply::Credited { added: true, .. })),
            "{reference:?}: {paid:?}"
        );
        let again = rig.credit(&caller, "1", reference);
        assert!(
            matches!(again, Ok(AdminReply::Credited { added: false, .. })),
            "{reference:?}: {again:?}"
        );
    }
    for wrong in ["", "a\nb", "\u{1b}[2J", "\u{9b}", &"x".repeat(201)] {
        let error = rig.credit(&caller, "1", wrong).unwrap_err();
        assert!(matches!(error, AdminError::Invalid(_)), "{wrong:?}: {error}");
    }
    let balance = rig.figures(&caller).balance;
    assert_eq!(balance, credits(&references.len().to_string()));
    assert_eq!(rig.show(&caller).record, before);
    audit_is_clean(&rig.ledger);
}

pub(super) fn a_balance_cannot_leave_its_range(rig: &Rig) {
    let caller = rig.caller("9000000");
    let hold = rig.reserve(&caller, &request(1, "9000000")).unwrap();
    let error = rig.credit(&caller, "300000", "too much").unwrap_err();
    assert!(matches!(error, AdminError::Invalid(_)), "{error}");
    hold.release();
    assert!(rig.credit(&caller, "223372.036854775807", "to the brim").is_ok());
    assert_eq!(rig.figures(&caller).balance, Credits::MAX);
    assert!(rig.credit(&caller, "0.000000000001", "a drop more").is_err());
    // A reference that has counted is answered as such, whether or not it would still fit.
    let again = AdminReply::Credited {
        added: false,
        balance: Credits::MAX,
    };
    assert_eq!(rig.credit(&caller, "223372.036854775807", "to the brim"), Ok(again));
    let other = rig.credit(&caller, "9000000", "to the brim");
    assert_eq!(other, Err(AdminError::ReferenceConflict("to the brim".to_owned())));
    audit_is_clean(&rig.ledger);
}

pub(super) fn keys_are_listed_found_and_revoked(rig: &Rig) {
    rig.caller("0");
    let digest = ApiKey::from_random("tg_", [200; 32]).digest();
    assert!(block_on(rig.ledger.authenticate(&digest)).unwrap().is_none());
    rig.clock.advance(5);
    let create = AdminOp::KeyCreate {
        digest: digest.to_hex(),
        account: "acme".parse().unwrap(),
        tier: Some(Tier::Lite),
        domains: vec!["*.example.com".parse().unwrap()],
        expires_in_ms: Some(1000),
        limits: LimitOverrides {
            rpm: Some(7),
            ..LimitOverrides::default()
        },
        settings: Default::default(),
    };
    let AdminReply::Key(made) = rig.run(create).unwrap() else {
        panic!("no key");
    };
    assert_eq!(made.expires, Some(NOW.plus_millis(1005)));
    let find = || block_on(rig.ledger.authenticate(&digest)).unwrap().unwrap();
    assert!(find().checked(NOW.plus_millis(1005)).is_none(), "it has expired");
    let caller = find().checked(NOW.plus_millis(1004)).unwrap();
    assert_eq!((&*caller.key, caller.tier()), (&made, Tier::Lite));
    let list = AdminOp::KeyList {
        account: "acme".parse().unwrap(),
    };
    let AdminReply::Keys { keys, .. } = rig.run(list).unwrap() else {
        panic!("no keys");
    };
    assert_eq!((keys.len(), &keys[1]), (2, &made));
    let by_name = || [KeyRef::Id(KeyId::of(&digest)), KeyRef::Digest(digest.to_hex())];
    let show = |key| rig.run(AdminOp::KeyShow { key });
    for key in by_name() {
        assert_eq!(show(key), Ok(AdminReply::Key(made.clone())));
    }
    let revoke = |key| rig.run(AdminOp::KeyRevoke { key });
    let AdminReply::Key(revoked) = revoke(KeyRef::Id(KeyId::of(&digest))).unwrap() else {
        panic!("no key");
    };
    assert_eq!(revoked.revoked, Some(NOW.plus_millis(5)));
    assert!(find().key.revoked.is_some());
    assert!(find().checked(NOW).is_none(), "it is revoked");
    rig.clock.advance(5);
    assert_eq!(
        revoke(KeyRef::Digest(digest.to_hex())),
        Ok(AdminReply::Key(revoked.clone())),
        "for good"
    );
    for key in by_name() {
        assert_eq!(
            show(key),
            Ok(AdminReply::Key(revoked.clone())),
            "it is shown as it is now"
        );
    }
    let unknown = ApiKey::from_random("tg_", [201; 32]).digest();
    assert_eq!(revoke(KeyRef::Digest(unknown.to_hex())), Err(AdminError::NoKey));
    assert_eq!(show(KeyRef::Digest(unknown.to_hex())), Err(AdminError::NoKey));
    assert_eq!(show(KeyRef::Id(KeyId::of(&unknown))), Err(AdminError::NoKey));
    assert_eq!(revoke(KeyRef::Id(KeyId::of(&unknown))), Err(AdminError::NoKey));
    assert_eq!(rig.show(&caller).keys.len(), 2);
}

pub(super) fn a_key_cannot_be_above_its_account(rig: &Rig) {
    rig.caller("0");
    let create = |account: &str, tier, limits| {
        rig.run(AdminOp::KeyCreate {
            digest: ApiKey::from_random("tg_", [202; 32]).digest().to_hex(),
            account: account.parse().unwrap(),
            tier,
            domains: Vec::new(),
            expires_in_ms: None,
            limits,
            settings: Default::default(),
        })
    };
    let none = LimitOverrides::default();
    assert!(matches!(
        create("acme", Some(Tier::Enterprise), none),
        Err(AdminError::Invalid(_))
    ));
    assert!(matches!(create("nobody", None, none), Err(AdminError::NoAccount(_))));
    let zero = LimitOverrides { tpm: Some(0), ..none };
    assert!(matches!(create("acme", None, zero), Err(AdminError::Invalid(_))));
}

/// The command line and the operators' interface refuse these too, but a command may come without them.
pub(super) fn a_key_ends_and_counts_within_bounds(rig: &Rig) {
    rig.caller("0");
    let create = |expires_in_ms, rpm| {
        let mut create = key_create("acme", &ApiKey::from_random("tg_", [204; 32]).digest());
        if let AdminOp::KeyCreate {
            expires_in_ms: expires,
            limits,
            ..
        } = &mut create
        {
            (*expires, limits.rpm) = (expires_in_ms, rpm);
        }
        rig.run(create)
    };
    for bad in [i64::MIN, -1, 0, 36_500 * 86_400_000 + 1, i64::MAX] {
        assert!(matches!(create(Some(bad), None), Err(AdminError::Invalid(_))), "{bad}");
        let token = OperatorOp::Create {
            digest: ApiKey::from_random("tgop_", [205; 32]).digest().to_hex(),
            name: "Ann".to_owned(),
            role: Role::Read,
            expires_in_ms: Some(bad),
        };
        let made = rig.run(AdminOp::Operator(token));
        assert!(matches!(made, Err(AdminError::Invalid(_))), "{bad}");
    }
    for bad in [0, (1 << 53) + 1, u64::MAX] {
        assert!(matches!(create(None, Some(bad)), Err(AdminError::Invalid(_))), "{bad}");
    }
    assert!(create(Some(36_500 * 86_400_000), Some(1 << 53)).is_ok());
}

pub(super) fn an_account_changes_at_once(rig: &Rig) {
    let digest = ApiKey::from_random("tg_", [203; 32]).digest();
    rig.caller("0");
    rig.run(key_create("acme", &digest)).unwrap();
    let set = |tier, quota_pico| {
        rig.run(AdminOp::AccountSet {
            account: "acme".parse().unwrap(),
            tier,
            quota_pico,
            terms: Default::default(),
        })
    };
    let record = || block_on(rig.ledger.authenticate(&digest)).unwrap().unwrap().account;
    assert_eq!((record().tier, record().monthly_quota), (Tier::Pro, None));
    set(Some(Tier::Free), Some(Some(5))).unwrap();
    assert_eq!(
        (record().tier, record().monthly_quota),
        (Tier::Free, Some(Credits::from_pico(5)))
    );
    set(None, None).unwrap();
    assert_eq!((record().tier, record().monthly_quota.is_some()), (Tier::Free, true));
    set(Some(Tier::Lite), Some(None)).unwrap();
    assert_eq!((record().tier, record().monthly_quota), (Tier::Lite, None));
    assert!(matches!(set(None, Some(Some(-1))), Err(AdminError::Invalid(_))));
}

/// Clients resolve `.` and `..` before they send a path, so that nobody could ask for such an account.
pub(super) fn an_account_has_a_name_that_a_path_can_have(rig: &Rig) {
    for (name, is_good) in [(".", false), ("..", false), ("...", true), (".a", true)] {
        let created = rig.run(AdminOp::AccountCreate {
            account: name.parse().unwrap(),
            tier: Tier::Free,
            quota_pico: None,
            terms: Default::default(),
        });
        match is_good {
            true => assert!(matches!(created, Ok(AdminReply::Account(_))), "{name}: {created:?}"),
            false => assert!(matches!(created, Err(AdminError::Invalid(_))), "{name}: {created:?}"),
        }
    }
    let AdminReply::Accounts { accounts } = rig.run(AdminOp::AccountList).unwrap() else {
        panic!("no accounts");
    };
    let names: Vec<_> = accounts.iter().map(|view| view.record.id.as_str()).collect();
    assert_eq!(names, ["...", ".a"]);
}

pub(super) fn names_are_taken_once(rig: &Rig) {
    let create = |name: &str, quota_pico| {
        rig.run(AdminOp::AccountCreate {
            account: name.parse().unwrap(),
            tier: Tier::Free,
            quota_pico,
            terms: Default::default(),
        })
    };
    let AdminReply::Account(view) = create("zoe", Some(7)).unwrap() else {
        panic!("no account");
    };
    assert_eq!(
        (view.record.created, view.record.monthly_quota),
        (NOW, Some(Credits::from_pico(7)))
    );
    assert!(matches!(create("zoe", None), Err(AdminError::AccountExists(_))));
    assert!(matches!(create("abe", Some(-7)), Err(AdminError::Invalid(_))));
    create("abe", None).unwrap();
    let AdminReply::Accounts { accounts } = rig.run(AdminOp::AccountList).unwrap() else {
        panic!("no accounts");
    };
    let names: Vec<_> = accounts.iter().map(|view| view.record.id.as_str()).collect();
    assert_eq!(names, ["abe", "zoe"]);
    let show = AdminOp::AccountShow {
        account: "nobody".parse().unwrap(),
    };
    assert!(matches!(rig.run(show), Err(AdminError::NoAccount(_))));
}

pub(super) fn maintenance_is_switched(rig: &Rig) {
    for on in [true, false] {
        assert_eq!(rig.run(AdminOp::Maintenance { on }), Ok(AdminReply::Maintenance { on }));
        assert_eq!(rig.ledger.in_maintenance(), on);
    }
}

fn key(account: &str, domains: usize) -> AdminOp {
    AdminOp::KeyCreate {
        digest: ApiKey::from_random("tg_", [211; 32]).digest().to_hex(),
        account: account.parse().unwrap(),
        tier: None,
        domains: (0..domains).map(|n| format!("d{n}.example").parse().unwrap()).collect(),
        expires_in_ms: None,
        limits: LimitOverrides::default(),
        settings: Default::default(),
    }
}

fn keys_of(rig: &Rig, account: &str) -> usize {
    let account = account.parse().unwrap();
    match rig.run(AdminOp::KeyList { account }).unwrap() {
        AdminReply::Keys { keys, .. } => keys.len(),
        other => panic!("{other:?}"),
    }
}

/// The keys of an account that was closed were shown as active, and nothing beside them said that none of them opens anything.
pub(super) fn a_list_of_keys_says_whether_their_account_may_call(rig: &Rig) {
    rig.caller("0");
    let account: AccountId = "acme".parse().unwrap();
    let told = || match rig
        .run(AdminOp::KeyList {
            account: account.clone(),
        })
        .unwrap()
    {
        AdminReply::Keys { account_status, .. } => account_status,
        other => panic!("{other:?}"),
    };
    assert_eq!(told(), Some(AccountStatus::Active));
    for status in [AccountStatus::Suspended, AccountStatus::Active, AccountStatus::Closed] {
        super::accounts::status(rig, status).unwrap();
        assert_eq!(told(), Some(status));
    }
    // A gateway of before does not say it.
    let before: AdminReply = serde_json::from_str(r#"{"reply":"keys","keys":[]}"#).unwrap();
    let reply = AdminReply::Keys {
        keys: Vec::new(),
        account_status: None,
    };
    assert_eq!(before, reply);
    assert_eq!(serde_json::to_string(&reply).unwrap(), r#"{"reply":"keys","keys":[]}"#);
}

pub(super) fn a_key_is_made_once(rig: &Rig) {
    rig.caller_of("acme", "1", LimitOverrides::default());
    rig.caller_of("other", "1", LimitOverrides::default());
    rig.run(key("acme", 0)).unwrap();
    for account in ["other", "acme"] {
        let again = rig.run(key(account, 0));
        assert!(
            matches!(&again, Err(AdminError::Invalid(text)) if text.contains("there already")),
            "{again:?}"
        );
    }
    assert_eq!((keys_of(rig, "acme"), keys_of(rig, "other")), (2, 1));
}

pub(super) fn a_key_lists_so_many_domains(rig: &Rig) {
    rig.caller("1");
    assert!(matches!(rig.run(key("acme", 101)), Err(AdminError::Invalid(_))));
    rig.run(key("acme", 100)).unwrap();
}

pub(super) fn a_key_has_at_most_its_accounts_tier(rig: &Rig) {
    rig.caller("0");
    let key = |tier, n| AdminOp::KeyCreate {
        digest: ApiKey::from_random("tg_", [n; 32]).digest().to_hex(),
        account: "acme".parse().unwrap(),
        tier: Some(tier),
        domains: Vec::new(),
        expires_in_ms: None,
        limits: LimitOverrides::default(),
        settings: Default::default(),
    };
    let lite = AdminOp::AccountSet {
        account: "acme".parse().unwrap(),
        tier: Some(Tier::Lite),
        quota_pico: None,
        terms: Default::default(),
    };
    rig.run(key(Tier::Pro, 101)).unwrap();
    rig.run(lite).unwrap();
    rig.run(key(Tier::Lite, 102)).unwrap();
    let error = rig.run(key(Tier::Pro, 103)).unwrap_err();
    assert!(matches!(error, AdminError::Invalid(_)), "{error}");
}

pub(super) fn a_quota_may_be_nothing_and_not_less(rig: &Rig) {
    let caller = rig.caller("10");
    let quota = |pico| AdminOp::AccountSet {
        account: caller.account.id.clone(),
        tier: None,
        quota_pico: Some(Some(pico)),
        terms: Default::default(),
    };
    match rig.run(quota(0)).unwrap() {
        AdminReply::Account(view) => assert_eq!(view, rig.show(&caller)),
        other => panic!("{other:?}"),
    }
    assert_eq!(rig.show(&caller).record.monthly_quota, Some(Credits::ZERO));
    let error = rig.run(quota(-1)).unwrap_err();
    assert!(matches!(error, AdminError::Invalid(_)), "{error}");
    assert_eq!(rig.show(&caller).record.monthly_quota, Some(Credits::ZERO));
}
