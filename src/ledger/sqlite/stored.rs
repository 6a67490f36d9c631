//! What a start reads of the file: all accounts with their figures, and all keys.

use std::collections::HashMap;

use super::{Database, StoredAccount, corrupt};
use crate::ledger::{AccountRecord, KeyRecord, StoreError};
use crate::pure::account::{KeptSpending, KeptState};
use crate::pure::ids::{KeyDigest, KeyId, Tier};
use crate::pure::limits::LimitOverrides;
use crate::pure::money::Credits;
use crate::pure::numbers::Birth;
use crate::pure::time::{Day, Days, Timestamp};

impl Database {
    /// All accounts with their figures, without what was spent under limits.
    pub(in crate::ledger) fn accounts(&self) -> Result<Vec<StoredAccount>, StoreError> {
        self.accounts_with(HashMap::new(), Day(i64::MIN))
    }

    /// The same with what was spent under limits, in the periods that were not over before `since`, and of the months alone those that were
    /// not over before `months_since`.
    pub(in crate::ledger) fn accounts_spending(
        &self,
        since: Day,
        months_since: Day,
    ) -> Result<Vec<StoredAccount>, StoreError> {
        let (first, _) = Days::of_month(months_since).bounds(months_since);
        self.accounts_with(super::spending::since(&self.connection, since)?, first)
    }

    fn accounts_with(
        &self,
        mut spending: HashMap<String, KeptSpending>,
        months_since: Day,
    ) -> Result<Vec<StoredAccount>, StoreError> {
        let mut producers = super::numbers::producers(&self.connection)?;
        let mut months = self.months(months_since)?;
        let mut statement = self
            .connection
            .prepare("SELECT id, tier, quota, balance, created, forgotten, terms FROM accounts ORDER BY id")?;
        let mut rows = statement.query([])?;
        let mut accounts = Vec::new();
        while let Some(row) = rows.next()? {
            let id: String = row.get(0)?;
            accounts.push(StoredAccount {
                kept: KeptState {
                    balance: Credits::from_pico(row.get(3)?),
                    months: months.remove(&id).unwrap_or_default(),
                    producers: producers.remove(&id).unwrap_or_default(),
                    forgotten: row.get::<_, Option<u32>>(5)?.map(Birth),
                    spending: spending.remove(&id).unwrap_or_default(),
                },
                record: AccountRecord {
                    id: id.parse().map_err(corrupt)?,
                    tier: row.get::<_, String>(1)?.parse().map_err(corrupt)?,
                    monthly_quota: row.get::<_, Option<i64>>(2)?.map(Credits::from_pico),
                    created: Timestamp(row.get(4)?),
                    terms: super::terms::read(&row.get::<_, String>(6)?)?,
                },
            });
        }
        Ok(accounts)
    }

    /// All keys, oldest first.
    pub(in crate::ledger) fn keys(&self) -> Result<Vec<(KeyDigest, KeyRecord)>, StoreError> {
        let mut statement = self.connection.prepare(
            "SELECT digest, account, tier, domains, expires, rpm, tpm, concurrency, revoked, created, settings FROM keys ORDER BY created, rowid",
        )?;
        let mut rows = statement.query([])?;
        let mut keys = Vec::new();
        while let Some(row) = rows.next()? {
            let digest = KeyDigest::from_hex(&row.get::<_, String>(0)?).ok_or_else(|| corrupt("a key's digest"))?;
            let limit = |value: Option<i64>| value.map(u64::try_from).transpose().map_err(corrupt);
            let record = KeyRecord {
                id: KeyId::of(&digest),
                account: row.get::<_, String>(1)?.parse().map_err(corrupt)?,
                tier: row
                    .get::<_, Option<String>>(2)?
                    .map(|tier| tier.parse::<Tier>())
                    .transpose()
                    .map_err(corrupt)?,
                domains: serde_json::from_str(&row.get::<_, String>(3)?).map_err(corrupt)?,
                expires: row.get::<_, Option<i64>>(4)?.map(Timestamp),
                limits: LimitOverrides {
                    rpm: limit(row.get(5)?)?,
                    tpm: limit(row.get(6)?)?,
                    concurrency: limit(row.get(7)?)?,
                },
                revoked: row.get::<_, Option<i64>>(8)?.map(Timestamp),
                created: Timestamp(row.get(9)?),
                settings: serde_json::from_str(&row.get::<_, String>(10)?).map_err(corrupt)?,
            };
            keys.push((digest, record));
        }
        Ok(keys)
    }
}
