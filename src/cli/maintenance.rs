//! `tollgate maintenance`: refuse calls for a while.

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::failure::Failure;
use super::ledger::ask;
use super::output::{Answer, Format, Show};
use crate::config::Config;
use crate::ledger::admin::{AdminOp, AdminReply};

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  tollgate maintenance on\n\n\
    Calls that run are not cut off. The switch is kept in the ledger: it outlives a restart.")]
pub(super) struct MaintenanceArgs {
    /// Whether chat and embeddings are refused with 503
    state: Switch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

pub(super) fn run(args: &MaintenanceArgs, config: &Config, format: Format) -> Result<Answer, Failure> {
    let on = args.state == Switch::On;
    match ask(config, AdminOp::Maintenance { on })? {
        AdminReply::Maintenance { on } => Answer::of(&MaintenanceShown { maintenance: on }, format),
        _ => Err(Failure::wrong_reply()),
    }
}

#[derive(Serialize)]
struct MaintenanceShown {
    maintenance: bool,
}

impl Show for MaintenanceShown {
    fn text(&self) -> String {
        match self.maintenance {
            true => "maintenance is on: chat and embeddings are refused with 503\n".to_owned(),
            false => "maintenance is off: calls are served\n".to_owned(),
        }
    }
}
