//! The store of a gateway that has one of its own: a redis-server as the configuration's description asks for it.

use std::{net::SocketAddr, path::Path, process::Command};

use crate::{
    common::Result,
    fleet::Fleet,
    process::{self, Ending, Process},
};

/// A redis-server that writes every change to its file and syncs it every second, on the core of the store.
pub(crate) fn redis(fleet: &Fleet, directory: &Path) -> Result<(Process, SocketAddr)> {
    let address = process::free_address();
    let mut command = Command::new("redis-server");
    command
        .args(["--bind", "127.0.0.1", "--port", &address.port().to_string()])
        .args(["--appendonly", "yes", "--appendfsync", "everysec"])
        .args(["--maxmemory-policy", "noeviction", "--save", ""])
        .arg("--dir")
        .arg(directory);
    let mut process = Process::start(
        "redis-server",
        command,
        &fleet.cores.store,
        Ending::Terminate,
        fleet.path(),
    )?;
    process.wait_listening(address)?;
    Ok((process, address))
}
