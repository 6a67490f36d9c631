//! Tollgate: an LLM gateway for prepaid credit, on Pingora.

#[cfg(feature = "serve")]
pub mod clock;
#[cfg(feature = "serve")]
pub mod config;
#[cfg(feature = "serve")]
pub mod demo;
#[cfg(feature = "serve")]
pub mod gateway;
pub mod pure;
#[cfg(feature = "serve")]
pub mod store;
