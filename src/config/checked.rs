//! What was typed becomes what it means, or an error that begins with its key.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::nearest;
use super::provider::checked_provider;
use super::range::within;
use super::raw::{Raw, RawRefresh, RawTier, RawTiers, RawTimeouts};
use super::{
    AccessLog, BodyMemoryLimits, Config, Network, Provider, Refresh, TierRules, Timeouts, idempotency, operator,
    receipts, required, store, stripe, traces, wallet, webhooks,
};
use crate::pure::limits::{LIMIT_MAX, Limits};
use crate::pure::money::Credits;

pub(super) fn checked(
    path: &Path,
    mut raw: Raw,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Config, String> {
    let base_path = raw.base_path.trim_end_matches('/').to_owned();
    if !(base_path.is_empty() || base_path.starts_with('/')) || base_path.contains(['?', '#', ' ']) {
        return Err(format!(
            "base_path: {base_path:?} must begin with / and be a plain path"
        ));
    }
    check_required(&raw)?;
    within("threads", raw.threads, 1..=256)?;
    within("body_bytes_max", raw.body_bytes_max, 1024..=1 << 30)?;
    let (listen, admin_listen) = (
        address("listen", &raw.listen)?,
        address("admin_listen", &raw.admin_listen)?,
    );
    let operator = operator::checked(&mut raw)?;
    check_ports(
        &raw,
        listen,
        admin_listen,
        operator.as_ref().map(|operator| operator.address),
    )?;
    checked_gathering(raw.whole_answer_bytes_max, raw.gathered_bytes_max)?;
    let body_memory = checked_body_memory(&raw)?;
    if raw.key_prefix.is_empty()
        || !raw
            .key_prefix
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    {
        return Err(format!(
            "key_prefix: {:?} must be 1 or more of A-Z a-z 0-9 _ -",
            raw.key_prefix
        ));
    }
    if raw.auth_failures_per_minute == 0 || raw.connections_max == 0 || raw.connections_per_address_max == 0 {
        return Err(
            "auth_failures_per_minute, connections_max and connections_per_address_max must be 1 or more".to_owned(),
        );
    }
    let proxies = raw.trusted_proxies.iter().map(|text| text.parse());
    let trusted_proxies = proxies
        .collect::<Result<Vec<Network>, _>>()
        .map_err(|error| format!("trusted_proxies: {error}"))?;
    let mut providers = BTreeMap::new();
    for (name, provider) in raw.providers {
        let provider = checked_provider(&name, provider, environment).map_err(|e| format!("providers.{name}: {e}"))?;
        providers.insert(name, provider);
    }
    let catalogue_refresh = raw
        .catalogue_refresh
        .map(|refresh| checked_refresh(refresh, &providers, || Refresh::usual_rules(&raw.catalogue, path)))
        .transpose()?;
    let traces = raw
        .traces
        .map(|traces| traces::checked(traces, environment))
        .transpose()?;
    let stripe = raw
        .stripe
        .map(|raw_stripe| stripe::checked(raw_stripe, &raw.currency, operator.is_some(), environment))
        .transpose()?;
    let store = store::checked(
        raw.store.as_deref(),
        raw.store_env.as_deref(),
        &raw.data_dir,
        environment,
    )?;
    Ok(Config {
        text_digest: [0; 32],
        path: path.to_owned(),
        listen,
        admin_listen,
        admin_hosts: checked_hosts("admin_hosts", raw.admin_hosts)?,
        operator,
        base_path,
        threads: raw.threads,
        data_dir: raw.data_dir,
        store,
        store_env: raw.store_env,
        catalogue: raw.catalogue,
        markup: raw.markup,
        currency: raw.currency,
        key_prefix: raw.key_prefix,
        providers,
        tiers: checked_tiers(&raw.tiers)?,
        timeouts: checked_timeouts(&raw.timeouts)?,
        body_bytes_max: raw.body_bytes_max,
        whole_answer_bytes_max: raw.whole_answer_bytes_max,
        gathered_bytes_max: raw.gathered_bytes_max,
        body_memory,
        tls: raw.tls,
        drain: seconds("drain_seconds", raw.drain_seconds, 86_400)?,
        suspended_streams: raw.suspended_streams,
        trusted_proxies,
        auth_failures_per_minute: raw.auth_failures_per_minute,
        connections_max: raw.connections_max,
        connections_per_address_max: raw.connections_per_address_max,
        unready: seconds("unready_seconds", raw.unready_seconds, 3_600)?,
        access_log: checked_log(raw.access_log)?,
        receipts: receipts::checked(raw.receipts)?,
        idempotency: idempotency::checked(&raw.idempotency)?,
        audit_every: seconds("audit_seconds", raw.audit_seconds, 86_400)?,
        catalogue_refresh,
        traces: traces.unwrap_or_default(),
        stripe,
        wallet: wallet::checked(raw.wallet)?,
        webhooks: webhooks::checked(raw.webhooks, environment)?,
    })
}

/// Refuses a configuration whose paths and names have no value.
fn check_required(raw: &Raw) -> Result<(), String> {
    let tls = [("tls", &raw.tls), ("operator_tls", &raw.operator_tls)];
    let tls = tls.into_iter().filter_map(|(key, files)| Some((key, files.as_ref()?)));
    let tls = tls.flat_map(|(key, files)| [(format!("{key}.cert"), &files.cert), (format!("{key}.key"), &files.key)]);
    let rules = raw
        .catalogue_refresh
        .as_ref()
        .and_then(|refresh| refresh.rules.as_ref());
    let rules = rules.map(|rules| ("catalogue_refresh.rules".to_owned(), rules));
    let always = [("data_dir", &raw.data_dir), ("catalogue", &raw.catalogue)];
    let always = always.map(|(key, path)| (key.to_owned(), path)).into_iter();
    for (key, path) in always.chain(tls).chain(rules) {
        required::check(&key, &path.to_string_lossy(), "a path")?;
    }
    required::check("currency", &raw.currency, "a currency's code, such as USD, or a name")?;
    required::check("key_prefix", &raw.key_prefix, "1 or more of A-Z a-z 0-9 _ -")
}

/// A time that may be 0.
fn seconds(key: &str, value: u64, max: u64) -> Result<Duration, String> {
    within(key, value, 0..=max).map(Duration::from_secs)
}

fn checked_gathering(one: usize, all: usize) -> Result<(), String> {
    within("whole_answer_bytes_max", one, 1024..=1 << 30)?;
    if !(one..=1 << 36).contains(&all) {
        return Err(format!(
            "gathered_bytes_max: {all} is not from whole_answer_bytes_max, {one}, to 68719476736"
        ));
    }
    Ok(())
}

/// What is left out follows the longest body, so that it always fits.
fn checked_body_memory(raw: &Raw) -> Result<BodyMemoryLimits, String> {
    let longest = raw.body_bytes_max;
    let bytes = |name: &str, value: Option<u64>, default: u64, bodies: u64| match value {
        None => Ok(default.max(longest.saturating_mul(bodies))),
        Some(value) if (longest..=BODY_MEMORY_MAX).contains(&value) => Ok(value),
        Some(value) => Err(format!(
            "{name}: {value} is not from {longest} (body_bytes_max) to {BODY_MEMORY_MAX}"
        )),
    };
    Ok(BodyMemoryLimits {
        total: bytes("body_memory_bytes_max", raw.body_memory_bytes_max, 1 << 30, 8)?,
        per_key: bytes(
            "body_memory_bytes_per_key_max",
            raw.body_memory_bytes_per_key_max,
            64 << 20,
            2,
        )?,
        per_address: bytes(
            "body_memory_bytes_per_address_max",
            raw.body_memory_bytes_per_address_max,
            256 << 20,
            4,
        )?,
    })
}

fn checked_refresh(
    raw: RawRefresh,
    providers: &BTreeMap<String, Provider>,
    usual_rules: impl FnOnce() -> PathBuf,
) -> Result<Refresh, String> {
    if !providers.contains_key(&raw.provider) {
        let near = nearest(&raw.provider, providers.keys().map(String::as_str));
        return Err(format!(
            "catalogue_refresh.provider: {} is not configured{near}",
            raw.provider
        ));
    }
    within("catalogue_refresh.every_minutes", raw.every_minutes, 1..=525_600)?;
    Ok(Refresh {
        provider: raw.provider,
        rules: raw.rules.unwrap_or_else(usual_rules),
        every: Duration::from_secs(raw.every_minutes.saturating_mul(60)),
    })
}

fn checked_log(text: String) -> Result<AccessLog, String> {
    match text.as_str() {
        "off" => Ok(AccessLog::Off),
        "stdout" => Ok(AccessLog::Stdout),
        "" => Err("access_log: it must be stdout, off, or a file's path".to_owned()),
        word if NO_LOG_FILES.iter().any(|other| other.eq_ignore_ascii_case(word)) => Err(format!(
            "access_log: it must be stdout, off, or a file's path; {word} would be a file in the folder that the gateway starts in: if that is \
             meant, write ./{word}"
        )),
        _ => Ok(AccessLog::File(text.into())),
    }
}

fn checked_tiers(raw: &RawTiers) -> Result<[TierRules; 4], String> {
    let rules = |name: &str, raw: &RawTier, rpm: u64, tpm: u64, concurrency: u64, quota: i64| {
        let limits = Limits {
            rpm: raw.rpm.unwrap_or(rpm),
            tpm: raw.tpm.unwrap_or(tpm),
            concurrency: raw.concurrency.unwrap_or(concurrency),
        };
        if [limits.rpm, limits.tpm, limits.concurrency].contains(&0) {
            return Err(format!("tiers.{name}: a limit must be at least 1"));
        }
        if limits.rpm.max(limits.tpm).max(limits.concurrency) > LIMIT_MAX {
            return Err(format!("tiers.{name}: a limit is at most {LIMIT_MAX}"));
        }
        let monthly_quota = raw
            .monthly_quota
            .unwrap_or(Credits::from_pico(quota.saturating_mul(1_000_000_000_000)));
        if monthly_quota < Credits::ZERO {
            return Err(format!("tiers.{name}.monthly_quota: cannot be negative"));
        }
        Ok(TierRules { limits, monthly_quota })
    };
    Ok([
        rules("free", &raw.free, 20, 40_000, 4, 10)?,
        rules("lite", &raw.lite, 60, 200_000, 8, 100)?,
        rules("pro", &raw.pro, 600, 2_000_000, 32, 1_000)?,
        rules("enterprise", &raw.enterprise, 6_000, 20_000_000, 256, 100_000)?,
    ])
}

fn checked_timeouts(raw: &RawTimeouts) -> Result<Timeouts, String> {
    let millis = |name: &str, value: u64| {
        within(format_args!("timeouts.{name}"), value, 1..=86_400_000).map(Duration::from_millis)
    };
    let or_never = |name: &str, value: u64| match value {
        0 => Ok(None),
        value => millis(name, value).map(Some),
    };
    let first_byte = millis("first_byte_ms", raw.first_byte_ms)?;
    let whole_first_byte = raw
        .whole_first_byte_ms
        .map(|value| millis("whole_first_byte_ms", value))
        .transpose()?;
    Ok(Timeouts {
        connect: millis("connect_ms", raw.connect_ms)?,
        first_byte,
        whole_first_byte: whole_first_byte.unwrap_or(first_byte),
        idle: millis("idle_ms", raw.idle_ms)?,
        comment: or_never("comment_ms", raw.comment_ms)?,
        first_event: or_never("first_event_ms", raw.first_event_ms)?,
        whole_gather: millis("whole_gather_ms", raw.whole_gather_ms)?,
        head: millis("head_ms", raw.head_ms)?,
        body: millis("body_ms", raw.body_ms)?,
        write: millis("write_ms", raw.write_ms)?,
        keepalive: millis("keepalive_ms", raw.keepalive_ms)?,
        disconnect_drain: millis("disconnect_drain_ms", raw.disconnect_drain_ms)?,
    })
}

pub(super) fn address(key: &str, text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| format!("{key}: {text:?} is not an address such as 127.0.0.1:8080"))
}

