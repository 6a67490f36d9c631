//! The counter.

use super::*;

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
