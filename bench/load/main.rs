//! The load bench: what a request costs through the gateway, beside what it costs through a bare Pingora pass-through.
//!
//! One program in several roles, each its own process, so that CPU can be told apart: this one, which generates the load (`drive`,
//! `client`, `due`, `pacer`) and reports; the simulated [`upstream`]; the [`baseline`]. The [`gateway`] is the real binary, whose accounts are made by the [`operator`] and which has
//! a [`store`]; nginx and HAProxy ([`peers`]) take part where they are installed. [`fleet`] starts what they share, [`subjects`] each of them.
//!
//! [`steady`] runs the [`parts`] of a steady load, [`pairs`] gateways that differ in one thing, [`lists`] what operators read, [`idle`] open streams, [`soak`] the long run, [`syscalls`] and [`instructions`] a count;
//! [`beside`] sends what is not measured, [`children`] says what Redis' own used, [`tag`] whose an answer is.
//!
//! [`disturbance`] says which rounds do not count, [`figures`] and [`statistics`] what is concluded from the others, [`report`], [`tables`]
//! and [`plot`] write it down.
//!
//! Everything stays on loopback and ends by itself. What it cannot tell: the cost of TLS and of a real network, and latency below the noise
//! of the machine; CPU time is the figure that a busy machine disturbs least.
#![expect(
    clippy::disallowed_methods,
    reason = "it measures time, and its processes are its own"
)]

mod allocator;
mod answers;
mod baseline;
mod bench;
mod beside;
mod books;
mod catalogue;
mod children;
mod cli;
mod client;
mod common;
mod disturbance;
mod drive;
mod due;
mod events;
mod figures;
mod fleet;
mod gateway;
mod http2;
mod idle;
mod instructions;
mod lists;
mod machine;
mod measured;
mod operator;
mod pacer;
mod pairs;
mod parts;
mod peers;
mod plot;
mod prices;
mod process;
mod provenance;
mod random;
mod report;
mod request;
mod script;
mod soak;
mod soak_calls;
mod statistics;
mod steady;
mod store;
mod subjects;
mod syscalls;
mod tables;
mod tag;
mod tally;
mod upstream;
mod waiting;
mod wire;

#[global_allocator]
static ALLOCATOR: allocator::Chosen = allocator::Chosen;

fn main() -> std::process::ExitCode {
    bench::main()
}
