//! Which choices of an answer have something, such as an end.

/// Choices of an answer, by their indexes: those below [`ChoiceSet::CHOICES_MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ChoiceSet(u128);

impl ChoiceSet {
    /// Most choices that are told apart.
    const CHOICES_MAX: u64 = 128;

    /// With the choice of this index.
    pub(super) fn insert(&mut self, index: u64) {
        if index < ChoiceSet::CHOICES_MAX {
            self.0 |= 1_u128 << index;
        }
    }

    /// Whether the choice of this index is among them.
    pub(super) fn contains(self, index: u64) -> bool {
        index < ChoiceSet::CHOICES_MAX && self.0 >> index & 1 == 1
    }

    /// With those.
    pub(super) fn add(&mut self, others: ChoiceSet) {
        self.0 |= others.0;
    }

    /// Whether there are so many, whatever their indexes.
    pub(super) fn has(self, choices: u64) -> bool {
        u64::from(self.0.count_ones()) >= choices.min(ChoiceSet::CHOICES_MAX)
    }
}
