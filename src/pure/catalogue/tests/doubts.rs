//! What an import that nobody looks at does not take over.

use super::{parse, yaml};
use crate::pure::catalogue::Catalogue;
use crate::pure::catalogue::doubts::{PriceMax, between, moves};
use crate::pure::money::{Markup, ProviderPrice};

/// The catalogue with these prices of its first model, and its second model by this id.
fn with(prices: &str, second: &str) -> String {
    yaml(|text| {
        text.replace("prompt: \"0.000001\", completion: \"0.000002\"", prices)
            .replace("a/e", second)
    })
}

fn max() -> Option<PriceMax> {
    let list = |price: &str| {
        let price: ProviderPrice = price.parse().unwrap();
        price.with_markup(Markup::default())
    };
    Some(PriceMax {
        token: list("0.01"),
        call: list("0.05"),
    })
}

#[track_caller]
fn check(from: &str, to: &str, doubt: Option<&str>) {
    let (old, new) = (parse(&with(from, "a/e")).unwrap(), parse(&with(to, "a/e")).unwrap());
    assert_eq!(between(&old, &new, 0, max()).as_deref(), doubt, "{from} -> {to}");
}

const USUAL: &str = "prompt: \"0.000001\", completion: \"0.000002\"";

/// What a reload warns of: what an operator saves is in force at once.
#[test]
fn each_price_that_becomes_ten_times_what_it_was_or_a_tenth_is_told() {
    let moved = |from: &str, to: &str| {
        let [old, new] = [from, to].map(|prices| parse(&with(prices, "a/e")).unwrap());
        moves(&old, &new)
    };
    assert_eq!(moved(USUAL, USUAL), [""; 0]);
    assert_eq!(
        moved(USUAL, "prompt: \"0.0000099\", completion: \"0.0000003\""),
        [""; 0]
    );
    assert_eq!(
        moved(USUAL, "prompt: \"0.00001\", completion: \"0.0000002\""),
        [
            "a/m: its prompt price goes from 0.00000115 to 0.0000115",
            "a/m: its completion price goes from 0.0000023 to 0.00000023",
        ]
    );
    let free = moved(USUAL, "prompt: \"0.000001\", completion: \"0\"");
    assert_eq!(free, ["a/m: its completion price goes from 0.0000023 to 0"]);
}

/// The catalogue with these bounds of its first model.
fn bounded(context: u64, max: u64) -> Catalogue {
    let text = yaml(|text| {
        let text = text.replacen("context_length: 1000", &format!("context_length: {context}"), 1);
        text.replacen(
            "max_completion_tokens: 100\n",
            &format!("max_completion_tokens: {max}\n"),
            1,
        )
    });
    parse(&text).unwrap()
}

/// A list with 128 for 128000 made each longer prompt the operator's loss, as a price that falls to a tenth does.
#[test]
fn a_bound_of_tokens_that_falls_below_a_tenth_is_doubtful() {
    for (from, to, doubt) in [
        ((128_000, 1_000), (12_800, 100), None),
        (
            (128_000, 1_000),
            (12_799, 1_000),
            Some("a/m: its context_length goes from 128000 to 12799"),
        ),
        (
            (128_000, 1_000),
            (128_000, 99),
            Some("a/m: its max_completion_tokens goes from 1000 to 99"),
        ),
        ((12_799, 99), (128_000, 1_000), None),
        // The list says a maximum where it said none.
        ((128_000, 128_000), (128_000, 4_096), None),
        ((128_000, 128_000), (128_000, 1_000), None),
        (
            (128_000, 128_000),
            (128_000, 999),
            Some("a/m: its max_completion_tokens goes from 128000 to 999"),
        ),
        (
            (128_000, 64_000),
            (128_000, 4_096),
            Some("a/m: its max_completion_tokens goes from 64000 to 4096"),
        ),
        (
            (128_000, 128_000),
            (12_000, 12_000),
            Some("a/m: its context_length goes from 128000 to 12000"),
        ),
    ] {
        let (old, new) = (bounded(from.0, from.1), bounded(to.0, to.1));
        assert_eq!(between(&old, &new, 0, max()).as_deref(), doubt, "{from:?} -> {to:?}");
    }
}

