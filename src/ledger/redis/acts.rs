//! Operators of a ledger in Redis, and the log of acts.
//!
//! Operators are one hash, found by one command. The log is a hash and an index of accounts in a slot of its own; it keeps the newest
//! [`ACTS_KEPT_IN_REDIS`], and [`ACTS_BYTES_KEPT_IN_REDIS`] of them.

use std::sync::Arc;

use futures::future::join_all;
use redis::Value as Answer;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::link::Link;
use super::nonce::nonce;
use super::reply;
use super::script::{self, PREFIX};
use super::server_health::{maintenance_key, operators_key};
use super::shared::{Shared, key_name, read_record};
use super::unconfirmed::Left;
use crate::failpoints::point;
use crate::ledger::StoreError;
use crate::ledger::acts::{
    About, Entry, PAGE_BYTES_MAX, PageReader, account_value, check_name, key_value, not_logged, number_before,
    operator_value,
};
use crate::ledger::admin::Acted;
use crate::ledger::admin::operators::{
    ACTS_BYTES_KEPT_IN_REDIS, ACTS_KEPT_IN_REDIS, Act, ActPage, ActQuery, OPERATORS_MAX, OperatorOp, OperatorRecord,
};
use crate::ledger::admin::{AdminError, AdminReply};
use crate::ledger::key_settings::check_lifetime;
use crate::pure::ids::{AccountId, KeyDigest};
use crate::pure::operator::operator_id;
use crate::pure::time::Timestamp;

/// An operator as the hash has it.
#[derive(Serialize, Deserialize)]
struct Stored {
    digest: String,
    /// Tells the step that made it from others; none of earlier versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    made: String,
    #[serde(flatten)]
    record: OperatorRecord,
}

/// An entry that is open.
pub(super) struct Begun {
    pub(super) number: String,
    /// Tells it from another's of the same number, after the log was lost.
    pub(super) nonce: String,
}

/// Runs a command that somebody gives, to its end even when whoever asked goes.
#[expect(
    clippy::disallowed_methods,
    reason = "its end is waited for here; a stop may end it as it may end the process, and then the log says that its end is unknown"
)]
pub(super) async fn to_its_end(shared: &Arc<Shared>, acted: Acted) -> Result<AdminReply, AdminError> {
    let shared = Arc::clone(shared);
    let act = tokio::spawn(async move { shared.act(acted).await });
    let lost = |error| AdminError::Store(format!("the act was not seen to its end: {error}"));
    act.await.map_err(lost)?
}

impl Shared {
    /// Runs a command that somebody gives, and has the log say so.
    pub(super) async fn act(&self, acted: Acted) -> Result<AdminReply, AdminError> {
        let Acted { actor, op } = acted;
        let Some(mut entry) = Entry::of(actor, &op)? else {
            return self.execute(&self.link(), op).await;
        };
        // A connection of its own: it waits for a replica.
        let link = Link::default();
        let begun = self.begin(&link, &mut entry).await;
        let begun = begun.map_err(|error| not_logged(&error))?;
        let [acts, _] = acts_keys();
        if let Err(error) = self.confirm(&link, &[&acts]).await {
            // A fail-over may lose the entry: then the command would have been done without one.
            let refused = not_logged(&error);
            entry.act.error = Some(refused.to_string());
            self.ended(&link, &begun, &entry.act, true).await;
            return Err(refused);
        }
        point("act", "begun");
        let left = Left::of(&op);
        let result = self.execute(&link, op).await;
        point("act", "done");
        let looked = match entry.needs_look(&result) {
            true => self.look_at(&link, &entry).await.unwrap_or_else(|error| {
                log::error!("act {}: what is there after it cannot be read: {error}", begun.number);
                Value::Null
            }),
            false => Value::Null,
        };
        let is_kept = entry.ends(&result, looked);
        if !self.ended(&link, &begun, &entry.act, is_kept).await {
            return result;
        }
        let reply = result?;
        let Err(error) = self.confirm(&link, &[&acts]).await else {
            return Ok(reply);
        };
        let error = match self.done_unconfirmed(&link, &left, reply, error).await {
            Ok(reply) => return Ok(reply),
            Err(error) => error,
        };
        // What was revoked again is another act: that entry is complete.
        entry.act.error = Some(error.to_string());
        let account = entry.act.account.as_ref().map_or("", AccountId::as_str);
        if let Err(error) = self.add_complete(&link, account, &text_of(&entry.act)?).await {
            log::error!(
                "the log does not say that act {} was not confirmed: {error}",
                begun.number
            );
        }
        Err(error)
    }

    /// Ends an entry. False when the log does not say how it ended.
    async fn ended(&self, link: &Link, begun: &Begun, act: &Act, is_kept: bool) -> bool {
        let ended = self.end(link, begun, act, is_kept).await;
        if let Err(error) = &ended {
            let (number, action) = (&begun.number, &act.action);
            log::error!("the log does not say how act {number} ({action}) ended: {error}");
        }
        ended.is_ok()
    }

