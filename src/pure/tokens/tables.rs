//! The tables of a vocabulary, as the build script made them: a part of the binary that is read where it lies. A page of them takes memory
//! once it is used, and all processes share it.

use super::layout::{self, NO_TOKEN, Node, Token};
use super::splitter::Splitter;

/// A vocabulary's tables, packed.
pub(super) struct Tables {
    /// The trie of all tokens.
    nodes: &'static [[u8; 8]],
    /// By their numbers.
    tokens: &'static [[u8; 8]],
    /// The hash table of merges. A power of two.
    merges: &'static [[u8; 4]],
    splitter: Splitter,
}

/// The tables that the build script has written by this name.
macro_rules! tables {
    ($name:literal) => {
        Tables {
            nodes: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".nodes"))
                .as_chunks()
                .0,
            tokens: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".tokens"))
                .as_chunks()
                .0,
            merges: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".merges"))
                .as_chunks()
                .0,
            splitter: Splitter::new(include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".splitter"))),
        }
    };
}

pub(super) static O200K: Tables = tables!("o200k");
pub(super) static CL100K: Tables = tables!("cl100k");

impl Tables {
    /// Their bytes, but for the small ones of the splitter.
    pub(super) fn bytes(&self) -> [&'static [u8]; 3] {
        [
            self.nodes.as_flattened(),
            self.tokens.as_flattened(),
            self.merges.as_flattened(),
        ]
    }

    /// The length in bytes of the piece that `text` begins with: no token spans two. All of it if the rule finds none.
    pub(super) fn piece(&self, text: &str) -> usize {
        self.splitter.piece(text).unwrap_or(text.len())
    }

    /// The longest token that `text` begins with, and its length in bytes. None only if the text is empty: each byte is a token.
    #[inline]
    pub(super) fn longest(&self, text: &[u8]) -> Option<(u32, usize)> {
        let (mut at, mut node, mut longest) = (0, self.node(0)?, None);
        for (length, byte) in (1..).zip(text) {
            let place = node.children ^ u32::from(*byte);
            match self.node(place) {
                Some(child) if child.parent == at => (at, node) = (place, child),
                _ => break,
            }
            if node.token != NO_TOKEN {
                longest = Some((node.token, length));
            }
        }
        longest
    }

    /// Whether `text` is, on its own, one token.
    #[inline]
    pub(super) fn is_one(&self, text: &[u8]) -> bool {
        let Some(mut node) = self.node(0) else { return false };
        let mut at = 0;
        for byte in text {
            let place = node.children ^ u32::from(*byte);
            match self.node(place) {
                Some(child) if child.parent == at => (at, node) = (place, child),
                _ => return false,
            }
        }
        node.is_alone
    }

    #[inline]
    fn node(&self, place: u32) -> Option<Node> {
        let packed = self.nodes.get(usize::try_from(place).ok()?)?;
        Some(Node::unpack(u64::from_le_bytes(*packed)))
    }

    /// What is known of a token.
    #[inline]
    pub(super) fn token(&self, number: u32) -> Option<Token> {
        let packed = self.tokens.get(usize::try_from(number).ok()?)?;
        Some(Token::unpack(u64::from_le_bytes(*packed)))
    }

    /// The token that these two are merged to.
    #[inline]
    fn merge(&self, left: u32, right: u32) -> Option<u32> {
        let hash = layout::hash_pair(left, right);
        let size = self.merges.len();
        let first = usize::try_from(hash >> (u64::BITS - size.checked_ilog2()?)).ok()?;
        // Half of the places are free, so the search ends after some steps.
        for place in first..first.saturating_add(size) {
            let packed = u32::from_le_bytes(*self.merges.get(place & (size - 1))?);
            if packed == layout::NO_MERGE {
                return None;
            }
            let Some(number) = layout::unpack_merge(packed, hash) else {
                continue;
            };
            let token = self.token(number)?;
            if (token.left, token.right) == (left, right) {
                return Some(number);
            }
        }
        None
    }

    /// Whether the two may follow one another: no merge that comes before theirs goes across the place where they meet.
    pub(super) fn may_follow(&self, mut left: u32, mut right: u32) -> Option<bool> {
        // Merges from here on come after one that was undone.
        let mut limit = u32::MAX;
        loop {
            if self.merge(left, right).is_some_and(|merged| merged < limit) {
                return Some(false);
            }
            // The later merge of the two is undone; what is none is a token that is not made of others.
            if left > right {
                limit = left;
                left = self.token(left)?.right;
                if left == limit {
                    limit = right + 1;
                    right = self.token(right)?.left;
                    if right + 1 == limit {
                        return Some(true);
                    }
                }
            } else {
                limit = right + 1;
                right = self.token(right)?.left;
                if right + 1 == limit {
                    limit = left;
                    left = self.token(left)?.right;
                    if left == limit {
                        return Some(true);
                    }
                }
            }
        }
    }
}
