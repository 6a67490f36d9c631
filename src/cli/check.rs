//! `tollgate check`: would the gateway start with this configuration, and what would be missing?

use std::net::IpAddr;
use std::path::Path;

use serde::Serialize;

use super::catalogue::Stock;
use super::demo;
use super::failure::Failure;
use super::output::{Answer, Format, Show};
use crate::clock::Clock;
use crate::config::{BaseUrl, Config, ConfigError, Credential, Provider, Store, Traces, doubts, environment, mistakes};
use crate::gateway::snapshot;
use crate::ledger;
use crate::server::open_files::OpenFiles;
use crate::server::preflight;

pub(super) fn run(conf: &Path, format: Format) -> Result<Answer, Failure> {
    let mut findings = Findings::default();
    match super::text_at(conf) {
        Ok(text) => match Config::parse(conf, &text, &environment) {
            Ok(config) => findings.see(&config),
            Err(error) => findings.errors.extend(mistakes_of(conf, &text, &error)),
        },
        Err(failure) => findings.errors.push(failure.to_string()),
    }
    findings.good = findings.errors.is_empty();
    Answer::of(&findings, format)
}

/// What was seen: an error keeps the gateway from starting, a warning does not.
#[derive(Debug, Default, Serialize)]
struct Findings {
    #[serde(rename = "ok")]
    good: bool,
    errors: Vec<String>,
    warnings: Vec<String>,
    /// What is in order.
    passed: Vec<String>,
    /// The demo that runs here has a port of it.
    #[serde(skip)]
    waits_for_demo: bool,
    /// A gateway runs that has what this one needs.
    #[serde(skip)]
    replaces: bool,
    /// No model is on sale.
    #[serde(skip)]
    sells_nothing: bool,
}

impl Findings {
    fn see(&mut self, config: &Config) {
        let store = match &config.store {
            Store::Sqlite(path) => Some(format!("embedded, in {}", path.display())),
            // The address may have a password in it.
            Store::Redis(_) => Some("Redis".to_owned()),
            Store::Remote(_) => Some("elsewhere".to_owned()),
            // An error, with what else a start refuses.
            Store::Missing(_) => None,
        };
        self.passed.push(format!("{}: it is valid", config.path.display()));
        self.passed
            .push(format!("clients: {}, below {}/", scheme(config), config.base_path));
        self.passed.extend(store.map(|store| format!("ledger: {store}")));
        let new_at = ledger::new_at(config);
        self.passed
            .extend(new_at.map(|path| format!("a new ledger will be made at {}", path.display())));
        self.warnings
            .extend(doubts::of_config(config).iter().map(ToString::to_string));
        self.warnings.extend(snapshot::doubts(config, Clock::System.now()));
        self.see_open_files(config);
        self.see_addresses(config);
        self.see_traces(&config.traces);
        // What a start would refuse is refused here, by the same code.
        self.errors
            .extend(snapshot::problems(config).iter().map(ToString::to_string));
        self.see_surroundings(config);
        for provider in config.providers.values() {
            self.see_provider(provider);
        }
        match Stock::of(config) {
            Ok(stock) => {
                let (path, models, on_sale) = (config.catalogue.display(), stock.models, stock.on_sale);
                self.passed.push(format!("{path}: {models} models, {on_sale} on sale"));
                self.warnings.extend(stock.warnings);
                // No error: a start on its own, and a reload, take it all the same.
                self.sells_nothing = on_sale == 0;
                if self.sells_nothing && self.replaces {
                    self.warnings
                        .push(format!("tollgate serve --upgrade {UPGRADE_REFUSED}"));
                }
            }
            Err(failure) => {
                let mistakes = mistakes::of_catalogue(config);
                if mistakes.is_empty() {
                    self.errors.push(failure.to_string());
                }
                self.errors.extend(mistakes.iter().map(ToString::to_string));
            }
        }
    }

    /// The limit of whoever asks: the service's may be another.
    fn see_open_files(&mut self, config: &Config) {
        match OpenFiles::of_start(config).suffice(config) {
            Ok(told) => self.warnings.extend(told.iter().map(ToString::to_string)),
            Err(error) => self.errors.push(error.to_string()),
        }
    }

    /// Ports, folders, files and the store.
    fn see_surroundings(&mut self, config: &Config) {
        let found = preflight::for_check(config);
        self.errors.extend(found.problems.iter().map(ToString::to_string));
        for (address, problem) in &found.taken {
            if demo::has(*address) {
                self.waits_for_demo = true;
                self.warnings.push(format!("{problem}{}", demo::HAS_IT));
            } else {
                self.errors.push(problem.to_string());
            }
        }
        self.replaces = found.is_replaced;
        if found.is_running {
            let data_dir = config.data_dir.display();
            self.passed.push(format!(
                "a gateway runs with {data_dir}: tollgate serve --upgrade takes over from it"
            ));
        } else if found.problems.is_empty() && found.taken.is_empty() && !matches!(config.store, Store::Missing(_)) {
            self.passed.push("ports, folders and store can be had".to_owned());
        }
    }

