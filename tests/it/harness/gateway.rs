//! A gateway of a test's own: configuration and catalogue in a temporary folder, an embedded ledger, a listener on a free port.
//!
//! Longer than 400 lines: the one gateway that all tests start, with its options.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate::clock::Clock;
use tollgate::config::{AccessLog, Config};
use tollgate::gateway::snapshot::Snapshot;
use tollgate::gateway::upstream::providers::Upstreams;
use tollgate::ledger::admin::{AccountView, AdminOp, AdminReply, AuditReport, KeyRef, ReceiptQuery};
use tollgate::ledger::embedded::Embedded;
use tollgate::ledger::journal::Journal;
use tollgate::ledger::redis::{Options, RedisLedger};
use tollgate::ledger::{Ledger, UsageRow};
use tollgate::net::dns::Resolver;
use tollgate::pure::ids::{AccountId, ApiKey, Tier};
use tollgate::pure::limits::LimitOverrides;
use tollgate::pure::receipt::Receipt;
use tollgate::pure::time::{Period, Timestamp};
use tollgate::server::reload::Reloader;
use tollgate::telemetry::{Telemetry, access_log, otlp};

use super::catalogue;
use super::client::Client;
use super::collector::Collector;
use super::eventually;
use super::listener::{Served, serve};
use super::metrics::Metrics;
use super::upstream::Upstream;

/// How long a call waits for Redis.
pub const STORE_TIME: Duration = Duration::from_secs(2);

/// What a gateway is started with. The values are those of the two files, to be changed at will.
pub struct Setup {
    /// `tollgate.yaml`.
    pub conf: Value,
    /// `catalogue.yaml`.
    pub catalogue: Value,
    tier: Tier,
    credit: String,
    resolver: Resolver,
    redis: Option<String>,
    hold_ttl: Duration,
    send_buffer_bytes: Option<u32>,
    beside: Option<Beside>,
}

/// What another node of the same ledger has already.
struct Beside {
    clock: Clock,
    key: String,
    paid_in: Decimal,
}

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

impl Setup {
    /// The default configuration with the provider `main` at this upstream.
    pub fn over(main: &Upstream) -> Setup {
        Setup::at(&main.base_url())
    }

    /// The same with the provider's address.
    pub fn at(base_url: &str) -> Setup {
        let conf = json!({
            "providers": { "main": { "base_url": base_url, "api_key_env": "SET_MAIN" } },
            "tiers": {}, "timeouts": {}, "auth_failures_per_minute": 1_000_000,
            // They outlast what tests do to the clock, so that they can be held against the usage.
            "receipts": { "keep_days": 3_000 },
        });
        let setup = Setup {
            conf,
            catalogue: catalogue::catalogue(),
            tier: Tier::Pro,
            credit: "100".to_owned(),
            resolver: Resolver::system(),
            redis: None,
            hold_ttl: Options::default().hold_ttl,
            send_buffer_bytes: None,
            beside: None,
        };
        // Nobody listens there, until a test says who.
        setup.provider("spare", json!({ "base_url": "http://127.0.0.1:1/v1" }))
    }

    /// The provider `spare` at this upstream: the second target of the model with two.
    pub fn spare(self, spare: &Upstream) -> Setup {
        self.provider(
            "spare",
            json!({ "base_url": spare.base_url(), "api_key_env": "SET_SPARE" }),
        )
    }

    /// A provider, as the configuration writes it.
    pub fn provider(mut self, name: &str, provider: Value) -> Setup {
        self.conf["providers"][name] = provider;
        self
    }

    /// Changes the configuration.
    pub fn conf(mut self, change: impl FnOnce(&mut Value)) -> Setup {
        change(&mut self.conf);
        self
    }

    /// Changes one model of the catalogue.
    pub fn model(mut self, id: &str, change: impl FnOnce(&mut Value)) -> Setup {
        let models = self.catalogue["models"].as_array_mut().unwrap();
        change(models.iter_mut().find(|model| model["id"] == id).unwrap());
        self
    }

    /// Sends traces there.
    pub fn traces(self, collector: &Collector) -> Setup {
        self.conf(|conf| conf["traces"] = json!({ "endpoint": collector.endpoint() }))
    }

    /// The account's tier.
    pub fn tier(self, tier: Tier) -> Setup {
        Setup { tier, ..self }
    }

    /// What is paid into the account at first.
    pub fn credit(self, credit: &str) -> Setup {
        let credit = credit.to_owned();
        Setup { credit, ..self }
    }

    /// How names are resolved.
    pub fn resolver(self, resolver: Resolver) -> Setup {
        Setup { resolver, ..self }
    }

