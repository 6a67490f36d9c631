//! A gateway of a test's own: configuration and catalogue in a temporary folder, an embedded ledger, a listener on a free port.

mod setup;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rust_decimal::Decimal;
use tempfile::TempDir;
use tollgate::clock::Clock;
use tollgate::ledger::admin::{AccountView, AdminOp, AdminReply, AuditReport, KeyRef, ReceiptQuery};
use tollgate::ledger::{Ledger, UsageRow};
use tollgate::pure::ids::{AccountId, ApiKey, Tier};
use tollgate::pure::limits::LimitOverrides;
use tollgate::pure::receipt::Receipt;
use tollgate::pure::time::{Period, Timestamp};
use tollgate::server::reload::Reloader;
use tollgate::telemetry::{Telemetry, access_log, otlp};

pub use self::setup::{STORE_TIME, Setup};
use super::client::Client;
use super::eventually;
use super::listener::Served;
use super::metrics::Metrics;
use super::upstream::Upstream;

/// A running gateway with one account, which has one key.
pub struct Gateway {
    /// Where it listens.
    pub address: SocketAddr,
    /// The account's key.
    pub key: String,
    /// The time, which only moves when told.
    pub clock: Clock,
    /// HTTP/1.1.
    pub http1: Client,
    /// HTTP/2 in clear text.
    pub h2c: Client,
    /// What is paid in so far.
    pub paid_in: Decimal,
    pub ledger: Ledger,
    reloader: Reloader,
    dir: TempDir,
    served: Served,
    telemetry: Arc<Telemetry>,
    log: access_log::Writer,
    traces: otlp::Exporter,
}

/// A key to be made.
#[derive(Default)]
pub struct KeySpec {
    /// A tier of its own.
    pub tier: Option<Tier>,
    /// Its domain lock.
    pub domains: &'static [&'static str],
    /// How long it lives.
    pub expires_in_ms: Option<i64>,
    /// Limits of its own.
    pub limits: LimitOverrides,
    /// What else sets it apart.
    pub settings: tollgate::ledger::key_settings::KeySettings,
}

impl Gateway {
    /// A gateway with the defaults over this upstream.
    pub async fn over(main: &Upstream) -> Gateway {
        Setup::over(main).start().await
    }

    /// Runs an operator's command.
    pub async fn run(&self, op: AdminOp) -> AdminReply {
        self.ledger.run(op).await.unwrap()
    }

    /// Makes another account.
    pub async fn create_account(&self, name: &str, tier: Tier) {
        self.run(AdminOp::AccountCreate {
            account: name.parse().unwrap(),
            tier,
            quota_pico: None,
            terms: Default::default(),
        })
        .await;
    }

    /// Pays credit into the account.
    pub async fn pay_in(&mut self, amount: &str, reference: &str) {
        self.paid_in += amount.parse::<Decimal>().unwrap();
        self.run(AdminOp::CreditsAdd {
            account: account(),
            amount: amount.parse().unwrap(),
            reference: reference.to_owned(),
        })
        .await;
    }

    /// Pays credit into any account.
    pub async fn pay_in_to(&self, name: &str, amount: &str) {
        self.run(AdminOp::CreditsAdd {
            account: name.parse().unwrap(),
            amount: amount.parse().unwrap(),
            reference: "paid in".to_owned(),
        })
        .await;
    }

    /// Moves the account to another tier.
    pub async fn set_tier(&self, tier: Tier) {
        self.run(AdminOp::AccountSet {
            account: account(),
            tier: Some(tier),
            quota_pico: None,
            terms: Default::default(),
        })
        .await;
    }

    /// Gives the account a monthly quota of its own.
    pub async fn set_quota(&self, quota: &str) {
        let quota: tollgate::pure::money::Credits = quota.parse().unwrap();
        self.run(AdminOp::AccountSet {
            account: account(),
            tier: None,
            quota_pico: Some(Some(quota.pico())),
            terms: Default::default(),
        })
        .await;
    }

    /// Makes another key of the account; its text.
    pub async fn new_key(&self, spec: KeySpec) -> String {
        self.new_key_of(ACCOUNT, spec).await
    }

    /// Makes a key of any account; its text.
    pub async fn new_key_of(&self, name: &str, spec: KeySpec) -> String {
        let mut random = [0; 32];
        getrandom::fill(&mut random).unwrap();
        let key = ApiKey::from_random("tg_", random);
        self.run(AdminOp::KeyCreate {
            digest: key.digest().to_hex(),
            account: name.parse().unwrap(),
            tier: spec.tier,
            domains: spec.domains.iter().map(|domain| domain.parse().unwrap()).collect(),
            expires_in_ms: spec.expires_in_ms,
            limits: spec.limits,
            settings: Box::new(spec.settings),
        })
        .await;
        key.reveal().to_owned()
    }

    /// Revokes a key.
    pub async fn revoke(&self, key: &str) {
        let digest = ApiKey::parse("tg_", key).unwrap().digest().to_hex();
        self.run(AdminOp::KeyRevoke {
            key: KeyRef::Digest(digest),
        })
        .await;
    }

    /// The account as it stands now.
    pub async fn account(&self) -> AccountView {
        match self.run(AdminOp::AccountShow { account: account() }).await {
            AdminReply::Account(view) => view,
            other => panic!("{other:?}"),
        }
    }

    /// What is held now.
    pub async fn held(&self) -> Decimal {
        decimal(self.account().await.figures.held)
    }

