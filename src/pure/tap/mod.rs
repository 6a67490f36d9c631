//! The taps: read-only eyes on the answers that pass, which tell what to bill and how the answer ended.
//!
//! [`StreamTap`] is for streams of server-sent events, [`WholeTap`] for whole JSON answers. Bytes pass unchanged with
//! the exceptions that [`StreamTap`] names; whatever a tap cannot read passes unharmed. No tap fails, waits, allocates
//! on the usual path, or needs more memory than its named bounds. The gateway's body filters call them.
//!
//! Reading order: `stream`, `whole`; below them `scan` (JSON in pieces), `schema` (which values matter), `accumulator` (what
//! they say), `spans` (where they stand), `text` (the counter of tokens), `usage_object` (the usage as a client is told it).

mod accumulator;
mod choice_set;
mod error_event;
mod event;
mod fast_path;
#[doc(hidden)]
pub mod fuzz;
mod output;
mod response_metadata;
mod scan;
mod schema;
mod served_tier;
mod spans;
mod stream;
mod text;
mod usage_object;
mod whole;
mod whole_cost;

pub use response_metadata::{Finishes, Said};
pub use stream::{Framing, HOLD_BYTES_MAX, StreamTap, TapOptions, ToldUse};
pub use whole::WholeTap;
pub use whole_cost::WholeCost;

/// What to send downstream in place of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forward {
    /// The chunk itself.
    Unchanged,
    /// These bytes, which may be none.
    Replace(bytes::Bytes),
}

#[cfg(test)]
mod tests;
