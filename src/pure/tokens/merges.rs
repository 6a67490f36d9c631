//! A piece of a text as the tokens that byte-pair encoding makes of it, in linear time.
//!
//! The longest token that fits is taken, and a shorter one where it may not follow the token before it. When none may, the token before is
//! taken back, and a shorter one is tried there; a place that led nowhere is not tried again. (The algorithm is that of the crate `bpe`,
//! whose counts are the same; its tables take ten times as much memory.)

use super::tables::Tables;

/// The tokens of a piece. None when the tables are not in order.
pub(super) fn tokens(tables: &Tables, piece: &[u8]) -> Option<Vec<u32>> {
    let mut tokens = Vec::with_capacity(piece.len() / 3 + 1);
    let mut ends = Places::new(piece.len());
    let mut at = 0usize;
    let mut next = tables.longest(piece).map(|(token, _)| token);
    while let Some(mut token) = next {
        let last = tokens.last().copied();
        next = loop {
            let known = tables.token(token)?;
            let end = at + usize::try_from(known.length).ok()?;
            let may_follow = || last.map_or(Some(true), |last| tables.may_follow(last, token));
            if ends.may_be(end) && may_follow()? {
                tokens.push(token);
                at = end;
                break tables.longest(piece.get(end..)?).map(|(token, _)| token);
            }
            if known.prefix != super::layout::NO_TOKEN {
                token = known.prefix;
                continue;
            }
            ends.led_nowhere(at);
            tokens.pop();
            let length = last.map_or(Some(0), |last| tables.token(last).map(|known| known.length))?;
            at -= usize::try_from(length).ok()?;
            break last;
        };
    }
    Some(tokens)
}

/// The places of a piece where a token may end, a bit each.
struct Places(Vec<u64>);

impl Places {
    fn new(length: usize) -> Places {
        Places(vec![u64::MAX; length / 64 + 1])
    }

    fn may_be(&self, place: usize) -> bool {
        self.0.get(place / 64).is_some_and(|bits| bits >> (place % 64) & 1 == 1)
    }

    fn led_nowhere(&mut self, place: usize) {
        if let Some(bits) = self.0.get_mut(place / 64) {
            *bits &= !(1 << (place % 64));
        }
    }
}