    /// The account's balance once all its calls are closed.
    pub async fn settled_balance(&self) -> Decimal {
        let view = eventually("every hold is closed", async || {
            Some(self.account().await).filter(|view| view.open_holds == 0)
        })
        .await;
        assert_eq!(
            decimal(view.figures.held),
            Decimal::ZERO,
            "no hold is open, yet something is held"
        );
        decimal(view.figures.balance)
    }

    /// What the account has spent, once all its calls are closed.
    pub async fn spent(&self) -> Decimal {
        self.paid_in - self.settled_balance().await
    }

    /// Usage since ever.
    pub async fn usage(&self) -> Vec<UsageRow> {
        let (account, key, period) = (account(), None, Period::All);
        match self.run(AdminOp::Usage { account, key, period }).await {
            AdminReply::Usage { rows } => rows,
            other => panic!("{other:?}"),
        }
    }

    /// All receipts of the account.
    pub async fn receipts(&self) -> Vec<Receipt> {
        let mut query = ReceiptQuery::newest(&account(), 100);
        let mut receipts = Vec::new();
        loop {
            let page = self.ledger.receipts(query.clone()).await.unwrap();
            receipts.extend(page.receipts);
            match page.next {
                Some(next) => query.before = Some(next),
                None => return receipts,
            }
        }
    }

    /// Checks that nothing is held, the books balance, and the receipts are what the usage says.
    pub async fn check_books(&self) {
        self.settled_balance().await;
        let mut sums = BTreeMap::new();
        for Receipt { resolved, billed } in self.receipts().await {
            let sum: &mut (u64, u64, u64, Decimal) =
                sums.entry((resolved.day(), billed.model.to_string())).or_default();
            sum.0 += 1;
            sum.1 += billed.prompt_tokens;
            sum.2 += billed.completion_tokens;
            sum.3 += decimal(billed.cost);
        }
        let row = |row: UsageRow| {
            let figures = (
                row.requests,
                row.prompt_tokens,
                row.completion_tokens,
                decimal(row.cost),
            );
            ((row.day, row.model), figures)
        };
        let rows: BTreeMap<_, _> = self.usage().await.into_iter().map(row).collect();
        assert_eq!(sums, rows, "receipts and usage differ");
        let report = match self.run(AdminOp::Audit).await {
            AdminReply::Audit(report) => report,
            other => panic!("{other:?}"),
        };
        let findings = AuditReport::default().findings;
        assert_eq!(report.findings, findings);
    }

    /// Checks that nothing was held, spent or counted, and that no upstream was asked: what a refused call must leave behind.
    pub async fn check_untouched(&self, upstream: &Upstream) {
        assert_eq!(self.held().await, Decimal::ZERO);
        assert_eq!(self.spent().await, Decimal::ZERO);
        assert_eq!(self.usage().await, []);
        assert_eq!(upstream.connections(), 0, "an upstream was asked");
    }

    /// Serves operators on a free port until the test ends.
    pub async fn operators(&self) -> SocketAddr {
        self.served.operators().await
    }

    /// The same with other times for the parts of an exchange.
    pub async fn operators_within(&self, times: tollgate::server::operator::Times) -> SocketAddr {
        self.served.operators_within(times).await
    }

    /// Serves operators on a listener at which somebody may wait already.
    pub fn serve_operators(&self, listener: tokio::net::TcpListener) {
        self.served
            .serve_operators(listener, tollgate::server::operator::Times::default());
    }

    /// The page of metrics as it is now.
    pub fn metrics(&self) -> Metrics {
        Metrics::read(&self.metrics_page())
    }

    /// The same as text.
    pub fn metrics_page(&self) -> String {
        self.served.admin.metrics().unwrap()
    }

    /// Waits until so many requests are counted.
    pub async fn counted(&self, requests: u64) {
        eventually("every request is counted", async || {
            let figures = self.telemetry.figures();
            let counts = figures.targets.values().flat_map(|target| &target.requests);
            (counts.map(|(_, count)| count).sum::<u64>() >= requests).then_some(())
        })
        .await;
    }

    /// Ends the sending of traces. Blocks, with the collector, for as long as that may take.
    pub fn close_traces(&mut self) {
        self.traces.close();
    }

    /// Ends the access log, and gives its lines.
    pub fn access_log(&mut self) -> Vec<String> {
        self.log.close();
        let text = std::fs::read_to_string(self.dir.path().join("access.log")).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// Drops every connection with its request where it stands, as a runtime does that ends.
    pub fn drop_requests(&self) {
        self.served.abort();
    }

    /// Writes another catalogue in the file's place.
    pub fn write_catalogue(&self, text: &str) {
        std::fs::write(self.dir.path().join("catalogue.yaml"), text).unwrap();
    }

    /// Writes another configuration in the file's place.
    pub fn write_conf(&self, text: &str) {
        std::fs::write(self.dir.path().join("tollgate.yaml"), text).unwrap();
    }

    /// The configuration's text.
    pub fn conf_text(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("tollgate.yaml")).unwrap()
    }

    /// The file of an embedded ledger.
    pub fn ledger_file(&self) -> PathBuf {
        self.dir.path().join("ledger.db")
    }

    /// Looks at the files once.
    pub fn check_files(&mut self) -> tollgate::server::reload::Reloaded {
        self.reloader.check(false)
    }
}

/// An amount as an exact decimal.
pub fn decimal(credits: tollgate::pure::money::Credits) -> Decimal {
    Decimal::from_i128_with_scale(i128::from(credits.pico()), 12).normalize()
}

pub fn account() -> AccountId {
    ACCOUNT.parse().unwrap()
}

/// The account that every gateway has.
pub const ACCOUNT: &str = "acme";
/// Where a test's clock stands at first: 2026-11-20T10:00:00Z.
pub const NOW: Timestamp = Timestamp(1_795_168_800_000);
