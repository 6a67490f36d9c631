//! What each act is in words, over HTTP and in the log.

use serde_json::{Value, json};
use tollgate::ledger::admin::accounts::AccountOp;
use tollgate::ledger::admin::credits::{CreditOp, CreditPost};
use tollgate::ledger::admin::events::{Event, EventKind, EventOp};
use tollgate::ledger::admin::operators::OperatorOp;
use tollgate::ledger::admin::{AdminOp, KeyRef, RecoverReport};
use tollgate::ledger::key_settings::{KeyChange, KeySettings};
use tollgate::ledger::terms::TermsChange;
use tollgate::pure::ids::Tier;
use tollgate::pure::limits::LimitOverrides;
use tollgate::pure::money::Credits;
use tollgate::pure::operator::Role;
use tollgate::pure::time::Timestamp;

macro_rules! acts {
    ($($act:ident),* $(,)?) => {
        /// What a command does that changes something.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Act {
            $($act),*
        }

        impl Act {
            /// All, in an order in which they can be done: what closes an account comes behind what needs an open one.
            pub(super) const ALL: &[Act] = &[$(Act::$act),*];
        }
    };
}

acts! {
    AccountCreate, AccountSet, CreditsAdd, CreditPost, Repair, Recover, KeyCreate, KeySet, KeyRotate, KeyRevoke, AccountTerms, OperatorCreate,
    OperatorRevoke, Maintenance, WebhookTest,
}

