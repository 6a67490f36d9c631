//! What the gateway is compared with: a bare Pingora pass-through. It picks the upstream and does nothing else: default
//! hooks, no modules, no TLS, default buffers.

use std::net::SocketAddr;

use async_trait::async_trait;
use pingora::{
    modules::http::HttpModules,
    prelude::{HttpPeer, Session, http_proxy_service},
    proxy::ProxyHttp,
    server::{RunArgs, Server, configuration::ServerConf},
};

use crate::common::Result;

/// Serves until the process is killed.
pub(crate) fn serve(listen: SocketAddr, upstream: SocketAddr, threads: usize) -> Result<()> {
    let mut server = Server::new_with_opt_and_conf(
        None,
        ServerConf {
            threads,
            ..ServerConf::default()
        },
    );
    server.bootstrap();
    let mut service = http_proxy_service(&server.configuration, PassThrough { upstream });
    service.add_tcp(&listen.to_string());
    server.add_service(service);
    server.run(RunArgs::default());
    Ok(())
}

struct PassThrough {
    upstream: SocketAddr,
}

#[async_trait]
impl ProxyHttp for PassThrough {
    type CTX = ();

    fn new_ctx(&self) {}

    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    async fn upstream_peer(&self, _session: &mut Session, _ctx: &mut ()) -> pingora::Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.upstream, false, String::new())))
    }
}
