//! Against signatures that Python's `hmac` made.

use super::*;

const SECRET: &[u8] = b"whsec_test_secret";
const AT: i64 = 1_795_132_800;
const BODY: &[u8] = br#"{"id":"evt_1","type":"ping"}"#;
const GOOD: &str = "ed7f7627b7554fabaf69d8f8ed8cfafe3a27a2b55f8acb8b6e32b7df66ea7053";
const OF_ANOTHER_SECRET: &str = "38de03c14466e8076f28828d1ffc838b1afef8d951cadff62a6ca3838bd8861e";
const OF_ALL_BYTES: &str = "28da5dbbfa99163bddd2d64117974a3977a60a74d478a8d555036f8180eb098a";

fn check(header: &str, body: &[u8], at: i64) -> Result<(), SignatureFault> {
    verify(SECRET, header, body, Timestamp(at * 1_000)).map(|signed_at| assert_eq!(signed_at, AT))
}

#[test]
fn a_signature_of_pythons_is_right() {
    assert_eq!(check(&format!("t={AT},v1={GOOD}"), BODY, AT), Ok(()));
    let every: Vec<u8> = (0..=255).collect();
    assert_eq!(check(&format!("t={AT},v1={OF_ALL_BYTES}"), &every, AT), Ok(()));
    // One of several, in any order, beside other schemes, with blanks.
    let several = format!("v0=00, v1={OF_ANOTHER_SECRET} ,v1={GOOD},t={AT}");
    assert_eq!(check(&several, BODY, AT), Ok(()));
    assert_eq!(check(&format!("t={AT},v1={}", GOOD.to_uppercase()), BODY, AT), Ok(()));
}

