//! Credit entries, whose payments they are, and statements.

use super::*;
use crate::ledger::admin::credits::{CreditKind, CreditPost, STATEMENT_ROWS_MAX};
use crate::ledger::sqlite::credits::{Untold, Written};

pub(super) fn post(account: &str, reference: &str, amount: i64) -> CreditPost {
    CreditPost {
        account: account.parse().unwrap(),
        amount: Credits::from_pico(amount),
        reference: reference.to_owned(),
        kind: CreditKind::TopUp,
        note: None,
        allow_negative: false,
        as_available: false,
        is_payment: false,
    }
}

impl Rig {
    pub(super) fn post(&mut self, post: &CreditPost) -> &'static str {
        match self.database.post(post, NOW).unwrap() {
            Written::Added(_) => "added",
            Written::Already(_) => "already",
            Written::Conflict => "conflict",
            Written::OutOfRange => "out of range",
        }
    }
}

#[test]
fn a_payment_is_credited_to_one_account_and_other_entries_to_any() {
    let mut rig = Rig::new();
    rig.add_account("beta");
    let payment = |account: &str, amount| CreditPost {
        is_payment: true,
        ..post(account, "p", amount)
    };
    for (entry, expected) in [
        (payment("acme", 5), "added"),
        (payment("acme", 5), "already"),
        (payment("acme", 6), "conflict"),
        (payment("beta", 5), "conflict"),
        (post("beta", "p", 5), "added"),
        (post("beta", "p", 5), "already"),
        (post("beta", "p", 6), "conflict"),
        (post("acme", "p", 5), "already"),
        (payment("beta", 5), "conflict"),
        (post("acme", "q", i64::MAX), "out of range"),
        (post("acme", "q", i64::MAX - 5), "added"),
    ] {
        assert_eq!(rig.post(&entry), expected, "{entry:?}");
    }
    assert_eq!(rig.balance(), i64::MAX);
    // It is the payment's, though another account has an entry of that reference.
    let (payer, entry) = rig.reader().credit_entry(None, "p").unwrap();
    assert_eq!((payer, entry.map(|entry| entry.amount.pico())), (Some(acme()), Some(5)));
}

/// Earlier versions noted none of those by hand.
#[test]
fn a_payment_that_an_earlier_version_added_by_hand_is_no_other_accounts() {
    let mut rig = Rig::new();
    rig.add_account("beta");
    let at = NOW.0;
    rig.change(&format!(
        "INSERT INTO topups (account, reference, amount, at) VALUES ('acme', 'pi_1', 5, {at});
         INSERT INTO topups (account, reference, amount, at, kind) VALUES ('acme', 'pi_2', 5, {at}, 'bonus');
         UPDATE accounts SET balance = balance + 10 WHERE id = 'acme';"
    ));
    let payment = |account: &str, reference: &str| CreditPost {
        is_payment: true,
        ..post(account, reference, 5)
    };
    for (entry, expected) in [
        (payment("beta", "pi_1"), "conflict"),
        (payment("acme", "pi_1"), "already"),
        (payment("beta", "pi_1"), "conflict"),
        // No top-up, and so no payment.
        (payment("beta", "pi_2"), "added"),
        (payment("acme", "pi_2"), "conflict"),
    ] {
        assert_eq!(rig.post(&entry), expected, "{entry:?}");
    }
    let (payer, _) = rig.reader().credit_entry(None, "pi_1").unwrap();
    assert_eq!(payer, Some(acme()));
}

#[test]
fn a_top_up_is_found_without_its_account_where_one_has_it() {
    let mut rig = Rig::new();
    rig.add_account("beta");
    let bonus = CreditPost {
        kind: CreditKind::Bonus,
        ..post("beta", "a", 1)
    };
    for entry in [post("acme", "a", 5), bonus, post("acme", "b", 6), post("beta", "b", 7)] {
        assert_eq!(rig.post(&entry), "added");
    }
    let reader = rig.reader();
    let (payer, entry) = reader.credit_entry(None, "a").unwrap();
    assert_eq!((payer, entry.unwrap().amount.pico()), (Some(acme()), 5));
    assert!(matches!(reader.credit_entry(None, "b"), Err(Untold::Invalid(_))));
    assert_eq!(reader.credit_entry(None, "c").unwrap(), (None, None));
    assert_eq!(reader.credit_entry(Some(&acme()), "c").unwrap(), (Some(acme()), None));
}

#[test]
fn a_statement_reads_so_many_entries_and_debits_and_no_more() {
    let rig = Rig::new();
    let (most, at) = (STATEMENT_ROWS_MAX, NOW.0);
    rig.change(&format!(
        "INSERT INTO topups (account, reference, amount, at)
         WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {most}) SELECT 'acme', 'r' || n, 1, {at} FROM n"
    ));
    let days = (NOW.day(), NOW.day());
    let told = rig.reader().statement(&acme(), days).unwrap();
    assert_eq!(told.entries.len(), most);
    let day = NOW.day().0;
    for more in ["a/m", "b/m"] {
        rig.change(&format!(
            "INSERT INTO usage (account, day, model, requests, prompt, completion, cost) VALUES ('acme', {day}, '{more}', 1, 1, 1, 1)"
        ));
        let told = rig.reader().statement(&acme(), days);
        assert!(matches!(told, Err(Untold::Invalid(_))), "{told:?}");
    }
}

#[test]
fn a_statement_ends_with_the_balance_less_what_came_after_it() {
    let rig = Rig::new();
    let day = NOW.day().0;
    for (days, topup, cost) in [
        (-1, 5_500_000_000_000_i64, 1_250_000_000_000_i64),
        (0, 2_250_000_000_000, 3),
        (1, 7_125_000_000_000, 2_000_000_000_001),
        (2, 9_000_000_000_002, 1_750_000_000_000),
    ] {
        let at = NOW.plus_millis(days * DAY_MS).0;
        rig.change(&format!(
            "INSERT INTO topups (account, reference, amount, at) VALUES ('acme', 'r {days}', {topup}, {at});
             INSERT INTO usage (account, day, model, requests, prompt, completion, cost)
                 VALUES ('acme', {day} + {days}, 'a/m', 1, 1, 1, {cost});
             UPDATE accounts SET balance = balance + {topup} - {cost};"
        ));
    }
    let told = rig.reader().statement(&acme(), (NOW.day(), NOW.day())).unwrap();
    assert_eq!((told.entries.len(), told.debits.len()), (1, 1));
    let opening = 5_500_000_000_000 - 1_250_000_000_000;
    let closing = opening + 2_250_000_000_000 - 3;
    assert_eq!((told.opening.pico(), told.closing.pico()), (opening, closing));
}
