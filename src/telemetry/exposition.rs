//! The text that Prometheus reads. Figures come in as they were counted; only here do they become floats, as the format wants it.
//!
//! A sample of Prometheus is a double: amounts are exact to 15 significant digits, token counts to 2^53. The ledger's own figures stay exact.

mod money;
mod webhooks;

use std::collections::BTreeMap;

use prometheus::TextEncoder;
use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::proto::{Bucket, Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

use super::counters::{Figures, TargetFigures};
use super::deliveries::DeliveryFigures;
use super::payments::PaymentCounts;
use super::record::TargetName;
use crate::ledger::store_metrics::StoreMetrics;
use crate::pure::error::Unavailable;
use crate::pure::histogram::Histogram;
use crate::pure::money::Credits;

/// What is not counted but looked up at each scrape.
#[derive(Debug)]
pub struct Gauges {
    /// Whether new calls are welcome: false from the beginning of a stop, and while the ledger is away.
    pub ready: bool,
    /// Whether calls wait since another process has the ledger and does not serve yet; false from the beginning of a stop.
    pub ledger_away: bool,
    /// Whether the operator has switched maintenance on.
    pub maintenance: bool,
    /// Requests under way.
    pub in_flight: usize,
    /// Bytes of request bodies that are held.
    pub body_memory_bytes: u64,
    /// The ledger.
    pub store_metrics: StoreMetrics,
    /// The journal: calls and debits in it, and whether it can be written.
    pub journal: (usize, bool),
    /// Whether it could be brought to the disk when that was last tried.
    pub journal_reaches_disk: bool,
    /// Since when the oldest of them stands there, in seconds; 0 when there are none.
    pub journal_age_secs: i64,
    /// Provider, upstream's name of the model, and whether the target is passed over.
    pub breakers: Vec<(String, String, bool)>,
    /// By provider and upstream's name of the model: whether the last answer refused the gateway's own credential.
    pub credentials_refused: BTreeMap<(String, String), bool>,
    /// Listeners that greet over TLS, each with the seconds until its certificate expires; below 0 once it has.
    pub certificates: Vec<(&'static str, i64)>,
    /// Models on sale.
    pub models: usize,
    /// Seconds since the catalogue's file changed, or was found to be up to date.
    pub catalogue_age_secs: Option<i64>,
    /// Reloads that took effect, and that were refused.
    pub reloads: (u64, u64),
    /// Refreshes of the catalogue that came to their end, and that failed.
    pub refreshes: (u64, u64),
    /// Whether the last one failed.
    pub refresh_failed: bool,
    /// Whether the files as they are now were refused.
    pub reload_refused: bool,
    /// Audits; none where the books are not audited.
    pub audit: Option<AuditGauges>,
    /// Accounts below zero at the last audit; the embedded ledger knows them at each moment.
    pub below_zero: Option<u64>,
    /// Lines of the access log: written and dropped.
    pub lines: (u64, u64),
    /// Spans of traces: exported, not taken by the collector, dropped.
    pub spans: [u64; 3],
    /// Webhooks.
    pub deliveries: DeliveryFigures,
    /// What could not be taken for refunds.
    pub refunds_short: Credits,
    /// Payments elsewhere that were credited to nobody, and what else came about some.
    pub payments: PaymentCounts,
}

/// What is told of audits of the books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditGauges {
    /// Seconds since the last one that succeeded, or since the start where none has.
    pub age_secs: i64,
    /// Seconds from one to the next.
    pub interval_secs: i64,
    /// What the last one found; none where none has succeeded.
    pub findings: Option<u64>,
    /// Accounts that the last one could not check; none where none has succeeded.
    pub unchecked: Option<u64>,
}

/// The whole page.
///
/// # Errors
/// When the encoder fails.
pub fn page(figures: &Figures, gauges: &Gauges) -> Result<String, prometheus::Error> {
    let mut page = Page(Vec::new());
    page.gateway(gauges);
    page.requests(figures);
    page.money(figures);
    page.books(gauges);
    page.upstreams(figures, gauges);
    page.times(figures, gauges);
    page.catalogue(gauges);
    page.webhooks(gauges);
    page.0.extend(ProcessCollector::for_self().collect());
    TextEncoder::new().encode_to_string(&page.0)
}

struct Page(Vec<MetricFamily>);

impl Page {
    fn gateway(&mut self, gauges: &Gauges) {
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        self.gauges(
            "tollgate_build_info",
            "The version that runs.",
            vec![gauge(&version, 1.0)],
        );
        self.gauge(
            "tollgate_ready",
            "1 while new calls are welcome, 0 once a stop has begun, and while the ledger changes hands.",
            flag(gauges.ready),
        );
        let help = "1 while calls are refused for maintenance.";
        self.gauge("tollgate_maintenance", help, flag(gauges.maintenance));
        self.gauge(
            "tollgate_requests_in_flight",
            "Requests under way.",
            size(gauges.in_flight),
        );
        self.gauge(
            "tollgate_body_memory_bytes",
            "Request bodies that are held, and copies of them for providers.",
            number(gauges.body_memory_bytes),
        );
        let certificates = gauges.certificates.iter();
        let certificates = certificates.map(|(listener, secs)| gauge(&[("listener", listener)], signed(*secs)));
        let help = "Until a listener's certificate expires; below 0 once it has.";
        self.gauges("tollgate_certificate_remaining_seconds", help, certificates.collect());
        let (written, dropped) = gauges.lines;
        let series = [("written", written), ("dropped", dropped)];
        let series = series.map(|(result, lines)| counter(&[("result", result)], number(lines)));
        let help = "Lines of the access log: written, or dropped because the writer could not keep up.";
        self.counters("tollgate_access_log_lines_total", help, series.into());
        let [exported, failed, dropped] = gauges.spans;
        let series = [("exported", exported), ("failed", failed), ("dropped", dropped)];
        let series = series.map(|(result, spans)| counter(&[("result", result)], number(spans)));
        let help = "Spans of traces: exported, not taken by the collector, or dropped because too many waited for it.";
        self.counters("tollgate_trace_spans_total", help, series.into());
    }

    fn requests(&mut self, figures: &Figures) {
        let (mut requests, mut live) = (Vec::new(), Vec::new());
        for (name, target) in sorted(figures) {
            for ((route, status, outcome), count) in &target.requests {
                let status = status.to_string();
                let labels = [
                    ("route", route.name()),
                    ("model", &*name.model),
                    ("provider", &*name.provider),
                    ("status", &status),
                    ("outcome", outcome.name()),
                ];
                requests.push(counter(&labels, number(*count)));
            }
            if !name.provider.is_empty() {
                live.push(gauge(&of(name), signed(target.live)));
            }
        }
        let help = "Requests that are over. Status 499: the client left before it had one; 0: the gateway dropped it.";
        self.counters("tollgate_requests_total", help, requests);
        self.gauges("tollgate_calls_in_flight", "Calls that a provider works on.", live);
        let denials = figures.denials.iter();
        let denials = denials.map(|(reason, count)| counter(&[("reason", reason)], number(*count)));
        let help = "Requests that the gateway refused, by reason.";
        self.counters("tollgate_denials_total", help, denials.collect());
        let help = "Answers of earlier calls that were given again for an Idempotency-Key.";
        let replays = vec![counter(&[], number(figures.replays))];
        self.counters("tollgate_idempotency_replays_total", help, replays);
    }

    fn upstreams(&mut self, figures: &Figures, gauges: &Gauges) {
        let faults = figures.faults.iter();
        let faults = faults.map(|(fault, count)| {
            let labels = [("provider", &*fault.provider), ("kind", fault.kind)];
            counter(&labels, number(*count))
        });
        let help = "Attempts that a provider failed, by what went wrong. Kinds unknown_service_tier and implausible_usage: answers that succeeded; content_refused: requests whose content it refused.";
        self.counters("tollgate_upstream_errors_total", help, faults.collect());
        let tried = sorted(figures)
            .into_iter()
            .filter(|(name, _)| !name.provider.is_empty());
        let failovers = tried.map(|(name, target)| counter(&of(name), number(target.failovers)));
        let help = "Attempts at another target after one that failed; the provider is the one that was tried last.";
        self.counters("tollgate_failovers_total", help, failovers.collect());
        let breakers = gauges.breakers.iter();
        let breakers = breakers.map(|(provider, model, open)| {
            let labels = [("provider", provider.as_str()), ("upstream_model", model.as_str())];
            gauge(&labels, flag(*open))
        });
        let help = "1 while a target is passed over because it failed.";
        self.gauges("tollgate_breaker_open", help, breakers.collect());
        let credentials = gauges.credentials_refused.iter();
        let credentials = credentials.map(|((provider, model), refused)| {
            let labels = [("provider", provider.as_str()), ("upstream_model", model.as_str())];
            gauge(&labels, flag(*refused))
        });
        let help = "1 while the last answer of a target refused the gateway's own credential.";
        self.gauges("tollgate_credential_refused", help, credentials.collect());
    }

    fn times(&mut self, figures: &Figures, gauges: &Gauges) {
        let (mut durations, mut firsts) = (Vec::new(), Vec::new());
        for (name, target) in sorted(figures)
            .into_iter()
            .filter(|(name, _)| !name.provider.is_empty())
        {
            let labels = [
                ("gen_ai_operation_name", target.operation),
                ("gen_ai_request_model", &*name.model),
                ("gen_ai_provider_name", &*name.provider),
            ];
            durations.push(histogram(&labels, &target.duration));
            firsts.push(histogram(&labels, &target.first_event));
        }
        let help = "From a call's arrival to the end of its answer.";
        self.histograms("gen_ai_server_request_duration_seconds", help, durations);
        let help = "From a call's arrival to the first piece of its answer.";
        self.histograms("gen_ai_server_time_to_first_token_seconds", help, firsts);
        let overheads = figures.overheads.iter();
        let overheads = overheads.map(|(route, times)| histogram(&[("route", route.name())], times));
        let help = "The gateway's own time, not spent waiting for the provider or for the request's body; with what a client takes for the last part of its answer.";
        self.histograms("tollgate_overhead_seconds", help, overheads.collect());
        let store = [("store", gauges.store_metrics.kind)];
        let help = "How long the ledger's store took: a reserve in Redis, a commit of the embedded ledger.";
        self.histograms(
            "tollgate_store_latency_seconds",
            help,
            vec![histogram(&store, &gauges.store_metrics.latency)],
        );
        let errors = figures.denials.get(Unavailable::Ledger.name()).copied().unwrap_or(0);
        let help = "Calls that were refused because the ledger's store could not be asked.";
        self.counters(
            "tollgate_store_errors_total",
            help,
            vec![counter(&store, number(errors))],
        );
    }

    fn catalogue(&mut self, gauges: &Gauges) {
        self.gauge("tollgate_catalogue_models", "Models on sale.", size(gauges.models));
        if let Some(age) = gauges.catalogue_age_secs {
            let help = "Since the catalogue's file was changed by hand, or a refresh looked at all of its models.";
            self.gauge("tollgate_catalogue_age_seconds", help, signed(age));
        }
        let (changed, refused) = gauges.reloads;
        let reloads = [("changed", changed), ("refused", refused)];
        let reloads = reloads.map(|(result, count)| counter(&[("result", result)], number(count)));
        let help = "Reloads of configuration and catalogue: in force, or refused for a mistake.";
        self.counters("tollgate_reloads_total", help, reloads.into());
        let (done, failed) = gauges.refreshes;
        let refreshes = [("done", done), ("failed", failed)];
        let refreshes = refreshes.map(|(result, count)| counter(&[("result", result)], number(count)));
        let help = "Refreshes of the catalogue from a provider's list.";
        self.counters("tollgate_catalogue_refreshes_total", help, refreshes.into());
        let help = "1 while the last refresh of the catalogue is one that failed.";
        self.gauge("tollgate_catalogue_refresh_failed", help, flag(gauges.refresh_failed));
        let help = "1 while the files on disk have a mistake and an older state is in force.";
        self.gauge("tollgate_reload_refused", help, flag(gauges.reload_refused));
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.gauges(name, help, vec![gauge(&[], value)]);
    }

    fn gauges(&mut self, name: &str, help: &str, metrics: Vec<Metric>) {
        self.family(name, help, MetricType::GAUGE, metrics);
    }

    fn counters(&mut self, name: &str, help: &str, metrics: Vec<Metric>) {
        self.family(name, help, MetricType::COUNTER, metrics);
    }

    fn histograms(&mut self, name: &str, help: &str, metrics: Vec<Metric>) {
        self.family(name, help, MetricType::HISTOGRAM, metrics);
    }

    /// The encoder refuses a family without a series.
    fn family(&mut self, name: &str, help: &str, kind: MetricType, metrics: Vec<Metric>) {
        if metrics.is_empty() {
            return;
        }
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        family.set_metric(metrics);
        self.0.push(family);
    }
}

/// The targets in the order of their names, so that a page is like the one before.
fn sorted(figures: &Figures) -> Vec<(&TargetName, &TargetFigures)> {
    let mut targets: Vec<_> = figures.targets.iter().collect();
    targets.sort_by_key(|(name, _)| *name);
    targets
}

fn of(name: &TargetName) -> [(&'static str, &str); 2] {
    [("model", &*name.model), ("provider", &*name.provider)]
}

fn labelled(labels: &[(&str, &str)]) -> Metric {
    let pair = |(name, value): &(&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*value).to_owned());
        pair
    };
    Metric::from_label(labels.iter().map(pair).collect())
}

