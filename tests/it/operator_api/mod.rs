//! The operator's API: who may do what, what each act leaves in the ledger and in the log, and what is refused.

mod acts;
mod bounds;
mod conflicts;
mod effects;
mod framing;
mod heads;
mod input;
mod lists;
mod locations;
mod meanwhile;
mod reads;
mod remote;
mod roles;
mod session;
mod spending;
mod stripe;
mod stripe_late;
mod stripe_refunds;
mod stripe_unassigned;
mod twins;
mod unanswered;
mod unreached;
mod unwritten;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tollgate::ledger::admin::operators::OperatorOp;
use tollgate::ledger::admin::{AdminOp, AdminReply};
use tollgate::pure::operator::{Role, token};
use tollgate::pure::time::Month;

use crate::harness::redis_server::RedisServer;
use crate::harness::{Gateway, Setup, Upstream};

/// A gateway with its operators' listener, and an operator of each role.
struct Desk {
    gateway: Gateway,
    address: SocketAddr,
    http: reqwest::Client,
    redis: Option<RedisServer>,
}

/// Where a ledger is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ground {
    Embedded,
    Redis,
}

const GROUNDS: [Ground; 2] = [Ground::Embedded, Ground::Redis];

/// An answer, read whole.
#[derive(Debug)]
struct Told {
    status: u16,
    headers: reqwest::header::HeaderMap,
    text: String,
}

impl Told {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The message of an error, which has the interface's shape.
    fn error(&self, status: u16, kind: &str) -> String {
        let body = self.json();
        assert_eq!(self.status, status, "{body}");
        assert_eq!(body["error"]["code"], status, "{body}");
        assert_eq!(body["error"]["type"], kind, "{body}");
        body["error"]["message"].as_str().unwrap().to_owned()
    }

    /// The body of a success.
    fn done(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        self.json()
    }
}

impl Desk {
    async fn over(ground: Ground) -> Desk {
        Desk::with(ground, |_| ()).await
    }

    async fn with(ground: Ground, change: impl FnOnce(&mut Value)) -> Desk {
        Desk::before(&Upstream::unused().await, ground, change).await
    }

    /// The same with a provider that answers.
    async fn before(upstream: &Upstream, ground: Ground, change: impl FnOnce(&mut Value)) -> Desk {
        let setup = Setup::over(upstream).conf(change);
        let (setup, redis) = match ground {
            Ground::Embedded => (setup, None),
            Ground::Redis => {
                let redis = RedisServer::start();
                (setup.redis(&redis.url()), Some(redis))
            }
        };
        Desk::of(setup.start().await, redis).await
    }

    async fn of(gateway: Gateway, redis: Option<RedisServer>) -> Desk {
        let desk = Desk {
            address: gateway.operators().await,
            gateway,
            http: reqwest::Client::new(),
            redis,
        };
        for role in Role::ALL {
            desk.make_operator(&of(role), role, None).await;
        }
        desk
    }

    /// Makes the operator whose token this is; gives the id.
    async fn make_operator(&self, text: &str, role: Role, expires_in_ms: Option<i64>) -> String {
        let op = OperatorOp::Create {
            digest: tollgate::pure::operator::digest_of_token(text).unwrap().to_hex(),
            name: role.name().to_owned(),
            role,
            expires_in_ms,
        };
        match self.gateway.run(AdminOp::Operator(op)).await {
            AdminReply::Operator(record) => record.id,
            other => panic!("{other:?}"),
        }
    }

    fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        self.http.request(method, format!("http://{}{path}", self.address))
    }

    /// A request with a token and perhaps a body of JSON.
    async fn ask(&self, token: &str, method: &str, path: &str, body: &str) -> Told {
        let request = self.request(method, path).bearer_auth(token);
        let request = match body {
            "" => request,
            body => request.header("content-type", "application/json").body(body.to_owned()),
        };
        told(request).await
    }

    /// The same by the administrator.
    async fn admin(&self, method: &str, path: &str, body: Value) -> Told {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        self.ask(&of(Role::Admin), method, path, &body).await
    }

    async fn get(&self, path: &str) -> Value {
        self.admin("GET", path, Value::Null).await.done(200)
    }
}

