//! Serves a gateway on a free port, as Pingora's own listener would.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use arc_swap::ArcSwap;
use pingora::apps::ServerApp;
use pingora::protocols::l4::stream::Stream as L4Stream;
use pingora::protocols::{GetSocketDigest, SocketDigest};
use pingora::server::configuration::ServerConf;
use tokio::net::TcpSocket;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tollgate::clock::Clock;
use tollgate::gateway::snapshot::Snapshot;
use tollgate::ledger::Ledger;
use tollgate::ledger::journal::Journal;
use tollgate::server::admin::Admin;
use tollgate::server::listener::Listener;
use tollgate::server::operator::Times;
use tollgate::telemetry::Telemetry;

/// The task that accepts connections.
pub struct Served {
    /// What the admin listener would answer from.
    pub admin: Admin,
    tollgate: tollgate::Tollgate,
    serving: AbortHandle,
    _stop: watch::Sender<bool>,
}

impl Served {
    /// Serves operators on a free port of loopback until the test ends.
    pub async fn operators(&self) -> SocketAddr {
        self.operators_within(Times::default()).await
    }

    /// The same with other times.
    pub async fn operators_within(&self, times: Times) -> SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        self.serve_operators(listener, times);
        address
    }

    /// The same on a listener at which somebody may wait already.
    pub fn serve_operators(&self, listener: tokio::net::TcpListener, times: Times) {
        tokio::spawn(self.tollgate.operator().unwrap().within(times).serve(listener));
    }

    /// Ends it, and drops every connection where it stands.
    pub fn abort(&self) {
        self.serving.abort();
    }
}

/// Serves on a free port of loopback; the kernel keeps at most about twice so many bytes of answers that no client takes.
pub async fn serve(
    snapshot: Arc<ArcSwap<Snapshot>>,
    ledger: Ledger,
    journal: Arc<Journal>,
    clock: Clock,
    telemetry: &Arc<Telemetry>,
    send_buffer_bytes: Option<u32>,
) -> (Served, SocketAddr) {
    let tollgate = tollgate::Tollgate::over(snapshot, ledger, journal, clock, telemetry);
    let admin = tollgate.admin().unwrap();
    let app = Arc::new(Listener::new(tollgate.clone(), &Arc::new(ServerConf::default())));
    let socket = TcpSocket::new_v4().unwrap();
    if let Some(bytes) = send_buffer_bytes {
        // Accepted connections have it too.
        socket.set_send_buffer_size(bytes).unwrap();
    }
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1024).unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopping) = watch::channel(false);
    let serving = tokio::spawn(async move {
        // Connections end with this task.
        let mut connections = JoinSet::new();
        while let Ok((socket, _)) = listener.accept().await {
            socket.set_nodelay(true).unwrap();
            let (app, stopping) = (Arc::clone(&app), stopping.clone());
            connections.spawn(async move {
                let digest = SocketDigest::from_raw_fd(socket.as_raw_fd());
                let mut stream = L4Stream::from(socket);
                stream.set_socket_digest(digest);
                app.process_new(Box::new(stream), &stopping).await;
            });
        }
    });
    let served = Served {
        admin,
        tollgate,
        serving: serving.abort_handle(),
        _stop: stop,
    };
    (served, address)
}