fn counter(labels: &[(&str, &str)], value: f64) -> Metric {
    let mut counter = Counter::default();
    counter.set_value(value);
    let mut metric = labelled(labels);
    metric.set_counter(counter);
    metric
}

fn gauge(labels: &[(&str, &str)], value: f64) -> Metric {
    let mut gauge = Gauge::default();
    gauge.set_value(value);
    let mut metric = labelled(labels);
    metric.set_gauge(gauge);
    metric
}

fn histogram(labels: &[(&str, &str)], times: &Histogram) -> Metric {
    let bucket = |(bound, count): (u64, u64)| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(number(bound) / NANOS);
        bucket.set_cumulative_count(count);
        bucket
    };
    let mut histogram = prometheus::proto::Histogram::default();
    histogram.set_sample_count(times.count());
    histogram.set_sample_sum(number(times.sum_nanos()) / NANOS);
    histogram.set_bucket(times.cumulative().map(bucket).collect());
    let mut metric = labelled(labels);
    metric.set_histogram(histogram);
    metric
}

fn flag(value: bool) -> f64 {
    f64::from(u8::from(value))
}

/// Exact below 2^53.
fn number(value: u64) -> f64 {
    value as f64
}

fn signed(value: i64) -> f64 {
    value as f64
}

fn size(value: usize) -> f64 {
    value as f64
}

/// Credits of 10^-12 credit. The nearest double, whose shortest text has the exact digits as long as there are at most 15.
fn amount(pico: i128) -> f64 {
    pico as f64 / PICO
}

const PICO: f64 = 1e12;
const NANOS: f64 = 1e9;

#[cfg(test)]
pub(super) mod tests;
