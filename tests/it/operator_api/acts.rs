//! Each act by the API leaves what the command line's leaves, and stands in the log with who, what, before and after.

use serde_json::{Value, json};
use tollgate::ledger::admin::accounts::AccountOp;
use tollgate::ledger::admin::credits::{CreditKind, CreditOp, CreditPost};
use tollgate::ledger::admin::{AdminOp, AdminReply, KeyRef};
use tollgate::ledger::key_settings::{AmountChange, KeyChange, KeySettings};
use tollgate::ledger::terms::{AccountStatus, TermsChange};
use tollgate::pure::ids::{AccountId, ApiKey, Tier};
use tollgate::pure::limits::LimitOverrides;
use tollgate::pure::money::Credits;
use tollgate::pure::operator::Role;
use tollgate::pure::spend::{Reset, SpendLimit};

use super::{Desk, GROUNDS, of};

/// Who acts by the API, and who by commands.
const API: &str = "api";
const CLI: &str = "cli";

fn credits(text: &str) -> Credits {
    text.parse().unwrap()
}

fn account(name: &str) -> AccountId {
    name.parse().unwrap()
}

impl Desk {
    async fn both(&self, method: &str, path: &str, body: Value, command: AdminOp) -> Value {
        let answer = self.admin(method, &path.replace("NAME", API), body).await;
        assert!([200, 201].contains(&answer.status), "{method} {path}: {answer:?}");
        self.gateway.run(command).await;
        let (api, cli) = (self.standing(API).await, self.standing(CLI).await);
        assert_eq!(api, cli, "{method} {path}");
        answer.json()
    }

    /// An account with its keys, without what tells it from the other.
    async fn standing(&self, name: &str) -> Value {
        let AdminReply::Account(view) = self.gateway.run(AdminOp::AccountShow { account: account(name) }).await else {
            panic!("no account");
        };
        let mut view = serde_json::to_value(view).unwrap();
        view["record"]["id"] = Value::Null;
        for key in view["keys"].as_array_mut().unwrap() {
            key["id"] = Value::Null;
            key["account"] = Value::Null;
            if let Some(other) = key["settings"].get_mut("counts_as") {
                *other = Value::Null;
            }
        }
        view
    }

    async fn key_of(&self, name: &str) -> KeyRef {
        match self.gateway.run(AdminOp::KeyList { account: account(name) }).await {
            AdminReply::Keys { keys } => KeyRef::Id(keys.last().unwrap().id.clone()),
            other => panic!("{other:?}"),
        }
    }
}

fn terms(change: TermsChange) -> AdminOp {
    AdminOp::Account(AccountOp::Terms {
        account: account(CLI),
        change,
    })
}

fn post(amount: &str, kind: CreditKind, note: Option<&str>) -> AdminOp {
    AdminOp::Credit(CreditOp::Post(CreditPost {
        account: account(CLI),
        amount: credits(amount),
        reference: format!("{kind}"),
        kind,
        note: note.map(str::to_owned),
        allow_negative: false,
        as_available: false,
        is_payment: false,
    }))
}

