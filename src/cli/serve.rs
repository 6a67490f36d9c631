//! `tollgate serve`: the gateway, until it is told to stop.

use super::failure::Failure;
use super::output::Answer;
use crate::config::{Config, environment};
use crate::gateway::server::{StartError, prepare};

/// Where a gateway finds its credentials, now and whenever it reads its configuration again.
pub(super) type Environment = fn(&str) -> Option<String>;

pub(super) fn run(config: Config) -> Result<Answer, Failure> {
    gateway(config, environment).map_err(|error| Failure::new(error.to_string()))?;
    Ok(Answer::default())
}

/// Runs a gateway. Returns when it has stopped and everything is billed.
pub(super) fn gateway(config: Config, environment: Environment) -> Result<(), StartError> {
    prepare(config, environment)?.serve(|| ())
}