/// Each listener has a port of its own.
fn check_ports(raw: &Raw, listen: SocketAddr, admin: SocketAddr, operator: Option<SocketAddr>) -> Result<(), String> {
    // The key that somebody wrote has a line.
    let admin_key = match raw.admin_listen == Raw::default().admin_listen {
        true => "listen",
        false => "admin_listen",
    };
    let pairs = [
        (admin_key, ("listen", Some(listen)), ("admin_listen", Some(admin))),
        (
            "operator_listen",
            ("listen", Some(listen)),
            ("operator_listen", operator),
        ),
        (
            "operator_listen",
            ("admin_listen", Some(admin)),
            ("operator_listen", operator),
        ),
    ];
    for (key, (one, one_at), (other, other_at)) in pairs {
        if let (Some(one_at), Some(other_at)) = (one_at, other_at)
            && meet(one_at, other_at)
        {
            return Err(format!(
                "{key}: {one} ({one_at}) and {other} ({other_at}) are one port: each needs its own"
            ));
        }
    }
    Ok(())
}

/// Whether two listeners would want the same port of the same address. Of port 0 each gets one of its own.
fn meet(one: SocketAddr, other: SocketAddr) -> bool {
    // An address that stands for all takes those of its family, and that of IPv6 those of IPv4 too.
    let covers = |all: SocketAddr, ip: SocketAddr| all.ip().is_unspecified() && (all.is_ipv6() || ip.is_ipv4());
    one.port() != 0
        && one.port() == other.port()
        && (one.ip() == other.ip() || covers(one, other) || covers(other, one))
}

