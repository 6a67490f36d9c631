//! The two sides: Pingora's own proxy loop, and the gateway's transport, with a plug-in that changes nothing.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use pingora::apps::ServerApp;
use pingora::modules::http::HttpModules;
use pingora::protocols::l4::stream::Stream as L4Stream;
use pingora::proxy::{ProxyHttp, Session, http_proxy};
use pingora::server::configuration::ServerConf;
use pingora::upstreams::peer::HttpPeer;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tollgate::gateway::transport::{Carried, Transport};

/// Whose loop carries the requests.
#[derive(Clone, Copy, Debug)]
pub enum Side {
    Pingora,
    Transport,
}

/// A proxy that serves until it is dropped.
pub struct Served {
    pub address: SocketAddr,
    serving: AbortHandle,
    _stop: watch::Sender<bool>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// An upstream over HTTP/1.
pub fn http1(address: SocketAddr) -> HttpPeer {
    HttpPeer::new(address, false, String::new())
}

/// An upstream over HTTP/2 in clear text.
pub fn http2(address: SocketAddr) -> HttpPeer {
    let mut peer = http1(address);
    peer.options.set_http_version(2, 2);
    peer
}

/// Serves a pass-through to this upstream.
pub async fn serve(side: Side, peer: HttpPeer) -> Served {
    match side {
        Side::Pingora => serve_plugin(PassThrough { peer }).await,
        Side::Transport => serve_transport(peer).await,
    }
}

async fn serve_transport(peer: HttpPeer) -> Served {
    serve_plugin(Carrying {
        peer,
        transport: Transport::new(),
    })
    .await
}

async fn serve_plugin<P>(plugin: P) -> Served
where
    P: ProxyHttp + Send + Sync + 'static,
    P::CTX: Send + Sync,
{
    let proxy = Arc::new(http_proxy(&Arc::new(ServerConf::default()), plugin));
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
                let stream: pingora::protocols::Stream = Box::new(L4Stream::from(socket));
                let mut next = Some(stream);
                while let Some(stream) = next {
                    next = proxy.process_new(stream, &stopping).await;
                }
            });
        }
    });
    Served {
        address,
        serving: serving.abort_handle(),
        _stop: stop,
    }
}

struct PassThrough {
    peer: HttpPeer,
}

#[async_trait]
impl ProxyHttp for PassThrough {
    type CTX = ();

    fn new_ctx(&self) {}

    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    async fn upstream_peer(&self, _session: &mut Session, _ctx: &mut ()) -> pingora::Result<Box<HttpPeer>> {
        Ok(Box::new(self.peer.clone()))
    }
}

/// The same, carried by the gateway's transport, which wants the whole body before.
struct Carrying {
    peer: HttpPeer,
    transport: Transport,
}

#[async_trait]
impl ProxyHttp for Carrying {
    type CTX = Bytes;

    fn new_ctx(&self) -> Bytes {
        Bytes::new()
    }

    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    async fn request_filter(&self, session: &mut Session, ctx: &mut Bytes) -> pingora::Result<bool> {
        let mut body = Vec::new();
        while let Some(piece) = session.downstream_session.read_request_body().await? {
            body.extend_from_slice(&piece);
        }
        *ctx = Bytes::from(body);
        self.transport.carry(self, session, ctx).await.map(|()| true)
    }

    async fn upstream_peer(&self, _session: &mut Session, _ctx: &mut Bytes) -> pingora::Result<Box<HttpPeer>> {
        Ok(Box::new(self.peer.clone()))
    }

    async fn request_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        _end_of_stream: bool,
        ctx: &mut Bytes,
    ) -> pingora::Result<()> {
        *body = Some(ctx.clone());
        Ok(())
    }
}

impl Carried for Carrying {}
