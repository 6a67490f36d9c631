//! `idempotency:`: what is kept of calls with an `Idempotency-Key`.

use serde::Deserialize;

use super::range::within;

/// What is kept of calls with an `Idempotency-Key`, for 24 hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// Whether answers are kept, to be given again. Without, a key only keeps its call from being made twice.
    pub store_answers: bool,
    /// The longest answer that is kept, in bytes.
    pub answer_bytes_max: u64,
    /// Most bytes of the answers of one API key; the oldest go first.
    pub bytes_per_key_max: u64,
    /// Most bytes of all answers in the embedded ledger; the oldest go first.
    pub bytes_max: u64,
    /// Most idempotency keys of one API key.
    pub keys_per_key_max: u64,
}

impl Default for Idempotency {
    fn default() -> Idempotency {
        Idempotency {
            store_answers: true,
            answer_bytes_max: 1 << 20,
            bytes_per_key_max: 16 << 20,
            bytes_max: 1 << 30,
            keys_per_key_max: 100_000,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawIdempotency {
    store_answers: Option<bool>,
    answer_bytes_max: Option<u64>,
    bytes_per_key_max: Option<u64>,
    bytes_max: Option<u64>,
    keys_per_key_max: Option<u64>,
}

/// What was written, checked.
pub(super) fn checked(raw: &RawIdempotency) -> Result<Idempotency, String> {
    let default = Idempotency::default();
    let figure = |name: &str, value: Option<u64>, default: u64, (min, max): (u64, u64)| {
        within(format_args!("idempotency.{name}"), value.unwrap_or(default), min..=max)
    };
    let answer = figure(
        "answer_bytes_max",
        raw.answer_bytes_max,
        default.answer_bytes_max,
        (1_024, ANSWER_MAX),
    )?;
    let per_key = figure(
        "bytes_per_key_max",
        raw.bytes_per_key_max,
        default.bytes_per_key_max.max(answer),
        (answer, BYTES_MAX),
    )?;
    Ok(Idempotency {
        store_answers: raw.store_answers.unwrap_or(default.store_answers),
        answer_bytes_max: answer,
        bytes_per_key_max: per_key,
        bytes_max: figure(
            "bytes_max",
            raw.bytes_max,
            default.bytes_max.max(per_key),
            (per_key, BYTES_MAX),
        )?,
        keys_per_key_max: figure(
            "keys_per_key_max",
            raw.keys_per_key_max,
            default.keys_per_key_max,
            (1, KEYS_MAX),
        )?,
    })
}

/// The longest answer that may be kept: 16 MiB, for it goes to Redis in one command.
const ANSWER_MAX: u64 = 16 << 20;
/// 64 GiB.
const BYTES_MAX: u64 = 1 << 36;
const KEYS_MAX: u64 = 10_000_000;
