//! The configuration and the catalogue that the demo writes into its data directory.

use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::cli::failure::Failure;
use crate::pure::ids::ApiKey;

/// Where the demo's things are.
#[derive(Debug)]
pub(super) struct Layout {
    /// The data directory, absolute.
    pub(super) folder: PathBuf,
    pub(super) listen: SocketAddr,
    pub(super) admin_listen: SocketAddr,
    pub(super) operator_listen: SocketAddr,
}

/// Who answers the demo's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Supply {
    /// The providers of the shipped configuration that have their credentials.
    Real,
    /// The simulated provider at this address.
    Simulated(SocketAddr),
}

impl Layout {
    /// The configuration's path.
    pub(super) fn conf(&self) -> PathBuf {
        self.folder.join(CONF)
    }

    /// Writes configuration and catalogue and returns the configuration's text.
    ///
    /// # Errors
    /// When a file stands there that no demo has written: it is left as it is.
    pub(super) fn write(&self, supply: &Supply) -> Result<String, Failure> {
        let catalogue = self.folder.join("catalogue.yaml");
        let (conf_text, catalogue_text) = match supply {
            Supply::Real => (self.real_conf(&catalogue)?, format!("{WRITTEN}{REAL_CATALOGUE}")),
            Supply::Simulated(address) => (
                self.simulated_conf(&catalogue, *address)?,
                format!("{WRITTEN}{SIMULATED_CATALOGUE}"),
            ),
        };
        replace(&catalogue, &catalogue_text)?;
        replace(&self.conf(), &conf_text)?;
        Ok(conf_text)
    }

    /// The keys that differ from the shipped configuration, with their values in YAML.
    fn settings(&self, catalogue: &Path) -> Result<[(&'static str, String); 6], Failure> {
        let ledger = utf8(&self.folder.join(LEDGER))?.to_owned();
        Ok([
            ("listen", quoted(&self.listen.to_string())?),
            ("admin_listen", quoted(&self.admin_listen.to_string())?),
            ("operator_listen", quoted(&self.operator_listen.to_string())?),
            ("data_dir", quoted(utf8(&self.folder)?)?),
            ("store", quoted(&format!("sqlite://{ledger}"))?),
            ("catalogue", quoted(utf8(catalogue)?)?),
        ])
    }

    fn simulated_conf(&self, catalogue: &Path, provider: SocketAddr) -> Result<String, Failure> {
        let mut text = WRITTEN.to_owned();
        for (key, value) in self.settings(catalogue)? {
            text.push_str(&format!("{key}: {value}\n"));
        }
        text.push_str(&format!(
            "\nproviders:\n  # Part of the demo's process; no language model. The credential is made anew at each start and known to it\n  \
             # alone, so `tollgate check` warns that it is missing.\n  simulated:\n    base_url: \"http://{provider}/v1\"\n    \
             api_key_env: {SIMULATED_KEY}\n    on_disconnect: cancel\n"
        ));
        Ok(text)
    }

    /// The shipped configuration with the demo's places in it.
    fn real_conf(&self, catalogue: &Path) -> Result<String, Failure> {
        let settings = self.settings(catalogue)?;
        let mut text = WRITTEN.to_owned();
        for line in REAL_CONF.lines() {
            let key = line.split_once(':').map_or("", |(key, _)| key);
            match settings.iter().find(|(name, _)| *name == key) {
                Some((name, value)) => text.push_str(&format!("{name}: {value}\n")),
                None => text.push_str(&format!("{line}\n")),
            }
        }
        // What the shipped one leaves to its default.
        let is_there = |name: &str| {
            REAL_CONF
                .lines()
                .any(|line| line.split_once(':').is_some_and(|(key, _)| key == name))
        };
        for (name, value) in settings.iter().filter(|(name, _)| !is_there(name)) {
            text.push_str(&format!("{name}: {value}\n"));
        }
        Ok(text)
    }
}

/// The key or token of the last start, when it was kept.
pub(super) fn kept(folder: &Path, name: &str, prefix: &str) -> Option<ApiKey> {
    let text = std::fs::read_to_string(folder.join(name)).ok()?;
    ApiKey::parse(prefix, text.trim())
}

/// Keeps a key or token for the next start, in a file that nobody else can read.
pub(super) fn keep(folder: &Path, name: &str, key: &ApiKey) -> Result<(), Failure> {
    let path = folder.join(name);
    let kept = || {
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)?;
        file.write_all(key.reveal().as_bytes())
    };
    kept().map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))
}

/// Puts `text` in the place of what an earlier demo wrote.
fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("cannot write {}: {error}", path.display()));
    match std::fs::read_to_string(path) {
        Ok(before) if !before.starts_with(WRITTEN) => {
            return Err(Failure::new(format!(
                "{} is not the demo's: choose another directory with --data-dir",
                path.display()
            )));
        }
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    std::fs::write(path, text).map_err(failed)
}

/// A JSON text is a YAML text too.
fn quoted(text: &str) -> Result<String, Failure> {
    Ok(serde_json::to_string(text)?)
}

fn utf8(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| {
        Failure::new(format!(
            "{} is not UTF-8: choose another with --data-dir",
            path.display()
        ))
    })
}

/// The ledger's file name.
pub(super) const LEDGER: &str = "ledger.db";
pub(super) const CONF: &str = "tollgate.yaml";
/// File names of what is kept for the next start.
pub(super) const KEY: &str = "key";
pub(super) const TOKEN: &str = "operator-token";
/// What the generated configuration names as the simulated provider's credential.
pub(in crate::cli) const SIMULATED_KEY: &str = "TOLLGATE_SIMULATED_KEY";
/// First line of every file of the demo; only files that begin with it are replaced.
const WRITTEN: &str = "# Written by `tollgate demo` at each of its starts: what you change here is lost then.\n\n";
const REAL_CONF: &str = include_str!("../../../conf/tollgate.yaml");
const REAL_CATALOGUE: &str = include_str!("../../../conf/catalogue.yaml");
const SIMULATED_CATALOGUE: &str = include_str!("catalogue.yaml");