    async fn begin(&self, link: &Link, entry: &mut Entry) -> Result<Begun, AdminError> {
        let before = self.look_at(link, entry).await?;
        entry.begins(self.time(link).await?, before);
        let text = text_of(&entry.act)?;
        let account = entry.act.account.as_ref().map_or("", AccountId::as_str);
        point("act", "before");
        let nonce = nonce()?;
        let number = self.add_act(link, (account, &text), KEPT, &nonce).await?;
        Ok(Begun { number, nonce })
    }

    /// Adds an entry that is complete, for an account or for none (an empty text). Its number.
    async fn add_complete(&self, link: &Link, account: &str, text: &str) -> Result<String, StoreError> {
        self.add_act(link, (account, text), KEPT, &nonce()?).await
    }

    /// Adds an entry for an account or for none (an empty text), which stays open until an end with the same `nonce`. Its number: added again
    /// with the same `nonce`, for the answer was lost, it is the same entry.
    pub(super) async fn add_act(
        &self,
        link: &Link,
        (account, text): (&str, &str),
        (acts_max, bytes_max): (u32, u64),
        nonce: &str,
    ) -> Result<String, StoreError> {
        let [acts, by_account] = acts_keys();
        let keys: [&str; 2] = [&acts, &by_account];
        let (most, bytes) = (acts_max.to_string(), bytes_max.to_string());
        let begun = self
            .run_script(link, &script::ACT_BEGIN, &keys, &[account, text, &most, &bytes, nonce])
            .await?;
        Ok(reply::text(&begun)?.to_owned())
    }

    /// Completes an entry, or takes it back. One that the log has not any more, for the log was lost or cut short meanwhile, is added anew.
    pub(super) async fn end(&self, link: &Link, begun: &Begun, act: &Act, is_kept: bool) -> Result<(), AdminError> {
        let text = match is_kept {
            true => text_of(act)?,
            false => String::new(),
        };
        let account = act.account.as_ref().map_or("", AccountId::as_str);
        let [acts, by_account] = acts_keys();
        let Begun { number, nonce } = begun;
        let ended = self
            .run_script(
                link,
                &script::ACT_END,
                &[&acts, &by_account],
                &[number, account, &text, nonce],
            )
            .await?;
        if reply::text(&ended)? == "closed" && is_kept {
            let anew = self.add_complete(link, account, &text).await?;
            log::warn!("act {number} is not in the log any more: it is act {anew} now");
        }
        Ok(())
    }

    async fn look_at(&self, link: &Link, entry: &Entry) -> Result<Value, AdminError> {
        Ok(match entry.about() {
            About::Nothing | About::Books => Value::Null,
            About::Account(account) => match self.view(link, account).await {
                Ok(view) => account_value(&view),
                Err(AdminError::NoAccount(_)) => Value::Null,
                Err(error) => return Err(error),
            },
            About::Key(key) => {
                let digest = match self.digest_of(link, key).await {
                    Ok(digest) => digest,
                    Err(AdminError::NoKey) => return Ok(Value::Null),
                    Err(error) => return Err(error),
                };
                let mut command = redis::cmd("HMGET");
                command.arg(key_name(&digest)).arg("record").arg("revoked");
                let found = read_record(&self.command(link, command).await?)?;
                found.map_or(Value::Null, |key| key_value(&key))
            }
            About::Operator(id) => {
                let found = self.operator_of(link, id).await?;
                found.map_or(Value::Null, |stored| operator_value(&stored.record))
            }
            About::Maintenance => {
                let mut command = redis::cmd("GET");
                command.arg(maintenance_key());
                let value = self.command(link, command).await?;
                serde_json::json!({ "on": reply::optional_text(&value)? == Some("on") })
            }
        })
    }

    /// A command about operators.
    pub(super) async fn operator(&self, link: &Link, op: OperatorOp) -> Result<AdminReply, AdminError> {
        match op {
            OperatorOp::Create {
                digest,
                name,
                role,
                expires_in_ms,
            } => {
                check_name(&name)?;
                check_lifetime(expires_in_ms).map_err(AdminError::Invalid)?;
                let digest = KeyDigest::from_hex(&digest)
                    .ok_or_else(|| AdminError::Invalid("the token's digest is not 64 hexadecimal digits".to_owned()))?;
                let created = self.time(link).await?;
                let record = OperatorRecord {
                    id: operator_id(&digest),
                    name,
                    role,
                    created,
                    expires: expires_in_ms.map(|ms| created.plus_millis(ms)),
                    revoked: None,
                };
                self.create_operator(link, &digest, record).await
            }
            OperatorOp::Revoke { id } => {
                let now = self.now_text();
                let revoked = self
                    .run_script(link, &script::OPERATOR_REVOKE, &[&operators_key()], &[&now, &id])
                    .await?;
                let found = stored(&revoked)?.ok_or(AdminError::NoOperator(id))?;
                Ok(AdminReply::Operator(found.record))
            }
            OperatorOp::List => self.list_operators(link).await,
            OperatorOp::Find { digest } => {
                let digest = KeyDigest::from_hex(&digest);
                let found = match digest {
                    Some(digest) => self.operator_of(link, &operator_id(&digest)).await?,
                    None => None,
                };
                let found = found.filter(|found| digest.is_some_and(|digest| digest.to_hex() == found.digest));
                Ok(AdminReply::Operators {
                    operators: found.into_iter().map(|found| found.record).collect(),
                })
            }
            OperatorOp::Log(query) => self.acts(link, &query).await.map(AdminReply::Acts),
        }
    }

