//! `operator_listen`: the REST API by which operators work on the ledger from elsewhere, and the console's session.
//!
//! `routes` is the one table of what there is: each line is a `route` (path, method, who may, what answers). `listener` takes connections,
//! `exchange` answers one request, `auth` says who asks, and `call` is what an endpoint is given: it runs every command of the ledger as
//! the operator's own, once `rights` has said that their role may.

mod answer;
mod auth;
mod body;
mod call;
mod connection;
mod endpoints;
mod exchange;
mod fields;
mod listener;
mod openapi;
mod query;
mod rights;
mod route;
mod routes;
mod sessions;
mod shown;
mod state;
mod stripe_events;
mod under_way;

pub use self::state::{OperatorApi, Times};
