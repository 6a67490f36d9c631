//! The one integration binary. Each test has a gateway of its own, on a free port, with its own ledger, and a name that says what it shows.
#![expect(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, its tables print the case at hand, and nothing here is anyone's interface"
)]

mod acts;
mod attacks;
mod auth;
mod bad_input;
mod bad_paths;
mod billing_table;
mod bodies;
mod body_memory;
mod bounds;
mod breakers;
mod broken_starts;
mod bursts;
mod catalogue_import;
mod chat;
mod commands;
mod connections;
mod containers;
mod counted_prompts;
mod covers;
mod credit_races;
mod deployment;
mod differential;
mod disconnect;
mod disconnect_head;
mod domains;
mod embeddings;
mod event_delay;
mod extensions;
mod failover;
mod faults;
mod generations;
mod h2_upstreams;
mod harness;
mod holds;
mod idempotency;
mod key_limits;
mod late_bodies;
mod liars;
mod limit_races;
mod limits;
mod listener_tls;
mod listings;
mod log_secrets;
mod meter_cuts;
mod meter_leavers;
mod meter_long;
mod meter_memory;
mod meter_shapes;
mod mixed;
mod model_names;
mod money;
mod names;
mod natives;
mod nodes;
mod openapi;
mod operator_api;
mod pages;
mod plugin;
mod price_incidents;
mod price_kinds;
mod races;
mod receipts;
mod reconcile;
mod regression;
mod reload;
mod settings;
mod shapes;
mod sticky;
mod stream_shapes;
mod streams;
mod suspended;
mod telemetry;
mod tls;
mod traces;
mod unchanged;
mod upstream_faults;
mod upstream_safety;
mod webhook_causes;
mod webhook_kills;
mod webhooks;
mod whole_answers;
mod withheld;
mod wrong_keys;
