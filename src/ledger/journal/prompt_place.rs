//! Where a call's prompt is kept.

/// Where a call's prompt is kept, and its checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PromptPlace {
    /// The first block's number, from 1; 0 when the prompt is not kept.
    pub(super) first_block: u32,
    /// Of the prompt; of the text in it where it is not kept.
    pub(super) bytes: u32,
    pub(super) checksum: u32,
}

impl PromptPlace {
    pub(super) fn is_kept(self) -> bool {
        self.first_block != 0
    }
}
