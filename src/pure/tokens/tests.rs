//! The counter.

use super::*;

mod official;

#[test]
fn the_encoding_follows_the_family() {
    for id in [
        "openai/gpt-4o-mini",
        "gpt-4.1",
        "o3-mini",
        "openai/gpt-5",
        "ft:gpt-4o-mini:acme",
        "anthropic/claude-3",
        "",
    ] {
        assert_eq!(Encoding::for_model(id), Encoding::O200k, "{id}");
    }
    for id in [
        "openai/gpt-4-turbo",
        "gpt-3.5-turbo",
        "azure/gpt-35-turbo",
        "text-embedding-3-small",
        "ft:gpt-4:a",
    ] {
        assert_eq!(Encoding::for_model(id), Encoding::Cl100k, "{id}");
    }
}

#[test]
fn known_counts() {
    // From OpenAI's cookbook on counting tokens.
    assert_eq!(count("antidisestablishmentarianism", Encoding::Cl100k), 6);
    assert_eq!(count("antidisestablishmentarianism", Encoding::O200k), 6);
    assert_eq!(count("2 + 2 = 4", Encoding::Cl100k), 7);
    assert_eq!(count("2 + 2 = 4", Encoding::O200k), 7);
    assert_eq!(count("お誕生日おめでとう", Encoding::Cl100k), 9);
    assert_eq!(count("お誕生日おめでとう", Encoding::O200k), 8);
    assert_eq!(count("tiktoken is great!", Encoding::Cl100k), 6);
    assert_eq!(count("", Encoding::O200k), 0);
}

#[test]
fn the_chat_format_costs_three_a_message_and_three_for_the_reply() {
    assert_eq!(chat_overhead(2, 1), 10);
}

/// The full tokenizer's count.
fn full(text: &str, encoding: Encoding) -> u64 {
    let tokenizer = match encoding {
        Encoding::O200k => bpe_openai::o200k_base(),
        Encoding::Cl100k => bpe_openai::cl100k_base(),
    };
    u64::try_from(tokenizer.count(text)).unwrap()
}

/// The full tokenizer's tokens, by their lengths.
fn full_lengths(text: &str, encoding: Encoding) -> Vec<usize> {
    let tokenizer = match encoding {
        Encoding::O200k => bpe_openai::o200k_base(),
        Encoding::Cl100k => bpe_openai::cl100k_base(),
    };
    let length = |token: &u32| tokenizer.bpe.token_len(*token);
    tokenizer.encode(text).iter().map(length).collect()
}

#[track_caller]
fn check(text: &str) {
    for encoding in [Encoding::O200k, Encoding::Cl100k] {
        assert_eq!(count(text, encoding), full(text, encoding), "{text:?} in {encoding:?}");
        let lengths: Vec<usize> = lengths(text, encoding).collect();
        assert_eq!(lengths, full_lengths(text, encoding), "{text:?} in {encoding:?}");
    }
}

/// Each token on its own, and each with the one that has the next number: so all of the tables are read.
#[test]
fn every_token_counts_like_in_the_full_tokenizer() {
    for (encoding, tokenizer) in [
        (Encoding::O200k, bpe_openai::o200k_base()),
        (Encoding::Cl100k, bpe_openai::cl100k_base()),
    ] {
        let count_of = u32::try_from(tokenizer.bpe.num_tokens()).unwrap();
        let mut both = Vec::new();
        for token in 0..count_of {
            let start = both.len();
            both.extend_from_slice(tokenizer.bpe.token_bytes(token));
            for text in [&both[start..], &both] {
                let text = String::from_utf8_lossy(text);
                assert_eq!(
                    count(&text, encoding),
                    full(&text, encoding),
                    "{text:?} in {encoding:?}"
                );
            }
            both.drain(..start);
        }
    }
}

#[test]
fn the_corpus_counts_like_in_the_full_tokenizer() {
    for (_, text) in official::CORPUS {
        check(text);
        for line in text.lines() {
            check(line);
        }
    }
}

#[test]
fn the_short_way_counts_like_the_full_tokenizer() {
    for text in [
        " token",
        "Hello",
        "Hello, world.",
        "Hello, world. How are you?",
        "I don't know",
        "a.b",
        "etc...",
        "x  y",
        " ",
        "one two ",
        "HTTPServer is up",
        "no space.Then",
        "wait!? no",
        "a,b",
        "end:",
        "end: ",
        "Mr. O'Neil's",
        "été à la",
        "word\n",
        "word \nnext",
        "tab\tword",
        "a1 b2",
        "supercalifragilisticexpialidocious is long",
        "McDonald",
        " A b",
        "The the THE tHe",
        ".",
        " .",
        ".com",
        "\0",
        "a\0",
        "漢字",
        " 漢字 word",
        "word 漢",
        "word é",
        "don’t",
        "x 's",
        "..",
        "?!",
        ";:",
        "...",
        "a..",
        "ab.. c",
        "..a",
        ". .",
        "aBc",
        "xYz is",
        "1abc",
        "7the",
        "-word",
        "AB c",
        "\t a",
        "- a",
        "'verify",
    ] {
        check(text);
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_short_way_counts_any_text_alike(text in "( ?[A-Z]?[a-z]{1,9}[.,;:!?]?| {1,2}|'s|'t|\\PC{0,3}|[0-9]{1,4}|[\n\r\t/]){0,8}") {
        check(&text);
    }

    #[test]
    fn any_characters_count_alike(text in "(\\s|\\p{L}|\\p{M}|\\p{N}|\\p{S}|\\p{P}|.){0,40}") {
        check(&text);
    }
}

#[test]
fn hostile_megabytes_count_in_linear_time() {
    // Without optimisation, and beside other tests, it takes its time; it would take hours if it were quadratic.
    let bound_ms = if cfg!(debug_assertions) { 20_000 } else { 1000 };
    let megabyte = |unit: &str| unit.repeat((1 << 20) / unit.len());
    let mut noise = 1u64;
    let mut letter = || {
        noise = noise
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        char::from(b'a' + u8::try_from((noise >> 33) % 26).unwrap())
    };
    let random: String = (0..1 << 20).map(|_| letter()).collect();
    let mut texts: Vec<String> = [
        "a",
        " ",
        "漢",
        "漢字かな",
        "\n",
        "!",
        "e\u{301}",
        "\u{301}",
        "😀",
        "0",
        "\0",
        "a b",
        " \n",
        "'s",
    ]
    .iter()
    .map(|unit| megabyte(unit))
    .collect();
    texts.push(random);
    for text in texts {
        for encoding in [Encoding::O200k, Encoding::Cl100k] {
            let start = std::time::Instant::now();
            let tokens = count(&text, encoding);
            let spent = start.elapsed();
            assert!(
                tokens > 0 && spent.as_millis() < bound_ms,
                "{spent:?} for {:?}...",
                text.get(..8)
            );
        }
    }
}

#[test]
fn the_tables_of_an_encoding_are_those_that_it_reads() {
    for encoding in [Encoding::O200k, Encoding::Cl100k] {
        let all: usize = tables(encoding).iter().map(|table| table.len()).sum();
        assert!(all > 1 << 20, "a hundred thousand tokens take more than {all} bytes");
    }
}
