//! `traces:`: whether requests leave traces, and where these are sent.

use std::collections::BTreeMap;

use http::{HeaderName, HeaderValue};
use serde::Deserialize;

use super::provider::BaseUrl;
use super::variable;

/// Where traces go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Traces {
    /// Nowhere: none are made.
    #[default]
    Off,
    /// Nowhere, for the environment variable of this name is not set.
    Missing(String),
    /// To a collector.
    To(Box<Collector>),
}

/// An OTLP collector, and what it gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    /// Its address, whole: `http://127.0.0.1:4318/v1/traces`.
    pub endpoint: BaseUrl,
    /// Headers sent with each batch. Their values are secrets, and have no `Debug`.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Which requests leave a trace.
    pub sample: Sample,
    /// `service.name`.
    pub service_name: String,
}

/// A share of the requests that do not say themselves whether they are traced: of 2^32 of them so many are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample(u64);

impl Sample {
    /// A share from 0 to 1; nothing for other numbers.
    pub fn of_ratio(ratio: f64) -> Option<Sample> {
        // A fraction of a request in 2^32 is cut off.
        (0.0..=1.0)
            .contains(&ratio)
            .then_some(Sample((ratio * ALL as f64) as u64))
    }

    /// Whether the request of this random number is one of them.
    pub fn has(self, random: u32) -> bool {
        u64::from(random) < self.0
    }
}

const ALL: u64 = 1 << 32;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTraces {
    endpoint: String,
    #[serde(default)]
    headers_env: BTreeMap<String, String>,
    #[serde(default = "all")]
    sample_ratio: f64,
    #[serde(default = "service_name")]
    service_name: String,
}

/// What was written, checked; `environment` gives the values of headers.
pub(super) fn checked(raw: RawTraces, environment: &dyn Fn(&str) -> Option<String>) -> Result<Traces, String> {
    let sample = Sample::of_ratio(raw.sample_ratio);
    let sample = sample.ok_or_else(|| format!("traces.sample_ratio: {} is not from 0 to 1", raw.sample_ratio))?;
    if raw.service_name.trim().is_empty() {
        return Err("traces.service_name: it must not be empty".to_owned());
    }
    let endpoint = BaseUrl::parse_such_as("http://127.0.0.1:4318", &raw.endpoint);
    let mut endpoint = endpoint.map_err(|error| format!("traces.endpoint: {error}"))?;
    if !endpoint.path.ends_with(SIGNAL_PATH) {
        endpoint.path.push_str(SIGNAL_PATH);
    }
    let (mut headers, mut missing) = (Vec::new(), None);
    for (name, variable) in raw.headers_env {
        let header = HeaderName::from_bytes(name.as_bytes()).ok();
        let header = header.filter(|header| !OURS.contains(&header.as_str()));
        let header = header.ok_or_else(|| format!("traces.headers_env: {name:?} is no header that can be set"))?;
        let variable =
            variable::checked(variable).map_err(|problem| format!("traces.headers_env.{name}: {problem}"))?;
        match environment(&variable).filter(|text| !text.trim().is_empty()) {
            None => missing = missing.or(Some(variable)),
            Some(text) => {
                let value = HeaderValue::from_str(text.trim());
                let mut value = value
                    .map_err(|_| format!("traces.headers_env: the value of {variable} cannot stand in a header"))?;
                value.set_sensitive(true);
                headers.push((header, value));
            }
        }
    }
    Ok(match missing {
        Some(variable) => Traces::Missing(variable),
        None => Traces::To(Box::new(Collector {
            endpoint,
            headers,
            sample,
            service_name: raw.service_name,
        })),
    })
}

fn all() -> f64 {
    1.0
}

fn service_name() -> String {
    "tollgate".to_owned()
}

/// What OTLP over HTTP puts behind a collector's base address for traces.
const SIGNAL_PATH: &str = "/v1/traces";
/// Headers that the request itself rests on.
const OURS: [&str; 7] = [
    "host",
    "content-length",
    "content-type",
    "content-encoding",
    "transfer-encoding",
    "connection",
    "expect",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_takes_its_share() {
        let taken = |ratio: f64| {
            let sample = Sample::of_ratio(ratio).unwrap();
            (0..=255u32).filter(|n| sample.has(n << 24)).count()
        };
        assert_eq!((taken(0.0), taken(0.25), taken(1.0)), (0, 64, 256));
        assert!(Sample::of_ratio(1.0).unwrap().has(u32::MAX) && !Sample::of_ratio(0.0).unwrap().has(0));
        for ratio in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Sample::of_ratio(ratio), None, "{ratio}");
        }
    }
}
