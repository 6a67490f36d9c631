//! `tollgate serve`: the gateway, until it is told to stop.

use std::ffi::OsString;
use std::io::Error;
use std::net::SocketAddr;

use clap::Args;

use super::demo;
use super::failure::Failure;
use super::output::Answer;
use crate::config::{Config, environment};
use crate::server::open::StartError;
use crate::server::serve::prepare;
use crate::server::upgrade::{Start, Successor};

/// Where a gateway finds its credentials, now and whenever it reads its configuration again.
pub(super) type Environment = fn(&str) -> Option<String>;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tollgate check && tollgate serve\n  \
    tollgate serve --conf /etc/tollgate/tollgate.yaml\n\n\
    A start that cannot succeed ends at once, with status 1 and one line that names the\n\
    cause, the file and the line. With --upgrade no connection is refused; a call is cut\n\
    only if it runs longer than drain_seconds. How a gateway stops and is upgraded:\n\
    conf/README.md, Starting and stopping.\n\n\
    Signals:\n  \
    SIGTERM, SIGINT  stop: running calls may end, for drain_seconds at most\n  \
    SIGHUP           read configuration, catalogue and certificate again\n  \
    SIGUSR2          start the binary that is installed by now, as with --upgrade")]
pub(super) struct ServeArgs {
    /// Take over from the gateway that runs, as told below
    #[arg(long)]
    upgrade: bool,
}

pub(super) fn run(args: &ServeArgs, config: Config) -> Result<Answer, Failure> {
    let start = if args.upgrade { Start::Upgrade } else { Start::Fresh };
    let successor = super::process::program().map(|program| Successor::new(program, successor_arguments(&config)));
    let addresses: Vec<SocketAddr> = config.listen_addresses().collect();
    serve(config, environment, start, successor)
        .map_err(|error| Failure::new(with_demo(error.to_string(), &addresses)))?;
    Ok(Answer::default())
}

/// Says so where the demo that runs here has the port.
fn with_demo(error: String, addresses: &[SocketAddr]) -> String {
    let is_taken =
        |address: &&SocketAddr| error.contains(&format!("{address}: {}", Error::from_raw_os_error(libc::EADDRINUSE)));
    match addresses.iter().find(is_taken) {
        Some(address) if demo::has(*address) => error + demo::HAS_IT,
        _ => error,
    }
}

/// Of the process that takes the place of this one.
fn successor_arguments(config: &Config) -> Vec<OsString> {
    let conf = config.path.clone().into_os_string();
    vec!["serve".into(), "--upgrade".into(), "--conf".into(), conf]
}

/// Runs a gateway. Returns when it has stopped and everything is billed.
pub(super) fn gateway(config: Config, environment: Environment) -> Result<(), StartError> {
    serve(config, environment, Start::Fresh, None)
}

fn serve(
    config: Config,
    environment: Environment,
    start: Start,
    successor: Option<Successor>,
) -> Result<(), StartError> {
    super::process::prepare();
    let prepared = prepare(config, environment, start)?;
    match successor {
        Some(successor) => prepared.succeeded_by(successor).serve(|| ()),
        None => prepared.serve(|| ()),
    }
}