#[tokio::test]
async fn an_act_by_the_api_leaves_what_the_command_leaves() {
    for ground in GROUNDS {
        let desk = Desk::over(ground).await;
        let create = AdminOp::AccountCreate {
            account: account(CLI),
            tier: Tier::Lite,
            quota_pico: Some(credits("50").pico()),
        };
        let body = json!({ "name": API, "tier": "lite", "monthly_quota": "50" });
        desk.both("POST", "/v1/accounts", body, create).await;
        let set = AdminOp::AccountSet {
            account: account(CLI),
            tier: Some(Tier::Pro),
            quota_pico: Some(None),
        };
        desk.both(
            "PATCH",
            "/v1/accounts/NAME",
            json!({ "tier": "pro", "monthly_quota": null }),
            set,
        )
        .await;
        let change = TermsChange {
            low_balance_pico: Some(Some(credits("0.5").pico())),
            metadata: [
                ("a".to_owned(), Some("1".to_owned())),
                ("b".to_owned(), Some("2".to_owned())),
            ]
            .into(),
            ..TermsChange::default()
        };
        let body = json!({ "low_balance": "0.50", "metadata": { "a": "1", "b": "2" } });
        desk.both("PATCH", "/v1/accounts/NAME", body, terms(change)).await;
        let change = TermsChange {
            low_balance_pico: Some(None),
            metadata: [("a".to_owned(), None)].into(),
            ..TermsChange::default()
        };
        let body = json!({ "low_balance": null, "metadata": { "a": null } });
        desk.both("PATCH", "/v1/accounts/NAME", body, terms(change)).await;
        for (amount, kind, note) in [
            ("10.000000000001", CreditKind::TopUp, Some("paid")),
            ("1", CreditKind::Bonus, None),
            ("-2.5", CreditKind::Correction, Some("typed twice")),
            ("-1", CreditKind::Refund, None),
        ] {
            let body = json!({ "amount": amount, "kind": kind.name(), "reference": kind.name(), "note": note });
            desk.both("POST", "/v1/accounts/NAME/credits", body, post(amount, kind, note))
                .await;
        }
        let balance = &desk.get(&format!("/v1/accounts/{API}")).await["balance"];
        assert_eq!(balance, "7.500000000001");
        for (status, name) in [
            (AccountStatus::Suspended, "suspended"),
            (AccountStatus::Active, "active"),
        ] {
            let change = TermsChange {
                status: Some(status),
                ..TermsChange::default()
            };
            desk.both("PATCH", "/v1/accounts/NAME", json!({ "status": name }), terms(change))
                .await;
        }
        keys(&desk).await;
        let change = TermsChange {
            status: Some(AccountStatus::Closed),
            ..TermsChange::default()
        };
        desk.both(
            "PATCH",
            "/v1/accounts/NAME",
            json!({ "status": "closed" }),
            terms(change),
        )
        .await;
        let again = desk
            .admin("PATCH", "/v1/accounts/api", json!({ "status": "active" }))
            .await;
        again.error(400, "invalid_request_error");
        assert_eq!(desk.get("/v1/audit").await["balanced"], true, "{ground:?}");
    }
}

async fn keys(desk: &Desk) {
    let digest = ApiKey::from_random("tg_", [3; 32]).digest().to_hex();
    let create = AdminOp::KeyCreate {
        digest,
        account: account(CLI),
        tier: Some(Tier::Free),
        domains: vec!["*.example.com".parse().unwrap()],
        expires_in_ms: Some(86_400_000),
        limits: LimitOverrides {
            rpm: Some(7),
            ..LimitOverrides::default()
        },
        settings: Box::new(KeySettings {
            label: Some("ci".to_owned()),
            limit: Some(SpendLimit {
                amount: credits("5"),
                reset: Reset::Monthly,
            }),
            models: vec!["openai/*".parse().unwrap()],
            addresses: vec!["10.0.0.0/8".parse().unwrap()],
            ..KeySettings::default()
        }),
    };
    let body = json!({
        "tier": "free", "domains": ["*.example.com"], "expires_in": "24h", "rpm": 7, "label": "ci", "limit": "5",
        "limit_reset": "monthly", "models": ["openai/*"], "addresses": ["10.0.0.0/8"],
    });
    let made = desk.both("POST", "/v1/accounts/NAME/keys", body, create).await;
    let path = format!("/v1/keys/{}", made["id"].as_str().unwrap());
    let change = KeyChange {
        label: Some("cd".to_owned()),
        limit: Some(AmountChange::Removed),
        end_user_limit: Some(AmountChange::To(credits("0.25"))),
        models: Some(Vec::new()),
        ..KeyChange::default()
    };
    let set = AdminOp::KeySet {
        key: desk.key_of(CLI).await,
        change: Box::new(change),
    };
    let body = json!({ "label": "cd", "limit": null, "end_user_limit": "0.25", "models": [] });
    desk.both("PATCH", &path, body, set).await;
    // Lists are in the order of time.
    desk.gateway.clock.advance(1_000);
    let rotate = AdminOp::KeyRotate {
        key: desk.key_of(CLI).await,
        digest: ApiKey::from_random("tg_", [4; 32]).digest().to_hex(),
        overlap_ms: 3_600_000,
    };
    let rotated = desk
        .both("POST", &format!("{path}/rotate"), json!({ "overlap": "1h" }), rotate)
        .await;
    assert_ne!(rotated["id"], made["id"]);
    assert!(rotated["key"].as_str().unwrap().starts_with("tg_"), "{rotated}");
    let path = format!("/v1/keys/{}", rotated["id"].as_str().unwrap());
    let revoke = AdminOp::KeyRevoke {
        key: desk.key_of(CLI).await,
    };
    let revoked = desk.both("DELETE", &path, Value::Null, revoke).await;
    assert_eq!(revoked["state"], "revoked");
}

