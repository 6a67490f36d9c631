//! What answers each path of the operator's API, by its noun.

pub(super) mod accounts;
pub(super) mod books;
pub(super) mod commands;
pub(super) mod credits;
pub(super) mod gateway;
pub(super) mod keys;
pub(super) mod operators;
pub(super) mod pages;
pub(super) mod session;
pub(super) mod statement;
pub(super) mod stripe;
pub(super) mod usage;
