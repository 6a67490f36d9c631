//! The simulated provider on a thread of its own.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread::JoinHandle;

use tokio::sync::watch;

use crate::cli::failure::Failure;
use crate::simulator::{Options, serve};

/// Serves until it is dropped.
#[derive(Debug)]
pub(super) struct Simulated {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Simulated {
    /// Listens on a free port of loopback; whoever has not the credential is refused.
    pub(super) fn start(credential: String) -> Result<Simulated, Failure> {
        let failed = |error: std::io::Error| Failure::new(format!("cannot start the simulated provider: {error}"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let options = Options {
            credential: Some(credential),
            models: MODELS.iter().map(|model| (*model).to_owned()).collect(),
            ..Options::default()
        };
        let (stop, stopped) = watch::channel(false);
        let work = async move {
            match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => serve(listener, options, stopped).await,
                Err(error) => log::error!("the simulated provider cannot listen: {error}"),
            }
        };
        let thread = std::thread::Builder::new()
            .name("simulated".to_owned())
            .spawn(move || runtime.block_on(work))
            .map_err(failed)?;
        Ok(Simulated {
            address,
            stop,
            thread: Some(thread),
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the simulated provider panicked");
        }
    }
}

/// Upstream names of the models in the demo's catalogue.
const MODELS: [&str; 6] = ["chat", "mini", "pro", "enterprise", "embed", "vendor/model:free"];