    /// Keeps the ledger in the Redis at this address.
    pub fn redis(self, url: &str) -> Setup {
        let redis = Some(url.to_owned());
        Setup { redis, ..self }
    }

    /// Another node of the ledger that this gateway has: with its clock, its account and its key.
    pub fn beside(self, gateway: &Gateway) -> Setup {
        let beside = Some(Beside {
            clock: gateway.clock.clone(),
            key: gateway.key.clone(),
            paid_in: gateway.paid_in,
        });
        Setup { beside, ..self }
    }

    /// The life of a hold in Redis, in the process' own time for its renewals and in the test's for Redis.
    pub fn hold_ttl(self, hold_ttl: Duration) -> Setup {
        Setup { hold_ttl, ..self }
    }

    /// Lets the kernel keep few bytes of what no client takes.
    pub fn send_buffer_bytes(self, bytes: u32) -> Setup {
        let send_buffer_bytes = Some(bytes);
        Setup {
            send_buffer_bytes,
            ..self
        }
    }

    /// Starts it.
    pub async fn start(mut self) -> Gateway {
        let dir = TempDir::new().unwrap();
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        self.conf["data_dir"] = path("data").into();
        self.conf["catalogue"] = path("catalogue.yaml").into();
        std::fs::write(path("catalogue.yaml"), self.catalogue.to_string()).unwrap();
        std::fs::write(path("tollgate.yaml"), self.conf.to_string()).unwrap();
        let config = Config::parse(path("tollgate.yaml").as_ref(), &self.conf.to_string(), &environment).unwrap();

        let clock = self.beside.as_ref().map(|beside| beside.clock.clone());
        let clock = clock.unwrap_or_else(|| Clock::manual(NOW));
        let upstreams = Upstreams::new(self.resolver);
        let (traces, receipts) = (config.traces.clone(), config.receipts.clone());
        let snapshot = Snapshot::load(config, &upstreams).unwrap();
        upstreams.wait_for_names();
        let snapshot = Arc::new(ArcSwap::from_pointee(snapshot));
        let ledger = match self.redis {
            None => {
                let path = path("ledger.db");
                Ledger::Embedded(Embedded::open_keeping(path.as_ref(), receipts.keep_days, clock.clone()).unwrap())
            }
            Some(url) => {
                // Its time is the test's, as everything's is; and a busy machine is no outage.
                let options = Options {
                    timeout: STORE_TIME,
                    clock: clock.clone(),
                    hold_ttl: self.hold_ttl,
                    receipts_per_account_max: NonZeroU32::new(receipts.per_account_max),
                    ..Options::default()
                };
                // It blocks, on a thread that is on no runtime.
                let open = move || RedisLedger::connect(&url, options);
                Ledger::Redis(std::thread::spawn(open).join().unwrap().unwrap())
            }
        };
        let telemetry: Arc<Telemetry> = Arc::default();
        let log = dir.path().join("access.log");
        let log = access_log::Writer::start(&telemetry, &AccessLog::File(log)).unwrap();
        let traces = otlp::Exporter::start(&telemetry, &traces).unwrap();
        let reloader = Reloader::new(&snapshot, upstreams, environment).observed_by(&telemetry);
        let journal = Journal::open(path("data").as_ref());
        let (served, address) = serve(
            snapshot,
            ledger.clone(),
            journal,
            clock.clone(),
            &telemetry,
            self.send_buffer_bytes,
        )
        .await;

        let mut gateway = Gateway {
            address,
            key: String::new(),
            clock,
            http1: Client::http1(address),
            h2c: Client::h2c(address),
            paid_in: Decimal::ZERO,
            ledger,
            reloader,
            dir,
            served,
            telemetry,
            log,
            traces,
        };
        if let Some(beside) = self.beside {
            (gateway.key, gateway.paid_in) = (beside.key, beside.paid_in);
        } else {
            gateway.create_account(ACCOUNT, self.tier).await;
            if self.credit != "0" {
                gateway.pay_in(&self.credit, "first").await;
            }
            gateway.key = gateway.new_key(KeySpec::default()).await;
        }
        gateway.http1.key = gateway.key.clone();
        gateway.h2c.key = gateway.key.clone();
        gateway
    }
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

    /// Looks at the files once.
    pub fn check_files(&mut self) -> tollgate::server::reload::Reloaded {
        self.reloader.check(false)
    }
}

/// The environment of a test's gateway: variables that begin with `SET_` are set, others are not. Webhooks are signed with `SET_WEBHOOK`.
fn environment(name: &str) -> Option<String> {
    if name == "SET_WEBHOOK" {
        return Some("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned());
    }
    name.starts_with("SET_").then(|| format!("credential-{name}"))
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
