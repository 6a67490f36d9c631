//! The configuration as it is typed, with the defaults of what is left out.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::idempotency::RawIdempotency;
use super::provider::RawProvider;
use super::receipts::RawReceipts;
use super::stripe::RawStripe;
use super::traces::RawTraces;
use super::wallet::RawWallet;
use super::webhooks::RawWebhook;
use super::{SuspendedStreams, TlsFiles};
use crate::pure::money::{Credits, Markup};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Raw {
    pub(super) listen: String,
    pub(super) admin_listen: String,
    pub(super) admin_hosts: Vec<String>,
    pub(super) operator_listen: Option<String>,
    pub(super) operator_tls: Option<TlsFiles>,
    pub(super) operator_hosts: Vec<String>,
    pub(super) base_path: String,
    pub(super) threads: usize,
    pub(super) data_dir: PathBuf,
    pub(super) store: Option<String>,
    pub(super) store_env: Option<String>,
    pub(super) catalogue: PathBuf,
    pub(super) markup: Markup,
    pub(super) currency: String,
    pub(super) key_prefix: String,
    pub(super) providers: BTreeMap<String, RawProvider>,
    pub(super) tiers: RawTiers,
    pub(super) timeouts: RawTimeouts,
    pub(super) body_bytes_max: u64,
    pub(super) whole_answer_bytes_max: usize,
    pub(super) gathered_bytes_max: usize,
    pub(super) body_memory_bytes_max: Option<u64>,
    pub(super) body_memory_bytes_per_key_max: Option<u64>,
    pub(super) body_memory_bytes_per_address_max: Option<u64>,
    pub(super) tls: Option<TlsFiles>,
    pub(super) drain_seconds: u64,
    pub(super) suspended_streams: SuspendedStreams,
    pub(super) trusted_proxies: Vec<String>,
    pub(super) auth_failures_per_minute: u64,
    pub(super) connections_max: usize,
    pub(super) connections_per_address_max: usize,
    pub(super) unready_seconds: u64,
    pub(super) access_log: String,
    pub(super) receipts: RawReceipts,
    pub(super) idempotency: RawIdempotency,
    pub(super) audit_seconds: u64,
    pub(super) catalogue_refresh: Option<RawRefresh>,
    pub(super) traces: Option<RawTraces>,
    pub(super) stripe: Option<RawStripe>,
    pub(super) wallet: RawWallet,
    pub(super) webhooks: Vec<RawWebhook>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRefresh {
    pub(super) provider: String,
    pub(super) rules: Option<PathBuf>,
    pub(super) every_minutes: u64,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawTiers {
    pub(super) free: RawTier,
    pub(super) lite: RawTier,
    pub(super) pro: RawTier,
    pub(super) enterprise: RawTier,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawTier {
    pub(super) rpm: Option<u64>,
    pub(super) tpm: Option<u64>,
    pub(super) concurrency: Option<u64>,
    pub(super) monthly_quota: Option<Credits>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawTimeouts {
    pub(super) connect_ms: u64,
    pub(super) first_byte_ms: u64,
    pub(super) whole_first_byte_ms: Option<u64>,
    pub(super) idle_ms: u64,
    pub(super) comment_ms: u64,
    pub(super) first_event_ms: u64,
    pub(super) whole_gather_ms: u64,
    pub(super) head_ms: u64,
    pub(super) body_ms: u64,
    pub(super) write_ms: u64,
    pub(super) keepalive_ms: u64,
    pub(super) disconnect_drain_ms: u64,
}

impl Default for RawTimeouts {
    fn default() -> RawTimeouts {
        RawTimeouts {
            connect_ms: 3_000,
            first_byte_ms: 120_000,
            whole_first_byte_ms: None,
            idle_ms: 60_000,
            comment_ms: 15_000,
            first_event_ms: 1_000,
            whole_gather_ms: 10_000,
            head_ms: 15_000,
            body_ms: 60_000,
            write_ms: 60_000,
            keepalive_ms: 75_000,
            disconnect_drain_ms: 120_000,
        }
    }
}

impl Default for Raw {
    fn default() -> Raw {
        Raw {
            listen: "127.0.0.1:8080".to_owned(),
            admin_listen: "127.0.0.1:9090".to_owned(),
            admin_hosts: Vec::new(),
            operator_listen: None,
            operator_tls: None,
            operator_hosts: Vec::new(),
            base_path: "/api/v1".to_owned(),
            threads: 2,
            data_dir: "data".into(),
            store: None,
            store_env: None,
            catalogue: "conf/catalogue.yaml".into(),
            markup: Markup::default(),
            currency: "USD".to_owned(),
            key_prefix: "tg_".to_owned(),
            providers: BTreeMap::new(),
            tiers: RawTiers::default(),
            timeouts: RawTimeouts::default(),
            body_bytes_max: 32 << 20,
            whole_answer_bytes_max: 8 << 20,
            gathered_bytes_max: 256 << 20,
            body_memory_bytes_max: None,
            body_memory_bytes_per_key_max: None,
            body_memory_bytes_per_address_max: None,
            tls: None,
            drain_seconds: 120,
            suspended_streams: SuspendedStreams::default(),
            unready_seconds: 0,
            access_log: "stdout".to_owned(),
            receipts: RawReceipts::default(),
            idempotency: RawIdempotency::default(),
            audit_seconds: 300,
            catalogue_refresh: None,
            stripe: None,
            traces: None,
            wallet: RawWallet::default(),
            webhooks: Vec::new(),
            trusted_proxies: Vec::new(),
            auth_failures_per_minute: 60,
            connections_max: 10_000,
            connections_per_address_max: 1_000,
        }
    }
}
