//! What an audit reads of the file: by a connection of its own, as one moment has it.

use std::path::Path;

use super::{Database, PART, Reader, ReceiptBounds, corrupt};
use crate::ledger::StoreError;
use crate::ledger::admin::AuditFinding;
use crate::pure::money::Credits;
use crate::pure::time::Timestamp;

impl Database {
    /// Opens a file that is there, to read from it alone.
    pub(in crate::ledger) fn open_to_read(path: &Path) -> Result<Database, StoreError> {
        Ok(Database {
            connection: Reader::open(path)?.connection,
            receipt_bounds: ReceiptBounds::days(0),
            known: Timestamp(i64::MIN),
            latest: Timestamp(i64::MIN),
            #[cfg(test)]
            fails_after_commit: false,
            #[cfg(test)]
            fails_to_look: false,
        })
    }

    /// All that is read from now on is read as this moment has it. For a connection that reads alone.
    pub(in crate::ledger) fn begin_moment(&self) -> Result<(), StoreError> {
        // The moment is that of the first read.
        self.connection.execute_batch("BEGIN; SELECT count(*) FROM settings;")?;
        Ok(())
    }

    /// The rules that the file alone must keep: `top-ups - debits = balance`.
    pub(in crate::ledger) fn audit(&self, findings: &mut Vec<AuditFinding>) -> Result<u64, StoreError> {
        // The sums of a long life leave the range of an int64, so they are taken in two parts.
        let mut statement = self.connection.prepare(&format!(
            "SELECT id, balance,
                    (SELECT coalesce(sum(amount / {PART}), 0) FROM topups WHERE account = id),
                    (SELECT coalesce(sum(amount % {PART}), 0) FROM topups WHERE account = id),
                    (SELECT coalesce(sum(cost / {PART}), 0) FROM usage WHERE account = id),
                    (SELECT coalesce(sum(cost % {PART}), 0) FROM usage WHERE account = id) FROM accounts",
        ))?;
        let mut rows = statement.query([])?;
        let mut accounts = 0;
        while let Some(row) = rows.next()? {
            accounts += 1;
            let sum = |at: usize| -> Result<i128, rusqlite::Error> {
                let (whole, rest): (i64, i64) = (row.get(at)?, row.get(at.saturating_add(1))?);
                Ok(i128::from(whole) * i128::from(PART) + i128::from(rest))
            };
            let (balance, expected) = (row.get::<_, i64>(1)?, sum(2)? - sum(4)?);
            if expected != i128::from(balance) {
                findings.push(AuditFinding {
                    account: row.get::<_, String>(0)?.parse().map_err(corrupt)?,
                    rule: "top-ups - debits = balance".to_owned(),
                    expected: crate::ledger::records::clamped(expected),
                    found: Credits::from_pico(balance),
                });
            }
        }
        self.audit_spending(findings)?;
        Ok(accounts)
    }
}
