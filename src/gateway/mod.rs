//! The path of a request, as a plugin of Pingora: this file has the hooks, in Pingora's order, and each calls a step by its name.
//!
//! [`Tollgate`] decides in `request_filter` and, when a call is admitted, lets [`transport`] carry it, which drives the hooks from
//! `upstream_peer` on. `context` holds what is known of a request. `RUST_LOG=tollgate::hooks=trace` shows the hooks as they run.

pub(crate) mod access;
pub(crate) mod admission;
pub(crate) mod api;
pub(crate) mod billing;
pub(crate) mod context;
pub(crate) mod media_type;
pub(crate) mod mount;
pub(crate) mod recorder;
pub(crate) mod shutdown;
pub mod snapshot;
pub(crate) mod state;
pub(crate) mod trace;
pub mod transport;
pub mod upstream;

use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::modules::http::HttpModules;
use pingora::proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, Result};

use self::access::decision::Decision;
use self::billing::meter::Meter;
pub use self::context::Ctx;
pub use self::mount::{Mounted, MountedCtx};
pub use self::state::{Environment, Tollgate};
use self::transport::{Carried, GatherLimits, TimeLimits, Until};

#[async_trait]
impl ProxyHttp for Tollgate {
    /// In a box: Pingora's future of a request keeps room for it more than once, and is moved.
    type CTX = Box<Ctx>;

    fn new_ctx(&self) -> Box<Ctx> {
        Box::new(Ctx::new(
            self.clock().request_id(),
            self.snapshot(),
            self.telemetry(),
            self.lifecycle().enter(),
        ))
    }

    /// None: an event of a stream that a module kept would be late.
    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    async fn early_request_filter(&self, session: &mut Session, ctx: &mut Self::CTX) -> Result<()> {
        hook("early_request_filter", ctx);
        crate::gateway::access::decision::begin(self, session, ctx);
        Ok(())
    }

    async fn request_filter(&self, session: &mut Session, ctx: &mut Self::CTX) -> Result<bool> {
        hook("request_filter", ctx);
        match crate::gateway::access::decision::decide(self, session, ctx).await? {
            Decision::Answered => Ok(true),
            Decision::Carry => self.carry(session, ctx).await.map(|()| true),
        }
    }

    async fn upstream_peer(&self, session: &mut Session, ctx: &mut Self::CTX) -> Result<Box<HttpPeer>> {
        hook("upstream_peer", ctx);
        let peer = crate::gateway::upstream::request::peer(session.req_header(), ctx, self.clock()).await?;
        if let Some(call) = ctx.call() {
            recorder::attempt(call);
        }
        Ok(peer)
    }

    fn fail_to_connect(
        &self,
        _session: &mut Session,
        _peer: &HttpPeer,
        ctx: &mut Self::CTX,
        e: Box<Error>,
    ) -> Box<Error> {
        hook("fail_to_connect", ctx);
        crate::gateway::upstream::failure::connect_failed(ctx, e, self.clock())
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        upstream_request: &mut RequestHeader,
        ctx: &mut Self::CTX,
    ) -> Result<()> {
        hook("upstream_request_filter", ctx);
        let call = ctx.call().ok_or_else(not_admitted)?;
        crate::gateway::upstream::request::request(session.req_header(), call, upstream_request)
    }

    async fn request_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        _end_of_stream: bool,
        ctx: &mut Self::CTX,
    ) -> Result<()> {
        hook("request_body_filter", ctx);
        *body = crate::gateway::upstream::request::body(ctx.call().ok_or_else(not_admitted)?);
        Ok(())
    }

    async fn upstream_response_filter(
        &self,
        _session: &mut Session,
        upstream_response: &mut ResponseHeader,
        ctx: &mut Self::CTX,
    ) -> Result<()> {
        hook("upstream_response_filter", ctx);
        crate::gateway::upstream::response::head(upstream_response, ctx, self.clock())
    }

    fn upstream_response_body_filter(
        &self,
        session: &mut Session,
        body: &mut Option<Bytes>,
        end_of_stream: bool,
        ctx: &mut Self::CTX,
    ) -> Result<Option<Duration>> {
        hook("upstream_response_body_filter", ctx);
        crate::gateway::upstream::response::piece(
            body,
            end_of_stream,
            ctx,
            || crate::gateway::api::responses::has_begun(session),
            self.clock(),
        )?;
        Ok(None)
    }

    fn response_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        end_of_stream: bool,
        ctx: &mut Self::CTX,
    ) -> Result<Option<Duration>> {
        hook("response_body_filter", ctx);
        crate::gateway::upstream::response::journal(ctx, body.as_ref(), end_of_stream);
        // After all that changes it.
        crate::gateway::billing::capture::leaves(ctx, body.as_ref(), end_of_stream);
        Ok(None)
    }

    fn error_while_proxy(
        &self,
        _peer: &HttpPeer,
        session: &mut Session,
        e: Box<Error>,
        ctx: &mut Self::CTX,
        client_reused: bool,
    ) -> Box<Error> {
        // The transport says so of a connection that had waited in the pool. Over HTTP/2 other requests may have come together with this one.
        hook("error_while_proxy", ctx);
        crate::gateway::upstream::failure::exchange_failed(session, ctx, e, client_reused, self.clock())
    }

    async fn fail_to_proxy(&self, session: &mut Session, e: &Error, ctx: &mut Self::CTX) -> FailToProxy {
        hook("fail_to_proxy", ctx);
        crate::gateway::upstream::error_reply::send_error(session, ctx, e).await
    }

    async fn logging(&self, session: &mut Session, e: Option<&Error>, ctx: &mut Self::CTX) {
        hook("logging", ctx);
        let ending = crate::gateway::upstream::ending::ending(ctx, e);
        recorder::ended(session, ctx, ending);
        ctx.close(ending);
    }

    /// `fail_to_proxy` has logged it, once.
    fn suppress_error_log(&self, _session: &Session, _ctx: &Self::CTX, _error: &Error) -> bool {
        true
    }

    /// What follows a failed attempt is logged where that is decided.
    fn suppress_proxy_warn_log(
        &self,
        _session: &Session,
        _ctx: &Self::CTX,
        _error: &Error,
        _context: ProxyWarnLogContext,
    ) -> bool {
        true
    }
}

