//! Prices by kind, against decimals that are multiplied and rounded by another library.

use proptest::prelude::*;
use rust_decimal::{Decimal, RoundingStrategy};

use super::*;
use crate::pure::money::{Markup, ProviderPrice};
use crate::pure::usage::{CompletionTokens, PromptTokens};

fn price(text: &str) -> ListPrice {
    text.parse::<ProviderPrice>().unwrap().with_markup(Markup::default())
}

fn pricing() -> Pricing {
    Pricing {
        prompt: price("0.000003"),
        completion: price("0.000015"),
    }
}

fn usage(prompt: u64, completion: u64) -> Usage {
    Usage {
        prompt: PromptTokens(prompt),
        completion: CompletionTokens(completion),
    }
}

/// The prices of a model whose cache reads cost a tenth and whose cache writes a quarter more.
fn of_a_cache() -> KindPrices {
    KindPrices {
        input_cache_read: Some(price("0.0000003")),
        input_cache_write: Some(price("0.00000375")),
        ..KindPrices::default()
    }
}

#[test]
fn an_agents_request_costs_what_its_provider_charges_and_the_markup() {
    let tokens = TokenKinds {
        cache_read: 90_000,
        cache_write: 8_000,
        ..TokenKinds::default()
    };
    let cost = pricing()
        .cost_by_kind(usage(100_000, 1_000), tokens, &of_a_cache())
        .unwrap();
    // (2,000 x 3 + 90,000 x 0.3 + 8,000 x 3.75 + 1,000 x 15) / 1,000,000 x 1.15
    assert_eq!(cost.to_string(), "0.0897");
    assert_eq!(pricing().cost(usage(100_000, 1_000)).unwrap().to_string(), "0.36225");
}

#[test]
fn kinds_that_do_not_fit_their_side_are_an_error_and_not_a_cost() {
    for tokens in [
        TokenKinds {
            cache_read: 6,
            cache_write: 5,
            ..TokenKinds::default()
        },
        TokenKinds {
            reasoning: 6,
            ..TokenKinds::default()
        },
    ] {
        assert!(pricing().cost_by_kind(usage(10, 5), tokens, &of_a_cache()).is_err());
    }
}

prop_compose! {
    fn a_price()(mantissa in 0u64..1_000_000_000, scale in 9u32..18) -> ListPrice {
        price(&Decimal::new(i64::try_from(mantissa).unwrap(), scale.max(9)).to_string())
    }
}

prop_compose! {
    fn the_kinds()(prices in proptest::array::uniform9(proptest::option::of(a_price()))) -> KindPrices {
        let [read, write, write_1h, audio, image, reasoning, audio_output, image_output, request] = prices;
        KindPrices {
            input_cache_read: read,
            input_cache_write: write,
            input_cache_write_1h: write_1h,
            audio,
            image,
            internal_reasoning: reasoning,
            audio_output,
            image_output,
            request,
        }
    }
}

/// What may ask for any price.
const ALL: Asks<'_> = Asks {
    tier: None,
    writes: CacheWrites::Hour,
    has_media: true,
    wants_media: true,
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn a_cost_is_the_sum_of_its_kinds_rounded_once_and_never_above_its_hold(
        prompt_price in a_price(), completion_price in a_price(), prices in the_kinds(),
        plain in 0u64..1_000_000, said in 0u64..100_000, tokens in proptest::array::uniform8(0u64..200_000),
    ) {
        let pricing = Pricing { prompt: prompt_price, completion: completion_price };
        let [cache_read, cache_write, cache_write_1h, audio, image, reasoning, audio_output, image_output] = tokens;
        let all = usage(plain + cache_read + cache_write + cache_write_1h + audio + image, said + reasoning + audio_output + image_output);
        let tokens = TokenKinds { cache_read, cache_write, cache_write_1h, audio, image, reasoning, audio_output, image_output };
        let cost = pricing.cost_by_kind(all, tokens, &prices).unwrap();
        let of = |tokens: u64, price: Option<ListPrice>, side: ListPrice| {
            let text = price.unwrap_or(side).to_string();
            Decimal::from(tokens) * Decimal::from_str_exact(&text).unwrap()
        };
        let of_prompt = [
            (plain, None),
            (cache_read, prices.input_cache_read),
            (cache_write, prices.input_cache_write),
            (cache_write_1h, prices.input_cache_write_1h.or(prices.input_cache_write)),
            (audio, prices.audio),
            (image, prices.image),
        ];
        let of_completion = [
            (said, None),
            (reasoning, prices.internal_reasoning),
            (audio_output, prices.audio_output),
            (image_output, prices.image_output),
        ];
        let exact: Decimal = of_prompt.into_iter().map(|(tokens, price)| of(tokens, price, prompt_price)).sum::<Decimal>()
            + of_completion.into_iter().map(|(tokens, price)| of(tokens, price, completion_price)).sum::<Decimal>()
            + prices.request.map_or(Decimal::ZERO, |price| of(1, Some(price), price));
        let rounded = exact.round_dp_with_strategy(12, RoundingStrategy::MidpointNearestEven).normalize();
        prop_assert_eq!(cost.to_string(), rounded.to_string());
        prop_assert!(cost <= pricing.dearest(&prices, &ALL).cost_at_most(all).unwrap());
        if prices == KindPrices::default() {
            prop_assert_eq!(cost, pricing.cost(all).unwrap());
        }
    }
}
