//! Serves a gateway on a free port, as Pingora's own listener would.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use pingora::apps::{HttpServerOptions, ServerApp};
use pingora::protocols::Stream;
use pingora::protocols::l4::stream::Stream as L4Stream;
use pingora::server::configuration::ServerConf;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tollgate::clock::Clock;
use tollgate::gateway::snapshot::Snapshot;
use tollgate::store::Ledger;
use tollgate::store::journal::Journal;

/// The task that accepts connections.
pub struct Served {
    serving: AbortHandle,
    _stop: watch::Sender<bool>,
}

impl Served {
    /// Ends it, and drops every connection where it stands.
    pub fn abort(&self) {
        self.serving.abort();
    }
}

/// Serves on a free port of loopback.
pub async fn serve(
    snapshot: Arc<ArcSwap<Snapshot>>,
    ledger: Ledger,
    journal: Arc<Journal>,
    clock: Clock,
) -> (Served, SocketAddr) {
    let conf = ServerConf {
        max_retries: 16,
        ..ServerConf::default()
    };
    let mut proxy = pingora::proxy::http_proxy(
        &Arc::new(conf),
        tollgate::gateway::Gateway::new(snapshot, ledger, journal, clock),
    );
    let mut options = HttpServerOptions::default();
    options.h2c = true;
    proxy.server_options = Some(options);
    let proxy = Arc::new(proxy);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopping) = watch::channel(false);
    let serving = tokio::spawn(async move {
        // Connections end with this task.
        let mut connections = JoinSet::new();
        while let Ok((socket, _)) = listener.accept().await {
            socket.set_nodelay(true).unwrap();
            let (proxy, stopping) = (Arc::clone(&proxy), stopping.clone());
            connections.spawn(async move {
                let mut next: Option<Stream> = Some(Box::new(L4Stream::from(socket)));
                while let Some(stream) = next {
                    next = proxy.process_new(stream, &stopping).await;
                }
            });
        }
    });
    let served = Served {
        serving: serving.abort_handle(),
        _stop: stop,
    };
    (served, address)
}
