//! Rows for long prompts: which one holds, and that a hold covers it.

use super::*;
use crate::pure::bill::{Used, bill};
use crate::pure::charge::Ceiling;
use crate::pure::estimate::Bound;
use crate::pure::money::{ListPrice, Markup, Pricing, ProviderPrice};
use crate::pure::prices::CacheWrites;
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
    let cost = |prompt| table.cost(usage(prompt, 10), TokenKinds::default(), None).unwrap();
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
fn a_hold_is_by_the_rows_that_its_prompt_can_reach() {
    let (usual, longer) = (row(1, 10, None), row(2, 15, None));
    let table = PriceTable::new(usual, vec![long(100, longer)]).unwrap();
    for (bound, reached) in [(99, usual), (100, usual), (101, longer)] {
        let held = table.hold(PromptTokens(bound), &Asks::default());
        assert_eq!(held, HoldPrices::from(reached.pricing), "{bound}");
    }
}

#[test]
fn rows_out_of_order_or_twice_are_no_table() {
    for (one, next) in [(100, 100), (200, 100)] {
        let rows = vec![long(one, row(2, 2, None)), long(next, row(3, 3, None))];
        assert_eq!(PriceTable::new(row(1, 1, None), rows), None);
    }
}

/// Tables of prices with every kind, rows for long prompts and tiers; calls of any size; reports of any kinds. What their hold asks for covers
/// whatever they are billed: with the kinds that the request may ask for, and served by the tier that was asked for or by none.
///
/// `TOLLGATE_BILLS` is the number of calls (1,000,000).
#[test]
fn a_hold_covers_every_bill_within_its_bounds() {
    let calls = std::env::var("TOLLGATE_BILLS").map_or(1_000_000, |calls| calls.parse().unwrap());
    let mut dice = Dice(0x5EED_2026_1124);
    let mut table = dice.table();
    for call in 0..calls {
        if call % 50 == 0 {
            table = dice.table();
        }
        let asks = Asks {
            tier: dice.pick(&[None, Some("flex"), Some("priority"), Some("none-such")]),
            writes: dice.pick(&[CacheWrites::Unasked, CacheWrites::Usual, CacheWrites::Hour]),
            has_media: dice.one_in(2),
            wants_media: dice.one_in(2),
        };
        let (bound, most) = (dice.below(6_000), dice.below(5_000));
        let ceiling = Ceiling {
            prompt: PromptTokens(bound),
            completion: CompletionTokens(most),
            bound: Bound::Client,
        };
        let worst = usage(bound, most);
        let held = table.hold(PromptTokens(bound), &asks).cost_at_most(worst).unwrap();
        let media = u64::from(asks.has_media);
        let made = u64::from(asks.wants_media);
        let hour = u64::from(asks.writes == CacheWrites::Hour);
        let used = Used {
            usage: usage(dice.below(bound * 2 + 1), dice.below(most * 2 + 1)),
            kinds: TokenKinds {
                cache_read: dice.below(3_000),
                cache_write: dice.below(3_000),
                cache_write_1h: dice.below(3_000) * hour,
                audio: dice.below(3_000) * media,
                image: dice.below(3_000) * media,
                reasoning: dice.below(3_000),
                audio_output: dice.below(3_000) * made,
                image_output: dice.below(3_000) * made,
            },
            // One without prices is not asked for: such a request is refused.
            tier: dice.pick(&[None, Some("default"), asks.tier.filter(|tier| table.has_tier(tier))]),
            cost: None,
        };
        let bill = bill(&table, &ceiling, held, &used).unwrap();
        assert_eq!(
            bill.cut, None,
            "{used:?} of {asks:?} costs more than {held} by {table:?}"
        );
    }
}

/// Numbers that are the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit.max(1)
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }

    fn price(&mut self) -> Option<ListPrice> {
        let millionths = self.below(9_000);
        self.one_in(2).then(|| price(millionths))
    }

    fn row(&mut self) -> PriceRow {
        PriceRow {
            pricing: Pricing {
                prompt: price(self.below(9_000)),
                completion: price(self.below(9_000)),
            },
            kinds: KindPrices {
                input_cache_read: self.price(),
                input_cache_write: self.price(),
                input_cache_write_1h: self.price(),
                audio: self.price(),
                image: self.price(),
                internal_reasoning: self.price(),
                audio_output: self.price(),
                image_output: self.price(),
                request: self.price(),
            },
        }
    }

    fn rows(&mut self) -> PriceRows {
        let (first, more) = (self.below(2_000), self.below(2_000));
        let long = vec![long(first, self.row()), long(first + more + 1, self.row())];
        let count = usize::try_from(self.below(3)).unwrap();
        PriceRows::new(self.row(), long.into_iter().take(count).collect()).unwrap()
    }

    fn table(&mut self) -> PriceTable {
        let count = usize::try_from(self.below(3)).unwrap();
        let tiers = ["flex", "priority"].map(|name| (Box::from(name), self.rows()));
        PriceTable::of(self.rows(), tiers.into_iter().take(count).collect())
    }
}