#[tokio::test]
async fn every_act_is_in_the_log() {
    for ground in GROUNDS {
        let desk = Desk::over(ground).await;
        desk.admin("POST", "/v1/accounts", json!({ "name": API, "tier": "free" }))
            .await
            .done(201);
        desk.admin("PATCH", "/v1/accounts/api", json!({ "tier": "pro" }))
            .await
            .done(200);
        desk.ask(
            &of(Role::Support),
            "PATCH",
            "/v1/accounts/api",
            r#"{"status":"suspended"}"#,
        )
        .await
        .done(200);
        let credit = r#"{"amount":"3","reference":"r1","kind":"bonus","note":"sorry"}"#;
        desk.ask(&of(Role::Billing), "POST", "/v1/accounts/api/credits", credit)
            .await
            .done(201);
        let refused = r#"{"amount":"-9","reference":"r2","kind":"correction"}"#;
        desk.ask(&of(Role::Billing), "POST", "/v1/accounts/api/credits", refused)
            .await
            .error(400, "invalid_request_error");
        let key = desk
            .ask(&of(Role::Support), "POST", "/v1/accounts/api/keys", "{}")
            .await
            .done(201);
        let id = key["id"].as_str().unwrap();
        desk.ask(&of(Role::Support), "DELETE", &format!("/v1/keys/{id}"), "")
            .await
            .done(200);
        let made = desk
            .admin(
                "POST",
                "/v1/operators",
                json!({ "name": "Eve", "role": "read", "expires_in": "1d" }),
            )
            .await
            .done(201);
        let operator = made["id"].as_str().unwrap();
        desk.admin("DELETE", &format!("/v1/operators/{operator}"), Value::Null)
            .await
            .done(200);
        desk.admin("PUT", "/v1/maintenance", json!({ "on": true }))
            .await
            .done(200);
        desk.admin("PUT", "/v1/maintenance", json!({ "on": false }))
            .await
            .done(200);
        // What only reads, or may not be done, is no act.
        desk.get("/v1/accounts").await;
        desk.ask(&of(Role::Read), "DELETE", "/v1/keys/key_0123456789abcdef", "")
            .await
            .error(403, "permission_error");
        let log = desk.get("/v1/log").await;
        let acts = log["data"].as_array().unwrap();
        let told: Vec<(&str, &str)> = acts
            .iter()
            .rev()
            .map(|act| (act["action"].as_str().unwrap(), act["actor"]["role"].as_str().unwrap()))
            .collect();
        assert_eq!(
            told,
            [
                ("account.create", "admin"),
                ("account.set", "admin"),
                ("account.terms", "support"),
                ("credits.post", "billing"),
                ("credits.post", "billing"),
                ("key.create", "support"),
                ("key.revoke", "support"),
                ("operator.create", "admin"),
                ("operator.revoke", "admin"),
                ("maintenance", "admin"),
                ("maintenance", "admin"),
            ],
            "{ground:?}"
        );
        let at = |back: usize| &acts[acts.len() - 1 - back];
        assert!(
            acts.iter().all(|act| act["actor"]["address"] == "127.0.0.1"),
            "{acts:?}"
        );
        assert_eq!(
            (&at(1)["before"]["tier"], &at(1)["after"]["tier"]),
            (&json!("free"), &json!("pro"))
        );
        assert_eq!(
            (&at(2)["before"]["status"], &at(2)["after"]["status"]),
            (&json!("active"), &json!("suspended"))
        );
        assert_eq!(
            (&at(3)["subject"], &at(3)["after"]["balance"]),
            (&json!("r1"), &json!("3"))
        );
        assert!(at(4)["error"].as_str().unwrap().contains("available"), "{}", at(4));
        assert_eq!((&at(6)["subject"], &at(6)["account"]), (&json!(id), &json!(API)));
        let text = log.to_string();
        for secret in [key["key"].as_str().unwrap(), made["token"].as_str().unwrap()] {
            assert!(!text.contains(secret), "a secret is in the log");
        }
        let of_account = desk.get("/v1/log?account=api&limit=3").await;
        let page = of_account["data"].as_array().unwrap();
        assert!(
            page.len() == 3 && page.iter().all(|act| act["account"] == API),
            "{page:?}"
        );
        let next = of_account["next"].as_str().unwrap();
        let rest = desk.get(&format!("/v1/log?account=api&before={next}")).await;
        assert_eq!(rest["data"].as_array().unwrap().len(), 4, "{rest}");
        assert_eq!(rest["next"], Value::Null);
    }
}
