//! Operators, and the log of what they and others did: rows that are only added to. What an entry says is written before its command
//! runs, and completed once, after it.

use rusqlite::{Connection, params};

use super::{Database, Reader, corrupt};
use crate::ledger::StoreError;
use crate::ledger::acts::PageReader;
use crate::ledger::admin::operators::{Act, ActPage, ActQuery, OperatorRecord};
use crate::pure::ids::{AccountId, KeyDigest};
use crate::pure::time::Timestamp;

/// Adds what files of earlier versions do not have. Those versions read and write such a file all the same.
pub(super) fn complete_schema(connection: &Connection) -> Result<(), StoreError> {
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS operators (
            id TEXT PRIMARY KEY, digest TEXT NOT NULL UNIQUE, name TEXT NOT NULL, role TEXT NOT NULL, created INTEGER NOT NULL,
            expires INTEGER, revoked INTEGER
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE IF NOT EXISTS acts (
            id INTEGER PRIMARY KEY AUTOINCREMENT, account TEXT, is_open INTEGER NOT NULL, act TEXT NOT NULL
        ) STRICT;
        CREATE INDEX IF NOT EXISTS acts_of_account ON acts (account, id);
        CREATE TRIGGER IF NOT EXISTS acts_stay BEFORE DELETE ON acts WHEN old.is_open = 0
            BEGIN SELECT raise(ABORT, 'the log of acts is only added to'); END;
        CREATE TRIGGER IF NOT EXISTS acts_stay_as_they_are BEFORE UPDATE ON acts WHEN old.is_open = 0
            BEGIN SELECT raise(ABORT, 'the log of acts is only added to'); END;",
    )?;
    Ok(())
}

impl Database {
    /// All operators with the digests of their tokens, oldest first.
    pub(in crate::ledger) fn operators(&self) -> Result<Vec<(KeyDigest, OperatorRecord)>, StoreError> {
        let mut statement = self
            .connection
            .prepare("SELECT digest, id, name, role, created, expires, revoked FROM operators ORDER BY created, id")?;
        let mut rows = statement.query([])?;
        let mut operators = Vec::new();
        while let Some(row) = rows.next()? {
            let digest =
                KeyDigest::from_hex(&row.get::<_, String>(0)?).ok_or_else(|| corrupt("the digest of a token"))?;
            let record = OperatorRecord {
                id: row.get(1)?,
                name: row.get(2)?,
                role: row.get::<_, String>(3)?.parse().map_err(corrupt)?,
                created: Timestamp(row.get(4)?),
                expires: row.get::<_, Option<i64>>(5)?.map(Timestamp),
                revoked: row.get::<_, Option<i64>>(6)?.map(Timestamp),
            };
            operators.push((digest, record));
        }
        Ok(operators)
    }

    /// Adds an operator.
    pub(in crate::ledger) fn insert_operator(
        &mut self,
        digest: &KeyDigest,
        operator: &OperatorRecord,
    ) -> Result<(), StoreError> {
        self.durably(|t| {
            t.execute(
                "INSERT INTO operators (id, digest, name, role, created, expires) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![
                    operator.id,
                    digest.to_hex(),
                    operator.name,
                    operator.role.name(),
                    operator.created.0,
                    operator.expires.map(|at| at.0)
                ],
            )?;
            Ok(())
        })
    }

    /// Whether the file has an operator.
    pub(in crate::ledger) fn has_operator(&self, id: &str) -> Result<bool, StoreError> {
        let sql = "SELECT count(*) FROM operators WHERE id = ?1";
        let count: i64 = self.connection.query_row(sql, [id], |row| row.get(0))?;
        Ok(count > 0)
    }

    /// Revokes an operator's token.
    pub(in crate::ledger) fn revoke_operator(&mut self, id: &str, at: Timestamp) -> Result<(), StoreError> {
        self.durably(|t| {
            t.execute(
                "UPDATE operators SET revoked = coalesce(revoked, ?2) WHERE id = ?1",
                params![id, at.0],
            )?;
            Ok(())
        })
    }

    /// Begins an entry of the log. Its number.
    pub(in crate::ledger) fn begin_act(&mut self, act: &Act) -> Result<i64, StoreError> {
        let text = serde_json::to_string(act).map_err(corrupt)?;
        let account = act.account.as_ref().map(AccountId::as_str);
        self.durably(|t| {
            t.execute(
                "INSERT INTO acts (account, is_open, act) VALUES (?1, 1, ?2)",
                params![account, text],
            )?;
            Ok(t.last_insert_rowid())
        })
    }

    /// Completes an entry that was begun.
    pub(in crate::ledger) fn complete_act(&mut self, id: i64, act: &Act) -> Result<(), StoreError> {
        let text = serde_json::to_string(act).map_err(corrupt)?;
        self.durably(|t| {
            t.execute("UPDATE acts SET is_open = 0, act = ?2 WHERE id = ?1", params![id, text])?;
            Ok(())
        })
    }

    /// Takes an entry back that was begun for a command which then changed nothing.
    pub(in crate::ledger) fn withdraw_act(&mut self, id: i64) -> Result<(), StoreError> {
        self.durably(|t| {
            t.execute("DELETE FROM acts WHERE id = ?1 AND is_open = 1", [id])?;
            Ok(())
        })
    }
}

impl Reader {
    /// A page of the log, newest first; `before` is the number that the query names.
    pub(in crate::ledger) fn acts(&self, query: &ActQuery, before: Option<i64>) -> Result<ActPage, StoreError> {
        let account = query.account.as_ref().map(AccountId::as_str);
        let sql = match account {
            Some(_) => "SELECT id, act FROM acts WHERE account = ?3 AND id < ?1 ORDER BY id DESC LIMIT ?2",
            None => "SELECT id, act FROM acts WHERE id < ?1 AND ?3 IS NULL ORDER BY id DESC LIMIT ?2",
        };
        let mut statement = self.connection.prepare_cached(sql)?;
        // One more says whether another page follows.
        let mut rows = statement.query(params![
            before.unwrap_or(i64::MAX),
            query.limit().saturating_add(1),
            account
        ])?;
        let mut page = PageReader::new(query.limit());
        while let Some(row) = rows.next()? {
            let (id, text): (i64, String) = (row.get(0)?, row.get(1)?);
            if !page.add(id.to_string(), &text).map_err(corrupt)? {
                break;
            }
        }
        Ok(page.done())
    }
}
