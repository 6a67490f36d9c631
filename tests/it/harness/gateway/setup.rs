//! What a test's gateway is started with, and its start.

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
use tollgate::ledger::Ledger;
use tollgate::ledger::embedded::Embedded;
use tollgate::ledger::journal::Journal;
use tollgate::ledger::redis::{Options, RedisLedger};
use tollgate::net::dns::Resolver;
use tollgate::pure::ids::Tier;
use tollgate::server::reload::Reloader;
use tollgate::telemetry::{Telemetry, access_log, otlp};

use super::{ACCOUNT, Gateway, KeySpec, NOW};
use crate::harness::catalogue;
use crate::harness::client::Client;
use crate::harness::collector::Collector;
use crate::harness::listener::serve;
use crate::harness::upstream::Upstream;

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

/// The environment of a test's gateway: variables that begin with `SET_` are set, others are not. Webhooks are signed with `SET_WEBHOOK`.
fn environment(name: &str) -> Option<String> {
    if name == "SET_WEBHOOK" {
        return Some("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned());
    }
    name.starts_with("SET_").then(|| format!("credential-{name}"))
}
