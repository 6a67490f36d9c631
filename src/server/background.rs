//! What runs beside the requests, as a service of Pingora's: for a host that mounts the plugin in a server of its own.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::{BackgroundService, GenBackgroundService};
use pingora::services::{ServiceReadyNotifier, ServiceWithDependents};

use super::open::{Opened, StartError, open_beside, open_books, start_beside};
use super::upgrade::Start;
use crate::gateway::Tollgate;

impl Tollgate {
    /// The services that a server needs beside the proxy itself. They open the ledger (again and again while another process owns it or
    /// the store cannot be reached: until then calls get 503), keep journal, names, configuration and catalogue fresh, audit the books, and
    /// serve `admin_listen`. At a stop they wait for running calls and then bill and write what is left, within Pingora's
    /// `grace_period_seconds`.
    ///
    /// The service is ready once the ledger is open: a proxy that depends on it by `add_dependency` accepts nothing before.
    pub fn background(&self) -> Vec<Box<dyn ServiceWithDependents>> {
        let task = Background {
            tollgate: self.clone(),
            opened: Arc::default(),
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
