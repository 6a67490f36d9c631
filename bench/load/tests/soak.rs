//! What calls cost, and what balances show.

use std::io::ErrorKind;

use crate::{
    books::{Debit, Owed, credits},
    catalogue::{self, Catalogue},
    client::{Failure, Reply},
    operator::{Standing, amount},
    prices::{Price, decimal},
    random::Random,
    soak_calls::{Fate, Models, Planned},
    wire::Malformed,
};

#[test]
fn decimal_texts_are_read_exactly() {
    for (text, places, units) in [
        ("0", 6, Some(0)),
        ("1.15", 6, Some(1_150_000)),
        ("0.00000015", 18, Some(150_000_000_000)),
        ("12.000001", 6, Some(12_000_001)),
        ("1.0000001", 6, None),
        ("", 6, None),
        (".5", 6, None),
        ("5.", 6, None),
        ("-1", 6, None),
        ("1e3", 6, None),
        ("1,5", 6, None),
    ] {
        assert_eq!(decimal(text, places), units, "{text:?}");
    }
    assert_eq!(amount("-0.000000000001"), Some(-1));
    assert_eq!(amount("1000"), Some(1_000_000_000_000_000));
    assert_eq!(amount("--1"), None);
    assert_eq!(credits(1_000_000_000_001), "1.000000000001");
}

#[test]
fn a_call_costs_its_tokens_times_prices_and_markup() {
    let price = Price::of("0.00000015", "0.0000006", "0", "1.15").unwrap();
    // (9 x 0.15 + 3 x 0.6) x 1.15 millionths.
    assert_eq!(price.cost(9, 3), 3_622_500);
    assert_eq!(price.cost(0, 0), 0);
    let with_request = Price::of("0.000001", "0", "0.01", "2").unwrap();
    assert_eq!(with_request.cost(5, 0), 20_010_000_000);
    assert_eq!(with_request.cost(0, 0), 0);
    assert_eq!(Price::of("x", "0", "0", "1"), None);
}

#[test]
fn a_cost_is_rounded_once_half_to_even() {
    // Half a unit of 10^-12 each.
    let price = Price::of("0.0000000000005", "0.0000000000005", "0", "1").unwrap();
    let costs: Vec<u128> = (1..=6).map(|tokens| price.cost(tokens, 0)).collect();
    assert_eq!(costs, [0, 1, 2, 2, 2, 3]);
    // Each side by itself would be 0 and 0.
    assert_eq!(price.cost(1, 1), 1);
    assert_eq!(
        Price::of("0.0000000000005", "0", "0", "1.000001").unwrap().cost(1, 0),
        1
    );
}

/// The gateway's own arithmetic is another one: both must agree.
#[test]
fn costs_are_those_of_the_gateway() {
    use tollgate::pure::{
        money::{Markup, Pricing, ProviderPrice},
        usage::{CompletionTokens, PromptTokens, Usage},
    };
    let catalogue = Catalogue::read().unwrap();
    assert!(catalogue.chat.len() > 20 && catalogue.embedding.len() > 1);
    for (prompt, completion) in [
        ("0.00000015", "0.0000006"),
        ("0.0000000625", "0.000000375"),
        ("0.000000000000333", "0.000000000000777"),
    ] {
        let ours = Price::of(prompt, completion, "0", catalogue::MARKUP).unwrap();
        let markup: Markup = catalogue::MARKUP.parse().unwrap();
        let theirs = |text: &str| text.parse::<ProviderPrice>().unwrap().with_markup(markup);
        let pricing = Pricing {
            prompt: theirs(prompt),
            completion: theirs(completion),
        };
        for tokens in [(1, 0), (0, 1), (7, 2), (220, 238), (123_457, 98_765)] {
            let usage = Usage {
                prompt: PromptTokens(tokens.0),
                completion: CompletionTokens(tokens.1),
            };
            let cost = u128::try_from(pricing.cost(usage).unwrap().pico()).unwrap();
            assert_eq!(ours.cost(tokens.0, tokens.1), cost, "{prompt} {completion} {tokens:?}");
        }
    }
}

fn standing(balance: i128, held: i128) -> Standing {
    Standing { balance, held }
}

