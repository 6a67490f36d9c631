//! What an answer costs: counted while it passes, debited when it is over.

mod append;
pub(crate) mod capture;
pub(crate) mod closed_call;
pub(crate) mod discard;
pub(crate) mod early_end;
pub(crate) mod extend;
pub(crate) mod keep_within;
pub(crate) mod meter;
mod metered;
pub(crate) mod passed;
pub(crate) mod receipt;
pub(crate) mod settle;
mod stream_start;
mod whole_answer;

#[cfg(test)]
mod tests;
