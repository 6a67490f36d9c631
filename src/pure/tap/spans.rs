//! Where in a document the values stand that a tap passes on otherwise than they came, or that its fast path leaves a place for.

use std::ops::Range;

/// Where in a document its texts and its usage objects stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Spans {
    /// Texts that are not empty.
    pub(super) texts: u32,
    /// The last of them, between its quotes.
    pub(super) text: Range<usize>,
    /// The padding, between its quotes.
    pub(super) padding: Range<usize>,
    /// One of the texts has an escape in it, or is no string.
    pub(super) escaped: bool,
    /// The usage object that stands in the document's root, with its braces: the last of them. While it is open its end is 0.
    pub(super) usage: Range<usize>,
    /// Bytes of text before that one, and before each of the others.
    text_before: (u64, Vec<u64>),
    /// A usage stands there that is no object.
    pub(super) usage_is_none: bool,
    /// The usage objects that stand elsewhere (in a choice, in Groq's object), and earlier ones of the root: the first
    /// [`Spans::OTHER_USAGES_MAX`]. The end of one that is open is 0. There are none in nearly all documents.
    pub(super) other_usages: Vec<Range<usize>>,
    /// What follows the array of choices. 0 while it is open, and where there is none.
    pub(super) choices_end: usize,
    /// What follows the last brace of the root. 0 while it is open, and where it is no object.
    pub(super) end: usize,
}

impl Spans {
    /// Most usage objects that are noted beside that of the root.
    const OTHER_USAGES_MAX: usize = 256;

    /// A usage object of the root begins at this place, behind so many bytes of text.
    pub(super) fn start_usage(&mut self, place: usize, text_before: u64) {
        let earlier = std::mem::replace(&mut self.usage, place..0);
        let before_earlier = std::mem::replace(&mut self.text_before.0, text_before);
        if earlier.end > 0 {
            self.note_other_usage(earlier, before_earlier);
        }
    }

    /// One that stands elsewhere begins at this place.
    pub(super) fn start_other_usage(&mut self, place: usize, text_before: u64) {
        self.note_other_usage(place..0, text_before);
    }

    /// It has ended, before this place.
    pub(super) fn end_other_usage(&mut self, place: usize) {
        if let Some(open) = self.other_usages.last_mut().filter(|last| last.end == 0) {
            open.end = place;
        }
    }

    /// Where the first usage object begins of those that begin at `place` or behind it.
    pub(super) fn first_usage(&self, place: usize) -> Option<usize> {
        let others = self.other_usages.iter().map(|other| other.start);
        // A document does not begin with one: 0 is that there is none.
        let starts = others.chain([self.usage.start]);
        starts.filter(|start| *start > 0 && *start >= place).min()
    }

    /// Where the usage objects begin that are to be changed yet while the document is open: that of the root (0 where there is none), then
    /// another one that is open.
    pub(super) fn unfinished_usages(&self) -> impl Iterator<Item = usize> {
        let open = self.other_usages.last().filter(|last| last.end == 0);
        [Some(self.usage.start), open.map(|open| open.start)]
            .into_iter()
            .flatten()
    }

    /// How many bytes of text stand before the usage object that begins at `place`; before one that is not noted, none.
    pub(super) fn text_before(&self, place: usize) -> u64 {
        let (of_root, of_others) = &self.text_before;
        if self.usage.start == place {
            return *of_root;
        }
        let mut others = self.other_usages.iter().zip(of_others);
        others
            .find(|(other, _)| other.start == place)
            .map_or(0, |(_, bytes)| *bytes)
    }

    fn note_other_usage(&mut self, span: Range<usize>, text_before: u64) {
        if self.other_usages.len() < Spans::OTHER_USAGES_MAX {
            self.other_usages.push(span);
            self.text_before.1.push(text_before);
        }
    }
}
