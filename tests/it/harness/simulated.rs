//! The simulated provider of `tollgate demo`, on a free port.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tollgate::simulator::{Options, serve};

/// A running simulated provider; it ends with this.
pub struct Simulated {
    address: SocketAddr,
    _stop: watch::Sender<bool>,
}

/// Starts one that never pauses.
pub async fn start() -> Simulated {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopping) = watch::channel(false);
    let options = Options {
        event_pause: Duration::ZERO,
        first_byte_pause: Duration::ZERO,
        credential: Some("credential-SET_MAIN".to_owned()),
        ..Options::default()
    };
    tokio::spawn(serve(listener, options, stopping));
    Simulated { address, _stop: stop }
}

impl Simulated {
    /// What a provider's `base_url` says.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }
}
