//! Operators of the embedded ledger, and the log of acts: written to the disk before and after each command, on the ledger's own thread.

use std::sync::PoisonError;

use serde_json::Value;

use super::commands::{failed, read_beside};
use super::writer::Committer;
use crate::failpoints::point;
use crate::ledger::acts::{About, Entry, account_value, check_name, key_value, not_logged, operator_value};
use crate::ledger::admin::Acted;
use crate::ledger::admin::operators::{OPERATORS_MAX, OperatorOp, OperatorRecord};
use crate::ledger::admin::{AdminError, AdminOp, AdminReply};
use crate::ledger::key_settings::check_lifetime;
use crate::ledger::sqlite::Database;
use crate::pure::ids::KeyDigest;
use crate::pure::operator::operator_id;

impl Committer {
    /// Runs a command that somebody gives, and has the log say so.
    pub(super) fn act(&mut self, acted: Acted) -> Result<AdminReply, AdminError> {
        let Acted { actor, op } = acted;
        let entry = match op {
            AdminOp::Recover => None, // It only shows what the start did.
            _ => Entry::of(actor, &op)?,
        };
        let Some(mut entry) = entry else {
            return self.execute(op);
        };
        let before = self.look(&entry);
        entry.begins(self.shared.clock.now(), before);
        point("act", "before");
        let id = self
            .database
            .begin_act(&entry.act)
            .map_err(|error| not_logged(&error))?;
        point("act", "begun");
        let result = self.execute(op);
        point("act", "done");
        let looked = match entry.needs_look(&result) {
            true => self.look(&entry),
            false => Value::Null,
        };
        let written = match entry.ends(&result, looked) {
            true => self.database.complete_act(id, &entry.act),
            false => self.database.withdraw_act(id),
        };
        if let Err(error) = written {
            log::error!(
                "the log does not say how act {id} ({}) ended: {error}",
                entry.act.action
            );
        }
        result
    }

    fn look(&self, entry: &Entry) -> Value {
        match entry.about() {
            About::Nothing | About::Books => Value::Null,
            About::Account(account) => match self.cell(account) {
                Ok(cell) => account_value(&self.view(&cell, false)),
                Err(_) => Value::Null,
            },
            About::Key(key) => {
                let keys = self.shared.keys.read().unwrap_or_else(PoisonError::into_inner);
                let found = keys.iter().find(|(digest, _)| key.names(digest));
                found.map_or(Value::Null, |(_, entry)| key_value(&entry.record))
            }
            About::Operator(id) => {
                let found = self.shared.operators.get(id);
                found.map_or(Value::Null, |(_, record)| operator_value(&record))
            }
            About::Maintenance => {
                let on = self.shared.maintenance.load(std::sync::atomic::Ordering::Relaxed);
                serde_json::json!({ "on": on })
            }
        }
    }

    /// A command about operators that writes.
    pub(super) fn operator(&mut self, op: OperatorOp) -> Result<AdminReply, AdminError> {
        match op {
            OperatorOp::Create {
                digest,
                name,
                role,
                expires_in_ms,
            } => {
                let digest = KeyDigest::from_hex(&digest)
                    .ok_or_else(|| AdminError::Invalid("the token's digest is not 64 hexadecimal digits".to_owned()))?;
                check_name(&name)?;
                check_lifetime(expires_in_ms).map_err(AdminError::Invalid)?;
                let id = operator_id(&digest);
                if self.shared.operators.get(&id).is_some() {
                    return Err(AdminError::Invalid("the token is an operator's already".to_owned()));
                }
                if self.shared.operators.count() >= OPERATORS_MAX {
                    return Err(AdminError::Invalid(format!(
                        "there are {OPERATORS_MAX} operators already"
                    )));
                }
                let created = self.shared.clock.now();
                let record = OperatorRecord {
                    id,
                    name,
                    role,
                    created,
                    expires: expires_in_ms.map(|ms| created.plus_millis(ms)),
                    revoked: None,
                };
                let written = self.database.insert_operator(&digest, &record);
                let is_there = |database: &Database| database.has_operator(&record.id);
                self.made(written, is_there, ("operator", &record.id))?;
                self.shared.operators.put(digest, record.clone());
                Ok(AdminReply::Operator(record))
            }
            OperatorOp::Revoke { id } => {
                let (digest, mut record) = self
                    .shared
                    .operators
                    .get(&id)
                    .ok_or_else(|| AdminError::NoOperator(id.clone()))?;
                let now = self.shared.clock.now();
                self.database.revoke_operator(&id, now).map_err(failed)?;
                record.revoked = record.revoked.or(Some(now));
                self.shared.operators.put(digest, record.clone());
                Ok(AdminReply::Operator(record))
            }
            OperatorOp::List | OperatorOp::Find { .. } | OperatorOp::Log(_) => Err(read_beside()),
        }
    }
}
