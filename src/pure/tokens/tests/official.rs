//! The counts against another implementation of OpenAI's tokenizers, over texts in several scripts.

use tiktoken_rs::{CoreBPE, cl100k_base_singleton, o200k_base_singleton};

use super::*;

/// Name and text.
pub(super) const CORPUS: [(&str, &str); 5] = [
    ("English", include_str!("../../../../tests/corpus/english.txt")),
    ("code", include_str!("../../../../tests/corpus/code.txt")),
    ("Chinese", include_str!("../../../../tests/corpus/chinese.txt")),
    ("Arabic", include_str!("../../../../tests/corpus/arabic.txt")),
    ("emoji", include_str!("../../../../tests/corpus/emoji.txt")),
];
/// The most that a count may be off, in parts of a thousand.
const ERROR_MAX: u64 = 10;

fn official(encoding: Encoding) -> &'static CoreBPE {
    match encoding {
        Encoding::O200k => o200k_base_singleton(),
        Encoding::Cl100k => cl100k_base_singleton(),
    }
}

/// The text as a provider streams it: a token an event, but that a character which several tokens make up comes whole.
fn deltas(text: &str, encoding: Encoding) -> (u64, Vec<String>) {
    let tokens = official(encoding).encode_ordinary(text);
    let (mut deltas, mut waiting) = (Vec::new(), Vec::new());
    for token in &tokens {
        waiting.extend(official(encoding).decode_bytes(&[*token]).unwrap());
        if let Ok(text) = String::from_utf8(waiting.clone()) {
            deltas.push(text);
            waiting.clear();
        }
    }
    assert_eq!(deltas.concat(), text);
    (u64::try_from(tokens.len()).unwrap(), deltas)
}

/// The text in pieces of so many characters, which end anywhere.
fn pieces(text: &str, characters: usize) -> Vec<String> {
    let all: Vec<char> = text.chars().collect();
    all.chunks(characters).map(|piece| piece.iter().collect()).collect()
}

/// The same, but so many tokens an event.
fn joined(deltas: &[String], together: usize) -> Vec<String> {
    deltas.chunks(together).map(|deltas| deltas.concat()).collect()
}

fn sum(texts: &[String], encoding: Encoding) -> u64 {
    texts.iter().map(|text| count(text, encoding)).sum()
}

/// Prints the table: `cargo test --lib official -- --nocapture`.
#[test]
fn counts_are_within_a_hundredth_of_the_official_ones() {
    println!("text      encoding  official     whole  a token each  ten tokens each  40 characters each");
    for (name, text) in CORPUS {
        for encoding in [Encoding::O200k, Encoding::Cl100k] {
            let (official, deltas) = deltas(text, encoding);
            let (whole, streamed) = (count(text, encoding), sum(&deltas, encoding));
            let tens = sum(&joined(&deltas, 10), encoding);
            // No provider cuts words like this; what it would cost is told, not promised.
            let cut = sum(&pieces(text, 40), encoding);
            let encoded = format!("{encoding:?}");
            println!("{name:10}{encoded:8}{official:>10}{whole:>10}{streamed:>14}{tens:>17}{cut:>20}");
            for counted in [whole, streamed, tens] {
                let off = counted.abs_diff(official);
                assert!(off * 1000 <= official * ERROR_MAX, "{name}, {encoding:?}: {counted}");
            }
        }
    }
}
