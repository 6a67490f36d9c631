//! The tier that served a call, as its provider says, and what it costs then.

use serde_json::json;

use super::debits::{COUNTED, settled};
use super::*;
use crate::gateway::billing::tests::rig::{Asked, Books, STREAM, event, reported};
use crate::ledger::tests::logged::logged;
use crate::telemetry::record::UNKNOWN_TIER;

/// How often somebody was told of a tier without prices.
fn told_unknown(books: &Books) -> usize {
    let faults = books.telemetry.figures().faults;
    faults.iter().filter(|(fault, _)| fault.kind == UNKNOWN_TIER).count()
}

#[test]
fn the_tier_that_served_a_call_decides_its_price_and_one_that_is_unknown_the_dearest() {
    let tiers = Asked {
        model: "openai/tiers",
        ..STREAM
    };
    for (tier, left, faults) in [("flex", "9.9935", 0), ("default", "9.987", 0), ("gold", "9.987", 1)] {
        let books = Books::with("10");
        let last = reported(9, 2, json!({ "service_tier": tier }));
        settled(&books, &tiers, &[event(COUNTED), last], Ending::Complete);
        assert_eq!(books.figures().0, left, "{tier}");
        assert_eq!(told_unknown(&books), faults, "{tier}");
        let receipt = books.receipts().remove(0).billed;
        assert_eq!(receipt.call.service_tier.as_deref(), Some(tier));
    }
    // Of a model without tiers nobody asks by which it was served.
    let books = Books::with("10");
    settled(
        &books,
        &STREAM,
        &[reported(9, 2, json!({ "service_tier": "flex" }))],
        Ending::Complete,
    );
    assert_eq!(books.receipts().remove(0).billed.call.service_tier, None);
}

/// It cost the usual price, and nobody was told.
#[test]
fn a_tier_with_a_longer_name_than_any_catalogues_is_unknown() {
    for (length, kept) in [(33, 32), (300, 0)] {
        let books = Books::with("10");
        let asked = Asked {
            model: "openai/dear-tiers",
            ..STREAM
        };
        let last = reported(9, 2, json!({ "service_tier": "g".repeat(length) }));
        settled(&books, &asked, &[event(COUNTED), last], Ending::Complete);
        assert_eq!((books.figures().0.as_str(), told_unknown(&books)), ("9.974", 1));
        let (receipt, tier) = (books.receipts().remove(0), format!("{}\u{2026}", "g".repeat(kept)));
        assert_eq!(receipt.billed.call.service_tier, Some(tier.into_boxed_str()));
    }
}

/// No price of the catalogue is charged then, so none of them is the dearest.
#[test]
fn a_tier_without_prices_is_no_fault_where_the_providers_own_cost_is_billed() {
    for (more, left, faults) in [
        (json!({ "service_tier": "gold", "cost": 0.5 }), "9.5", 0),
        (json!({ "service_tier": "gold" }), "9.987", 1),
    ] {
        for asked in [STREAM.more, r#""stream":true"#] {
            let books = Books::with("10");
            let asked = Asked {
                model: "openai/sum-tiers",
                more: asked,
                ..STREAM
            };
            let lines = logged(|| {
                settled(
                    &books,
                    &asked,
                    &[event(COUNTED), reported(9, 2, more.clone())],
                    Ending::Complete,
                );
            });
            assert_eq!(
                (books.figures().0.as_str(), told_unknown(&books)),
                (left, faults),
                "{more}"
            );
            let told = lines.iter().filter(|line| line.contains("the dearest are charged"));
            assert_eq!(told.count(), faults, "{lines:?}");
        }
    }
}
