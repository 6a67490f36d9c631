//! The tests of the load bench: its parsers, its statistics, and what it computes that calls cost; and of what the micro bench takes for a
//! count. The benches themselves have no test harness, so they are a target of their own over the same files: `cargo test --test bench`.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    dead_code,
    reason = "what measures is not run here; a test fails by panicking"
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
#[path = "../micro/counted.rs"]
mod counted;
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

mod tests {
    mod answers;
    mod beside;
    mod children;
    mod counters;
    mod disturbance;
    mod drive;
    mod due;
    mod figures;
    mod http;
    mod micro;
    mod options;
    mod parts;
    mod report;
    mod scripts;
    mod simulated;
    mod soak;
    mod statistics;
}
