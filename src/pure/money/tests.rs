//! Amounts and prices: parsed, printed, multiplied and rounded.

use proptest::prelude::*;

use super::*;
use crate::pure::usage::{CompletionTokens, PromptTokens};

fn usage(prompt: u64, completion: u64) -> Usage {
    Usage {
        prompt: PromptTokens(prompt),
        completion: CompletionTokens(completion),
    }
}

fn pricing(prompt: &str, completion: &str, markup: &str) -> Pricing {
    let markup: Markup = markup.parse().unwrap();
    Pricing {
        prompt: prompt.parse::<ProviderPrice>().unwrap().with_markup(markup),
        completion: completion.parse::<ProviderPrice>().unwrap().with_markup(markup),
    }
}

#[test]
fn credits_round_trip_as_text() {
    for text in [
        "0",
        "10.5",
        "-0.000000000001",
        "9223372.036854775807",
        "-9223372.036854775808",
        "0.1",
    ] {
        assert_eq!(text.parse::<Credits>().unwrap().to_string(), text);
        assert_eq!(serde_json::to_string(&text.parse::<Credits>().unwrap()).unwrap(), text);
        let mut written = b"cost: ".to_vec();
        text.parse::<Credits>().unwrap().write_to(&mut written);
        assert_eq!(String::from_utf8(written).unwrap(), format!("cost: {text}"));
    }
    assert_eq!("10.50".parse::<Credits>().unwrap().to_string(), "10.5");
}

#[test]
fn bad_amounts_are_refused() {
    for text in [
        "",
        " ",
        "1e3",
        "+1",
        ".5",
        "5.",
        "1_0",
        "0x1",
        "NaN",
        "1,5",
        "--1",
        "1.2.3",
        "0.0000000000001",
    ] {
        assert!(text.parse::<Credits>().is_err(), "{text:?} was read");
    }
    assert!(matches!(
        "9223372.036854775808".parse::<Credits>(),
        Err(MoneyError::OutOfRange(_))
    ));
    assert!(matches!(
        "99999999999999999999999999".parse::<Credits>(),
        Err(MoneyError::OutOfRange(_))
    ));
}

#[test]
fn bad_prices_and_markups_are_refused() {
    assert!(matches!("-0.1".parse::<ProviderPrice>(), Err(MoneyError::Negative(_))));
    assert!("1".parse::<ProviderPrice>().is_err());
    assert!("0.0000000000000000001".parse::<ProviderPrice>().is_err());
    // Nor does a list's price become another one, where what is beyond the decimals that are held is no digits.
    for text in [
        "0.000000000000000001e9",
        "0.0000000000000000001e18",
        "-0.0000000000000000001",
        "0.0000000000000000001x",
    ] {
        assert!(ProviderPrice::of_list(text).is_err(), "{text}");
    }
    assert!("0.99".parse::<Markup>().is_err());
    assert!("100".parse::<Markup>().is_err());
    assert!(
        serde_yaml_ng::from_str::<ProviderPrice>("0.00000015").is_err(),
        "a float must not become a price"
    );
    assert!(serde_yaml_ng::from_str::<ProviderPrice>("~").is_err());
    assert_eq!(
        serde_yaml_ng::from_str::<ProviderPrice>("\"0.00000015\"")
            .unwrap()
            .with_markup(Markup::default())
            .to_string(),
        "0.0000001725"
    );
}

#[test]
fn the_formula_of_the_interface() {
    // (1000 x 0.00000015 + 500 x 0.0000006) x 1.15 = 0.0005175
    let cost = pricing("0.00000015", "0.0000006", "1.15")
        .cost(usage(1000, 500))
        .unwrap();
    assert_eq!(cost.to_string(), "0.0005175");
}

#[test]
fn rounding_is_half_to_even_and_happens_once() {
    // 0.5 pico a token: 1 -> 0.5 rounds to 0, 3 -> 1.5 rounds to 2, and 1 + 1 halves make a whole.
    let half = pricing("0.0000000000005", "0.0000000000005", "1");
    assert_eq!(half.cost(usage(1, 0)).unwrap().pico(), 0);
    assert_eq!(half.cost(usage(3, 0)).unwrap().pico(), 2);
    assert_eq!(half.cost(usage(1, 1)).unwrap().pico(), 1);
}

