//! The operators of the embedded ledger, in memory.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use crate::ledger::StoreError;
use crate::ledger::admin::operators::OperatorRecord;
use crate::ledger::sqlite::Database;
use crate::pure::ids::KeyDigest;
use crate::pure::operator::operator_id;

/// The operators in memory, by id: each of their requests asks for one.
#[derive(Debug, Default)]
pub(super) struct Operators(RwLock<BTreeMap<String, (KeyDigest, OperatorRecord)>>);

impl Operators {
    pub(super) fn load(database: &Database) -> Result<Operators, StoreError> {
        let all = database.operators()?.into_iter();
        let all = all.map(|(digest, record)| (record.id.clone(), (digest, record)));
        Ok(Operators(RwLock::new(all.collect())))
    }

    /// Makes memory what the file says, which another process has had meanwhile.
    pub(super) fn read_anew(&self, database: &Database) -> Result<(), StoreError> {
        let read = Operators::load(database)?.0;
        let read = read.into_inner().unwrap_or_else(PoisonError::into_inner);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(())
    }

    pub(super) fn find(&self, digest: &KeyDigest) -> Option<OperatorRecord> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let (of, record) = known.get(&operator_id(digest))?;
        (of == digest).then(|| record.clone())
    }

    pub(super) fn get(&self, id: &str) -> Option<(KeyDigest, OperatorRecord)> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.get(id).cloned()
    }

    pub(super) fn put(&self, digest: KeyDigest, record: OperatorRecord) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(record.id.clone(), (digest, record));
    }

    pub(super) fn count(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(super) fn all(&self) -> Vec<OperatorRecord> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<OperatorRecord> = known.values().map(|(_, record)| record.clone()).collect();
        all.sort_by(|a, b| (a.created, &a.id).cmp(&(b.created, &b.id)));
        all
    }
}
