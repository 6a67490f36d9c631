//! Configuration: what was typed in `conf/tollgate.yaml` becomes what it means, once, with errors that name file, key and form.
//!
//! Only this module reads configuration files and the environment.

mod checked;
pub mod doubts;
mod error;
mod idempotency;
pub mod import;
pub mod mistakes;
mod network;
mod operator;
mod port;
mod provider;
mod range;
mod raw;
mod receipts;
mod remote;
mod required;
pub(crate) mod secrets;
mod shape;
pub(crate) mod stamps;
mod store;
mod stripe;
mod traces;
mod unstated;
mod values;
mod variable;
mod wallet;
mod webhooks;

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use sha2::{Digest, Sha256};

use self::checked::checked;
pub(crate) use self::error::{explain, nearest};
use self::error::{line_of, placed, repeated};
use self::raw::Raw;
use self::unstated::Unstated;
use crate::pure::catalogue::Catalogue;
use crate::pure::time::Timestamp;
use crate::pure::yaml_lines;

pub use self::error::ConfigError;
pub use self::idempotency::Idempotency;
pub use self::network::Network;
pub use self::provider::{BaseUrl, CostFrom, Credential, OnDisconnect, Provider};
pub use self::receipts::Receipts;
pub use self::remote::RemoteGateway;
pub use self::stripe::StripeHook;
pub use self::traces::{Collector, Sample, Traces};
pub(crate) use self::values::TextDigest;
pub use self::values::{
    AccessLog, BodyMemoryLimits, Config, OperatorListener, Refresh, Store, SuspendedStreams, TierRules, Timeouts,
    TlsFiles,
};
pub use self::wallet::Wallet;
pub use self::webhooks::Webhook;

impl Config {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// When it cannot be read, has an unknown key (the nearest known one is named), or a value that makes no sense.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        let text = read_own(path)?;
        Config::parse(path, &text, &environment)
    }

    /// The same from text; `environment` gives the credentials.
    pub fn parse(path: &Path, text: &str, environment: &dyn Fn(&str) -> Option<String>) -> Result<Config, ConfigError> {
        let text = without_mark(text);
        if let Some(error) = repeated(path, text) {
            return Err(error);
        }
        let raw: Raw = if text.trim().is_empty() {
            Raw::default()
        } else {
            serde_yaml_ng::from_str(text).map_err(|error| ConfigError::of_yaml(path, text, &error))?
        };
        let mistake = |problem: String| {
            let line = line_of(text, &problem);
            ConfigError::new(path, problem).at(line)
        };
        if let Some(problem) = required::unstated(text) {
            return Err(mistake(problem));
        }
        let checked = checked(path, raw, environment).map_err(mistake)?;
        Ok(Config {
            text_digest: digest(text),
            ..checked
        })
    }

    /// Reads the catalogue that the configuration names: all of it, whatever providers have credentials.
    ///
    /// # Errors
    /// As [`Catalogue::parse`], and when a target names a provider that is not configured.
    pub fn load_catalogue(&self) -> Result<Catalogue, ConfigError> {
        self.load_catalogue_and_digest().map(|(catalogue, _)| catalogue)
    }

    /// The same, and the [`digest`] of its text.
    pub(crate) fn load_catalogue_and_digest(&self) -> Result<(Catalogue, TextDigest), ConfigError> {
        let text = read(&self.catalogue)?;
        Ok((self.catalogue_of(&text)?, digest(&text)))
    }

    /// Whether its file and that of the catalogue, of which this is the [`digest`], are still what they were when they were read. What cannot be
    /// read is not.
    pub(crate) fn is_as_read(&self, catalogue_digest: TextDigest) -> bool {
        let is = |path: &Path, digested: TextDigest| read(path).is_ok_and(|text| digest(&text) == digested);
        // What came through a pipe was read with it, and cannot be read again.
        let is_pipe = std::fs::metadata(&self.path).is_ok_and(|file| file.file_type().is_fifo());
        (is_pipe || is(&self.path, self.text_digest)) && is(&self.catalogue, catalogue_digest)
    }

    /// The same of a text that is, or is to be, the catalogue's.
    ///
    /// # Errors
    /// As [`Config::load_catalogue`].
    pub fn catalogue_of(&self, text: &str) -> Result<Catalogue, ConfigError> {
        match self.read_catalogue(text, text) {
            (Some(catalogue), mistakes) if mistakes.is_empty() => Ok(catalogue),
            (_, mistakes) => {
                let first = mistakes.into_iter().next();
                Err(first.unwrap_or_else(|| ConfigError::new(&self.catalogue, "it cannot be read")))
            }
        }
    }

    /// What can be read of a catalogue, and all that is wrong with it, with the lines that this has in `shown`.
    fn read_catalogue(&self, text: &str, shown: &str) -> (Option<Catalogue>, Vec<ConfigError>) {
        let fail = |line: Option<usize>, problem: String| ConfigError::new(&self.catalogue, problem).at(line);
        let (text, shown) = (without_mark(text), without_mark(shown));
        if let Some(error) = repeated(&self.catalogue, text) {
            return (None, vec![error]);
        }
        let unstated = Unstated::of_catalogue(text);
        if !unstated.is_empty() {
            let mistakes = unstated.iter().map(|key| fail(key.line(shown), key.problem()));
            return (None, mistakes.collect());
        }
        let (catalogue, found) = match Catalogue::read(text, self.markup) {
            Ok(read) => read,
            Err(error) => {
                let (problem, line) = placed(&explain(&error.to_string()));
                return (None, vec![fail(line, problem)]);
            }
        };
        let mut mistakes: Vec<ConfigError> = found
            .iter()
            .map(|error| fail(error.line(shown), error.to_string()))
            .collect();
        if self.providers.is_empty() && !catalogue.models().is_empty() {
            let problem = "providers: there is none, and each model of the catalogue needs those that its targets name";
            mistakes.push(ConfigError::new(&self.path, problem));
            return (Some(catalogue), mistakes);
        }
        for model in catalogue.models() {
            let unknown = model
                .targets
                .iter()
                .find(|target| !self.providers.contains_key(&target.provider));
            if let Some(target) = unknown {
                let (id, provider) = (&model.id, &target.provider);
                let near = nearest(provider, self.providers.keys().map(String::as_str));
                mistakes.push(fail(
                    yaml_lines::of_entry(shown, id, "targets").map(|at| yaml_lines::of_text(shown, at, provider)),
                    format!("{id}: its target names the provider {provider}, which is not configured{near}"),
                ));
            }
        }
        (Some(catalogue), mistakes)
    }

    /// A mistake in what a key of this configuration names: `problem` begins with the key and a colon. The line is that of the file as it
    /// stands by now.
    pub(crate) fn mistake(&self, problem: impl Into<String>) -> ConfigError {
        let problem = problem.into();
        let line = read(&self.path).ok().and_then(|text| line_of(&text, &problem));
        ConfigError::new(&self.path, problem).at(line)
    }

    /// When the catalogue's file was changed last; nothing when that is not known.
    pub fn catalogue_modified(&self) -> Option<Timestamp> {
        let modified = std::fs::metadata(&self.catalogue).and_then(|file| file.modified());
        modified.ok().map(crate::clock::timestamp)
    }
}

