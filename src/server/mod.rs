//! The process of `tollgate serve`: start and stop, the listeners, upgrades, and what runs beside the requests.

pub mod admin;
mod admin_connections;
mod admin_host;
pub(crate) mod audit_task;
pub(crate) mod background;
pub(crate) mod connections;
mod console;
pub(crate) mod descriptor;
pub(crate) mod handover;
mod idle_order;
pub(crate) mod journal_task;
pub mod listener;
pub mod open;
pub mod operator;
mod peer;
pub(crate) mod pending_listener;
pub(crate) mod preflight;
pub(crate) mod read_ahead;
pub(crate) mod refresh;
pub mod reload;
pub mod serve;
mod signals;
pub(crate) mod socket;
mod successor;
pub(crate) mod systemd;
pub mod upgrade;
mod webhooks;
