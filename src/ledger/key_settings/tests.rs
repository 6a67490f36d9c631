//! What a key's settings may be, and what follows from them.

use super::*;

#[test]
fn a_key_is_counted_with_others_after_a_rotation_of_one_that_has_limits() {
    let limit = Some(SpendLimit {
        amount: Credits::from_pico(1),
        reset: Reset::Daily,
    });
    let replaced = Some(Replaced::default());
    let counts_as = Some(KeyId::from("first".to_owned()));
    for (limit, end_user_limit, replaced, counts_as, with_others) in [
        (None, None, None, None, false),
        (limit, limit, None, None, false),
        (None, None, replaced, None, false),
        (limit, None, replaced, None, true),
        (None, limit, replaced, None, true),
        // What the others spend is no limit of it any more: it is told what it used itself.
        (None, None, None, counts_as.clone(), false),
        (None, limit, None, counts_as.clone(), true),
        (limit, limit, replaced, counts_as, true),
    ] {
        let settings = KeySettings {
            limit,
            end_user_limit,
            replaced,
            counts_as,
            ..KeySettings::default()
        };
        assert_eq!(settings.is_counted_with_others(), with_others, "{settings:?}");
    }
}

#[test]
fn what_a_key_may_have_is_bounded_on_every_side() {
    let key = KeySettings::default;
    let label = |label: String| KeySettings {
        label: Some(label),
        ..key()
    };
    let models = |count| KeySettings {
        models: vec!["a/m".parse().unwrap(); count],
        ..key()
    };
    let addresses = |count| KeySettings {
        addresses: vec!["10.0.0.0/8".parse().unwrap(); count],
        ..key()
    };
    let limit = |pico| SpendLimit {
        amount: Credits::from_pico(pico),
        reset: Reset::Daily,
    };
    let limits = |own, end_users| KeySettings {
        limit: Some(limit(own)),
        end_user_limit: Some(limit(end_users)),
        ..key()
    };
    let good = [
        key(),
        label("é".repeat(LABEL_CHARS_MAX)),
        models(LISTED_MAX),
        addresses(LISTED_MAX),
        limits(0, 0),
    ];
    for settings in good {
        assert_eq!(settings.check(), Ok(()), "{settings:?}");
    }
    let bad = [
        label(String::new()),
        label("é".repeat(LABEL_CHARS_MAX + 1)),
        label("a\tb".to_owned()),
        models(LISTED_MAX + 1),
        addresses(LISTED_MAX + 1),
        limits(-1, 0),
        limits(0, -1),
    ];
    for settings in bad {
        assert!(settings.check().is_err(), "{settings:?}");
    }
    let domains = |count| vec!["example.com".parse::<DomainPattern>().unwrap(); count];
    assert_eq!(check_domains(&domains(LISTED_MAX)), Ok(()));
    assert!(check_domains(&domains(LISTED_MAX + 1)).is_err());
    for (ms, is_good) in [(0, false), (1, true), (SPAN_MS_MAX, true), (SPAN_MS_MAX + 1, false)] {
        assert_eq!(check_lifetime(Some(ms)).is_ok(), is_good, "{ms}");
    }
    assert_eq!(check_lifetime(None), Ok(()));
}

#[test]
fn a_change_leaves_what_it_does_not_name() {
    let credits = Credits::from_pico;
    let daily = SpendLimit {
        amount: credits(5),
        reset: Reset::Daily,
    };
    let before = KeySettings {
        label: Some("ci".to_owned()),
        limit: Some(daily),
        ..KeySettings::default()
    };
    let change = |change: KeyChange| change.applied(&before);
    assert_eq!(change(KeyChange::default()).as_ref(), Ok(&before));
    let more = KeyChange {
        limit: Some(AmountChange::To(credits(9))),
        label: Some(String::new()),
        ..KeyChange::default()
    };
    let after = change(more).unwrap();
    assert_eq!(after.label, None);
    assert_eq!(
        after.limit,
        Some(SpendLimit {
            amount: credits(9),
            ..daily
        })
    );
    let weekly = KeyChange {
        limit_reset: Some(Reset::Weekly),
        ..KeyChange::default()
    };
    assert_eq!(change(weekly).unwrap().limit.unwrap().reset, Reset::Weekly);
    let without = KeyChange {
        limit: Some(AmountChange::Removed),
        ..KeyChange::default()
    };
    assert!(!change(without).unwrap().is_restricted());
    let lost = KeyChange {
        end_user_limit_reset: Some(Reset::Daily),
        ..KeyChange::default()
    };
    assert!(change(lost).is_err());
    let long = KeyChange {
        label: Some("x".repeat(101)),
        ..KeyChange::default()
    };
    assert!(change(long).is_err());
}

#[test]
fn settings_are_read_as_they_are_written_and_old_ones_are_empty() {
    let settings: KeySettings = serde_json::from_str(
        r#"{"label":"x","limit":{"amount":9007199254740993,"reset":"weekly"},"models":["a/*"],"addresses":["10.0.0.0/8","::1"]}"#,
    )
    .unwrap();
    assert_eq!(
        settings.limit.unwrap().amount,
        Credits::from_pico(9_007_199_254_740_993)
    );
    let text = serde_json::to_string(&settings).unwrap();
    assert_eq!(serde_json::from_str::<KeySettings>(&text).unwrap(), settings);
    assert_eq!(
        serde_json::from_str::<KeySettings>("{}").unwrap(),
        KeySettings::default()
    );
    assert!(settings.allows_model("a/b") && !settings.allows_model("b/a"));
    assert!(settings.allows_address("10.1.2.3".parse().ok()) && !settings.allows_address(None));
}
