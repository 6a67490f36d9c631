//! The gateway's own endpoints, and the shape of every answer that is its own.

pub(crate) mod cors;
pub(crate) mod document;
pub(crate) mod endpoints;
mod key;
pub(crate) mod openapi;
pub(crate) mod pages;
pub(crate) mod responses;
pub(crate) mod router;
