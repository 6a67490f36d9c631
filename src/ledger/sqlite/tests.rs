//! The ledger's file by itself, without the thread that writes it for a ledger.

mod books;
mod entries;
mod events;
mod keys;
mod names;
mod receipts;
mod spent;
mod synced;

use super::*;
use crate::ledger::tests::rig::NOW;
use crate::pure::ids::Tier;

const DAY_MS: i64 = 86_400_000;

/// A folder with a file that has an account, `acme`.
struct Rig {
    folder: tempfile::TempDir,
    database: Database,
}

impl Rig {
    fn new() -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(&folder.path().join("ledger.db")).unwrap();
        let mut rig = Rig { folder, database };
        rig.add_account("acme");
        rig
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("ledger.db")
    }

    fn add_account(&mut self, name: &str) {
        let record = AccountRecord {
            id: name.parse().unwrap(),
            tier: Tier::Pro,
            monthly_quota: None,
            created: NOW,
            terms: Default::default(),
        };
        self.database.insert_account(&record).unwrap();
    }

    fn reader(&self) -> Reader {
        Reader::open(&self.path()).unwrap()
    }

    fn change(&self, sql: &str) {
        self.database.connection.execute_batch(sql).unwrap();
    }

    fn number(&self, sql: &str) -> i64 {
        let row = |row: &rusqlite::Row<'_>| row.get(0);
        self.database.connection.query_row(sql, [], row).unwrap()
    }

    fn text(&self, sql: &str) -> String {
        let row = |row: &rusqlite::Row<'_>| row.get(0);
        self.database.connection.query_row(sql, [], row).unwrap()
    }

    /// The account's balance, in 10^-12 credit.
    fn balance(&self) -> i64 {
        self.number("SELECT balance FROM accounts WHERE id = 'acme'")
    }
}

fn acme() -> AccountId {
    "acme".parse().unwrap()
}
