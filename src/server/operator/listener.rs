//! The listener of operators: connections within bounds, each greeted over TLS where that is configured. It has a thread and a runtime of
//! its own, so that nothing that operators do takes a moment of a call's.

use std::sync::Arc;
use std::time::Duration;

use pingora::apps::ServerApp;
use pingora::protocols::Stream;
use pingora::protocols::l4::stream::Stream as L4Stream;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::connection::Connection;
use super::state::OperatorApi;
use crate::ledger::Ledger;
use crate::ledger::admin::AdminOp;
use crate::ledger::admin::accounts::{AccountOp, AccountQuery};
use crate::net::bounded_stream::BoundedStream;
use crate::net::head_limit::HeadLimit;
use crate::server::admin_connections::AdminConnections;
use crate::server::pending_listener::{Accepting, PendingListener};

impl OperatorApi {
    /// Serves at `listener` until the process ends.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn listen(self, listener: PendingListener) -> std::io::Result<()> {
        listener.serve("operator", async move |listener| self.serve(listener).await)
    }

    /// Serves connections of `listener`, each in a task of its own, until another process takes over and what was begun is answered.
    pub async fn serve(self, listener: TcpListener) {
        // A process that ends waits a moment until nobody is served here.
        let _serves = self.admin.life.operators_end();
        let mut accepting = Accepting::new("operator_listen", listener, self.admin.life.operators_end());
        let (api, connections) = (Arc::new(self), Arc::new(AdminConnections::of_operators()));
        #[expect(
            clippy::disallowed_methods,
            reason = "it ends with Redis' answers, each of which has its time-out, and has nothing to lose"
        )]
        tokio::spawn(know_names(api.ledger().clone()));
        // Pingora's own stop is nothing to this listener.
        let (_running, stopping) = watch::channel(false);
        while let Some((socket, peer)) = accepting.next().await {
            let peer = peer.ip();
            let is_proxy = {
                let trusted = &api.snapshot().config.trusted_proxies;
                trusted.iter().any(|proxy| proxy.contains(peer))
            };
            // The socket of one for which there is no room is closed.
            let Some(permit) = connections.enter(peer, is_proxy) else {
                continue;
            };
            let (api, stopping, number) = (Arc::clone(&api), stopping.clone(), permit.number());
            #[expect(
                clippy::disallowed_methods,
                reason = "a connection has nothing to lose: a command that it began runs in a task of its own"
            )]
            let served = tokio::spawn(async move {
                let limit = HeadLimit::new();
                let greeted = tokio::time::timeout(GREETED_WITHIN, greet(&api, socket, &limit)).await;
                let Ok(Some((stream, is_tls))) = greeted else { return };
                let connection = Arc::new(Connection {
                    api,
                    peer,
                    is_tls,
                    limit,
                    permit,
                });
                // It ends with its last request.
                drop(connection.process_new(stream, &stopping).await);
            });
            connections.runs(number, served.abort_handle());
        }
        // The address is the other process' now. Who is here is answered, with a connection that ends.
        drop(accepting);
        connections.empty(ANSWERED_WITHIN).await;
        // Commands that were begun come to their end; who asks for another is told that nothing was begun.
        match tokio::time::timeout(ENDED_WITHIN, api.idle()).await {
            Ok(_idle) => connections.empty(REFUSED_WITHIN).await,
            Err(_) => log::warn!("commands of operators outlived the listener"),
        }
    }
}

/// Has the ledger know the names of all accounts before somebody asks for a list: reading 100,000 of them takes a while. Whatever fails is
/// left to the first list.
async fn know_names(ledger: Ledger) {
    let query = AccountQuery {
        limit: 1,
        ..AccountQuery::default()
    };
    if let Err(error) = ledger.run(AdminOp::Account(AccountOp::Page(query))).await {
        log::debug!("the names of accounts are not known yet: {error}");
    }
}

/// Over TLS, where the configuration says so.
async fn greet(api: &OperatorApi, socket: TcpStream, limit: &Arc<HeadLimit>) -> Option<(Stream, bool)> {
    let snapshot = api.snapshot();
    let write_max = snapshot.config.timeouts.write;
    let (socket, limit) = (L4Stream::from(socket), Arc::clone(limit));
    let Some(certificate) = &snapshot.operator_certificate else {
        return Some((Box::new(BoundedStream::of_client(socket, limit, write_max)), false));
    };
    match certificate.acceptor.tls_handshake(socket).await {
        Ok(secure) => Some((Box::new(BoundedStream::of_client(secure, limit, write_max)), true)),
        Err(error) => {
            log::debug!("a TLS handshake of an operator failed: {error}");
            None
        }
    }
}

/// How long a TLS handshake may take.
const GREETED_WITHIN: Duration = Duration::from_secs(10);
/// How long connections may last whose listener has ended, for a request that is on its way; and then, to be told that it comes too late.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);
const REFUSED_WITHIN: Duration = Duration::from_millis(200);
/// How long commands that run may keep a listener that ends.
const ENDED_WITHIN: Duration = Duration::from_secs(60);