/// What somebody writes as an access log who means no file of this name, in any case.
const NO_LOG_FILES: [&str; 12] = [
    "off", "stdout", "stderr", "on", "false", "true", "no", "yes", "none", "null", "~", "-",
];

/// Most bytes that `body_memory_…` may be: 16 TiB.
const BODY_MEMORY_MAX: u64 = 1 << 44;

pub(super) fn checked_hosts(key: &str, hosts: Vec<String>) -> Result<Vec<String>, String> {
    let is_name = |host: &String| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        !host.is_empty() && host.len() <= 253 && host.bytes().all(is_part)
    };
    match hosts.iter().find(|host| !is_name(host)) {
        Some(host) => Err(format!(
            "{key}: {host:?} is not a name such as gw1.example.com, without a port"
        )),
        None if hosts.len() > HOSTS_MAX => Err(format!("{key}: more than {HOSTS_MAX} names")),
        None => Ok(hosts),
    }
}

/// Names by which a listener may be asked.
const HOSTS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_may_be_as_long_as_its_range_says() {
        let a_day = Ok(Duration::from_secs(86_400));
        assert_eq!(seconds("drain_seconds", 86_400, 86_400), a_day);
        assert_eq!(seconds("drain_seconds", 0, 86_400), Ok(Duration::ZERO));
    }
}
