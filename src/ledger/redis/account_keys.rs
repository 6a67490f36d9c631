//! All keys of an account, and one by itself, as operators are shown them.

use futures::future::join_all;
use redis::Value;

use super::account::keys_of_account;
use super::link::Link;
use super::reply;
use super::shared::{Shared, key_name, read_record};
use crate::ledger::KeyRecord;
use crate::ledger::admin::{AdminError, AdminReply, KeyRef};
use crate::pure::ids::{AccountId, KeyDigest};

impl Shared {
    /// One key, whatever became of it.
    pub(super) async fn show_key(&self, link: &Link, key: &KeyRef) -> Result<AdminReply, AdminError> {
        let digest = self.digest_of(link, key).await?;
        let (record, _) = self.record_of(link, &digest).await?;
        Ok(AdminReply::Key(record))
    }

    /// In the order in which they were made. An account may have very many: some are read at once.
    pub(super) async fn keys_of(&self, link: &Link, account: &AccountId) -> Result<Vec<KeyRecord>, AdminError> {
        let mut members = redis::cmd("SMEMBERS");
        members.arg(keys_of_account(account));
        let members = self.command(link, members).await?;
        let mut keys = Vec::new();
        for some in reply::list(&members)?.chunks(AT_ONCE) {
            let reads = some.iter().map(|hex| self.record_at(link, hex));
            for record in join_all(reads).await {
                keys.extend(record?);
            }
        }
        keys.sort_by(|a, b| (a.created, a.id.as_str()).cmp(&(b.created, b.id.as_str())));
        Ok(keys)
    }

    async fn record_at(&self, link: &Link, hex: &Value) -> Result<Option<KeyRecord>, AdminError> {
        let digest = KeyDigest::from_hex(reply::text(hex)?).ok_or_else(|| reply::corrupt("a key's digest"))?;
        let mut command = redis::cmd("HMGET");
        command.arg(key_name(&digest)).arg("record").arg("revoked");
        Ok(read_record(&self.command(link, command).await?)?)
    }
}

/// Keys that are read at once.
const AT_ONCE: usize = 256;