    fn see_addresses(&mut self, config: &Config) {
        if !config.admin_listen.ip().is_loopback() {
            let address = config.admin_listen;
            self.warnings.push(format!(
                "admin_listen: {address} is reachable from outside and asks for no key: keep it behind a firewall"
            ));
        }
        if let Some(operator) = &config.operator
            && operator.tls.is_none()
            && !operator.address.ip().is_loopback()
        {
            let address = operator.address;
            self.warnings.push(format!(
                "operator_listen: {address} takes operators' tokens over plain HTTP: set operator_tls, or put a proxy with TLS in front"
            ));
        }
        if config.tls.is_none() && !config.listen.ip().is_loopback() {
            let address = config.listen;
            self.warnings.push(format!(
                "listen: {address} takes keys over plain HTTP: set tls, or put a proxy with TLS in front"
            ));
        }
    }

    fn see_traces(&mut self, traces: &Traces) {
        match traces {
            Traces::Off => {}
            Traces::Missing(variable) => self.warnings.push(format!(
                "traces are off: the environment variable {variable} is not set"
            )),
            Traces::To(collector) => {
                let (to, path) = (&collector.endpoint.authority, &collector.endpoint.path);
                self.passed.push(format!("traces: to {to}{path}"));
                if !collector.headers.is_empty() && !collector.endpoint.tls && !is_loopback(&collector.endpoint) {
                    self.warnings
                        .push(format!("traces: their headers' secrets go over plain HTTP to {to}"));
                }
            }
        }
    }

    fn see_provider(&mut self, provider: &Provider) {
        let (name, host) = (&provider.name, &provider.base_url.authority);
        match &provider.credential {
            Credential::Bearer(_) => self.passed.push(format!("provider {name}: on, at {host}")),
            Credential::None => self
                .passed
                .push(format!("provider {name}: on without a credential, at {host}")),
            Credential::Missing(variable) if variable == demo::SIMULATED_KEY => self.warnings.push(format!(
                "provider {name} is switched off: only `tollgate demo` starts it"
            )),
            Credential::Missing(variable) => self.warnings.push(format!(
                "provider {name} is switched off: the environment variable {variable} is not set"
            )),
        }
        if matches!(provider.credential, Credential::Bearer(_))
            && !provider.base_url.tls
            && !is_loopback(&provider.base_url)
        {
            self.warnings.push(format!(
                "provider {name}: its credential goes over plain HTTP to {host}"
            ));
        }
    }
}

impl Show for Findings {
    fn text(&self) -> String {
        let lines = |word: &str, findings: &[String]| {
            let lines = findings.iter().map(|finding| format!("{word:<7}  {finding}\n"));
            lines.collect::<String>()
        };
        let mut text = lines("ok", &self.passed) + &lines("warning", &self.warnings);
        match (self.good, self.waits_for_demo) {
            (false, _) => {}
            (true, false) if self.replaces && self.sells_nothing => {
                text.push_str(&format!("\ntollgate serve --upgrade {UPGRADE_REFUSED}\n"));
            }
            (true, false) if self.replaces => text.push_str("\nthe gateway can be started: tollgate serve --upgrade\n"),
            (true, false) => text.push_str("\nthe gateway can be started: tollgate serve\n"),
            (true, true) => text.push_str("\nthe gateway can be started once the demo has stopped: tollgate serve\n"),
        }
        text
    }

    fn problems(&self) -> Vec<String> {
        self.errors.clone()
    }
}

/// Every mistake of a configuration that cannot be used, and not only the first, and those of the catalogue that it names.
fn mistakes_of(conf: &Path, text: &str, error: &ConfigError) -> Vec<String> {
    let mistakes = mistakes::of_config(conf, text, &environment);
    let mut told: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
    if told.is_empty() {
        told.push(error.to_string());
    }
    let catalogue = mistakes::sound_for_catalogue(conf, text).map(|config| mistakes::of_catalogue(&config));
    told.extend(catalogue.iter().flatten().map(ToString::to_string));
    told
}

/// What becomes of an upgrade to a configuration that sells nothing, as the start says, too.
const UPGRADE_REFUSED: &str =
    "would be refused, for no model is on sale: the gateway that runs goes on, until it is stopped";

fn scheme(config: &Config) -> String {
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    format!("{scheme}://{}", config.listen)
}

fn is_loopback(url: &BaseUrl) -> bool {
    let host = &url.host;
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