/// A variable of this process's environment; nothing when it is not set or not UTF-8.
#[expect(clippy::disallowed_methods, reason = "this is where the environment is read")]
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn digest(text: &str) -> TextDigest {
    Sha256::digest(text.as_bytes()).into()
}

/// The text of a configuration, a catalogue or rules.
///
/// # Errors
/// When it cannot be read, and for a named pipe, a terminal or another device: whoever opens one may wait for ever.
pub(crate) fn read(path: &Path) -> Result<String, ConfigError> {
    let text = text_of(path).map_err(|error| ConfigError::new(path, error.to_string()))?;
    Ok(without_mark(&text).to_owned())
}

/// The text of the configuration itself.
///
/// # Errors
/// As [`read`], and where a pipe gives nothing: who writes into it has failed, or it was read before. An empty text stands for the defaults,
/// and so for another ledger.
pub(crate) fn read_own(path: &Path) -> Result<String, ConfigError> {
    let text = read(path)?;
    if text.trim().is_empty() && !path.is_file() {
        return Err(ConfigError::new(path, NOTHING_PIPED));
    }
    Ok(text)
}

/// What [`read`] gives, with the mark of its encoding.
fn text_of(path: &Path) -> std::io::Result<String> {
    let kind = std::fs::metadata(path)?.file_type();
    // That of a shell (`<(…)`, `… | tollgate --conf /dev/stdin`) has no name: it is behind a link that leads to no path.
    let is_unnamed_pipe = kind.is_fifo() && path.canonicalize().is_err();
    if !kind.is_file() && !kind.is_dir() && !is_unnamed_pipe {
        return Err(std::io::Error::other(NO_FILE));
    }
    std::fs::read_to_string(path)
}

const NO_FILE: &str =
    "it is no regular file but a named pipe or a device, which could be waited for without end: name a file";

const NOTHING_PIPED: &str = "it is a pipe with nothing in it: what writes into it has failed, or it was read before";

/// The text without the mark of its encoding, which some editors put in front: the reader of YAML takes it for a column.
fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

#[cfg(test)]
mod tests;