    async fn create_operator(
        &self,
        link: &Link,
        digest: &KeyDigest,
        record: OperatorRecord,
    ) -> Result<AdminReply, AdminError> {
        let id = record.id.clone();
        let (digest, made) = (digest.to_hex(), nonce()?);
        let text = serde_json::to_string(&Stored {
            digest,
            made,
            record: record.clone(),
        });
        let text = text.map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let most = OPERATORS_MAX.to_string();
        let created = self
            .run_script(
                link,
                &script::OPERATOR_CREATE,
                &[&operators_key()],
                &[&id, &text, &most],
            )
            .await?;
        match reply::text(&created)? {
            "created" => Ok(AdminReply::Operator(record)),
            "exists" => Err(AdminError::Invalid("the token is an operator's already".to_owned())),
            _ => Err(AdminError::Invalid(format!(
                "there are {OPERATORS_MAX} operators already"
            ))),
        }
    }

    async fn operator_of(&self, link: &Link, id: &str) -> Result<Option<Stored>, StoreError> {
        let mut command = redis::cmd("HMGET");
        command.arg(operators_key()).arg(id).arg(format!("r{id}"));
        stored(&self.command(link, command).await?)
    }

    async fn list_operators(&self, link: &Link) -> Result<AdminReply, AdminError> {
        let mut keys = redis::cmd("HKEYS");
        keys.arg(operators_key());
        let keys = self.command(link, keys).await?;
        let mut ids = Vec::new();
        for key in reply::list(&keys)? {
            ids.push(reply::text(key)?);
        }
        ids.retain(|id| id.starts_with("op_"));
        let mut operators = Vec::new();
        for some in ids.chunks(READ_AT_ONCE) {
            for found in join_all(some.iter().map(|id| self.operator_of(link, id))).await {
                operators.extend(found?.map(|found| found.record));
            }
        }
        operators.sort_by(|a, b| (a.created, &a.id).cmp(&(b.created, &b.id)));
        Ok(AdminReply::Operators { operators })
    }

    async fn acts(&self, link: &Link, query: &ActQuery) -> Result<ActPage, AdminError> {
        let before = number_before(query)?.map_or_else(String::new, |number| number.to_string());
        let most = query.limit().saturating_add(1).to_string();
        let bytes = PAGE_BYTES_MAX.to_string();
        let account = query.account.as_ref().map_or("", AccountId::as_str);
        let [acts, by_account] = acts_keys();
        let listed = self
            .run_script(
                link,
                &script::ACT_LIST,
                &[&acts, &by_account],
                &[&most, &before, account, &bytes],
            )
            .await?;
        let mut page = PageReader::new(query.limit());
        for pair in reply::list(&listed)?.chunks_exact(2) {
            let [number, text] = pair else { continue };
            let is_added = page
                .add(reply::text(number)?.to_owned(), reply::text(text)?)
                .map_err(|error| StoreError::Corrupt(format!("an entry of the log: {error}")))?;
            if !is_added {
                break;
            }
        }
        Ok(page.done())
    }
}

/// Reads an operator's two fields; nothing when there is no such operator.
fn stored(fields: &Answer) -> Result<Option<Stored>, StoreError> {
    let [record, revoked] = reply::list(fields)? else {
        return Ok(None);
    };
    let Some(text) = reply::optional_text(record)? else {
        return Ok(None);
    };
    let mut stored: Stored =
        serde_json::from_str(text).map_err(|error| StoreError::Corrupt(format!("an operator's record: {error}")))?;
    if let Some(at) = reply::optional_text(revoked)? {
        stored.record.revoked = Some(Timestamp(reply::number(Some(at))?));
    }
    Ok(Some(stored))
}

fn text_of(act: &Act) -> Result<String, StoreError> {
    serde_json::to_string(act).map_err(|error| StoreError::Corrupt(error.to_string()))
}

/// What the log keeps: so many acts, and so many bytes of them.
const KEPT: (u32, u64) = (ACTS_KEPT_IN_REDIS, ACTS_BYTES_KEPT_IN_REDIS);

/// The log, and its index by account. No account has such a name, so its slot is its own.
fn acts_keys() -> [String; 2] {
    ["", ":accounts"].map(|part| format!("{PREFIX}{{:acts}}{part}"))
}
/// Operators that are read at once.
const READ_AT_ONCE: usize = 256;
