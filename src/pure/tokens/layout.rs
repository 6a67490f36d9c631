//! How the tables of a vocabulary are laid out. The build script (`src/build.rs`) packs them, and looks whether they read as they should;
//! `tables` reads them.

/// No token.
pub(crate) const NO_TOKEN: u32 = (1 << TOKEN_BITS) - 1;

/// A node of the double array that holds the trie of all tokens: the texts that tokens begin with. The first is the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// The child for a byte is at this place, its last eight bits changed by the byte, if the node there is one's child.
    pub(crate) children: u32,
    pub(crate) parent: u32,
    /// The token whose text leads here, or [`NO_TOKEN`].
    pub(crate) token: u32,
    /// Whether that text, on its own, is no more than that token: a splitting rule cuts some.
    pub(crate) is_alone: bool,
}

impl Node {
    #[inline]
    pub(crate) fn unpack(packed: u64) -> Node {
        Node {
            children: bits(packed, 0, NODE_BITS),
            parent: bits(packed, NODE_BITS, NODE_BITS),
            token: bits(packed, 2 * NODE_BITS, TOKEN_BITS),
            is_alone: bits(packed, 2 * NODE_BITS + TOKEN_BITS, 1) == 1,
        }
    }
}

/// What is known of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// The two that were merged to it; the token itself, twice, if it is no merge.
    pub(crate) left: u32,
    pub(crate) right: u32,
    /// The longest other token that its text begins with, or [`NO_TOKEN`].
    pub(crate) prefix: u32,
    /// Bytes of its text.
    pub(crate) length: u32,
}

impl Token {
    #[inline]
    pub(crate) fn unpack(packed: u64) -> Token {
        Token {
            left: bits(packed, 0, TOKEN_BITS),
            right: bits(packed, TOKEN_BITS, TOKEN_BITS),
            prefix: bits(packed, 2 * TOKEN_BITS, TOKEN_BITS),
            length: bits(packed, 3 * TOKEN_BITS, LENGTH_BITS),
        }
    }
}

/// The token of a place in the hash table of merges, if its hash may be this one: beside the token there are bits of its hash, which tell
/// most others apart. Whether it is the merge that was looked for, the token's own parts say.
#[inline]
pub(crate) fn unpack_merge(packed: u32, hash: u64) -> Option<u32> {
    (packed >> TOKEN_BITS == tag(hash)).then_some(packed & NO_TOKEN)
}

/// The hash of two tokens that may be merged. Its highest bits are the place where the search begins.
#[inline]
pub(crate) fn hash_pair(left: u32, right: u32) -> u64 {
    let pair = u64::from(left) << 32 | u64::from(right);
    let mixed = pair.wrapping_mul(MIX);
    (mixed ^ mixed >> 32).wrapping_mul(MIX)
}

/// The bits of a merge's hash that stand beside its token.
#[inline]
pub(crate) fn tag(hash: u64) -> u32 {
    bits(hash, 0, 32 - TOKEN_BITS)
}

#[inline]
fn bits(packed: u64, from: u32, count: u32) -> u32 {
    u32::try_from(packed >> from & ((1 << count) - 1)).unwrap_or_default()
}

/// A free place of the table of merges.
pub(crate) const NO_MERGE: u32 = u32::MAX;
/// Bits of a token's number: a vocabulary has at most 262,143 of them.
pub(crate) const TOKEN_BITS: u32 = 18;
/// Bits of a node's place.
pub(crate) const NODE_BITS: u32 = 20;
/// Bits of a token's length in bytes.
const LENGTH_BITS: u32 = 64 - 3 * TOKEN_BITS;
/// An odd number with no pattern in its bits (of the golden ratio).
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
/// Numbers of two bytes at the start of a packed automaton that cuts texts: how many classes of bytes it has, the class of the end of a
/// text, and the first of its states that tell a match, and of those that tell one whose last character is not a part of it. Each byte's
/// class follows, and what follows each state, by class.
pub(crate) const SPLITTER_NUMBERS: usize = 4;
/// The state of an automaton that leads nowhere, and the one it begins in.
pub(crate) const DEAD: usize = 0;
pub(crate) const START: usize = 1;
