//! What accounts have spent in a month: as their usage says, and as their records do.

use std::collections::{BTreeMap, HashMap};

use rusqlite::params;

use super::{Database, PART};
use crate::ledger::StoreError;
use crate::pure::ids::AccountId;
use crate::pure::money::Credits;
use crate::pure::time::{Day, Month};

impl Database {
    /// What each account spent in each month, as its usage from this day on says. Usage of before is not looked at.
    pub(in crate::ledger) fn months(
        &self,
        since: Day,
    ) -> Result<HashMap<String, BTreeMap<Month, Credits>>, StoreError> {
        let mut statement = self.connection.prepare(&sums_of_days())?;
        let mut rows = statement.query([since.0])?;
        let mut all: HashMap<String, BTreeMap<Month, Credits>> = HashMap::new();
        while let Some(row) = rows.next()? {
            let (day, whole, rest): (i64, i64, i64) = (row.get(1)?, row.get(2)?, row.get(3)?);
            let cost = Credits::from_pico(whole.saturating_mul(PART).saturating_add(rest));
            let used = all.entry(row.get(0)?).or_default().entry(Day(day).month()).or_default();
            *used = used.saturating_add(cost);
        }
        Ok(all)
    }

    /// What an account's record says of its month.
    pub(in crate::ledger) fn month(&self, account: &AccountId) -> Result<(Month, Credits), StoreError> {
        let row = |row: &rusqlite::Row<'_>| Ok((Month(row.get(0)?), Credits::from_pico(row.get(1)?)));
        let sql = "SELECT month, month_used FROM accounts WHERE id = ?1";
        Ok(self.connection.query_row(sql, [account.as_str()], row)?)
    }

    /// Mends what an account's record says of its month.
    pub(in crate::ledger) fn set_month(
        &mut self,
        account: &AccountId,
        month: Month,
        used: Credits,
    ) -> Result<(), StoreError> {
        self.durably(|t| {
            t.execute(
                "UPDATE accounts SET month = ?2, month_used = ?3 WHERE id = ?1",
                params![account.as_str(), month.0, used.pico()],
            )?;
            Ok(())
        })
    }
}

/// By account and day, from a day on. Usage stands by account and then by day, so each account's is found without that of before.
pub(super) fn sums_of_days() -> String {
    format!(
        "SELECT id, day, sum(cost / {PART}), sum(cost % {PART}) FROM accounts CROSS JOIN usage ON account = id
         WHERE day >= ?1 GROUP BY id, day"
    )
}
