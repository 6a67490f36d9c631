//! Servers of other people's that mount Tollgate, by its public interface alone. Each runs in a process of its own, for `run_forever`
//! ends the process: this test binary once more, with only [`host_process`] to run and the host's name in its environment.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use pingora::http::ResponseHeader;
use pingora::prelude::*;
use pingora::proxy::ProxyHttp;
use pingora::server::RunArgs;
use pingora::server::configuration::ServerConf;
use tollgate::Tollgate;

/// Which host is to be run, and with what.
pub const HOST: &str = "TOLLGATE_TEST_HOST";
pub const LISTEN: &str = "TOLLGATE_TEST_LISTEN";
pub const CONFS: &str = "TOLLGATE_TEST_CONFS";

/// In a process that a test of this folder has started it is a server; among the tests it is nothing.
#[test]
fn host_process() {
    let Ok(host) = std::env::var(HOST) else { return };
    let listen = std::env::var(LISTEN).unwrap();
    let confs = std::env::var(CONFS).unwrap();
    let confs: Vec<&str> = confs.split(',').collect();
    match host.as_str() {
        "lines" => lines(confs[0], &listen),
        "routes" => routes(confs[0], &listen),
        "two" => two(&confs, &listen),
        other => panic!("there is no host {other}"),
    }
}

/// The lines of the documentation.
fn lines(conf: &str, listen: &str) {
    let tollgate = Tollgate::open(conf).unwrap(); // impl ProxyHttp; nothing listens yet
    let mut server = Server::new(None).unwrap();
    server.bootstrap();
    server.add_services(tollgate.background()); // ledger, journal, DNS, reload, audit: as Pingora services
    let mut proxy = http_proxy_service(&server.configuration, tollgate);
    proxy.add_tcp(listen);
    server.add_service(proxy);
    server.run_forever();
}

/// A host with routes and a context of its own.
fn routes(conf: &str, listen: &str) {
    let tollgate = Tollgate::open(conf).unwrap();
    let mut server = short_lived();
    server.bootstrap();
    let background = server.add_services(tollgate.background());
    let mut proxy = http_proxy_service(&server.configuration, tollgate.mount(Host::default()));
    proxy.add_tcp(listen);
    let proxy = server.add_service(proxy);
    background.iter().for_each(|service| proxy.add_dependency(service));
    server.run_forever();
}

/// Two gateways with two ledgers below two paths: the second is the first one's host.
fn two(confs: &[&str], listen: &str) {
    let first = Tollgate::open(confs[0]).unwrap();
    let second = Tollgate::open(confs[1]).unwrap();
    let mut server = short_lived();
    server.bootstrap();
    server.add_services(first.background());
    server.add_services(second.background());
    let mut proxy = http_proxy_service(&server.configuration, first.mount(second));
    proxy.add_tcp(listen);
    server.add_service(proxy);
    server.run(RunArgs::default());
}

/// Pingora sleeps its whole grace period at a stop.
fn short_lived() -> Server {
    let conf = ServerConf {
        grace_period_seconds: Some(3),
        graceful_shutdown_timeout_seconds: Some(3),
        ..ServerConf::default()
    };
    Server::new_with_opt_and_conf(None, conf)
}

/// Answers its own paths, and counts the hooks that run on its requests.
#[derive(Default)]
struct Host {
    requests: AtomicUsize,
    logged: AtomicUsize,
}

/// What the host knows of a request.
struct HostCtx {
    answer: String,
}

#[async_trait]
impl ProxyHttp for Host {
    type CTX = HostCtx;

    fn new_ctx(&self) -> HostCtx {
        HostCtx { answer: String::new() }
    }

    async fn early_request_filter(&self, session: &mut Session, ctx: &mut HostCtx) -> Result<()> {
        let before = self.requests.fetch_add(1, Ordering::SeqCst);
        let logged = self.logged.load(Ordering::SeqCst);
        ctx.answer = format!("{} {before} {logged}", session.req_header().uri.path());
        Ok(())
    }

    async fn request_filter(&self, session: &mut Session, ctx: &mut HostCtx) -> Result<bool> {
        let body = ctx.answer.clone();
        let mut head = ResponseHeader::build(200, None)?;
        head.insert_header("content-length", body.len().to_string())?;
        session.write_response_header(Box::new(head), false).await?;
        session.write_response_body(Some(body.into()), true).await?;
        Ok(true)
    }

    async fn upstream_peer(&self, _session: &mut Session, _ctx: &mut HostCtx) -> Result<Box<HttpPeer>> {
        Error::e_explain(ErrorType::InternalError, "the host answers all of its requests")
    }

    async fn logging(&self, _session: &mut Session, _e: Option<&Error>, _ctx: &mut HostCtx) {
        self.logged.fetch_add(1, Ordering::SeqCst);
    }
}