async fn told(request: RequestBuilder) -> Told {
    let answer = request.send().await.unwrap();
    Told {
        status: answer.status().as_u16(),
        headers: answer.headers().clone(),
        text: answer.text().await.unwrap(),
    }
}

/// Somebody writes into the books, in Redis or else in the file, that an account has used five credits more in this month than its days say.
fn falsify(redis: Option<&RedisServer>, file: &Path, account: &str, Month(month): Month) {
    if let Some(redis) = redis {
        redis.ask(&format!("HSET tg1:{{{account}}} month {month}"));
        for field in ["used", "committed"] {
            redis.ask(&format!("HINCRBY tg1:{{{account}}} {field} 5000000000000"));
        }
        return;
    }
    let file = rusqlite::Connection::open(file).unwrap();
    file.busy_timeout(Duration::from_secs(5)).unwrap();
    let sql = "UPDATE accounts SET month = ?2, month_used = month_used + 5000000000000 WHERE id = ?1";
    assert_eq!(file.execute(sql, (account, month)).unwrap(), 1);
}

/// The token of the operator of a role.
fn of(role: Role) -> String {
    let number = u8::try_from(Role::ALL.iter().position(|other| *other == role).unwrap()).unwrap();
    token_of(number)
}

/// A token that is well-formed.
fn token_of(number: u8) -> String {
    token([number; 32]).reveal().to_owned()
}

#[tokio::test]
async fn an_operator_works_from_elsewhere() {
    for ground in GROUNDS {
        let desk = Desk::over(ground).await;
        let made = desk
            .admin(
                "POST",
                "/v1/accounts",
                json!({ "name": "globex", "tier": "pro", "low_balance": "1.50", "metadata": { "crm": "42" } }),
            )
            .await;
        assert_eq!(made.header("location"), "/v1/accounts/globex");
        let made = made.done(201);
        assert_eq!(
            (&made["status"], &made["balance"], &made["low_balance"]),
            (&json!("active"), &json!("0"), &json!("1.5"))
        );
        // One act, which says all that was asked for: two could be cut off between.
        let log = desk.get("/v1/log?account=globex").await;
        let acts = log["data"].as_array().unwrap();
        let asked = json!({ "tier": "pro", "monthly_quota": null, "low_balance": "1.5", "metadata": { "crm": "42" } });
        assert_eq!((acts.len(), &acts[0]["request"]), (1, &asked), "{log} {ground:?}");
        let posted = desk
            .admin(
                "POST",
                "/v1/accounts/globex/credits",
                json!({ "amount": "10.50", "reference": "r1", "note": "paid" }),
            )
            .await
            .done(201);
        assert_eq!(
            (&posted["replayed"], &posted["balance"]),
            (&json!(false), &json!("10.5"))
        );
        let again = json!({ "amount": "10.5", "reference": "r1" });
        let again = desk.admin("POST", "/v1/accounts/globex/credits", again).await.done(200);
        assert_eq!(
            (&again["replayed"], &again["entry"]["note"]),
            (&json!(true), &json!("paid"))
        );
        let other = json!({ "amount": "10.51", "reference": "r1" });
        desk.admin("POST", "/v1/accounts/globex/credits", other)
            .await
            .error(409, "conflict_error");
        let key = desk
            .admin(
                "POST",
                "/v1/accounts/globex/keys",
                json!({ "label": "ci", "limit": "5", "limit_reset": "monthly", "rpm": 7 }),
            )
            .await
            .done(201);
        let works = desk
            .gateway
            .http1
            .with_key(key["key"].as_str().unwrap())
            .get("/llm/balance")
            .await;
        assert_eq!(works.status, 200, "{ground:?}");
        let account = desk.get("/v1/accounts/globex").await;
        assert_eq!(
            (&account["available"], &account["metadata"]),
            (&json!("10.5"), &json!({ "crm": "42" }))
        );
        assert_eq!(desk.get("/v1/audit").await["balanced"], true);
    }
}
