//! The part of Tollgate that performs nothing: no I/O, clock, async or float. Bytes, values and a `now` come in; values come out.
//!
//! It imports nothing from this crate but itself and compiles with `--no-default-features`, so a stray import is a compile error.

pub mod account;
pub mod bill;
pub mod catalogue;
pub mod charge;
pub mod credit_sum;
pub mod error;
pub mod estimate;
pub mod families;
pub(crate) mod hash_map;
pub mod histogram;
pub mod idempotency;
pub mod ids;
pub mod import;
mod json_text;
pub mod limits;
pub mod money;
pub mod numbers;
pub mod operator;
pub mod policy;
pub mod prices;
pub mod prompt_count;
pub mod receipt;
pub mod reconcile;
pub mod rendezvous;
pub mod request_body;
pub mod spend;
pub mod spending;
pub mod sse;
pub mod stripe;
pub mod tap;
pub mod time;
pub mod tokens;
pub mod trace_context;
pub mod usage;
pub mod webhook;
pub mod yaml_lines;