#[test]
fn each_bound_of_tokens_that_becomes_a_tenth_is_told() {
    let of = |from: (u64, u64), to: (u64, u64)| moves(&bounded(from.0, from.1), &bounded(to.0, to.1));
    assert_eq!(of((128_000, 1_000), (128_000, 1_000)), [""; 0]);
    assert_eq!(of((128_000, 1_000), (12_801, 101)), [""; 0]);
    assert_eq!(of((12_800, 100), (128_000, 1_000)), [""; 0]);
    assert_eq!(
        of((128_000, 1_000), (12_800, 100)),
        [
            "a/m: its context_length goes from 128000 to 12800",
            "a/m: its max_completion_tokens goes from 1000 to 100",
        ]
    );
}

#[test]
fn a_list_that_shrank_is_doubtful() {
    let old = parse(&with(USUAL, "a/e")).unwrap();
    let renamed = parse(&with(USUAL, "a/f")).unwrap();
    let doubt = between(&old, &renamed, 0, max());
    assert_eq!(doubt.as_deref(), Some("it removes 1 of 2 models"));
    assert_eq!(between(&old, &old, 0, max()), None);
    let three = |second: &str| {
        let text = with(USUAL, second);
        let (before, entry) = text.split_once("  - id: a/m\n").unwrap();
        let (entry, after) = entry.split_once("  - id: ").unwrap();
        parse(&format!(
            "{before}  - id: a/m\n{entry}  - id: a/n\n{entry}  - id: {after}"
        ))
        .unwrap()
    };
    assert_eq!(between(&three("a/e"), &three("a/f"), 0, max()), None, "a third may go");
    let doubt = between(&three("a/e"), &three("a/f"), 1, max());
    assert_eq!(
        doubt.as_deref(),
        Some("it removes 1 of 2 models"),
        "one is the operator's own"
    );
}

#[test]
fn a_price_that_falls_to_nothing_or_moves_by_more_than_ten_times_is_doubtful() {
    let free = "a/m: its completion price goes from 0.0000023 to 0";
    check(USUAL, "prompt: \"0.000001\", completion: \"0\"", Some(free));
    check(USUAL, "prompt: \"0.00001\", completion: \"0.0000002\"", None);
    check(
        "prompt: \"0\", completion: \"0\"",
        USUAL,
        Some("a/m: its prompt price goes from 0 to 0.00000115"),
    );
    check(
        "prompt: \"0.000001\", completion: \"0\"",
        USUAL,
        Some("a/m: its completion price goes from 0 to 0.0000023"),
    );
    check(
        USUAL,
        "prompt: \"0.0000101\", completion: \"0.000002\"",
        Some("a/m: its prompt price goes from 0.00000115 to 0.000011615"),
    );
    check(
        USUAL,
        "prompt: \"0.000001\", completion: \"0.00000019\"",
        Some("a/m: its completion price goes from 0.0000023 to 0.0000002185"),
    );
}

#[test]
fn rows_of_long_prompts_and_of_tiers_and_the_price_of_a_call_are_looked_at_too() {
    let long = |prompt: &str| format!("{USUAL}, overrides: [{{ min_prompt_tokens: 5, prompt: \"{prompt}\" }}]");
    check(&long("0.000002"), &long("0.000004"), None);
    check(
        &long("0.000002"),
        &long("0"),
        Some("a/m: its prompt price goes from 0.0000023 to 0 in prompts of 6 tokens"),
    );
    check(
        USUAL,
        &long("0.0000101"),
        Some("a/m: its prompt price goes from 0.00000115 to 0.000011615 in prompts of 6 tokens"),
    );
    let tier = |prompt: &str| format!("{USUAL}, tiers: {{ flex: {{ prompt: \"{prompt}\" }} }}");
    check(
        &tier("0.000002"),
        &tier("0"),
        Some("a/m: its prompt price in the tier flex goes from 0.0000023 to 0"),
    );
    let call = |price: &str| format!("{USUAL}, request: \"{price}\"");
    check(&call("0.1"), USUAL, Some("a/m: its request price goes from 0.115 to 0"));
    check(USUAL, &call("0.1"), Some("a/m: its request price goes from 0 to 0.115"));
}