impl Carried for Tollgate {
    /// Nothing of the client's request leaves but what `upstream::request` writes.
    fn upstream_request(&self, _session: &Session, _ctx: &mut Self::CTX) -> RequestHeader {
        crate::gateway::upstream::request::blank_request()
    }

    /// Nothing of it leaves but what `response` writes, so how its names were spelled is not copied: that would be a second map.
    fn upstream_response(&self, upstream: &ResponseHeader) -> ResponseHeader {
        ResponseHeader::from(upstream.as_owned_parts())
    }

    fn time_limits(&self, ctx: &Self::CTX) -> TimeLimits {
        let timeouts = ctx.snapshot.config.timeouts;
        let first_byte = match ctx.is_streamed() {
            true => timeouts.first_byte,
            false => timeouts.whole_first_byte,
        };
        TimeLimits {
            first_byte: Some(first_byte),
            idle: Some(timeouts.idle),
            end: Some(STREAM_END_MAX),
            comment: timeouts.comment,
            write: Some(timeouts.write),
        }
    }

    fn wants_fresh_connection(&self, ctx: &Self::CTX) -> bool {
        ctx.attempt().is_some_and(|attempt| attempt.is_repeated)
    }

    fn gathers(&self, ctx: &Self::CTX) -> Option<GatherLimits> {
        let config = &ctx.snapshot.config;
        // A stream leaves as it comes, once it has begun where another target could be asked in its place; a refusal of one only once
        // its words have said that no other is to be asked.
        if ctx.is_streamed() && !ctx.is_refused() {
            ctx.meter().filter(|meter| meter.is_gathered())?;
            return Some(GatherLimits {
                until: Until::Event,
                within: config.timeouts.first_event?,
                bytes_max: STREAM_START_BYTES_MAX,
                total_bytes_max: config.gathered_bytes_max,
            });
        }
        Some(GatherLimits {
            until: Until::End,
            within: config.timeouts.whole_gather,
            bytes_max: config.whole_answer_bytes_max,
            total_bytes_max: config.gathered_bytes_max,
        })
    }

    fn may_leave(&self, ctx: &Self::CTX) -> bool {
        !ctx.meter().is_some_and(Meter::is_gathered)
    }

    fn begins_unfinished(&self, ctx: &mut Self::CTX) {
        crate::gateway::upstream::response::begins_unfinished(ctx);
    }

    fn may_comment(&self, ctx: &Self::CTX) -> bool {
        ctx.meter().is_some_and(Meter::is_between_events)
    }

    fn commented(&self, ctx: &mut Self::CTX) {
        crate::gateway::upstream::response::commented(ctx);
    }

    fn client_left(&self, ctx: &mut Self::CTX, head_came: bool) -> Option<Duration> {
        crate::gateway::upstream::disconnect::client_left(ctx, head_came)
    }

    fn ends_here(&self, ctx: &Self::CTX) -> bool {
        ctx.has_early_end()
    }

    fn is_complete(&self, ctx: &Self::CTX) -> bool {
        ctx.meter().is_some_and(Meter::has_last_event)
    }

    fn poll_end(&self, ctx: &Self::CTX, context: &mut Context<'_>) -> Poll<()> {
        crate::gateway::billing::keep_within::poll_uncovered(ctx, context)
    }

    fn is_cut(&self) -> bool {
        self.lifecycle().is_cut()
    }
}

impl Tollgate {
    /// Carries an admitted call. When its client has left, Pingora is told so: it must not end an answer that nobody got.
    async fn carry(&self, session: &mut Session, ctx: &mut Box<Ctx>) -> Result<()> {
        self.transport().carry(self, session, ctx).await?;
        crate::gateway::upstream::disconnect::ended(ctx)
    }
}

fn not_admitted() -> Box<Error> {
    Error::explain(ErrorType::InternalError, "the call was not admitted")
}

/// Shows that a hook runs.
fn hook(name: &'static str, ctx: &Ctx) {
    if log::max_level() == log::LevelFilter::Trace {
        tell_hook(name, ctx);
    }
}

#[cold]
fn tell_hook(name: &'static str, ctx: &Ctx) {
    log::trace!(target: "tollgate::hooks", "{} {name}", ctx.id);
}

/// Bytes of a stream that wait for its first event: comments, for the most part.
const STREAM_START_BYTES_MAX: usize = 64 << 10;
/// How long the end of a stream is waited for behind its last event: for a usage that comes late, and so that the connection can be used again.
const STREAM_END_MAX: Duration = Duration::from_secs(1);
