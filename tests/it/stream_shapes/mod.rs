//! Streams as providers send them, written from their documentation: what each must be billed as, and what of it must
//! reach a client. One table for the tests of the tap and of the gateway.

mod odd;
mod openai;
mod others;
mod repeated;

/// One stream.
pub(super) struct Shape {
    /// Provider and case.
    pub name: &'static str,
    /// Its events and comments, each without the blank line that follows it.
    pub events: &'static [&'static str],
    /// The blank line, with the line end before it.
    pub end: &'static str,
    /// Prompt and completion tokens that it reports.
    pub usage: Option<(u64, u64)>,
    /// The texts that it delivers, in order.
    pub texts: &'static [&'static str],
    /// The place in `events` of the usage chunk that a client sees only if it asked.
    pub usage_chunk: Option<usize>,
    /// How it ends.
    pub ending: Ending,
}

/// How a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// With `[DONE]`.
    Done,
    /// With a finish reason, but no `[DONE]`.
    Finished,
    /// With neither.
    Open,
    /// With an error event, the last of `events`.
    Error(Option<u16>),
}

impl Shape {
    /// The stream's bytes.
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.events
            .iter()
            .flat_map(|event| [event.as_bytes(), self.end.as_bytes()])
            .flatten()
            .copied()
            .collect()
    }
}

/// The table.
pub(super) fn shapes() -> impl Iterator<Item = &'static Shape> {
    [openai::SHAPES, others::SHAPES, repeated::SHAPES, odd::SHAPES]
        .into_iter()
        .flatten()
}

const BASE: Shape = Shape {
    name: "",
    events: &[],
    end: "\n\n",
    usage: None,
    texts: &[],
    usage_chunk: None,
    ending: Ending::Done,
};
