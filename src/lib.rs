//! Tollgate: an LLM gateway for prepaid credit, on Pingora.

pub mod pure;
