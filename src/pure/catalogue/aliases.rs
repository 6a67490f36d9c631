//! Other names of models: each means one of them, and nothing else.

use std::sync::Arc;

use crate::pure::hash_map::FastMap;

use super::purpose::{PURPOSE_PREFIX, Purpose};

/// The ids of models by their aliases.
#[derive(Clone, Debug, Default)]
pub(super) struct Aliases(FastMap<Arc<str>, Arc<str>>);

impl Aliases {
    /// The id of the model that has this alias.
    pub(super) fn id(&self, alias: &str) -> Option<&str> {
        self.0.get(alias).map(AsRef::as_ref)
    }

    /// Notes that `alias` means the model `id`.
    ///
    /// # Errors
    /// With what else it means already; `is_id` says whether a model has it as its id.
    pub(super) fn add(&mut self, alias: &Arc<str>, id: &Arc<str>, is_id: impl Fn(&str) -> bool) -> Result<(), String> {
        if is_id(alias) {
            return Err(format!("is the id of the model {alias}"));
        }
        let is_purpose = Purpose::parse(alias).is_some();
        if is_purpose || alias.starts_with(PURPOSE_PREFIX) {
            return Err("is kept for a purpose".to_owned());
        }
        match self.0.insert(Arc::clone(alias), Arc::clone(id)) {
            Some(other) => Err(format!("is an alias of {other} already")),
            None => Ok(()),
        }
    }
}
