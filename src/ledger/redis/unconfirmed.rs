//! What is said, and done, where a command was not confirmed. What it wrote stands, and the same command again is the same once more, unless it
//! made a key or an operator's token: their texts are shown with the command's answer alone, so that nobody has them. Those are revoked again.

use redis::Value;

use super::link::Link;
use super::reply;
use super::script;
use super::server_health::{Change, channel, operators_key};
use super::shared::{Shared, key_name};
use crate::ledger::KeyRecord;
use crate::ledger::admin::operators::OperatorOp;
use crate::ledger::admin::{AdminError, AdminOp, AdminReply, KeyRef};
use crate::pure::ids::{KeyDigest, KeyId};
use crate::pure::operator::operator_id;

/// What a command leaves that was not confirmed.
pub(super) enum Left {
    /// A key that nobody has.
    Key(KeyDigest),
    /// The same in place of another one, which may have ended.
    Successor(KeyDigest, KeyRef),
    /// The operator of a token that nobody has.
    Operator(String),
    /// What stands there, and what to do about it.
    Said(&'static str),
}

impl Left {
    pub(super) fn of(op: &AdminOp) -> Left {
        let digest = |hex: &str, left: fn(KeyDigest) -> Left| KeyDigest::from_hex(hex).map(left);
        let left = match op {
            AdminOp::KeyCreate { digest: hex, .. } => digest(hex, Left::Key),
            AdminOp::KeyRotate { digest: hex, key, .. } => {
                KeyDigest::from_hex(hex).map(|digest| Left::Successor(digest, key.clone()))
            }
            AdminOp::Operator(OperatorOp::Create { digest: hex, .. }) => {
                digest(hex, |digest| Left::Operator(operator_id(&digest)))
            }
            AdminOp::AccountCreate { .. } => Some(Left::Said(
                "the account is there, and a fail-over may lose it: if account show does not find it then, make it again",
            )),
            _ => None,
        };
        // Others set what they set, and a reference counts once.
        left.unwrap_or(Left::Said(
            "it is written; run it again, which counts once, until it is confirmed",
        ))
    }
}

impl Shared {
    /// What is said of a command that ended with `error`, when what may be there of it that nobody has is revoked.
    ///
    /// # Errors
    /// That it is not confirmed, and what stands. A key whose predecessor has ended is answered all the same.
    pub(super) async fn unconfirmed(
        &self,
        link: &Link,
        left: &Left,
        error: AdminError,
    ) -> Result<AdminReply, AdminError> {
        let (why, is_store) = match &error {
            AdminError::NotConfirmed(why) => (why, false),
            AdminError::Store(why) => (why, true),
            // It did nothing: a step that was sent twice knows what it has done itself.
            _ => return Err(error),
        };
        let said = match left {
            Left::Said(_) if is_store => return Err(error),
            Left::Said(what) => (*what).to_owned(),
            Left::Key(digest) => {
                let revoked = self.revoke_unseen(link, digest).await;
                said("key", KeyId::of(digest).as_str(), revoked)
            }
            Left::Successor(digest, old) => {
                let revoked = match self.succeeded(link, digest, old).await {
                    Ok(Some(new)) => {
                        warn_of_end(&new.id, &error);
                        return Ok(AdminReply::Key(new));
                    }
                    Ok(None) => self.revoke_unseen(link, digest).await,
                    Err(error) => Err(error),
                };
                let new = said("new key", KeyId::of(digest).as_str(), revoked);
                format!("{new}. Whether the old key holds on as it was, key list says")
            }
            Left::Operator(id) => {
                let now = self.now_text();
                let revoked = self
                    .run_script(link, &script::OPERATOR_REVOKE, &[&operators_key()], &[&now, id])
                    .await;
                let revoked = revoked.map_err(AdminError::from);
                said(
                    "operator",
                    id,
                    revoked.and_then(|fields| Ok(!reply::list(&fields)?.is_empty())),
                )
            }
        };
        let text = format!("{why}; {said}");
        Err(match is_store {
            true => AdminError::Store(text),
            false => AdminError::NotConfirmed(text),
        })
    }

