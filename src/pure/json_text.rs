//! Plain text in JSON strings: how much of one stands for itself. The request scanner and the stream tap call it.
//!
//! It goes by words and blocks, not by bytes.

/// What is left of `rest` from its first quote, backslash or control character on.
#[inline]
pub(crate) fn skip_plain(rest: &[u8]) -> &[u8] {
    rest.get(plain_length(rest)..).unwrap_or_default()
}

/// How many bytes come before the first quote, backslash or control character; at most all.
#[inline(always)]
pub(crate) fn plain_length(text: &[u8]) -> usize {
    // Most strings are keys and short words.
    match text.first_chunk::<WORD>().map(|word| marks(u64::from_le_bytes(*word))) {
        Some(0) | None => text.len() - skip_long(text).len(),
        Some(marks) => usize::try_from(marks.trailing_zeros() / 8).unwrap_or(0),
    }
}

#[inline(never)]
fn skip_long(mut rest: &[u8]) -> &[u8] {
    loop {
        // The end is found within a few words, and so is a mark's place in its block.
        for _ in 0..BLOCK / WORD {
            let Some((word, tail)) = rest.split_first_chunk::<WORD>() else {
                let plain = rest.iter().take_while(|&&byte| !is_mark(byte)).count();
                return rest.get(plain..).unwrap_or_default();
            };
            let marks = marks(u64::from_le_bytes(*word));
            if marks != 0 {
                let at = usize::try_from(marks.trailing_zeros() / 8).unwrap_or(0);
                return rest.get(at..).unwrap_or_default();
            }
            rest = tail;
        }
        // The fixed size and the bytes of 0 and 1 let the compiler stay in vector registers; with `is_mark` it does not.
        while let Some((block, tail)) = rest.split_first_chunk::<BLOCK>() {
            let marks = block.iter().fold(0, |any, &byte| {
                any | u8::from(byte == b'"') | u8::from(byte == b'\\') | u8::from(byte < b' ')
            });
            if marks != 0 {
                break;
            }
            rest = tail;
        }
    }
}

#[inline]
fn is_mark(byte: u8) -> bool {
    (byte == b'"') | (byte == b'\\') | (byte < b' ')
}

/// The high bit of each byte that is a mark. Bits above the lowest may be wrong (a borrow), the lowest never is.
#[inline]
fn marks(word: u64) -> u64 {
    let quote = word ^ (ONES * 0x22);
    let backslash = word ^ (ONES * 0x5c);
    let found = (quote.wrapping_sub(ONES) & !quote)
        | (backslash.wrapping_sub(ONES) & !backslash)
        | (word.wrapping_sub(ONES * 0x20) & !word);
    found & (ONES * 0x80)
}

const WORD: usize = 8;
const BLOCK: usize = 32;
const ONES: u64 = 0x0101_0101_0101_0101;

#[cfg(test)]
mod tests {
    use super::*;

    /// Also where whole blocks of them follow whole blocks of plain text.
    #[test]
    fn plain_text_ends_at_the_first_mark_however_many_follow() {
        for mark in [b'"', b'\\', 0, 0x1f] {
            for plain in [0, 1, 7, 8, 9, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK + 5] {
                for marks in [1, WORD, BLOCK, 3 * BLOCK] {
                    let text = [vec![b' '; plain], vec![mark; marks], vec![b'a'; BLOCK]].concat();
                    assert_eq!(plain_length(&text), plain, "{plain} and {marks} of {mark}");
                    assert_eq!(skip_plain(&text).len(), text.len() - plain);
                }
            }
        }
        for plain in [0, 5, WORD, BLOCK, 5 * BLOCK + 3] {
            assert_eq!(plain_length(&vec![b'a'; plain]), plain);
        }
    }
}
