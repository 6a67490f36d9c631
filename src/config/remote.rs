//! A gateway elsewhere, which the commands reach by its operator's API in place of a ledger of this machine.

use std::path::{Path, PathBuf};

use super::{BaseUrl, Config, ConfigError, Store};

/// How it is reached.
#[derive(Clone, PartialEq, Eq)]
pub struct RemoteGateway {
    /// Its `operator_listen`, as it is reached from here.
    pub url: BaseUrl,
    /// The operator's token.
    pub token: String,
    /// A certificate authority that is trusted in place of the system's.
    pub ca_file: Option<PathBuf>,
}

impl std::fmt::Debug for RemoteGateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RemoteGateway({})", self.url.authority)
    }
}

impl Config {
    /// What commands need to know of a gateway elsewhere, as its `/v1/settings` tells it: the currency, what keys begin with, the tiers.
    ///
    /// # Errors
    /// When that is not what settings are.
    pub fn of_remote(gateway: RemoteGateway, settings: &str) -> Result<Config, ConfigError> {
        let place = Path::new(&gateway.url.authority).to_owned();
        let told: serde_json::Value =
            serde_json::from_str(settings).map_err(|error| ConfigError::new(&place, error.to_string()))?;
        let mut keys = serde_json::Map::new();
        for name in ["currency", "key_prefix", "tiers"] {
            keys.extend(told.get(name).map(|value| (name.to_owned(), value.clone())));
        }
        // JSON is YAML too.
        let text = serde_json::Value::Object(keys).to_string();
        let config = Config::parse(&place, &text, &|_| None)?;
        Ok(Config {
            text_digest: [0; 32],
            store: Store::Remote(gateway),
            ..config
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::ids::Tier;

    fn gateway() -> RemoteGateway {
        RemoteGateway {
            url: BaseUrl::parse("https://ops.example.com:9091").unwrap(),
            token: "tgop_secret".to_owned(),
            ca_file: None,
        }
    }

    #[test]
    fn settings_of_a_gateway_become_a_configuration() {
        let tier = |quota: &str| format!(r#"{{"rpm":1,"tpm":2,"concurrency":3,"monthly_quota":"{quota}"}}"#);
        let settings = format!(
            r#"{{"version":"9","currency":"EUR","key_prefix":"x_","base_path":"/api/v1","tiers":{{"free":{},"pro":{}}}}}"#,
            tier("0.5"),
            tier("70")
        );
        let config = Config::of_remote(gateway(), &settings).unwrap();
        assert_eq!((config.currency.as_str(), config.key_prefix.as_str()), ("EUR", "x_"));
        assert_eq!(config.tier(Tier::Pro).monthly_quota.to_string(), "70");
        assert_eq!(config.store, Store::Remote(gateway()));
        assert!(!format!("{:?}", config.store).contains("secret"));
        assert!(Config::of_remote(gateway(), "<html>").is_err());
    }
}
