//! The operators' interface of a gateway: accounts and keys are made by it, and balances read.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    client::{Connection, Expect, Shot},
    common::Result,
    prices,
};

/// Where it listens, and the token of an operator who may do everything.
#[derive(Clone)]
pub(crate) struct Operator {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
}

/// Requests that were never sent before: each of them is made once in a run.
static POSTED: AtomicU64 = AtomicU64::new(0);

/// An account and its key.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) key: String,
}

/// What an account has, in 10^-12 credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) balance: i128,
    pub(crate) held: i128,
}

#[derive(Deserialize)]
struct Page {
    data: Vec<Listed>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Listed {
    name: String,
    balance: String,
    held: String,
}

impl Operator {
    /// Makes so many accounts, the first of them with credit and a key each. Returns those that have a key.
    pub(crate) fn make_accounts(&self, wanted: usize, callers: usize) -> Result<Vec<Account>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut made = runtime.block_on(async {
            let mut tasks = JoinSet::new();
            let operator = Arc::new(self.clone());
            for worker in 0..CONNECTIONS.min(wanted) {
                let operator = Arc::clone(&operator);
                tasks.spawn(async move {
                    let mut connection = Connection::open(operator.address).await?;
                    let mut made = Vec::new();
                    for number in (worker..wanted).step_by(CONNECTIONS) {
                        made.extend(operator.make_account(&mut connection, number, number < callers).await?);
                    }
                    Result::Ok(made)
                });
            }
            let mut made = Vec::new();
            while let Some(some) = tasks.join_next().await {
                made.extend(some??);
            }
            Result::Ok(made)
        })?;
        made.sort_unstable();
        Ok(made)
    }

    async fn make_account(&self, connection: &mut Connection, number: usize, calls: bool) -> Result<Option<Account>> {
        let name = account(number);
        self.post(connection, "/v1/accounts", &json!({"name": name, "tier": "enterprise"}))
            .await?;
        if !calls {
            return Ok(None);
        }
        let credit = json!({"amount": CREDIT, "reference": "bench"});
        self.post(connection, &format!("/v1/accounts/{name}/credits"), &credit)
            .await?;
        let made = self
            .post(connection, &format!("/v1/accounts/{name}/keys"), &json!({}))
            .await?;
        let key = made["key"].as_str().ok_or("a new key without its text")?;
        let key = key.to_owned();
        Ok(Some(Account { name, key }))
    }

    /// What each account has.
    pub(crate) fn standings(&self) -> Result<BTreeMap<String, Standing>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut connection = Connection::open(self.address).await?;
            let (mut all, mut after) = (BTreeMap::new(), String::new());
            loop {
                let path = format!("/v1/accounts?limit=200{after}");
                let text = self.ask(&mut connection, "GET", &path, "").await?;
                let page: Page = serde_json::from_str(&text).map_err(|e| format!("a list of accounts: {e}: {text}"))?;
                for Listed { name, balance, held } in page.data {
                    let standing = Standing {
                        balance: amount(&balance).ok_or("a balance that cannot be read")?,
                        held: amount(&held).ok_or("a held amount that cannot be read")?,
                    };
                    all.insert(name, standing);
                }
                match page.next {
                    Some(name) => after = format!("&after={name}"),
                    None => return Ok(all),
                }
            }
        })
    }

    async fn post(&self, connection: &mut Connection, path: &str, body: &Value) -> Result<Value> {
        let text = self.ask(connection, "POST", path, &body.to_string()).await?;
        Ok(serde_json::from_str(&text)?)
    }

    /// A request as it is sent.
    pub(crate) fn request(&self, method: &str, path: &str, body: &str) -> String {
        let Self { address, token } = self;
        format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )
    }

    /// A request that must be answered as it is done.
    pub(crate) fn shot(&self, method: &str, path: &str, body: &str) -> Shot {
        Shot {
            bytes: self.request(method, path, body).into(),
            expect: Expect::Done,
            tag: None,
        }
    }

    /// So many posts of credit to these accounts, each with a reference that no other post of this run has.
    pub(crate) fn credits(&self, accounts: &[String], wanted: usize) -> Vec<Shot> {
        let post = |name: &String| {
            let reference = format!("post-{}", POSTED.fetch_add(1, Relaxed));
            let body = json!({"amount": "0.01", "reference": reference}).to_string();
            self.shot("POST", &format!("/v1/accounts/{name}/credits"), &body)
        };
        accounts.iter().cycle().take(wanted).map(post).collect()
    }

    async fn ask(&self, connection: &mut Connection, method: &str, path: &str, body: &str) -> Result<String> {
        let request = self.request(method, path, body);
        let (status, answer) = connection.ask(request.as_bytes()).await?;
        let text = String::from_utf8_lossy(answer).into_owned();
        if !(200..300).contains(&status) {
            return Err(format!("{method} {path}: {status} {text}").into());
        }
        Ok(text)
    }
}

/// The name of an account by its number.
pub(crate) fn account(number: usize) -> String {
    format!("bench-{number:04}")
}

/// A decimal text in 10^-12 credit.
pub(crate) fn amount(text: &str) -> Option<i128> {
    let (digits, sign) = text.strip_prefix('-').map_or((text, 1), |digits| (digits, -1));
    Some(sign * i128::try_from(prices::decimal(digits, 12)?).ok()?)
}

const CONNECTIONS: usize = 16;
/// More than an account spends in an hour.
const CREDIT: &str = "100000";
