//! `receipts:`: how many receipts are kept, and where else they are written.

use std::path::PathBuf;

use serde::Deserialize;

use super::range::within;

/// Receipts: what is kept of each call that was billed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipts {
    /// For how many days the embedded ledger keeps them; 0: it writes none.
    pub keep_days: u32,
    /// The most bytes that the embedded ledger keeps of them, of all accounts; the oldest are dropped.
    pub bytes_max: u64,
    /// How many Redis keeps of an account, the newest; 0: it writes none.
    pub per_account_max: u32,
    /// The folder of the files that they are appended to as well, one a day.
    pub files: Option<PathBuf>,
    /// For how many days these files are kept; 0: for ever.
    pub files_keep_days: u32,
}

impl Default for Receipts {
    fn default() -> Receipts {
        Receipts {
            keep_days: 30,
            bytes_max: 4 << 30,
            per_account_max: 10_000,
            files: None,
            files_keep_days: 0,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawReceipts {
    keep_days: Option<u32>,
    bytes_max: Option<u64>,
    per_account_max: Option<u32>,
    files: Option<PathBuf>,
    files_keep_days: Option<u32>,
}

/// What was written, checked.
pub(super) fn checked(raw: RawReceipts) -> Result<Receipts, String> {
    let default = Receipts::default();
    let up_to = |name: &str, value: Option<u32>, default: u32, max: u32| {
        within(format_args!("receipts.{name}"), value.unwrap_or(default), 0..=max)
    };
    if raw.files.as_ref().is_some_and(|folder| folder.as_os_str().is_empty()) {
        return Err("receipts.files: it must be a folder's path".to_owned());
    }
    if raw.files.is_none() && raw.files_keep_days.is_some() {
        return Err("receipts.files_keep_days: it says nothing without receipts.files".to_owned());
    }
    let bytes_max = raw.bytes_max.unwrap_or(default.bytes_max);
    within("receipts.bytes_max", bytes_max, BYTES_MIN..=BYTES_MAX)?;
    Ok(Receipts {
        bytes_max,
        keep_days: up_to("keep_days", raw.keep_days, default.keep_days, DAYS_MAX)?,
        per_account_max: up_to(
            "per_account_max",
            raw.per_account_max,
            default.per_account_max,
            EACH_MAX,
        )?,
        files: raw.files,
        files_keep_days: up_to(
            "files_keep_days",
            raw.files_keep_days,
            default.files_keep_days,
            DAYS_MAX,
        )?,
    })
}

/// One MiB: some rows of 256 receipts.
const BYTES_MIN: u64 = 1 << 20;
/// One TiB.
const BYTES_MAX: u64 = 1 << 40;
/// Ten years.
const DAYS_MAX: u32 = 3_653;
/// About 300 MB of Redis' memory for one account.
const EACH_MAX: u32 = 1_000_000;
