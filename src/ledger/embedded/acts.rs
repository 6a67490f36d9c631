//! Operators of the embedded ledger, and the log of acts: written to the disk before and after each command, on the ledger's own thread.

use std::sync::PoisonError;

use serde_json::Value;

use super::Embedded;
use super::commands::failed;
use super::writer::Committer;
use crate::failpoints::point;
use crate::ledger::acts::{
    About, Entry, account_value, check_name, key_value, not_logged, number_before, operator_value,
};
use crate::ledger::admin::Acted;
use crate::ledger::admin::operators::{ActQuery, OPERATORS_MAX, OperatorOp, OperatorRecord};
use crate::ledger::admin::{AdminError, AdminOp, AdminReply};
use crate::pure::ids::KeyDigest;
use crate::pure::operator::operator_id;

impl Embedded {
    /// What is answered beside the ledger's thread, from memory or by a read of the file; nothing for other commands.
    pub(super) async fn answer_beside(&self, op: &AdminOp) -> Option<Result<AdminReply, AdminError>> {
        match read_only(op)? {
            OperatorOp::Log(query) => Some(self.log(query.clone()).await),
            op => self.answer_from_memory(op),
        }
    }

    /// The same for a thread that is on no runtime.
    pub(super) fn answer_beside_blocking(&self, op: &AdminOp) -> Option<Result<AdminReply, AdminError>> {
        match read_only(op)? {
            OperatorOp::Log(query) => Some(number_before(query).and_then(|before| {
                let page = self.reports.read(|reader| reader.acts(query, before));
                page.map(AdminReply::Acts).map_err(failed)
            })),
            op => self.answer_from_memory(op),
        }
    }

    fn answer_from_memory(&self, op: &OperatorOp) -> Option<Result<AdminReply, AdminError>> {
        let operators = match op {
            OperatorOp::Find { digest } => {
                let digest = KeyDigest::from_hex(digest);
                let found = digest.and_then(|digest| self.shared.operators.find(&digest));
                found.into_iter().collect()
            }
            OperatorOp::List => self.shared.operators.all(),
            OperatorOp::Create { .. } | OperatorOp::Revoke { .. } | OperatorOp::Log(_) => return None,
        };
        Some(Ok(AdminReply::Operators { operators }))
    }

    async fn log(&self, query: ActQuery) -> Result<AdminReply, AdminError> {
        let before = number_before(&query)?;
        let page = self.read(move |reader| reader.acts(&query, before)).await;
        page.map(AdminReply::Acts).map_err(failed)
    }
}

/// The command about operators, whoever gives it, if it only reads.
fn read_only(op: &AdminOp) -> Option<&OperatorOp> {
    let op = match op {
        AdminOp::By(acted) => &acted.op,
        op => op,
    };
    match op {
        AdminOp::Operator(op @ (OperatorOp::List | OperatorOp::Find { .. } | OperatorOp::Log(_))) => Some(op),
        _ => None,
    }
}

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
                self.database.insert_operator(&digest, &record).map_err(failed)?;
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
            OperatorOp::List | OperatorOp::Find { .. } | OperatorOp::Log(_) => Err(AdminError::Invalid(
                "what only reads is answered beside the ledger's thread".to_owned(),
            )),
        }
    }
}