#[test]
fn an_absurd_cost_is_an_error_and_never_wraps() {
    let dear = pricing("0.9", "0.9", "99.999999");
    assert!(dear.cost(usage(u64::MAX, u64::MAX)).is_err());
    assert!(dear.cost(usage(1 << 40, 0)).is_err());
}

proptest! {
    #[test]
    fn cost_agrees_with_big_integers(
        prompt in 0u64..1 << 40, completion in 0u64..1 << 40,
        p in 0u64..10_000_000, c in 0u64..10_000_000, markup in 1_000_000u64..5_000_000,
    ) {
        let text = |v: u64| format!("0.{v:018}");
        let markup_text = format!("{}.{:06}", markup / 1_000_000, markup % 1_000_000);
        let pricing = pricing(&text(p), &text(c), &markup_text);
        let units = (u128::from(prompt) * u128::from(p) + u128::from(completion) * u128::from(c)) * u128::from(markup);
        let (q, r) = (units / 1_000_000_000_000, units % 1_000_000_000_000);
        let expected = q + u128::from(r > 500_000_000_000 || (r == 500_000_000_000 && q % 2 == 1));
        match pricing.cost(usage(prompt, completion)) {
            Ok(cost) => prop_assert_eq!(u128::try_from(cost.pico()).unwrap(), expected),
            Err(_) => prop_assert!(expected > u128::try_from(i64::MAX).unwrap()),
        }
    }

    #[test]
    fn what_is_affordable_is_never_above_the_amount_and_one_more_is(
        amount in 0i64..1_000_000_000_000_000, prompt in 0u64..100_000, p in 0u64..10_000_000_000_000, c in 1u64..10_000_000_000_000,
    ) {
        let text = |v: u64| format!("0.{v:018}");
        let pricing = pricing(&text(p), &text(c), "1.15");
        let amount = Credits::from_pico(amount);
        match pricing.affordable_completion(amount, PromptTokens(prompt), None) {
            Some(tokens) => {
                prop_assert!(pricing.cost(usage(prompt, tokens)).unwrap() <= amount);
                // One more costs more than the amount before rounding; after rounding it is never below it.
                prop_assert!(pricing.cost(usage(prompt, tokens + 1)).unwrap() >= amount);
            }
            None => prop_assert!(pricing.cost(usage(prompt, 0)).unwrap() >= amount),
        }
    }

    #[test]
    fn any_pico_amount_survives_text(pico in any::<i64>()) {
        let credits = Credits::from_pico(pico);
        prop_assert_eq!(credits.to_string().parse::<Credits>().unwrap(), credits);
    }
}

#[test]
fn a_list_price_is_kept_in_units_and_gives_its_provider_price_back() {
    let prices = pricing("0.000003", "0.000015", "1.25");
    assert_eq!(
        prices.prompt.without_markup("1.25".parse().unwrap()).to_string(),
        "0.000003"
    );
    assert_eq!(
        prices.units_each(),
        [3_750_000_000_000_000_000, 18_750_000_000_000_000_000]
    );
    assert_eq!(Pricing::from_units_each(prices.units_each()), Some(prices));
}

#[test]
fn a_pricing_is_free_when_both_its_sides_are() {
    for (prompt, completion, is_free) in [
        ("0", "0", true),
        ("0", "0.1", false),
        ("0.1", "0", false),
        ("0.1", "0.1", false),
    ] {
        let prices = pricing(prompt, completion, "1");
        assert_eq!(prices.is_free(), is_free, "{prompt} {completion}");
        for (request, request_is_free) in [(None, true), (Some("0"), true), (Some("0.1"), false)] {
            let request = request.map(|text| text.parse::<ProviderPrice>().unwrap().with_markup(Markup::default()));
            let hold = crate::pure::prices::HoldPrices {
                pricing: prices,
                request,
            };
            assert_eq!(hold.is_free(), is_free && request_is_free, "{hold:?}");
        }
    }
}

#[test]
fn a_markup_is_read_from_text_alone() {
    assert_eq!(serde_json::from_str::<Markup>("\"2\"").unwrap(), "2".parse().unwrap());
    assert!(serde_json::from_str::<Markup>("1.15").is_err());
    assert!(serde_json::from_str::<Markup>("\"0.5\"").is_err());
}

#[test]
fn decimal_text_has_at_most_40_characters() {
    for (length, is_read) in [(39, true), (40, true), (41, false), (42, false)] {
        let text = format!("{:0>length$}", "1");
        assert_eq!(text.parse::<Credits>().is_ok(), is_read, "{length}");
    }
}