#[test]
fn a_price_of_a_call_may_begin_and_is_doubtful_above_what_anybody_asks() {
    let call = |price: &str| format!("{USUAL}, request: \"{price}\"");
    check(USUAL, &call("0.05"), None);
    check(
        USUAL,
        &call("0.051"),
        Some("a/m: its request price goes from 0 to 0.05865"),
    );
    check(&call("0.02"), &call("0.05"), None);
    check(
        &call("0.02"),
        &call("0.06"),
        Some("a/m: its request price goes from 0.023 to 0.069"),
    );
    let taken_by_hand = |prompt: &str| format!("prompt: \"{prompt}\", completion: \"0.000002\", request: \"0.2\"");
    check(&taken_by_hand("0.000001"), &taken_by_hand("0.000002"), None);
    check(&taken_by_hand("0.000001"), &call("0.1"), None);
    let tier = format!("{USUAL}, tiers: {{ flex: {{ request: \"0.1\" }} }}");
    check(
        USUAL,
        &tier,
        Some("a/m: its request price in the tier flex goes from 0 to 0.115"),
    );
}

#[test]
fn what_cost_nothing_gets_no_price_of_any_kind_unlooked_at() {
    let free = "prompt: \"0\", completion: \"0\"";
    for more in ["request: \"0.01\"", "input_cache_read: \"0.00000001\""] {
        let priced = format!("{free}, {more}");
        check(free, &priced, Some("a/m: it cost nothing, and would have a price"));
    }
}

#[test]
fn kinds_without_a_price_cost_what_their_sides_cost() {
    let with = |more: &str| format!("{USUAL}, {more}");
    check(USUAL, &with("input_cache_read: \"0.00000001\""), None);
    // A millionth of what was meant was taken as the first price of reads.
    check(
        USUAL,
        &with("input_cache_read: \"0.0000000099\""),
        Some("a/m: its input_cache_read price would be 0.000000011385, and its prompt price 0.00000115"),
    );
    check(USUAL, &with("input_cache_read: \"0.00001\""), None);
    check(
        USUAL,
        &with("input_cache_read: \"0.000011\""),
        Some("a/m: its input_cache_read price would be 0.00001265, and its prompt price 0.00000115"),
    );
    check(&with("input_cache_read: \"0.00000001\""), USUAL, None);
    check(USUAL, &with("audio: \"0.00001\""), None);
    check(
        &with("audio: \"0.00002\""),
        USUAL,
        Some("a/m: its audio price goes from 0.000023 to 0.00000115"),
    );
    check(
        USUAL,
        &with("internal_reasoning: \"0.0000001\""),
        Some("a/m: its internal_reasoning price goes from 0.0000023 to 0.000000115"),
    );
}

#[test]
fn a_price_that_nobody_asks_is_doubtful_in_a_new_model_too() {
    let many = with(USUAL, "a/e");
    let (head, tail) = many.split_once("  - id: a/m\n").unwrap();
    let (entry, rest) = tail.split_once("  - id: ").unwrap();
    let before = parse(&format!("{head}  - id: a/m\n{entry}  - id: {rest}")).unwrap();
    let with_new = |prices: &str| {
        let after = with(prices, "a/e");
        let (_, tail) = after.split_once("  - id: a/m\n").unwrap();
        let (new, _) = tail.split_once("  - id: ").unwrap();
        parse(&format!("{head}  - id: a/m\n{entry}  - id: a/n\n{new}  - id: {rest}")).unwrap()
    };
    let call = |price: &str| format!("{USUAL}, request: \"{price}\"");
    for (prices, doubt) in [
        (
            "prompt: \"0.02\", completion: \"0.002\"".to_owned(),
            Some("a/n: its prompt price of 0.023 for one token cannot be"),
        ),
        (
            "prompt: \"0.01\", completion: \"0.002\"".to_owned(), // The most.
            None,
        ),
        (
            call("0.1"),
            Some("a/n: its request price of 0.115 for a call is too high"),
        ),
        (call("0.05"), None),
    ] {
        let added = with_new(&prices);
        assert_eq!(between(&before, &added, 0, max()).as_deref(), doubt, "{prices}");
        assert_eq!(
            between(&added, &added, 0, max()),
            None,
            "what was taken by hand is no doubt"
        );
    }
    // Nor is it once another price moves.
    let dear = |prompt: &str| with_new(&format!("prompt: \"{prompt}\", completion: \"0.02\""));
    assert_eq!(between(&dear("0.001"), &dear("0.0011"), 0, max()), None);
    let moved = between(&dear("0.001"), &dear("0.011"), 0, max());
    assert!(
        moved
            .unwrap()
            .contains("prompt price of 0.01265 for one token cannot be")
    );
}
