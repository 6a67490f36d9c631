//! Tollgate: an LLM gateway for prepaid credit, on Pingora.

#[cfg(feature = "serve")]
pub mod demo;
pub mod pure;
