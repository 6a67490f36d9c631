//! The fault rig: the real binary on either store under load, killed, and its ledger compared with what every client received.
//!
//! Each worker has an account of its own and one call at a time, so an account's spending says what its calls were billed: exactly, for
//! those that their client saw to the end, and between what the client had received and what the upstream had sent, for the one
//! that was cut.

mod load;
mod process;
mod record;
mod told;
mod upstream;

mod folders;
mod keyed;
mod kills;
mod open_files;
mod outages;
mod outsiders;
mod quiet_log;
mod restores;
mod soak;
mod stops;
mod unit;
mod unwritable;
mod upgrade_hangs;
mod upgrade_steps;
mod upgrades;
