//! What was spent under limits: what a start reads of it, and what is forgotten.

use super::*;
use crate::ledger::sqlite::spending::ROWS_AT_ONCE;
use crate::pure::spend::{Reset, SpendPeriod};

impl Rig {
    fn spend(&self, end_user: &str, period: &str) {
        self.change(&format!(
            "INSERT INTO spent (account, key, end_user, period, spent) VALUES ('acme', 'key_x', '{end_user}', '{period}', 1)"
        ));
    }

    /// Of which periods something was spent, as the file has it.
    fn periods(&self) -> Vec<String> {
        let mut statement = self
            .database
            .connection
            .prepare("SELECT period FROM spent ORDER BY period")
            .unwrap();
        let periods = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
        periods.collect::<Result<_, _>>().unwrap()
    }

    /// The same as a start reads it that counts from this day on.
    fn read_since(&self, day: Day) -> Vec<String> {
        let account = self.database.accounts_spending(day, day).unwrap().remove(0);
        let mut periods: Vec<String> = account
            .kept
            .spending
            .keys()
            .map(|(_, _, period)| period.to_string())
            .collect();
        periods.sort_unstable();
        periods
    }

    fn spent_rows(&self) -> i64 {
        self.number("SELECT count(*) FROM spent")
    }
}

/// In the order of their texts.
fn texts(periods: &[SpendPeriod]) -> Vec<String> {
    let mut texts: Vec<String> = periods.iter().map(SpendPeriod::to_string).collect();
    texts.sort_unstable();
    texts
}

#[test]
fn what_was_spent_in_a_period_is_forgotten_62_days_after_its_end() {
    let mut rig = Rig::new();
    let today = NOW.day();
    let days = [-64, -63, -62, -1, 0].map(|days| SpendPeriod::Day(Day(today.0 + days)));
    for period in days.into_iter().chain([SpendPeriod::Life]) {
        rig.spend("", &period.to_string());
    }
    let [_, _, kept @ ..] = days;
    let kept: Vec<SpendPeriod> = kept.into_iter().chain([SpendPeriod::Life]).collect();
    for _ in 0..2 {
        assert_eq!(rig.database.forget_spending(&SpentRow::default(), today), Ok(None));
        assert_eq!(rig.periods(), texts(&kept));
    }
}

/// So that the ledger's thread is there for others in between; and nothing that is to be kept is looked at twice.
#[test]
fn some_rows_are_looked_at_at_once_and_each_once() {
    let mut rig = Rig::new();
    let (old, now) = ("d1", SpendPeriod::Day(NOW.day()).to_string());
    let most = ROWS_AT_ONCE;
    rig.change("BEGIN");
    for n in 0..most {
        let end_user = format!("{n:022}");
        rig.spend(&end_user, old);
        rig.spend(&end_user, &now);
    }
    rig.spend("", "t");
    rig.change("COMMIT");
    let mut from = SpentRow::default();
    let mut left = Vec::new();
    while let Some(last) = rig.database.forget_spending(&from, NOW.day()).unwrap() {
        assert_ne!(last, from);
        from = last;
        left.push(rig.spent_rows());
    }
    // The first row is that of the key.
    assert_eq!(left, [2 * most + 1 - (most - 1) / 2 - (most - 1) % 2, most + 1]);
    assert_eq!(rig.spent_rows(), most + 1);
    let mut kept = vec![now; usize::try_from(most).unwrap()];
    kept.push("t".to_owned());
    assert_eq!(rig.periods(), kept);
}

/// Of millions of end users only those of now are asked for.
#[test]
fn a_start_reads_what_was_spent_in_periods_that_are_not_over() {
    let rig = Rig::new();
    let today = NOW.day();
    let yesterday = Day(today.0 - 1);
    let of = |day: Day| [Reset::Daily, Reset::Weekly, Reset::Monthly].map(|reset| reset.period(day));
    let over = of(Day(today.0 - 40));
    let (now, life) = (of(today), SpendPeriod::Life);
    let before = SpendPeriod::Day(yesterday);
    for period in over.iter().chain(&now).chain([&life, &before]) {
        rig.spend("", &period.to_string());
        rig.spend("0123456789abcdef012345", &period.to_string());
    }
    let twice = |periods: Vec<SpendPeriod>| texts(&[periods.clone(), periods].concat());
    let [day, week, month] = now;
    assert_eq!(rig.read_since(today), twice(vec![day, week, month, life]));
    assert_eq!(rig.read_since(yesterday), twice(vec![day, week, month, life, before]));
    assert_eq!(rig.read_since(Day(0)).len(), 16);
    // Who does not ask for it, such as an audit, reads none of it.
    assert!(rig.database.accounts().unwrap().remove(0).kept.spending.is_empty());
}