#[test]
fn the_tier_that_was_served_is_what_is_paid_and_one_without_prices_costs_the_dearest() {
    let rows = |prompt, completion| PriceRows::new(row(prompt, completion, None), Vec::new()).unwrap();
    let tiers = vec![("flex".into(), rows(1, 5)), ("priority".into(), rows(4, 20))];
    let table = PriceTable::of(rows(2, 10), tiers);
    let cost = |tier| {
        table
            .cost(usage(100, 10), TokenKinds::default(), tier)
            .unwrap()
            .to_string()
    };
    let (default, flex, priority) = ("0.000000345", "0.0000001725", "0.00000069");
    for (tier, expected) in [
        (None, default),
        (Some("default"), default),
        (Some("auto"), default),
        (Some("flex"), flex),
        (Some("priority"), priority),
        (Some("scale"), priority),
    ] {
        assert_eq!(cost(tier), expected, "{tier:?}");
    }
    assert_eq!(table.served(Some("scale")), Served::Unknown);
    let two = PriceTable::new(row(2, 10, None), Vec::new()).unwrap();
    assert!(two.is_simple());
    let cost = two.cost(usage(100, 10), TokenKinds::default(), Some("scale")).unwrap();
    assert_eq!(cost.to_string(), default, "a model without prices of tiers has its two");
}

/// A receipt says the prices of the row that the debit took.
#[test]
fn the_row_that_is_billed_is_the_one_that_the_cost_is_of() {
    let rows = |row| PriceRows::new(row, Vec::new()).unwrap();
    let (usual, flex, fast) = (row(2, 10, None), row(4, 1, None), row(1, 11, Some(9)));
    let table = PriceTable::of(
        rows(usual),
        vec![("flex".into(), rows(flex)), ("fast".into(), rows(fast))],
    );
    for (tier, used, cached, billed) in [
        (None, usage(100, 1), 0, usual),
        (Some("auto"), usage(100, 1), 0, usual),
        (Some("fast"), usage(100, 1), 0, fast),
        // By one without prices the dearest for what was used.
        (Some("scale"), usage(100, 1), 0, flex),
        (Some("scale"), usage(100, 50), 0, usual),
        (Some("scale"), usage(10, 1_000), 0, fast),
        (Some("scale"), usage(100, 1), 100, fast),
        // And the usual one where two cost the same.
        (Some("scale"), usage(0, 0), 0, usual),
    ] {
        let kinds = TokenKinds {
            cache_read: cached,
            ..TokenKinds::default()
        };
        let row = *table.billed_row(used, kinds, tier);
        assert_eq!(row, billed, "{tier:?} {used:?} {cached}");
        assert_eq!(table.cost(used, kinds, tier), row.cost(used, kinds));
    }
}

/// What is above all amounts in one of the tiers has no cost at all.
#[test]
fn a_cost_out_of_range_is_the_dearest_of_a_tier_without_prices() {
    let rows = |prompt| PriceRows::new(row(prompt, 1, None), Vec::new()).unwrap();
    let table = PriceTable::of(
        rows(1),
        vec![("flex".into(), rows(999_999_999)), ("fast".into(), rows(2))],
    );
    let used = usage(100_000_000, 0);
    assert!(table.cost(used, TokenKinds::default(), Some("fast")).is_ok());
    assert!(table.cost(used, TokenKinds::default(), Some("scale")).is_err());
}

#[test]
fn a_table_knows_its_tiers_its_kinds_and_whether_it_is_free() {
    let rows = |usual, longer| PriceRows::new(usual, longer).unwrap();
    let free = row(0, 0, None);
    let request = |price_of_call| PriceRow {
        kinds: KindPrices {
            request: Some(price(price_of_call)),
            ..KindPrices::default()
        },
        ..free
    };
    for (usual, longer, tier, has_kinds, is_free) in [
        (free, None, None, false, true),
        (row(1, 0, None), None, None, false, false),
        (row(0, 1, None), None, None, false, false),
        (free, Some(free), None, false, true),
        (free, Some(row(1, 1, None)), None, false, false),
        (row(0, 0, Some(0)), None, None, true, true),
        (row(0, 0, Some(1)), None, None, true, false),
        (row(1, 1, Some(0)), None, None, true, false),
        (free, Some(row(0, 0, Some(1))), None, true, false),
        (request(0), None, None, true, true),
        (request(1), None, None, true, false),
        (free, None, Some(free), true, true),
        (free, None, Some(row(1, 1, None)), true, false),
    ] {
        let longer = longer.map(|row| long(100, row)).into_iter().collect();
        let tiers = tier.map(|tier| ("flex".into(), rows(tier, Vec::new())));
        let table = PriceTable::of(rows(usual, longer), tiers.into_iter().collect());
        assert_eq!((table.has_kinds(), table.is_free()), (has_kinds, is_free), "{table:?}");
        assert_eq!(table.has_tier("flex"), tier.is_some(), "{table:?}");
        assert!(!table.has_tier("priority"));
    }
}
