//! Rows for long prompts: which one holds, and that a hold covers it.

use proptest::prelude::*;

use super::*;
use crate::pure::money::{ListPrice, Markup, ProviderPrice};
use crate::pure::usage::CompletionTokens;

fn price(millionths: u64) -> ListPrice {
    let text = rust_decimal::Decimal::new(i64::try_from(millionths).unwrap(), 9).to_string();
    text.parse::<ProviderPrice>().unwrap().with_markup(Markup::default())
}

fn row(prompt: u64, completion: u64, read: Option<u64>) -> PriceRow {
    PriceRow {
        pricing: Pricing {
            prompt: price(prompt),
            completion: price(completion),
        },
        kinds: KindPrices {
            input_cache_read: read.map(price),
            ..KindPrices::default()
        },
    }
}

fn long(min_prompt_tokens: u64, row: PriceRow) -> LongPromptRow {
    LongPromptRow { min_prompt_tokens, row }
}

fn usage(prompt: u64, completion: u64) -> Usage {
    Usage {
        prompt: PromptTokens(prompt),
        completion: CompletionTokens(completion),
    }
}

#[test]
fn a_prompt_of_more_tokens_has_the_row_for_the_whole_call() {
    let rows = vec![long(100, row(2, 15, None)), long(200, row(4, 30, None))];
    let table = PriceTable::new(row(1, 10, None), rows).unwrap();
    let cost = |prompt| table.cost(usage(prompt, 10), TokenKinds::default()).unwrap();
    // (tokens x price + 10 x price) / 10^9 x 1.15
    for (prompt, expected) in [
        (99, "0.00000022885"),
        (100, "0.00000023"),
        (101, "0.0000004048"),
        (200, "0.0000006325"),
        (201, "0.0000012696"),
    ] {
        assert_eq!(cost(prompt).to_string(), expected, "{prompt}");
    }
}

#[test]
fn rows_out_of_order_or_twice_are_no_table() {
    for (one, next) in [(100, 100), (200, 100)] {
        let rows = vec![long(one, row(2, 2, None)), long(next, row(3, 3, None))];
        assert_eq!(PriceTable::new(row(1, 1, None), rows), None);
    }
}

prop_compose! {
    fn a_row()(prompt in 0u64..9_000, completion in 0u64..9_000, read in proptest::option::of(0u64..9_000)) -> PriceRow {
        row(prompt, completion, read)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn a_hold_covers_every_call_within_its_bounds(
        usual in a_row(), first in a_row(), second in a_row(), at in 1u64..2_000, beyond in 1u64..2_000,
        bound in 0u64..6_000, part in 0.0f64..=1.0, completion in 0u64..5_000, cached in 0.0f64..=1.0,
    ) {
        let table = PriceTable::new(usual, vec![long(at, first), long(at + beyond, second)]).unwrap();
        let share = |whole: u64, part: f64| ((whole as f64 * part) as u64).min(whole);
        let prompt = share(bound, part);
        let kinds = TokenKinds { cache_read: share(prompt, cached), ..TokenKinds::default() };
        let cost = table.cost(usage(prompt, completion), kinds).unwrap();
        let held = table.hold(PromptTokens(bound)).cost_at_most(usage(bound, completion)).unwrap();
        prop_assert!(cost <= held, "{cost} is above {held}");
    }
}
