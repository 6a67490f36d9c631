//! `tollgate serve`: the gateway, until it is told to stop.

use clap::Args;

use super::failure::Failure;
use super::output::Answer;
use crate::config::{Config, environment};
use crate::gateway::server::{StartError, prepare};
use crate::gateway::upgrade::Start;

/// Where a gateway finds its credentials, now and whenever it reads its configuration again.
pub(super) type Environment = fn(&str) -> Option<String>;

#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    /// Take over from the gateway that runs, without refusing or cutting anything
    #[arg(long)]
    upgrade: bool,
}

pub(super) fn run(args: &ServeArgs, config: Config) -> Result<Answer, Failure> {
    let start = if args.upgrade { Start::Upgrade } else { Start::Fresh };
    serve(config, environment, start).map_err(|error| Failure::new(error.to_string()))?;
    Ok(Answer::default())
}

/// Runs a gateway. Returns when it has stopped and everything is billed.
pub(super) fn gateway(config: Config, environment: Environment) -> Result<(), StartError> {
    serve(config, environment, Start::Fresh)
}

fn serve(config: Config, environment: Environment, start: Start) -> Result<(), StartError> {
    super::process::prepare();
    prepare(config, environment, start)?.serve(|| ())
}
