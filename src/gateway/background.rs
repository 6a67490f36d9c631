//! What runs beside the requests, as a service of Pingora's: for a host that mounts the plugin in a server of its own.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::{BackgroundService, GenBackgroundService};
use pingora::services::{ServiceReadyNotifier, ServiceWithDependents};

use super::Tollgate;
use crate::server::upgrade::Start;

impl Tollgate {
    /// The services that a server needs beside the proxy itself. They open the ledger (again and again while another process owns it or
    /// the store cannot be reached: until then calls get 503), keep journal, names, configuration and catalogue fresh, audit the books, and
    /// serve `admin_listen`. At a stop they wait for running calls and then bill and write what is left, within Pingora's
    /// `grace_period_seconds`.
    ///
    /// The service is ready once the ledger is open: a proxy that depends on it by `add_dependency` accepts nothing before.
    pub fn background(&self) -> Vec<Box<dyn ServiceWithDependents>> {
        let task = Arc::new(Background(self.clone()));
        vec![Box::new(GenBackgroundService::new("tollgate".to_owned(), task))]
    }

    /// Opens the books and starts what runs beside the requests. Blocks.
    fn start(&self) -> Result<(), super::StartError> {
        self.open_beside(Start::Fresh)?;
        self.open_books()?;
        self.start_beside(Arc::new(AtomicBool::new(false)))
    }
}

struct Background(Tollgate);

#[async_trait]
impl BackgroundService for Background {
    async fn start_with_ready_notifier(&self, mut shutdown: ShutdownWatch, ready: ServiceReadyNotifier) {
        let mut ready = Some(ready);
        let mut told = String::new();
        while !*shutdown.borrow() {
            let tollgate = self.0.clone();
            let why = match tokio::task::spawn_blocking(move || tollgate.start()).await {
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
        let tollgate = self.0.clone();
        let closed = tokio::task::spawn_blocking(move || {
            tollgate.lifecycle().begin_stop();
            while !tollgate.lifecycle().wait_idle(LOOK_EVERY) {}
            tollgate.close();
        });
        if let Err(error) = closed.await {
            log::error!("the gateway could not be closed: {error}");
        }
    }
}

/// How often the ledger is tried that cannot be opened.
const TRIED_EVERY: Duration = Duration::from_secs(1);
/// How often a stop looks whether calls are still running.
const LOOK_EVERY: Duration = Duration::from_secs(1);