#[test]
fn a_debit_too_much_too_little_or_twice_is_told() {
    let mut owed = Owed::default();
    owed.add(Debit::Exactly(30));
    owed.add(Debit::Exactly(12));
    let after = |balance| owed.difference("a", standing(100, 0), standing(balance, 0));
    assert_eq!(after(58), None);
    for wrong in [57, 59, 100, 16, 28, 101] {
        let told = after(wrong).unwrap();
        assert!(told.starts_with("a: computed 0.000000000042, seen "), "{told}");
    }
    assert!(after(101).unwrap().contains("seen -0.000000000001"));
}

#[test]
fn what_is_still_held_is_told() {
    let told = Owed::default()
        .difference("a", standing(100, 0), standing(100, 5))
        .unwrap();
    assert!(told.ends_with("still held 0.000000000005"), "{told}");
}

#[test]
fn a_call_that_a_kill_left_open_costs_what_lies_between() {
    let mut owed = Owed::default();
    owed.add(Debit::Exactly(10));
    owed.add(Debit::Between(5, 20));
    let after = |balance| owed.difference("a", standing(100, 0), standing(balance, 0)).is_none();
    assert!(!after(86) && after(85) && after(75) && after(70) && !after(69));
    assert_eq!(owed.text(), "0.000000000015 to 0.000000000030");
    assert_eq!(owed.and(owed).open_calls, 2);
}

/// A call that goes so.
fn planned(models: &Models, fate: Fate) -> Planned<'_> {
    let mut random = Random::new(1);
    loop {
        let planned = Planned::any(models, &mut random);
        if planned.fate == fate {
            return planned;
        }
    }
}

#[test]
fn a_connection_that_a_kill_ended_leaves_its_call_open() {
    let models = Models::of(Catalogue::read().unwrap()).unwrap();
    let stream = planned(&models, Fate::Stream);
    for failure in [
        Failure::Closed,
        Failure::Broken(ErrorKind::ConnectionReset.into()),
        Failure::Broken(ErrorKind::BrokenPipe.into()),
    ] {
        let result = Err(failure);
        let open = stream.debit_beside_kill(&result, 1);
        assert!(matches!(open, Ok(Debit::Between(..))), "{open:?}");
        assert!(stream.debit(&result, 1).is_err());
    }
    let refused = Err(Failure::Connect(ErrorKind::ConnectionRefused.into()));
    assert_eq!(stream.debit_beside_kill(&refused, 0), Ok(Debit::Exactly(0)));
    assert!(stream.debit(&refused, 0).is_err());
    // One that came to its end costs what it always does.
    let whole = Ok(Reply { status: 200 });
    assert_eq!(stream.debit_beside_kill(&whole, 1), stream.debit(&whole, 1));
    assert!(stream.debit(&whole, 1).is_ok());
}

#[test]
fn a_kill_excuses_no_wrong_answer() {
    let models = Models::of(Catalogue::read().unwrap()).unwrap();
    let stream = planned(&models, Fate::Stream);
    for failure in [
        Failure::Foreign,
        Failure::Events(3, 4),
        Failure::Status(401, String::new()),
        Failure::Status(402, String::new()),
        Failure::Status(503, String::new()),
        Failure::Body("bytes after the end of the answer"),
        Failure::Malformed(Malformed::Chunk),
        Failure::Connect(ErrorKind::AddrNotAvailable.into()),
        Failure::Stopped,
    ] {
        let told = failure.to_string();
        assert!(stream.debit_beside_kill(&Err(failure), 1).is_err(), "{told}");
    }
    // The stream says that its provider failed, and is too short.
    let cut = planned(&models, Fate::Cut);
    let content = u64::from(cut.call.script.events) - 1;
    assert!(cut.debit_beside_kill(&Ok(Reply { status: 200 }), content).is_err());
}

#[test]
fn no_model_that_is_sold_reasons_unseen() {
    let sold = catalogue::sold();
    assert!(!sold.lines().any(|line| line.trim_start().starts_with("reasoning:")));
    let models = Catalogue::read().unwrap();
    let entries = sold.lines().filter(|line| line.starts_with("  - id: "));
    assert_eq!(entries.count(), models.chat.len() + models.embedding.len());
}

/// One that reports none is billed by its texts, and would be taken for a wrong debit.
#[test]
fn each_planned_call_reports_tokens() {
    let models = Models::of(Catalogue::read().unwrap()).unwrap();
    let mut random = Random::new(1);
    for _ in 0..10_000 {
        let script = Planned::any(&models, &mut random).call.script;
        assert!(script.prompt > 0, "{}", script.text());
    }
}