/// An act in words and over HTTP. In both, NAME stands for an account, KEY and OPERATOR for the ids of a key and an operator that were made
/// before, and HOOK for a webhook's url.
pub(super) struct Twin {
    /// Its name in the log.
    pub(super) action: &'static str,
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// What is typed behind `tollgate`, and the body that asks for the same.
    pub(super) steps: Vec<(&'static str, Value)>,
}

/// Which act a command is; none for one that changes nothing, or that nobody types. There is no `_` in it: a new command does not compile
/// until it has its place here, and a new act does not until it has a row in [`twin`] and [`sample`].
pub(super) fn act_of(op: &AdminOp) -> Option<Act> {
    Some(match op {
        AdminOp::AccountCreate { .. } => Act::AccountCreate,
        AdminOp::AccountSet { .. } => Act::AccountSet,
        AdminOp::Account(AccountOp::Terms { .. }) => Act::AccountTerms,
        AdminOp::CreditsAdd { .. } => Act::CreditsAdd,
        AdminOp::Credit(CreditOp::Post(_)) => Act::CreditPost,
        AdminOp::KeyCreate { .. } => Act::KeyCreate,
        AdminOp::KeySet { .. } => Act::KeySet,
        AdminOp::KeyRotate { .. } => Act::KeyRotate,
        AdminOp::KeyRevoke { .. } => Act::KeyRevoke,
        AdminOp::Operator(OperatorOp::Create { .. }) => Act::OperatorCreate,
        AdminOp::Operator(OperatorOp::Revoke { .. }) => Act::OperatorRevoke,
        AdminOp::Maintenance { .. } => Act::Maintenance,
        AdminOp::Event(EventOp::Raise(_)) => Act::WebhookTest,
        AdminOp::Repair => Act::Repair,
        AdminOp::Recover | AdminOp::NoteRecovered(_) => Act::Recover,
        AdminOp::By(acted) => return act_of(&acted.op),
        AdminOp::Account(AccountOp::Page(_) | AccountOp::Stopped { .. })
        | AdminOp::Credit(CreditOp::List { .. } | CreditOp::Statement { .. } | CreditOp::Find { .. })
        | AdminOp::Operator(OperatorOp::List | OperatorOp::Find { .. } | OperatorOp::Log(_))
        | AdminOp::Event(EventOp::Claim { .. } | EventOp::Settle { .. } | EventOp::RaiseExpiring | EventOp::Count)
        | AdminOp::AccountShow { .. }
        | AdminOp::AccountList
        | AdminOp::KeyShow { .. }
        | AdminOp::KeyList { .. }
        | AdminOp::KeySpent { .. }
        | AdminOp::Usage { .. }
        | AdminOp::UsageOf(_)
        | AdminOp::EndUsers(_)
        | AdminOp::Receipts(_)
        | AdminOp::Audit
        | AdminOp::Reserve(_)
        | AdminOp::Extend(_)
        | AdminOp::KeysFreed { .. } => return None,
    })
}

/// A command that is this act, on the account acme. It may fail.
pub(super) fn sample(act: Act) -> AdminOp {
    let account = "acme".parse().unwrap();
    let (digest, key) = ("ab".repeat(32), KeyRef::Digest("cd".repeat(32)));
    match act {
        Act::AccountCreate => AdminOp::AccountCreate {
            account,
            tier: Tier::Free,
            quota_pico: None,
            terms: TermsChange::default(),
        },
        Act::AccountSet => AdminOp::AccountSet {
            account,
            tier: Some(Tier::Lite),
            quota_pico: None,
            terms: Default::default(),
        },
        Act::AccountTerms => AdminOp::Account(AccountOp::Terms {
            account,
            change: TermsChange::default(),
        }),
        Act::CreditsAdd => AdminOp::CreditsAdd {
            account,
            amount: Credits::from_pico(1),
            reference: "sample".to_owned(),
        },
        Act::CreditPost => {
            let post = CreditPost::top_up(account, Credits::from_pico(1), "sample".to_owned());
            AdminOp::Credit(CreditOp::Post(post))
        }
        Act::KeyCreate => AdminOp::KeyCreate {
            digest,
            account,
            tier: None,
            domains: Vec::new(),
            expires_in_ms: None,
            limits: LimitOverrides::default(),
            settings: Box::new(KeySettings::default()),
        },
        Act::KeySet => AdminOp::KeySet {
            key,
            change: Box::new(KeyChange::default()),
        },
        Act::KeyRotate => AdminOp::KeyRotate {
            key,
            digest,
            overlap_ms: 0,
        },
        Act::KeyRevoke => AdminOp::KeyRevoke { key },
        Act::OperatorCreate => AdminOp::Operator(OperatorOp::Create {
            digest,
            name: "sample".to_owned(),
            role: Role::Read,
            expires_in_ms: None,
        }),
        Act::OperatorRevoke => AdminOp::Operator(OperatorOp::Revoke {
            id: "op_0123456789abcdef".to_owned(),
        }),
        Act::Maintenance => AdminOp::Maintenance { on: false },
        Act::WebhookTest => AdminOp::Event(EventOp::Raise(Event {
            id: "evt_sample".to_owned(),
            kind: EventKind::Test,
            at: Timestamp(0),
            account: None,
            data: Value::Null,
            deliveries: Vec::new(),
            claimed: None,
            is_too_old: false,
        })),
        Act::Repair => AdminOp::Repair,
        Act::Recover => AdminOp::NoteRecovered(RecoverReport::default()),
    }
}

pub(super) fn twin(act: Act) -> Twin {
    let (action, method, path, steps) = match act {
        Act::AccountCreate => (
            "account.create",
            "POST",
            "/v1/accounts",
            vec![(
                "account create NAME --tier lite --monthly-quota 50",
                json!({ "name": "NAME", "tier": "lite", "monthly_quota": "50" }),
            )],
        ),
        Act::AccountSet => (
            "account.set",
            "PATCH",
            "/v1/accounts/NAME",
            vec![
                (
                    "account set NAME --monthly-quota 7.5",
                    json!({ "monthly_quota": "7.50" }),
                ),
                (
                    "account set NAME --tier pro --monthly-quota default",
                    json!({ "tier": "pro", "monthly_quota": null }),
                ),
            ],
        ),
        Act::AccountTerms => (
            "account.terms",
            "PATCH",
            "/v1/accounts/NAME",
            vec![
                (
                    "account set NAME --low-balance 0.50 --meta a=1 --meta b=2",
                    json!({ "low_balance": "0.5", "metadata": { "a": "1", "b": "2" } }),
                ),
                (
                    "account set NAME --low-balance none --meta a=",
                    json!({ "low_balance": null, "metadata": { "a": null } }),
                ),
                ("account suspend NAME", json!({ "status": "suspended" })),
                ("account resume NAME", json!({ "status": "active" })),
                ("account close NAME", json!({ "status": "closed" })),
            ],
        ),
        Act::CreditsAdd => (
            "credits.post",
            "POST",
            "/v1/accounts/NAME/credits",
            vec![
                (
                    "credits add NAME 10.000000000001 --reference paid",
                    json!({ "amount": "10.000000000001", "reference": "paid" }),
                ),
                // It changes nothing.
                (
                    "credits add NAME 10.000000000001 --reference paid",
                    json!({ "amount": "10.000000000001", "reference": "paid", "kind": "top_up" }),
                ),
            ],
        ),
        Act::CreditPost => ("credits.post", "POST", "/v1/accounts/NAME/credits", credits()),
        Act::KeyCreate => (
            "key.create",
            "POST",
            "/v1/accounts/NAME/keys",
            vec![(
                "key create --account NAME --tier free --domain *.example.com --expires 24h --rpm 7 --tpm 70 --concurrency 3 --label ci \
                 --limit 5 --limit-reset monthly --end-user-limit 1 --end-user-limit-reset daily --model openai/* --address 10.0.0.0/8",
                json!({
                    "tier": "free", "domains": ["*.example.com"], "expires_in": "24h", "rpm": 7, "tpm": 70, "concurrency": 3, "label": "ci",
                    "limit": "5", "limit_reset": "monthly", "end_user_limit": "1", "end_user_limit_reset": "daily",
                    "models": ["openai/*"], "addresses": ["10.0.0.0/8"],
                }),
            )],
        ),
        Act::KeySet => (
            "key.set",
            "PATCH",
            "/v1/keys/KEY",
            vec![(
                "key set KEY --label cd --limit none --end-user-limit 0.25 --model none",
                json!({ "label": "cd", "limit": null, "end_user_limit": "0.25", "models": [] }),
            )],
        ),
        Act::KeyRotate => (
            "key.rotate",
            "POST",
            "/v1/keys/KEY/rotate",
            vec![
                ("key rotate KEY --overlap 1h", json!({ "overlap": "1h" })),
                ("key rotate KEY --overlap 0", json!({ "overlap": "0s" })),
            ],
        ),
        Act::KeyRevoke => (
            "key.revoke",
            "DELETE",
            "/v1/keys/KEY",
            vec![("key revoke KEY", Value::Null)],
        ),
        Act::OperatorCreate => (
            "operator.create",
            "POST",
            "/v1/operators",
            vec![(
                "operator create shop --role billing --expires-in 90d",
                json!({ "name": "shop", "role": "billing", "expires_in": "90d" }),
            )],
        ),
        Act::OperatorRevoke => (
            "operator.revoke",
            "DELETE",
            "/v1/operators/OPERATOR",
            vec![("operator revoke OPERATOR", Value::Null)],
        ),
        Act::Maintenance => (
            "maintenance",
            "PUT",
            "/v1/maintenance",
            vec![
                ("maintenance on", json!({ "on": true })),
                ("maintenance off", json!({ "on": false })),
            ],
        ),
        Act::WebhookTest => (
            "event.raise",
            "POST",
            "/v1/webhooks/test",
            vec![("webhook test HOOK", json!({ "url": "HOOK" }))],
        ),
        Act::Repair => (
            "ledger.repair",
            "POST",
            "/v1/repair",
            vec![("ledger repair", Value::Null)],
        ),
        Act::Recover => (
            "ledger.recover",
            "POST",
            "/v1/commands",
            vec![("ledger recover", json!({ "op": "recover" }))],
        ),
    };
    Twin {
        action,
        method,
        path,
        steps,
    }
}

fn credits() -> Vec<(&'static str, Value)> {
    vec![
        (
            "credits add NAME 1 --reference gift --kind bonus --note thanks",
            json!({ "amount": "1", "reference": "gift", "kind": "bonus", "note": "thanks" }),
        ),
        (
            "credits add NAME 2 --reference noted --note invoice",
            json!({ "amount": "2", "reference": "noted", "note": "invoice" }),
        ),
        (
            "credits correct NAME -2.5 --reference fix --note twice",
            json!({ "amount": "-2.50", "reference": "fix", "kind": "correction", "note": "twice" }),
        ),
        (
            "credits correct NAME -1 --reference back --kind refund",
            json!({ "amount": "-1", "reference": "back", "kind": "refund" }),
        ),
        (
            "credits correct NAME -20 --reference chargeback --allow-negative",
            json!({ "amount": "-20", "reference": "chargeback", "kind": "correction", "allow_negative": true }),
        ),
    ]
}
