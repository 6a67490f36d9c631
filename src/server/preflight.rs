//! What a start needs of its surroundings, tried before anything is opened: by `tollgate check`, which tells all that is missing, and by a
//! start on its own, which ends with the first. Nothing is made, changed or kept.

use std::fs::OpenOptions;
use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::listening::{is_in_the_way, is_same};
use super::socket::bind;
use super::upgrade;
use crate::clock::monotonic;
use crate::config::import::read_rules;
use crate::config::{AccessLog, Config, ConfigError, Store};
use crate::ledger::folder::{can_be_made, takes_files};
use crate::ledger::{self, StoreError};

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Preflight {
    /// What is missing beside addresses, each with file and line of the key that names it.
    pub(crate) problems: Vec<ConfigError>,
    /// The addresses that another process has, each with its problem.
    pub(crate) taken: Vec<(SocketAddr, ConfigError)>,
    /// A gateway runs with this `data_dir`.
    pub(crate) is_running: bool,
    /// It has a port or the ledger of this configuration: only a start with `--upgrade` takes them over.
    pub(crate) is_replaced: bool,
}

/// What is missing for a start on its own, beside a gateway that may be stopping. Blocks, for about a second at most.
///
/// # Errors
/// The first thing that is missing.
pub(crate) fn for_start(config: &Config) -> std::result::Result<(), ConfigError> {
    let is_running = upgrade::is_running(&config.data_dir);
    let mut is_ours = false;
    let missing = problems(config, is_running).find(|problem| {
        is_ours |= problem.held_by.is_running();
        problem.held_by != HeldBy::AdminOfRunning
    });
    match missing {
        None if is_running && !is_ours => of_another_ledger(config).map_or(Ok(()), Err),
        None => Ok(()),
        Some(Problem {
            error,
            held_by: HeldBy::Running,
        }) => Err(ConfigError {
            problem: format!(
                "{}; a gateway runs with this data_dir: tollgate serve --upgrade takes over from it",
                error.problem
            ),
            ..error
        }),
        Some(problem) => Err(problem.error),
    }
}

/// All that is missing for a start: in place of the gateway that runs with this `data_dir`, where one does. Blocks, for about a second at
/// most.
pub(crate) fn for_check(config: &Config) -> Preflight {
    let is_running = upgrade::is_running(&config.data_dir);
    let mut found = Preflight {
        is_running,
        ..Preflight::default()
    };
    let mut is_ours = false;
    for Problem { error, held_by } in problems(config, is_running) {
        is_ours |= held_by.is_running();
        match held_by {
            HeldBy::Running | HeldBy::AdminOfRunning => {}
            HeldBy::Other(address) => found.taken.push((address, error)),
            HeldBy::Nobody => found.problems.push(error),
        }
    }
    if is_running && !is_ours {
        found.problems.extend(of_another_ledger(config));
    }
    found.is_replaced = is_ours;
    found
}

/// What is said where the gateway that runs with this `data_dir` has neither a port nor the ledger of this configuration, nor is about to end.
/// With Redis several gateways may share the folder, and the ledger.
fn of_another_ledger(config: &Config) -> Option<ConfigError> {
    let Store::Sqlite(_) = &config.store else { return None };
    let began = monotonic();
    while began.elapsed() < ENDS_WITHIN {
        if !upgrade::is_running(&config.data_dir) {
            return None;
        }
        std::thread::sleep(ENDS_PAUSE);
    }
    Some(config.mistake(format!(
        "data_dir: a gateway with another ledger runs with {}: each ledger needs a folder of its own, for what a gateway leaves there when it \
         dies is billed by those that share it",
        config.data_dir.display()
    )))
}

/// Something that is missing.
struct Problem {
    error: ConfigError,
    held_by: HeldBy,
}

/// Who has what cannot be had.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HeldBy {
    /// It is not there, or cannot be used.
    Nobody,
    /// Another process has this address.
    Other(SocketAddr),
    /// The gateway that runs with this `data_dir`: its port, its ledger.
    Running,
    /// The same, and it is `admin_listen` or `operator_listen`, which a start waits for.
    AdminOfRunning,
}

impl HeldBy {
    /// Whether the gateway that runs with this `data_dir` has it.
    fn is_running(self) -> bool {
        matches!(self, HeldBy::Running | HeldBy::AdminOfRunning)
    }
}

/// How long a gateway that has closed its ledger may take to end.
const ENDS_WITHIN: Duration = Duration::from_millis(300);
const ENDS_PAUSE: Duration = Duration::from_millis(10);