    /// The key of a rotation, where that has ended the one before, or given it an end, though its answer was lost: without the new one its
    /// customer would have none.
    async fn succeeded(&self, link: &Link, new: &KeyDigest, old: &KeyRef) -> Result<Option<KeyRecord>, AdminError> {
        let digest = self.digest_of(link, old).await?;
        let mut command = redis::cmd("HGET");
        command.arg(key_name(&digest)).arg("successor");
        let successor = self.command(link, command).await?;
        if successor == Value::Nil || reply::text(&successor)? != KeyId::of(new).as_str() {
            return Ok(None);
        }
        let (new, _) = self.record_of(link, new).await?;
        Ok(new.revoked.is_none().then_some(new))
    }

    /// What is answered of a command that is done, of which a step behind it is not confirmed.
    ///
    /// # Errors
    /// As [`Shared::unconfirmed`]. A rotation is answered all the same: a replica has the new key, and the old one has ended, or ends.
    pub(super) async fn done_unconfirmed(
        &self,
        link: &Link,
        left: &Left,
        reply: AdminReply,
        error: AdminError,
    ) -> Result<AdminReply, AdminError> {
        match (left, &reply) {
            (Left::Successor(..), AdminReply::Key(new)) => {
                warn_of_end(&new.id, &error);
                Ok(reply)
            }
            _ => self.unconfirmed(link, left, error).await,
        }
    }

    /// Revokes a key whose text nobody has. False where there is none.
    pub(super) async fn revoke_unseen(&self, link: &Link, digest: &KeyDigest) -> Result<bool, AdminError> {
        let (now, channel, message) = (self.now_text(), channel(), Change::Key(*digest).text());
        let revoked = self
            .run_script(link, &script::REVOKE, &[&key_name(digest)], &[&now, &channel, &message])
            .await?;
        self.cache.forget_key(digest);
        Ok(!reply::list(&revoked)?.is_empty())
    }
}

fn warn_of_end(new: &KeyId, why: &AdminError) {
    log::warn!("the key {new} is there in place of another one, whose end a fail-over may lose: {why}");
}

fn said(what: &str, id: &str, revoked: Result<bool, AdminError>) -> String {
    match revoked {
        Ok(true) => format!("the {what} {id} was made, and is revoked again, for nobody has its text: run it again"),
        Ok(false) => format!("no {what} was made: run it again"),
        Err(_) => format!(
            "whether the {what} {id} was made is not known, and nobody has its text: revoke it where a list shows it, and run it again"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::admin::KeyRef;
    use crate::pure::ids::Tier;

    #[test]
    fn an_account_that_a_fail_over_may_lose_is_made_again_and_other_commands_are_repeated() {
        let said = |op| match Left::of(&op) {
            Left::Said(said) => said,
            _ => panic!("{op:?}"),
        };
        let create = said(AdminOp::AccountCreate {
            account: "acme".parse().unwrap(),
            tier: Tier::Pro,
            quota_pico: None,
            terms: Default::default(),
        });
        assert!(create.contains("make it again"), "{create}");
        let set = said(AdminOp::Maintenance { on: true });
        assert!(set.contains("run it again"), "{set}");
    }

    #[test]
    fn a_key_that_takes_anothers_place_is_left_as_such() {
        let digest = KeyDigest::from_bytes([7; 32]);
        let rotate = AdminOp::KeyRotate {
            key: KeyRef::Id(KeyId::of(&KeyDigest::from_bytes([8; 32]))),
            digest: digest.to_hex(),
            overlap_ms: 0,
        };
        assert!(matches!(Left::of(&rotate), Left::Successor(left, ..) if left == digest));
    }
}
