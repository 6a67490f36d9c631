//! How a stream is tapped: what its caller knows of the request.

use crate::pure::tokens::Encoding;
use crate::pure::usage::Naming;

/// How a stream is tapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TapOptions {
    /// The gateway asked for the usage chunk and the client did not: it is left out.
    pub drop_usage_chunk: bool,
    /// So much of an event that has not ended is held back at most. See [`StreamTap`](super::StreamTap).
    pub hold_bytes_max: usize,
    /// The vocabulary that delivered text is counted with.
    pub encoding: Encoding,
    /// How many choices were asked for: before so many have ended, or `[DONE]` came, the answer is not complete.
    pub choices: u64,
    /// The most completion tokens that the answer can have, over all its choices; none: any report is believed.
    pub completion_max: Option<u64>,
    /// How the provider's reports are read.
    pub naming: Naming,
}

impl Default for TapOptions {
    fn default() -> Self {
        TapOptions {
            drop_usage_chunk: false,
            hold_bytes_max: HOLD_BYTES_MAX,
            encoding: Encoding::default(),
            choices: 1,
            completion_max: None,
            naming: Naming::default(),
        }
    }
}

/// The default of [`TapOptions::hold_bytes_max`].
pub const HOLD_BYTES_MAX: usize = 64 * 1024;
