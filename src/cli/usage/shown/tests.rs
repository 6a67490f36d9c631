//! What `tollgate usage` shows, as lines.

use super::*;
use crate::ledger::UsageRow;
use crate::ledger::query::KeyedRow;
use crate::pure::money::Credits;
use crate::pure::time::Day;

fn of_acme(rows: &[KeyedRow], period: Period, currency: &str) -> UsageShown {
    let account: AccountId = "acme".parse().unwrap();
    let mut summed = Summed::default();
    summed.add(&account, rows);
    UsageShown::of(Some(account), period.into(), currency.to_owned(), summed)
}

#[test]
fn a_day_is_a_bar_in_the_shades_of_its_models() {
    let row = |day: i64, model: &str, cost: i64| KeyedRow {
        key: None,
        row: UsageRow {
            day: Day(20_000 + day),
            model: model.to_owned(),
            requests: 1,
            prompt_tokens: 9,
            completion_tokens: 1,
            cost: Credits::from_pico(cost),
        },
    };
    let mut rows = vec![
        row(0, "a/dear", 600),
        row(0, "a/cheap", 300),
        row(1, "a/dear", 450),
        row(2, "a/free", 0),
    ];
    rows.extend(["b/1", "b/2", "b/3"].map(|model| row(1, model, 1)));
    let text = of_acme(&rows, Period::Week, "USD").text();
    assert!(
        text.contains(&format!("{}{}\n", "█".repeat(16), "▓".repeat(8))),
        "{text}"
    );
    assert!(text.contains(&format!("{}\n", "█".repeat(12))), "{text}");
    for line in ["█ a/dear\n", "▓ a/cheap\n", "▒ b/1\n", "░ 2 others\n"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(
        !text.contains("a/free\n") && text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}

#[test]
fn end_users_are_shown_dearest_first_and_calls_without_receipts_are_told() {
    let row = UsageRow {
        day: Day(20_000),
        model: "a/m".to_owned(),
        requests: 5,
        prompt_tokens: 9,
        completion_tokens: 1,
        cost: Credits::from_pico(600),
    };
    let of = |end_user: Option<&str>, requests: u64, cost: i64| EndUserRow {
        end_user: end_user.map(Box::from),
        requests,
        prompt_tokens: 1,
        completion_tokens: 2,
        cost: CreditSum::from_pico(i128::from(cost)),
    };
    let shown = |rows: Vec<EndUserRow>| {
        let row = KeyedRow {
            key: None,
            row: row.clone(),
        };
        of_acme(&[row], Period::Week, "USD")
            .by(By::EndUser, None)
            .with_end_users(rows)
    };
    let all = shown(vec![of(None, 2, 100), of(Some("a\u{1b}[2Jb"), 3, 500)]);
    let text = all.text();
    let lines: Vec<&str> = text.lines().skip(2).collect();
    assert!(lines[0].starts_with("END USER "), "{text}");
    assert!(
        lines[1].starts_with("a\\u{1b}[2Jb ") && lines[2].starts_with("(none) "),
        "{text}"
    );
    assert!(lines[3].starts_with("total ") && lines.len() == 4, "{text}");
    let json = serde_json::to_value(&all).unwrap();
    assert_eq!(json["by_end_user"][0]["end_user"], "a\u{1b}[2Jb");
    assert_eq!(json["by_end_user"][1]["end_user"], serde_json::Value::Null);
    assert_eq!(json["by_end_user"][1]["tokens"], 3);
    let text = shown(vec![of(None, 2, 100)]).text();
    assert!(
        text.ends_with(
            "no receipt is kept of 3 calls, or they were billed meanwhile: they are in no end user's sums\n"
        ),
        "{text}"
    );
}

/// Those of the keys are read first, and a day may have begun since: a period has then lost its first one.
#[test]
fn keys_have_no_day_that_the_totals_have_not() {
    let row = |key: Option<&str>, day: i64, requests: u64| KeyedRow {
        key: key.map(|key| KeyId::from(key.to_owned())),
        row: UsageRow {
            day: Day(20_000 + day),
            model: "a/m".to_owned(),
            requests,
            prompt_tokens: 9,
            completion_tokens: 1,
            cost: Credits::from_pico(600),
        },
    };
    let mut summed = Summed::default();
    summed.add(&"acme".parse().unwrap(), &[row(None, 1, 3)]);
    summed.add_of_keys(&[row(Some("key_a"), 0, 5), row(Some("key_a"), 1, 3)]);
    let shown = UsageShown::of(None, Period::Week.into(), "USD".to_owned(), summed).by(By::Key, None);
    let json = serde_json::to_value(&shown).unwrap();
    let found = (&json["total_requests"], &json["by_key"][0]["requests"]);
    let three = serde_json::Value::from(3);
    assert_eq!(found, (&three, &three), "{json}");
}

#[test]
fn what_a_long_life_has_cost_is_exact() {
    let row = |day: i64| KeyedRow {
        key: None,
        row: UsageRow {
            day: Day(20_000 + day),
            model: "a/m".to_owned(),
            requests: 1,
            prompt_tokens: 9,
            completion_tokens: 1,
            cost: "4088353.5".parse().unwrap(),
        },
    };
    let rows = [0, 31, 61].map(row);
    let shown = of_acme(&rows, Period::All, "JPY").by(By::Model, None);
    let text = shown.text();
    let ends_so = |line: &str| line.ends_with(" 12265060.5");
    assert_eq!(text.lines().filter(|line| ends_so(line)).count(), 2, "{text}");
    let json = serde_json::to_string(&shown).unwrap();
    assert_eq!(json.matches("cost\":12265060.5").count(), 2, "{json}");
}