/// Each thing is tried when it is asked for.
fn problems(config: &Config, is_running: bool) -> impl Iterator<Item = Problem> {
    type Try = fn(&Config) -> Result<()>;
    let tries: [(&str, Try); 8] = [
        ("listen", |config| can_be_bound(config.listen)),
        ("admin_listen", |config| can_be_bound(config.admin_listen)),
        ("operator_listen", |config| {
            config.operator_address().map_or(Ok(()), can_be_bound)
        }),
        ("data_dir", |config| {
            named(&config.data_dir, can_be_made(&config.data_dir))
        }),
        ("access_log", can_be_logged),
        ("receipts.files", |config| match &config.receipts.files {
            Some(folder) => named(folder, can_be_made(folder)),
            None => Ok(()),
        }),
        ("catalogue_refresh.rules", |config| match &config.catalogue_refresh {
            Some(refresh) => read_rules(&refresh.rules)
                .map(drop)
                .map_err(|error| Error::other(error.to_string())),
            None => Ok(()),
        }),
        ("store", store),
    ];
    tries.into_iter().filter_map(move |(key, try_it)| {
        let mut error = try_it(config).err()?;
        let address = match key {
            "listen" => Some(config.listen),
            "admin_listen" => Some(config.admin_listen),
            "operator_listen" => config.operator_address(),
            _ => None,
        };
        let held_by = match (error.kind(), address) {
            (ErrorKind::ResourceBusy, None) if is_running => HeldBy::Running,
            (ErrorKind::AddrInUse, Some(address)) if is_running => match (held_of(config, address), key) {
                (Held::Nothing, _) => HeldBy::Other(address),
                (Held::All, "listen") => HeldBy::Running,
                // An upgrade takes over the socket as it is, and before the old process closes its own.
                (Held::Part(own), "listen") => {
                    let why = "the gateway that runs listens there, and hands over its address as it is: stop it first";
                    error = Error::new(ErrorKind::AddrInUse, format!("{error}; at {own} {why}"));
                    HeldBy::Nobody
                }
                (Held::All | Held::Part(_), _) => HeldBy::AdminOfRunning,
            },
            (ErrorKind::AddrInUse, Some(address)) => HeldBy::Other(address),
            _ => HeldBy::Nobody,
        };
        let key = match (key, &config.store_env) {
            ("store", Some(_)) => "store_env",
            (key, _) => key,
        };
        Some(Problem {
            error: config.mistake(format!("{key}: {error}")),
            held_by,
        })
    })
}

/// What the gateway that runs with this `data_dir` has of an address that is taken.
enum Held {
    Nothing,
    /// That address; or nobody can see what it has, and it is taken for its own.
    All,
    /// Another one with the same port, which is in the way.
    Part(SocketAddr),
}

fn held_of(config: &Config, address: SocketAddr) -> Held {
    match upgrade::addresses_of_running(&config.data_dir) {
        None => Held::All,
        Some(own) if own.iter().any(|one| is_same(*one, address)) => Held::All,
        Some(own) => match own.into_iter().find(|one| is_in_the_way(*one, address)) {
            Some(one) => Held::Part(one),
            None => Held::Nothing,
        },
    }
}

fn can_be_bound(address: SocketAddr) -> Result<()> {
    bind(address).map(drop).map_err(|error| about(address, &error))
}

/// Where the log goes to a file: a pipe would tell its reader an end if it were tried.
fn can_be_logged(config: &Config) -> Result<()> {
    let AccessLog::File(path) = &config.access_log else {
        return Ok(());
    };
    let tried = match std::fs::metadata(path) {
        Ok(there) if there.is_file() || there.is_dir() => OpenOptions::new().append(true).open(path).map(drop),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => match config.own_log_folder() {
            Some(folder) => can_be_made(folder),
            None => takes_log(path.parent().unwrap_or(Path::new(""))),
        },
        Err(error) => Err(error),
    };
    named(path, tried)
}

/// A folder that nobody makes but whoever runs the gateway.
fn takes_log(folder: &Path) -> Result<()> {
    takes_files(folder).map_err(|error| {
        if error.kind() != ErrorKind::NotFound {
            return error;
        }
        let folder = folder.display();
        let advice =
            format!("make the folder {folder} for the gateway's user: it makes none for its log outside data_dir");
        Error::new(ErrorKind::NotFound, format!("{error}; {advice}"))
    })
}

fn store(config: &Config) -> Result<()> {
    if let Store::Missing(_) = &config.store {
        // What a snapshot refuses, with all secrets that are not set.
        return Ok(());
    }
    ledger::preflight(config).map_err(|error| match error {
        StoreError::Owned(why) => Error::new(ErrorKind::ResourceBusy, why),
        StoreError::Unavailable(why) | StoreError::Busy(why) | StoreError::Corrupt(why) => Error::other(why),
    })
}

fn named(path: &Path, tried: Result<()>) -> Result<()> {
    tried.map_err(|error| about(path.display(), &error))
}

fn about(what: impl std::fmt::Display, error: &Error) -> Error {
    Error::new(error.kind(), format!("{what}: {error}"))
}
