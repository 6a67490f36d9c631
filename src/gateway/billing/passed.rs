//! What the meter makes of a piece of an answer.

/// What became of a piece of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum Passed {
    /// It is passed on, unless it is gathered.
    On,
    /// The stream ended as if cleanly, but not as a whole; the client is told.
    Died,
    /// The stream's provider sent an error event, in the place of which the client gets ours. Told once.
    Failed {
        /// The code in that event.
        code: Option<u16>,
    },
    /// A whole answer stopped before its end, or a stream that was to begin with its first event before that, though its connection ended as
    /// if cleanly.
    Cut,
    /// All that came was no answer.
    NoAnswer {
        /// The code in the error object that came.
        code: Option<u16>,
    },
}
