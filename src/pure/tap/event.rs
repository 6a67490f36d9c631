//! What the stream tap remembers of the event at hand while its data passes.

/// Whether the data of the event at hand is `[DONE]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Terminal {
    /// So many bytes of it are.
    Maybe(usize),
    Yes,
    No,
}

/// Where in a chunk the data stands of the event at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataAt {
    /// There is none yet, and all of the event so far is in the chunk.
    None,
    /// In one piece that begins here.
    One(usize),
    /// In several pieces or chunks.
    Unknown,
}

impl DataAt {
    /// With a piece of data at `place`.
    pub(super) fn after(self, place: usize) -> DataAt {
        if self == DataAt::None {
            DataAt::One(place)
        } else {
            DataAt::Unknown
        }
    }

    /// With the end of a line of data. A line without data is the first of several.
    pub(super) fn after_line(self) -> DataAt {
        if self == DataAt::None { DataAt::Unknown } else { self }
    }
}

impl Terminal {
    /// With more data.
    pub(super) fn after(self, data: &[u8]) -> Terminal {
        let Terminal::Maybe(mut matched) = self else {
            return self;
        };
        for byte in data {
            match DONE_DATA.get(matched) {
                Some(expected) if expected == byte => matched += 1,
                Some(_) if matched == 0 && *byte == b' ' => {}
                Some(_) => return Terminal::No,
                None => break,
            }
        }
        if matched == DONE_DATA.len() {
            Terminal::Yes
        } else {
            Terminal::Maybe(matched)
        }
    }
}

const DONE_DATA: &[u8] = b"[DONE]";
