//! Tollgate: an LLM gateway for prepaid credit, a reverse proxy on Pingora.
//!
//! It knows who calls, what they may use and what they can still pay, rewrites each request for the chosen upstream, counts the tokens
//! of the passing answer, and debits exactly what was delivered, once. When aims conflict: money correct, then a stream that is
//! never delayed, then speed, then features.
//!
//! # Map
//!
//! - `cli`: the commands. [`server`]: the process: what a start opens, stop, listeners, upgrades, reload, audit, admin, operators.
//! - [`gateway`]: one request, as a plugin of Pingora's proxy ([`Tollgate`]): `gateway::mod` has the hooks in Pingora's order. `access`: who
//!   asks and whether they may; `upstream`: providers, targets, what their answers and failures mean; [`gateway::transport`] carries an
//!   admitted call and drives the hooks on the way; `billing`: the meter and the settlement; `api`: the gateway's own endpoints, and the pages for
//!   those who pay; the operators' are in `server::console`.
//! - [`net`]: connections, buffers, pools, names and certificates. It knows nothing of credit or models.
//! - [`telemetry`]: what an operator sees: metrics, access log, traces. It counts, and decides nothing.
//! - [`ledger`]: one contract and two stores: accounts in memory over a SQLite file, and Redis. The operator's commands reach the process
//!   that owns the file through its control socket. [`ledger::journal`]: every running call in mapped files, so that a killed process
//!   loses and doubles nothing.
//! - [`pure`]: everything that can be decided without doing anything. Bytes and a `now` come in, values come out: money, catalogue,
//!   policy, request bodies, the taps that read passing answers, and the account as a value. It compiles alone.
//! - [`config`], [`clock`], [`simulator`] (the simulated provider), `failpoints` (where tests let a process die).
//!
//! Imports point down only: `cli` -> `server` -> `gateway` -> `net`, `telemetry` -> `ledger` -> `config` -> `pure`, and no more than
//! two files import each other. What a host that mounts the plugin needs beside it, `server::background` starts.
//!
//! # Flow
//!
//! `tollgate serve` mounts [`Tollgate`] in Pingora's own proxy behind a listener with limits of its own; anyone else can mount it in theirs.
//! Its `request_filter` goes through steps 1 to 3, the later hooks through the rest.
//!
//! 1. `access::authenticate`: from the header to a [`ledger::Caller`], which only the check of a key's revocation and expiry makes; a
//!    malformed key is refused without asking the store.
//! 2. `access::receive`: the whole body, before the upstream is chosen, within limits of size and time. Where it was waited for, the key is
//!    looked up again: what was done to it meanwhile counts.
//! 3. `access::admit`: model, tier and domain lock give a [`pure::policy::Permit`]; the call is written into the journal; limits and
//!    credit give a [`ledger::Hold`] of its worst case.
//! 4. `upstream`: targets in their order, until one answers with 200; each gets the client's body with only the named
//!    fields edited. `transport`: one task reads from the target and writes to the client, over Pingora's sessions. `failure`: what
//!    follows when a target fails, in one match.
//! 5. `billing::meter`: the tap sees each piece of the answer and leaves its bytes as they are, but for named changes. The last usage tells
//!    what the call costs ([`pure::bill`]).
//! 6. `billing::settle`: after the last byte, the exact cost closes the hold. It never waits.
//!
//! # Invariants, and what holds each
//!
//! - `pure` imports nothing of this crate but `pure`: no tokio, no Pingora, no file, socket, clock or float. Held by a build without the
//!   feature `serve`, and by `tests/tidy`, which also holds the direction of all other imports.
//! - Only [`pure::policy`] makes a `Permit`: its fields are private. Only `access::admit` asks for a `Hold`. Only `billing::settle` and a
//!   recovery of what a dead process left debit one (the demo does both, for a day of invented calls before its gateway runs), and `access`
//!   releases the hold of a call that is not sent after all. Every way a call can end leads to `billing::settle`: an answer, a failure, a
//!   client that left, a dropped task. A `Hold` is taken by value, and one that is dropped gives its credit back (`tests/it/holds.rs`).
//! - The journal comes first: an entry before a hold, the call's number and the tokens before they are sent, the debit before the ledger
//!   hears of it; an entry is freed once the ledger has it for good. Held by the kills and restores of `tests/it/faults`.
//! - A number moves the balance once ([`pure::numbers`]). Held by an exhaustive search over its rules, and by histories on both stores.
//! - Only [`pure::money`] rounds, once a call ([`pure::prices::PriceTable::cost`]). What an answer tells of its cost and what is debited come
//!   from one function, [`pure::bill::bill`]; held by lying providers in `tests/it/liars.rs`. Only a list price can be multiplied by tokens: they are types.
//! - Only [`clock`] reads the clock, only [`config`] the environment, only the end of `serve` exits, only an upgrade starts a process; no
//!   queue is without a bound and no lock is held over a wait, unless it says what bounds it: `.clippy.toml` disallows the rest.
//! - Only [`pure::error`] says which status an error of ours has; the OpenAPI description lists them, and `tests/it/openapi.rs` compares.
//! - A failed parse, conversion or store call is never zero, empty or "allowed". Held by review, and by the damage that tests do.
//! - Only `billing::keep_within` ends a stream before its upstream does, and tells the client why in an event: it has reached its client's own
//!   maximum, there is no credit for more, the ledger cannot say whether there is, or its account was stopped (`billing::early_end`). The
//!   meter by itself stops none. Held by `Meter::end_early`, which nothing else can call, and by `tests/it/bounds.rs`, `extensions.rs` and
//!   `suspended.rs`. A stream that has had its last event is over: its upstream has a second to end it (`tests/it/upstream_safety/open_ends.rs`).
//! - A tap never needs more memory than its named bounds (`tests/fuzz`, `tests/it/meter_memory.rs`).
//!
//! # Cross-cutting
//!
//! Time is UTC and comes in as a [`pure::time::Timestamp`]. A request's id is a UUIDv7: it is the hold's id and `x-request-id`. A
//! snapshot of configuration and catalogue is taken when a request begins, so a reload does not touch one that is under way.

#![cfg_attr(
    test,
    expect(
        clippy::disallowed_methods,
        reason = "tests measure time and are steered by the environment"
    )
)]

#[cfg(feature = "serve")]
pub mod cli;
#[cfg(feature = "serve")]
pub mod clock;
#[cfg(feature = "serve")]
pub mod config;
#[cfg(feature = "serve")]
mod failpoints;
#[cfg(feature = "serve")]
pub mod gateway;
#[cfg(feature = "serve")]
pub mod ledger;
#[cfg(feature = "serve")]
pub mod net;
pub mod pure;
#[cfg(feature = "serve")]
pub mod server;
#[cfg(feature = "serve")]
pub mod simulator;
#[cfg(feature = "serve")]
pub mod telemetry;

#[cfg(feature = "serve")]
pub use gateway::Tollgate;

/// jemalloc's options for the binary (see its manual, TUNING). Pingora reads each body into a new buffer of 64 KiB, which is more than a
/// thread keeps for itself by default: each took locks and a search, as did all sizes that a request has many of. By default a thread also
/// looks each 64 KiB for what it does not use, which is once a request, and gave back what the next one needed.
pub const ALLOCATOR_OPTIONS: &std::ffi::CStr =
    c"tcache_max:131072,tcache_nslots_small_min:200,tcache_nslots_large:40,tcache_gc_incr_bytes:1048576";
