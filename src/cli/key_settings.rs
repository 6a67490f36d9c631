//! A key's label, hard limits and lists, as options and in lists.

use std::str::FromStr;

use clap::Args;
use serde::Serialize;

use super::arguments::quota;
use crate::config::{Config, Network, Store};
use crate::ledger::key_settings::{AmountChange, KeyChange, KeySettings};
use crate::pure::ids::KeyId;
use crate::pure::money::Credits;
use crate::pure::policy::ModelPattern;
use crate::pure::spend::{Reset, SpendLimit};

/// What `key create` and `key set` take.
#[derive(Debug, Default, Args)]
pub(super) struct SettingsArgs {
    /// Its name for you, at most 100 characters; '' for none
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    /// The most that its calls may cost in credits, or none
    #[arg(long, value_name = "AMOUNT")]
    limit: Option<AmountChange>,
    /// When that begins anew: daily, weekly, monthly or none
    #[arg(long, value_name = "PERIOD")]
    limit_reset: Option<Reset>,
    /// The same for the calls of each end user, or none
    #[arg(long, value_name = "AMOUNT")]
    end_user_limit: Option<AmountChange>,
    /// When that begins anew: daily, weekly, monthly or none
    #[arg(long, value_name = "PERIOD")]
    end_user_limit_reset: Option<Reset>,
    /// Only this model, or openai/*; repeatable; none for all
    #[arg(long = "model", value_name = "ID")]
    models: Vec<Listed<ModelPattern>>,
    /// Only from this network, or none for all; repeatable
    #[arg(long = "address", value_name = "NETWORK")]
    addresses: Vec<Listed<Network>>,
}

/// An entry of a list, or the word that empties it.
#[derive(Clone, Debug)]
enum Listed<T> {
    Nothing,
    Entry(T),
}

impl<T: FromStr> FromStr for Listed<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Listed<T>, T::Err> {
        match text {
            "none" => Ok(Listed::Nothing),
            _ => text.parse().map(Listed::Entry),
        }
    }
}

impl FromStr for AmountChange {
    type Err = String;

    fn from_str(text: &str) -> Result<AmountChange, String> {
        match text {
            "none" => Ok(AmountChange::Removed),
            _ => quota(text).map(AmountChange::To),
        }
    }
}

impl SettingsArgs {
    /// What is probably a slip: a model that the catalogue does not have. It may get it later.
    pub(super) fn doubts(&self, config: &Config) -> Vec<String> {
        // A gateway elsewhere has a catalogue of its own.
        if self.models.is_empty() || matches!(config.store, Store::Remote(_)) {
            return Vec::new();
        }
        // What is wrong with the catalogue is for `tollgate check` to say.
        let Ok(catalogue) = config.load_catalogue() else {
            return Vec::new();
        };
        let path = config.catalogue.display();
        let unknown = self.models.iter().filter_map(|listed| match listed {
            Listed::Nothing => None,
            Listed::Entry(pattern) => {
                let is_known = catalogue.models().iter().any(|model| pattern.matches(&model.id));
                (!is_known).then(|| format!("no model of {path} is meant by {pattern}"))
            }
        });
        unknown.collect()
    }

    /// What they change. A list that is not given stays.
    pub(super) fn change(self) -> KeyChange {
        KeyChange {
            label: self.label,
            limit: self.limit,
            limit_reset: self.limit_reset,
            end_user_limit: self.end_user_limit,
            end_user_limit_reset: self.end_user_limit_reset,
            models: list(self.models),
            addresses: list(self.addresses),
        }
    }
}

fn list<T>(given: Vec<Listed<T>>) -> Option<Vec<T>> {
    let is_given = !given.is_empty();
    let entry = |listed| match listed {
        Listed::Nothing => None,
        Listed::Entry(entry) => Some(entry),
    };
    is_given.then(|| given.into_iter().filter_map(entry).collect())
}

/// A key's settings as lists show them.
#[derive(Serialize)]
pub(super) struct SettingsShown {
    label: Option<String>,
    limit: Option<Credits>,
    limit_reset: Option<Reset>,
    end_user_limit: Option<Credits>,
    end_user_limit_reset: Option<Reset>,
    models: Vec<ModelPattern>,
    addresses: Vec<Network>,
    /// Where a rotation has its calls count with those of another key.
    #[serde(skip_serializing_if = "Option::is_none")]
    counts_as: Option<KeyId>,
}

impl SettingsShown {
    pub(super) fn of(settings: KeySettings) -> SettingsShown {
        let parts = |limit: Option<SpendLimit>| (limit.map(|limit| limit.amount), limit.map(|limit| limit.reset));
        let (limit, limit_reset) = parts(settings.limit);
        let (end_user_limit, end_user_limit_reset) = parts(settings.end_user_limit);
        SettingsShown {
            label: settings.label,
            limit,
            limit_reset,
            end_user_limit,
            end_user_limit_reset,
            models: settings.models,
            addresses: settings.addresses,
            counts_as: settings.counts_as,
        }
    }

    /// In words.
    pub(super) fn rules(&self) -> Vec<String> {
        let limit = |what: &str, amount: Option<Credits>, reset: Option<Reset>| {
            let period = reset
                .filter(|reset| *reset != Reset::None)
                .map(|reset| format!(" {}", reset.name()));
            amount.map(|amount| format!("{what} {amount}{}", period.unwrap_or_default()))
        };
        let mut rules = Vec::new();
        rules.extend(self.label.as_ref().map(|label| format!("label {label:?}")));
        rules.extend(limit("limit", self.limit, self.limit_reset));
        rules.extend(limit("end user limit", self.end_user_limit, self.end_user_limit_reset));
        rules.extend(self.models.iter().map(|model| format!("model {model}")));
        rules.extend(self.addresses.iter().map(|address| format!("from {address}")));
        rules.extend(self.counts_as.as_ref().map(|key| format!("counts as {key}")));
        rules
    }
}
