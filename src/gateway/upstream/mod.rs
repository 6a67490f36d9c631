//! Providers and their targets: who is asked, with what request, what its answer means, and what follows a failure.

mod answer_head;
pub(crate) mod circuit_breaker;
pub(crate) mod disconnect;
pub(crate) mod drain_permit;
pub(crate) mod ending;
pub(crate) mod error_reply;
pub(crate) mod failure;
mod long_body;
pub mod providers;
pub(crate) mod refusal;
pub(crate) mod request;
pub(crate) mod response;
mod retry_after;
pub(crate) mod targets;
pub(crate) mod verdict;
