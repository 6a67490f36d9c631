//! What a query of usage asks for, and what is told.

use std::sync::Mutex;

use super::*;
use crate::clock::Clock;
use crate::ledger::UsageRow;
use crate::ledger::redis::{Options, RedisLedger};
use crate::ledger::tests::redis_server::RedisServer;
use crate::ledger::tests::rig::{NOW, block_on, caller_of, debit, patient, request};
use crate::pure::limits::LimitOverrides;

fn pairs(text: &str) -> Vec<(String, String)> {
    form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}

#[test]
fn days_and_groups_are_read_and_what_is_wrong_with_them_is_said() {
    let today = Day::parse("2026-11-20").unwrap();
    let read = |text: &str| asked(&pairs(text), today);
    let day = |text: &str| Day::parse(text).unwrap();
    let span = |from, to| Days::Span { from, to };
    for (text, days, groups) in [
        ("", Period::Today.into(), None),
        ("group_by=key", Period::Today.into(), Some(GroupBy::Rows(Column::Key))),
        (
            "period=7d&group_by=day",
            Period::Week.into(),
            Some(GroupBy::Rows(Column::Day)),
        ),
        ("group_by=end_user", Period::Today.into(), Some(GroupBy::EndUser)),
        (
            "from=2026-11-01",
            span(day("2026-11-01"), today),
            Some(GroupBy::Rows(Column::Model)),
        ),
        (
            "to=2026-11-02",
            span(Day(0), day("2026-11-02")),
            Some(GroupBy::Rows(Column::Model)),
        ),
        (
            "to=0328-01-20",
            span(day("0328-01-20"), day("0328-01-20")),
            Some(GroupBy::Rows(Column::Model)),
        ),
        (
            "from=2026-11-02&to=2026-11-02&group_by=key",
            span(day("2026-11-02"), day("2026-11-02")),
            Some(GroupBy::Rows(Column::Key)),
        ),
    ] {
        assert_eq!(read(text), Ok(Asked { days, groups }), "{text}");
    }
    for (text, word) in [
        ("from=2026-11-31", "from must be"),
        ("to=", "to must be"),
        ("from=2026-11-21", "after"),
        ("from=2026-11-03&to=2026-11-02", "after"),
        ("from=2026-11-01&period=all", "period"),
        ("to=2026-11-01&to=2026-11-01", "more than once"),
        ("group_by=user", "model, key, day, end_user"),
    ] {
        let Err(ApiError::BadRequest(message)) = read(text) else {
            panic!("{text}");
        };
        assert!(message.contains(word), "{text}: {message}");
    }
}

/// An account that lives for long uses more than one amount can be.
#[test]
fn sums_beyond_the_largest_amount_are_exact() {
    struct Rows;

    impl UsageBooks for Rows {
        type Error = ApiError;

        fn usage(&self, query: UsageQuery) -> BoxFuture<'_, Result<Vec<KeyedRow>, ApiError>> {
            let row = move |day: i64| KeyedRow {
                key: query.by_key.then(|| KeyId::from("key_x".to_owned())),
                row: UsageRow {
                    day: Day(day),
                    model: "a/m".to_owned(),
                    requests: 1,
                    prompt_tokens: 2,
                    completion_tokens: 3,
                    cost: "4088353.5".parse().unwrap(),
                },
            };
            let rows = (0..3).map(row).collect();
            Box::pin(async { Ok(rows) })
        }

        fn end_users(&self, _: EndUserQuery) -> BoxFuture<'_, Result<EndUserUsage, ApiError>> {
            Box::pin(async { Ok(EndUserUsage::Sums(Vec::new())) })
        }
    }

    let account = "acme".parse().unwrap();
    for by in ["model", "key"] {
        let query = pairs(&format!("period=all&group_by={by}"));
        let told = summary::<CreditSum, _>(&Rows, &account, None, &query, Day(2));
        let body = block_on(told).unwrap();
        assert!(body.contains("\"total_cost\":12265060.5,"), "{body}");
        // That of the model, and that of the group.
        assert_eq!(body.matches("\"cost\":12265060.5}").count(), 2, "{body}");
    }
}

/// Groups came to more than the totals: they were read after them, and over midnight of other days.
#[test]
fn of_two_reads_the_totals_are_the_second_and_of_the_same_days() {
    /// What is asked for, in its order.
    #[derive(Default)]
    struct Asks(Mutex<Vec<(&'static str, Days)>>);

    impl UsageBooks for Asks {
        type Error = ApiError;

        fn usage(&self, query: UsageQuery) -> BoxFuture<'_, Result<Vec<KeyedRow>, ApiError>> {
            let what = if query.by_key { "keys" } else { "totals" };
            self.0.lock().unwrap().push((what, query.days));
            Box::pin(async { Ok(Vec::new()) })
        }

        fn end_users(&self, query: EndUserQuery) -> BoxFuture<'_, Result<EndUserUsage, ApiError>> {
            self.0.lock().unwrap().push(("end users", query.days));
            Box::pin(async { Ok(EndUserUsage::Sums(Vec::new())) })
        }
    }

    let account = "acme".parse().unwrap();
    let week = Days::Span {
        from: Day(4),
        // What a clock that was ahead has counted is in it.
        to: Day(i64::MAX),
    };
    for (by, expected) in [
        ("key", vec![("keys", week), ("totals", week)]),
        ("end_user", vec![("end users", week), ("totals", week)]),
        ("model", vec![("totals", Period::Week.into())]),
        ("day", vec![("totals", Period::Week.into())]),
    ] {
        let asks = Asks::default();
        let query = pairs(&format!("period=7d&group_by={by}"));
        let told = block_on(summary::<CreditSum, _>(&asks, &account, None, &query, Day(10))).unwrap();
        assert!(
            told.contains("\"period\":\"7d\"") && !told.contains("\"from\""),
            "{told}"
        );
        assert_eq!(asks.0.into_inner().unwrap(), expected, "{by}");
    }
}

/// The gateway's clock is ten minutes behind Redis', by which a new day has begun, and which dates what is used.
#[test]
fn today_is_the_day_of_the_ledger() {
    let server = RedisServer::start();
    let options = Options {
        redis_clock: Some(Clock::manual(NOW)),
        ..patient(Clock::manual(NOW.plus_millis(-600_000)))
    };
    let ledger = Ledger::Redis(RedisLedger::connect(&server.url(), options).unwrap());
    let caller = caller_of(&ledger, "acme", "10", LimitOverrides::default());
    let hold = block_on(caller.reserve(&request(1, "1"))).unwrap().unwrap();
    hold.settle(debit("1"));
    block_on(caller.figures()).unwrap();
    let told = block_on(usage(&ledger, &caller, &pairs("from=2026-11-20"))).unwrap();
    assert!(
        told.contains("\"to\":\"2026-11-20\"") && told.contains("\"total_requests\":1,"),
        "{told}"
    );
}
