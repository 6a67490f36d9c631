//! What runs beside the requests, as a service of Pingora's: for a host that mounts the plugin in a server of its own.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::{BackgroundService, GenBackgroundService};
use pingora::services::{ServiceReadyNotifier, ServiceWithDependents};

use super::open::{Opened, StartError, open_beside, open_books, start_beside};
use super::upgrade::Start;
use crate::config::{AccessLog, Config, Store};
use crate::gateway::Tollgate;

impl Tollgate {
    /// The services that a server needs beside the proxy itself. They open the ledger (again and again while another process owns it or
    /// the store cannot be reached: until then calls get 503), keep journal, names, configuration and catalogue fresh, audit the books, and
    /// serve `admin_listen`. At a stop they wait for running calls and then bill and write what is left, within Pingora's
    /// `grace_period_seconds`, of which Pingora sleeps all, also where nothing runs: 300 seconds unless the host says less.
    ///
    /// Relative paths count from the directory in which this is called. Where another is the working directory once they run, as Pingora's
    /// `daemon` makes `/` of it without a `working_directory`, they open nothing and say so: calls get 503.
    ///
    /// The service is ready once the ledger is open, or nothing will be: a proxy that depends on it by `add_dependency` accepts nothing before.
    pub fn background(&self) -> Vec<Box<dyn ServiceWithDependents>> {
        let task = Background {
            tollgate: self.clone(),
            opened: Arc::default(),
            directory: std::env::current_dir().ok(),
        };
        vec![Box::new(GenBackgroundService::new(
            "tollgate".to_owned(),
            Arc::new(task),
        ))]
    }
}

struct Background {
    tollgate: Tollgate,
    /// What is open already, when a start failed further on.
    opened: Arc<Mutex<Option<Opened>>>,
    /// Where it was made.
    directory: Option<PathBuf>,
}

/// Why nothing is opened in the working directory `now`: from there a relative path leads to another ledger, which would be new and empty.
fn elsewhere(config: &Config, before: Option<&Path>, now: Option<&Path>) -> Option<String> {
    let store = match &config.store {
        Store::Sqlite(path) => Some(path.as_path()),
        Store::Redis(_) | Store::Missing(_) | Store::Remote(_) => None,
    };
    let log = match &config.access_log {
        AccessLog::File(path) => Some(path.as_path()),
        AccessLog::Off | AccessLog::Stdout => None,
    };
    let paths = [Some(&*config.data_dir), store, config.receipts.files.as_deref(), log];
    let relative = paths.into_iter().flatten().find(|path| path.is_relative())?;
    (before != now).then(|| {
        let shown = |path: Option<&Path>| path.map_or_else(|| "unknown".to_owned(), |path| path.display().to_string());
        format!(
            "the working directory was {} and is {}, and {} is relative: make the paths of the configuration absolute, or set \
             working_directory of Pingora's configuration",
            shown(before),
            shown(now),
            relative.display()
        )
    })
}

/// Opens the books and starts what runs beside the requests. Blocks. When it fails, it may be called again.
fn start(tollgate: &Tollgate, kept: &Mutex<Option<Opened>>) -> Result<(), StartError> {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    let opened = match kept.take() {
        Some(opened) => opened,
        None => open_beside(tollgate, Start::Fresh)?,
    };
    let books = match open_books(tollgate, &opened) {
        Ok(books) => books,
        Err(error) => {
            *kept = Some(opened);
            return Err(error.into());
        }
    };
    // Where the host listens is its own affair.
    start_beside(tollgate, books, opened, None, Arc::new(AtomicBool::new(false)))
}

#[async_trait]
impl BackgroundService for Background {
    async fn start_with_ready_notifier(&self, mut shutdown: ShutdownWatch, ready: ServiceReadyNotifier) {
        let mut ready = Some(ready);
        let mut told = String::new();
        while !*shutdown.borrow() {
            let (tollgate, opened) = (self.tollgate.clone(), Arc::clone(&self.opened));
            let now = std::env::current_dir().ok();
            if let Some(why) = elsewhere(&tollgate.snapshot().config, self.directory.as_deref(), now.as_deref()) {
                log::error!("MONEY: calls are refused: {why}");
                break;
            }
            let why = match tokio::task::spawn_blocking(move || start(&tollgate, &opened)).await {
                Ok(Ok(())) => break,
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            if told != why {
                log::error!("calls are refused until the gateway has started: {why}");
                told = why;
            }
            tokio::select! {
                () = tokio::time::sleep(TRIED_EVERY) => {}
                _ = shutdown.changed() => {}
            }
        }
        if let Some(ready) = ready.take() {
            ready.notify_ready();
        }
        // An error: the server is gone, which is a stop too.
        let stopped = shutdown.wait_for(|stops| *stops).await.is_ok();
        log::debug!("stopping: {stopped}");
        let tollgate = self.tollgate.clone();
        let closed = tokio::task::spawn_blocking(move || {
            tollgate.lifecycle().begin_stop();
            // The host's connections are not counted: there may be one.
            let _unknown = tollgate.lifecycle().connect();
            while !tollgate.lifecycle().wait_idle(HOUR) {}
            tollgate.close();
        });
        if let Err(error) = closed.await {
            log::error!("the gateway could not be closed: {error}");
        }
    }
}

/// How often the ledger is tried that cannot be opened.
const TRIED_EVERY: Duration = Duration::from_secs(1);
/// The host says how long calls may run on, and not this.
const HOUR: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;

    fn config(path: &str, folder: &str) -> Config {
        let text = format!(
            "data_dir: {folder}/data\nstore: sqlite://{folder}/ledger.db\ncatalogue: {folder}/catalogue.yaml\n"
        );
        Config::parse(Path::new(path), &text, &|_| None).unwrap()
    }

    /// As a host that daemonises: its ledger was a new and empty one below `/`, and each key unknown.
    #[test]
    fn nothing_is_opened_by_relative_paths_in_another_directory() {
        let (here, root) = (Some(Path::new("/srv/gw")), Some(Path::new("/")));
        let relative = config("conf/tollgate.yaml", "x");
        let why = elsewhere(&relative, here, root).unwrap();
        assert!(
            why.contains("was /srv/gw and is /") && why.contains("x/data is relative"),
            "{why}"
        );
        assert_eq!(elsewhere(&relative, here, here), None);
        assert!(elsewhere(&config("/srv/gw/tollgate.yaml", "x"), here, root).is_some());
        assert!(elsewhere(&relative, here, None).is_some(), "it is gone");
        // What is read again later leads to no other ledger.
        let absolute = config("conf/tollgate.yaml", "/srv/gw");
        assert_eq!(elsewhere(&absolute, here, root), None);
    }
}
