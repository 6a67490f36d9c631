//! The part of Tollgate that performs nothing: no I/O, clock, async or float. Bytes, values and a `now` come in; values come out.
//!
//! It imports nothing from this crate but itself and compiles with `--no-default-features`, so a stray import is a compile error.

pub mod account;
pub mod bill;
pub mod catalogue;
pub mod charge;
pub mod chat;
pub mod error;
pub mod histogram;
pub mod hold;
pub mod ids;
pub mod import;
pub mod limits;
pub mod lines;
pub mod money;
pub mod numbers;
mod plain;
pub mod policy;
pub mod receipt;
pub mod reconcile;
pub mod sse;
pub mod tap;
pub mod time;
pub mod tokens;
pub mod trace_context;
pub mod usage;
