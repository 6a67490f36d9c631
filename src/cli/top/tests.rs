//! The text of `tollgate top` at several sizes.

use super::*;

fn status(at_ms: i64, requests: u64, cost: &str) -> Status {
    let target = serde_json::json!({
        "model": format!("a-maker/{}", "m".repeat(60)), "provider": "main", "live": 3, "requests": requests, "errors": 0, "debits": requests,
        "prompt_tokens": requests * 9, "completion_tokens": requests, "cost": 0, "first_events": requests,
        "first_event_sum_ms": requests * 40, "first_event_p50_ms": 40, "first_event_p95_ms": 60,
    });
    let text = serde_json::json!({
        "version": "1", "at_ms": at_ms, "uptime_ms": 3_600_000 + at_ms, "listen": "127.0.0.1:8080", "currency": "USD", "ready": true,
        "maintenance": false, "in_flight": 3, "totals": { "requests": requests, "denials": 1, "errors": 0, "cost": 0 }, "targets": [target],
        "providers": [{ "provider": "main", "live": 3, "requests": requests, "faults": 2, "breakers": 2, "breakers_open": 1,
            "first_events": requests, "first_event_sum_ms": requests * 40, "first_event_p95_ms": null }],
        "ledger": { "kind": "embedded", "holds_open": 3, "held": 0.5, "unsettled": 1, "lag_ms": 20 },
        "alarms": ["main fails: a model with a name is passed over, and this sentence is longer than a line may be"],
    });
    serde_json::from_str(&text.to_string().replace("\"cost\":0", &format!("\"cost\":{cost}"))).unwrap()
}

#[test]
fn a_screen_shows_rates_within_80_columns() {
    let text = screen(&status(0, 0, "0.000000000001"), &status(2_000, 500, "0.25"), 24);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(
        text.contains("250 requests/s") && text.contains("spend 0.124999 USD/s   0.25 in all"),
        "{text}"
    );
    assert!(
        text.contains("1/2 open") && text.contains("2500") && text.contains(" 40"),
        "{text}"
    );
    assert!(text.lines().count() <= 24);
}

/// It said that the gateway was stopping.
#[test]
fn a_gateway_whose_ledger_changes_hands_does_not_stop() {
    for (ready, away, maintenance, told) in [
        (true, false, false, "ready"),
        (true, false, true, "maintenance"),
        (false, false, true, "stopping"),
        (false, true, false, "the ledger changes hands"),
    ] {
        let mut now = status(2_000, 500, "0.25");
        (now.ready, now.ledger.away, now.maintenance) = (ready, away, maintenance);
        let text = screen(&status(0, 0, "0.000000000001"), &now, 24);
        let first = text.lines().next().unwrap();
        assert!(first.ends_with(&format!(", {told}")) && first.len() <= 80, "{first}");
    }
}

#[test]
fn the_configuration_is_not_read_where_the_gateway_is_named() {
    let words = "tollgate top --once --admin 127.0.0.1:1 --conf /nowhere".split(' ');
    let outcome = crate::cli::execute(words.map(std::ffi::OsString::from));
    assert_eq!((outcome.status, outcome.stdout.as_str()), (1, ""));
    let told = "error: no gateway answers at admin_listen (127.0.0.1:1)";
    assert!(outcome.stderr.starts_with(told), "{}", outcome.stderr);
}

#[test]
fn rates() {
    assert_eq!(
        (rate(5, 2_000), rate(1_000, 1_000), rate(0, 1)),
        ("2.5".into(), "1000".into(), "0.0".into())
    );
    assert_eq!(credit_rate(1_500_000_000_000, 1_000), "1.500000");
}

#[test]
fn a_gateway_that_restarts_is_waited_for_and_its_figures_begin_anew() {
    let mut watch = Watch { before: None };
    assert!(
        watch
            .look(Ok(status(0, 500, "0.25")), 24)
            .contains("rates come with the next look")
    );
    assert!(
        watch
            .look(Ok(status(2_000, 700, "0.35")), 24)
            .contains("100 requests/s")
    );
    let away = watch.look(Err(Failure::new("no gateway answers")), 24);
    assert!(
        away.contains("no gateway answers") && away.contains("asked again"),
        "{away}"
    );
    assert!(watch.look(Ok(status(6_000, 700, "0.35")), 24).contains("rates come"));
    // Restarted between two looks: its counts are lower than before, and its time is another.
    let restarted = Status {
        uptime_ms: 1_000,
        ..status(8_000, 5, "0.01")
    };
    let text = watch.look(Ok(restarted), 24);
    assert!(text.contains("up 1 s: rates come") && !text.contains('-'), "{text}");
}
