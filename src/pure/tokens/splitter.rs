//! How a text is cut into pieces before it is counted: no token spans two. A finite automaton, which the build script makes of a
//! vocabulary's rule, finds the end of each.

use super::layout::{DEAD, SPLITTER_NUMBERS, START};

/// The automaton, packed.
pub(super) struct Splitter {
    /// Numbers of what follows: how many classes there are, that of the end of the text, and the first states of each kind of match.
    numbers: [usize; SPLITTER_NUMBERS],
    /// Each byte's class.
    classes: &'static [u8],
    /// What follows each state, by class.
    steps: &'static [[u8; 2]],
}

impl Splitter {
    /// The automaton in these bytes.
    pub(super) const fn new(bytes: &'static [u8]) -> Splitter {
        let (numbers, rest) = bytes.split_at(2 * SPLITTER_NUMBERS);
        let (classes, steps) = rest.split_at(256);
        let [[a, b], [c, d], [e, f], [g, h]] = numbers.as_chunks().0 else {
            panic!("the build script writes so many numbers");
        };
        Splitter {
            numbers: [number(*a, *b), number(*c, *d), number(*e, *f), number(*g, *h)],
            classes,
            steps: steps.as_chunks().0,
        }
    }

    /// The length in bytes of the piece that `text` begins with. None if the rule finds none.
    pub(super) fn piece(&self, text: &str) -> Option<usize> {
        let [classes, end_class, first_match, first_look_ahead] = self.numbers;
        let step = |state: usize, class: usize| {
            let next = self.steps.get(state.checked_mul(classes)?.checked_add(class)?)?;
            Some(usize::from(u16::from_le_bytes(*next)))
        };
        let (mut state, mut found) = (START, None);
        for (length, byte) in text.bytes().enumerate() {
            state = step(state, usize::from(*self.classes.get(usize::from(byte))?))?;
            // A match is told with the byte after it.
            if state >= first_match {
                found = Some((length, state >= first_look_ahead));
            } else if state == DEAD {
                break;
            }
        }
        if state != DEAD {
            state = step(state, end_class)?;
            if state >= first_match {
                found = Some((text.len(), state >= first_look_ahead));
            }
        }
        let (length, looks_ahead) = found?;
        if !looks_ahead {
            return Some(length);
        }
        // The last character was only looked at.
        let last = text.get(..length)?.chars().next_back()?;
        length.checked_sub(last.len_utf8())
    }
}

const fn number(low: u8, high: u8) -> usize {
    (high as usize) << 8 | low as usize
}