#[test]
fn what_is_forged_late_or_malformed_is_refused() {
    use SignatureFault::{Forged, Malformed};
    let late = SignatureFault::Late { signed_at: AT };
    let of = |t: &str, v1: &str| format!("t={t},v1={v1}");
    let now = AT.to_string();
    let tampered: String = GOOD.chars().rev().collect();
    for (header, body, at, fault) in [
        (of(&now, OF_ANOTHER_SECRET), BODY, AT, Forged),
        (of(&now, &tampered), BODY, AT, Forged),
        (of(&now, GOOD), &br#"{"id":"evt_1","type":"pinG"}"#[..], AT, Forged),
        (of(&now, GOOD), &BODY[..27], AT, Forged),
        (of(&now, GOOD), &b""[..], AT, Forged),
        (of(&(AT + 1).to_string(), GOOD), BODY, AT, Forged),
        (of(&format!("0{now}"), GOOD), BODY, AT, Forged),
        (of(&now, GOOD), BODY, AT + 301, late),
        (of(&now, GOOD), BODY, AT - 301, late),
        (of(&now, &GOOD[..62]), BODY, AT, Malformed),
        (of(&format!("-{now}"), GOOD), BODY, AT, Malformed),
        (of("", GOOD), BODY, AT, Malformed),
        (of("99999999999999999999", GOOD), BODY, AT, Malformed),
        (format!("v1={GOOD}"), BODY, AT, Malformed),
        (format!("t={now}"), BODY, AT, Malformed),
        (format!("t={now},t={now},v1={GOOD}"), BODY, AT, Malformed),
        (format!("t={now},v0={GOOD}"), BODY, AT, Malformed),
        (
            format!("{}{}", of(&now, GOOD), ",v0=00".repeat(400)),
            BODY,
            AT,
            Malformed,
        ),
        (String::new(), BODY, AT, Malformed),
        ("é".to_owned(), BODY, AT, Malformed),
    ] {
        assert_eq!(check(&header, body, at), Err(fault), "{header}");
    }
    for edge in [-300, 300] {
        assert_eq!(check(&of(&now, GOOD), BODY, AT + edge), Ok(()));
    }
}

fn checkout(kind: &str, status: &str, more: &str) -> Vec<u8> {
    format!(
        r#"{{"id":"evt_1","object":"event","type":"{kind}","livemode":true,"data":{{"object":{{"id":"cs_1","payment_status":"{status}","currency":"usd","amount_total":1050,"client_reference_id":"acme"{more}}}}}}}"#
    )
    .into_bytes()
}

#[test]
fn a_paid_checkout_is_a_payment_and_nothing_else_is() {
    const INTENT: &str = r#","payment_intent":"pi_1""#;
    let payment = Payment {
        event: "evt_1".to_owned(),
        reference: "pi_1".to_owned(),
        account: Some("acme".to_owned()),
        currency: "usd".to_owned(),
        amount_minor: 1050,
    };
    for kind in ["checkout.session.completed", "checkout.session.async_payment_succeeded"] {
        assert_eq!(read(&checkout(kind, "paid", INTENT)), Ok(Notice::Paid(payment.clone())));
        let whole = r#","payment_intent":{"id":"pi_1","object":"payment_intent"}"#;
        assert_eq!(read(&checkout(kind, "paid", whole)), Ok(Notice::Paid(payment.clone())));
        for status in ["unpaid", "no_payment_required", ""] {
            assert!(
                matches!(read(&checkout(kind, status, INTENT)), Ok(Notice::Other { .. })),
                "{status}"
            );
        }
        let without = r#","payment_intent":null"#;
        assert!(matches!(
            read(&checkout(kind, "paid", without)),
            Ok(Notice::Other { .. })
        ));
    }
    for kind in ["checkout.session.expired", "payment_intent.succeeded", "", "x"] {
        assert!(
            matches!(read(&checkout(kind, "paid", INTENT)), Ok(Notice::Other { .. })),
            "{kind}"
        );
    }
    let back = Notice::WentBack {
        event: "evt_1".to_owned(),
        kind: "charge.refunded".to_owned(),
        payment: Some("pi_1".to_owned()),
        disputed: None,
    };
    assert_eq!(read(&checkout("charge.refunded", "paid", INTENT)), Ok(back));
}

#[test]
fn a_refund_is_read_from_a_message_of_its_own_and_from_its_charge() {
    let object = |status: &str| {
        format!(
            r#"{{"id":"re_1","object":"refund","amount":400,"currency":"usd","payment_intent":"pi_1","status":{status}}}"#
        )
    };
    let event = |kind: &str, object: &str| format!(r#"{{"id":"evt_1","type":"{kind}","data":{{"object":{object}}}}}"#);
    let refund = |is_void| Refund {
        event: "evt_1".to_owned(),
        reference: "re_1".to_owned(),
        payment: "pi_1".to_owned(),
        currency: "usd".to_owned(),
        amount_minor: 400,
        is_void,
    };
    for (status, is_void) in [
        ("\"succeeded\"", false),
        ("\"pending\"", false),
        ("\"requires_action\"", false),
        ("null", false),
        ("\"failed\"", true),
        ("\"canceled\"", true),
    ] {
        let taken = |has_more| {
            let refunds = vec![refund(is_void)];
            Ok(Notice::Refunded { refunds, has_more })
        };
        let expected = taken(false);
        for kind in [
            "refund.created",
            "refund.updated",
            "refund.failed",
            "charge.refund.updated",
        ] {
            assert_eq!(
                read(event(kind, &object(status)).as_bytes()),
                expected,
                "{kind} {status}"
            );
        }
        let list = |has_more: bool| {
            format!(
                r#"{{"payment_intent":"pi_1","refunds":{{"data":[{}],"has_more":{has_more}}}}}"#,
                object(status)
            )
        };
        assert_eq!(read(event("charge.refunded", &list(false)).as_bytes()), expected);
        // Not all of them are there: those that are, are taken.
        assert_eq!(read(event("charge.refunded", &list(true)).as_bytes()), taken(true));
    }
    let good = event("refund.created", &object("\"succeeded\""));
    for (from, to) in [
        ("400", "0"),
        ("400", "-4"),
        ("400", "4.5"),
        ("400", "null"),
        ("\"re_1\"", "\"\""),
        ("\"re_1\"", "\"a b\""),
        ("\"pi_1\"", "\"\""),
        ("\"usd\"", "null"),
    ] {
        let broken = good.replacen(from, to, 1);
        assert!(read(broken.as_bytes()).is_err(), "{broken}");
    }
    for cut in 0..good.len() {
        assert!(read(&good.as_bytes()[..cut]).is_err(), "{cut}");
    }
}

/// A connected account makes checkouts of its own, also in tests, and Stripe signs what it tells of them with the platform's secret.
#[test]
fn what_is_about_a_connected_account_is_none_of_ours() {
    let paid = checkout("checkout.session.completed", "paid", r#","payment_intent":"pi_1""#);
    let refund = br#"{"id":"evt_1","object":"event","type":"refund.created","data":{"object":{"id":"re_1","amount":400,"currency":"usd","payment_intent":"pi_1"}}}"#;
    for good in [paid, refund.to_vec()] {
        let good = String::from_utf8(good).unwrap();
        let of = |account: &str| {
            good.replacen(
                r#""object":"event""#,
                &format!(r#""object":"event","account":{account}"#),
                1,
            )
        };
        let ours = |notice| matches!(notice, Ok(Notice::Paid(_) | Notice::Refunded { .. }));
        assert!(
            ours(read(good.as_bytes())) && ours(read(of("null").as_bytes())),
            "{good}"
        );
        let theirs = read(of(r#""acct_1""#).as_bytes());
        assert!(matches!(theirs, Ok(Notice::Other { .. })), "{theirs:?}");
    }
}

#[test]
fn what_cannot_be_read_is_no_payment() {
    let text = String::from_utf8(checkout(
        "checkout.session.completed",
        "paid",
        r#","payment_intent":"pi_1""#,
    ))
    .unwrap();
    for (from, to) in [
        ("1050", "0"),
        ("1050", "-1050"),
        ("1050", "10.5"),
        ("1050", "null"),
        ("1050", "\"1050\""),
        ("1050", "99999999999999999999"),
        ("\"usd\"", "null"),
        ("\"pi_1\"", "\"\""),
        ("\"pi_1\"", "7"),
        ("\"pi_1\"", "\"a b\""),
        ("\"data\"", "\"dat\""),
        ("\"evt_1\"", "1"),
    ] {
        let broken = text.replacen(from, to, 1);
        assert_ne!(broken, text);
        assert!(read(broken.as_bytes()).is_err(), "{broken}");
    }
    for cut in 0..text.len() {
        assert!(read(&text.as_bytes()[..cut]).is_err(), "{cut}");
    }
}

#[test]
fn amounts_are_exact_in_every_currency() {
    for (currency, minor, credits) in [
        ("usd", 1, "0.01"),
        ("USD", 1050, "10.5"),
        ("jpy", 500, "500"),
        ("isk", 500, "5"),
        ("kwd", 5120, "5.12"),
    ] {
        let decimals = decimals(currency).unwrap();
        assert_eq!(amount(minor, decimals), Some(credits.parse().unwrap()), "{currency}");
    }
    assert_eq!(amount(922_337_203, 2), Some("9223372.03".parse().unwrap()));
    assert_eq!(amount(922_337_204, 2), None);
    assert_eq!(amount(i64::MAX, 0), None);
    for wrong in ["", "us", "credits", "us1", "UGX", "éé"] {
        assert!(decimals(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_signature_is_good_for_five_minutes_either_way() {
    for (seconds, is_good) in [(-301, false), (-300, true), (300, true), (301, false)] {
        let checked = check(&format!("t={AT},v1={GOOD}"), BODY, AT + seconds);
        assert_eq!(checked.is_ok(), is_good, "{seconds}");
    }
}

#[test]
fn a_header_is_read_up_to_its_greatest_length() {
    let header = format!("t={AT},v1={GOOD},v0=");
    for (bytes, checked) in [
        (HEADER_BYTES_MAX, Ok(())),
        (HEADER_BYTES_MAX + 1, Err(SignatureFault::Malformed)),
    ] {
        let filled = format!("{header}{}", "0".repeat(bytes - header.len()));
        assert_eq!(check(&filled, BODY, AT), checked, "{bytes}");
    }
}

#[test]
fn a_dispute_is_for_somebody_to_look_at() {
    for (payment, told, of, disputed) in [
        (
            r#""pi_1""#,
            Some("pi_1"),
            r#","amount":500,"currency":"usd""#,
            Some((500, "usd".to_owned())),
        ),
        ("null", None, r#","amount":500"#, None),
        ("null", None, r#","amount":"5","currency":"usd""#, None),
    ] {
        let body = format!(
            r#"{{"id":"evt_1","type":"charge.dispute.created","data":{{"object":{{"payment_intent":{payment}{of}}}}}}}"#
        );
        let expected = Notice::WentBack {
            event: "evt_1".to_owned(),
            kind: "charge.dispute.created".to_owned(),
            payment: told.map(str::to_owned),
            disputed,
        };
        assert_eq!(read(body.as_bytes()), Ok(expected));
    }
}
