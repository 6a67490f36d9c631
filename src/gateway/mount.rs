//! The plugin within a host's own: one server, the host's routes and Tollgate's below its `base_path`.
//!
//! Every hook of [`ProxyHttp`] is forwarded to the side that a request belongs to, which is decided once, by its path. A host that called
//! Tollgate's `request_filter` from its own would have its own `logging` and `fail_to_proxy` run on Tollgate's calls.
//!
//! Longer than 400 lines: one method for each hook of the trait, held complete by a test.

use std::any::Any;
use std::borrow::Cow;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::HeaderMap;
use pingora::cache::key::HashBinary;
use pingora::cache::{CacheKey, CacheMeta, ForcedFreshness, HitHandler, PurgeAction, RespCacheable};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::modules::http::HttpModules;
use pingora::protocols::{Digest, UniqueIDType};
use pingora::proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, PurgeStatus, RangeType, Session};
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, Result};
use tokio::sync::mpsc;

use super::{Ctx, Tollgate};

impl Tollgate {
    /// A plugin that gives what lies below `base_path` to Tollgate, and everything else to `host`.
    ///
    /// A connection may carry requests of both. After one of Tollgate's it idles for Tollgate's `keepalive_ms`, and has no connection
    /// context of the host's any more (`persist_connection_context`). Of Pingora's feature `upstream_modules` nothing is forwarded.
    pub fn mount<H>(&self, host: H) -> Mounted<H> {
        Mounted {
            tollgate: self.clone(),
            host,
        }
    }

    fn is_ours(&self, session: &Session) -> bool {
        let snapshot = self.snapshot();
        let below = session
            .req_header()
            .uri
            .path()
            .strip_prefix(snapshot.config.base_path.as_str());
        below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
    }
}

/// Tollgate and a host's plugin in one: see [`Tollgate::mount`].
pub struct Mounted<H> {
    tollgate: Tollgate,
    host: H,
}

/// The `CTX` of [`Mounted`]: that of the side that the request belongs to, once its head is there.
pub struct MountedCtx<C>(Option<Side<C>>);

enum Side<C> {
    Ours(Box<Ctx>),
    Host(C),
}

impl<C> MountedCtx<C> {
    /// The host's, when the request is the host's.
    pub fn host(&self) -> Option<&C> {
        match &self.0 {
            Some(Side::Host(ctx)) => Some(ctx),
            Some(Side::Ours(_)) | None => None,
        }
    }
}

impl<H: ProxyHttp> Mounted<H> {
    fn choose(&self, session: &Session, ctx: &mut MountedCtx<H::CTX>) {
        if ctx.0.is_none() {
            ctx.0 = Some(if self.tollgate.is_ours(session) {
                Side::Ours(self.tollgate.new_ctx())
            } else {
                Side::Host(self.host.new_ctx())
            });
        }
    }

    /// The side that was chosen; before there was a request, the host's.
    fn side<'ctx>(&self, ctx: &'ctx mut MountedCtx<H::CTX>) -> &'ctx mut Side<H::CTX> {
        ctx.0.get_or_insert_with(|| Side::Host(self.host.new_ctx()))
    }
}

/// Calls the hook of the side that the request belongs to.
macro_rules! by_side {
    ($self:ident, $ctx:ident, |$plugin:ident, $own:ident| $call:expr) => {
        match $self.side($ctx) {
            Side::Ours($own) => {
                let $plugin = &$self.tollgate;
                $call
            }
            Side::Host($own) => {
                let $plugin = &$self.host;
                $call
            }
        }
    };
}

/// The same for a hook that only looks at the context; what it says before there was a request stands at the end.
macro_rules! by_side_ref {
    ($self:ident, $ctx:ident, |$plugin:ident, $own:ident| $call:expr, $before:expr) => {
        match &$ctx.0 {
            Some(Side::Ours($own)) => {
                let $plugin = &$self.tollgate;
                $call
            }
            Some(Side::Host($own)) => {
                let $plugin = &$self.host;
                $call
            }
            None => $before,
        }
    };
}

#[async_trait]
impl<H> ProxyHttp for Mounted<H>
where
    H: ProxyHttp + Send + Sync,
    H::CTX: Send + Sync,
{
    type CTX = MountedCtx<H::CTX>;

    fn new_ctx(&self) -> Self::CTX {
        MountedCtx(None)
    }

    /// The host's. Pingora has them filter the head of each request, Tollgate's included; of Tollgate's bodies and answers they see nothing.
    fn init_downstream_modules(&self, modules: &mut HttpModules) {
        self.host.init_downstream_modules(modules);
    }

    fn on_connection_reuse(&self, session: &mut Session, ctx: &mut Self::CTX, prev_ctx: Box<dyn Any + Send + Sync>) {
        self.choose(session, ctx);
        by_side!(self, ctx, |plugin, own| plugin
            .on_connection_reuse(session, own, prev_ctx));
    }

    async fn early_request_filter(&self, session: &mut Session, ctx: &mut Self::CTX) -> Result<()> {
        self.choose(session, ctx);
        by_side!(self, ctx, |plugin, own| plugin.early_request_filter(session, own).await)
    }

    fn allow_spawning_subrequest(&self, session: &Session, ctx: &Self::CTX) -> bool {
        by_side_ref!(
            self,
            ctx,
            |plugin, own| plugin.allow_spawning_subrequest(session, own),
            false
        )
    }

    async fn request_filter(&self, session: &mut Session, ctx: &mut Self::CTX) -> Result<bool> {
        by_side!(self, ctx, |plugin, own| plugin.request_filter(session, own).await)
    }

    fn request_cache_filter(&self, session: &mut Session, ctx: &mut Self::CTX) -> Result<()> {
        by_side!(self, ctx, |plugin, own| plugin.request_cache_filter(session, own))
    }

    fn cache_key_callback(&self, session: &Session, ctx: &mut Self::CTX) -> Result<CacheKey> {
        by_side!(self, ctx, |plugin, own| plugin.cache_key_callback(session, own))
    }

    fn cache_miss(&self, session: &mut Session, ctx: &mut Self::CTX) {
        by_side!(self, ctx, |plugin, own| plugin.cache_miss(session, own));
    }

    async fn cache_hit_filter(
        &self,
        session: &mut Session,
        meta: &CacheMeta,
        hit_handler: &mut HitHandler,
        is_fresh: bool,
        ctx: &mut Self::CTX,
    ) -> Result<Option<ForcedFreshness>> {
        by_side!(self, ctx, |plugin, own| {
            plugin.cache_hit_filter(session, meta, hit_handler, is_fresh, own).await
        })
    }

    async fn proxy_upstream_filter(&self, session: &mut Session, ctx: &mut Self::CTX) -> Result<bool> {
        by_side!(self, ctx, |plugin, own| plugin
            .proxy_upstream_filter(session, own)
            .await)
    }

    fn response_cache_filter(
        &self,
        session: &Session,
        resp: &ResponseHeader,
        ctx: &mut Self::CTX,
    ) -> Result<RespCacheable> {
        by_side!(self, ctx, |plugin, own| plugin
            .response_cache_filter(session, resp, own))
    }

    fn cache_vary_filter(&self, meta: &CacheMeta, ctx: &mut Self::CTX, req: &RequestHeader) -> Option<HashBinary> {
        by_side!(self, ctx, |plugin, own| plugin.cache_vary_filter(meta, own, req))
    }

    fn cache_not_modified_filter(&self, session: &Session, resp: &ResponseHeader, ctx: &mut Self::CTX) -> Result<bool> {
        by_side!(self, ctx, |plugin, own| plugin
            .cache_not_modified_filter(session, resp, own))
    }

    fn range_header_filter(&self, session: &mut Session, resp: &mut ResponseHeader, ctx: &mut Self::CTX) -> RangeType {
        by_side!(self, ctx, |plugin, own| plugin.range_header_filter(session, resp, own))
    }

    async fn upstream_peer(&self, session: &mut Session, ctx: &mut Self::CTX) -> Result<Box<HttpPeer>> {
        by_side!(self, ctx, |plugin, own| plugin.upstream_peer(session, own).await)
    }

    async fn connected_to_upstream(
        &self,
        session: &mut Session,
        reused: bool,
        peer: &HttpPeer,
        fd: UniqueIDType,
        digest: Option<&Digest>,
        ctx: &mut Self::CTX,
    ) -> Result<()> {
        by_side!(self, ctx, |plugin, own| {
            plugin
                .connected_to_upstream(session, reused, peer, fd, digest, own)
                .await
        })
    }

    fn fail_to_connect(
        &self,
        session: &mut Session,
        peer: &HttpPeer,
        ctx: &mut Self::CTX,
        e: Box<Error>,
    ) -> Box<Error> {
        by_side!(self, ctx, |plugin, own| plugin.fail_to_connect(session, peer, own, e))
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        upstream_request: &mut RequestHeader,
        ctx: &mut Self::CTX,
    ) -> Result<()> {
        by_side!(self, ctx, |plugin, own| {
            plugin.upstream_request_filter(session, upstream_request, own).await
        })
    }

    async fn request_body_filter(
        &self,
        session: &mut Session,
        body: &mut Option<Bytes>,
        end_of_stream: bool,
        ctx: &mut Self::CTX,
    ) -> Result<()> {
        by_side!(self, ctx, |plugin, own| {
            plugin.request_body_filter(session, body, end_of_stream, own).await
        })
    }

    async fn upstream_response_filter(
        &self,
        session: &mut Session,
        upstream_response: &mut ResponseHeader,
        ctx: &mut Self::CTX,
    ) -> Result<()> {
        by_side!(self, ctx, |plugin, own| {
            plugin.upstream_response_filter(session, upstream_response, own).await
        })
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        upstream_response: &mut ResponseHeader,
        ctx: &mut Self::CTX,
    ) -> Result<()> {
        by_side!(self, ctx, |plugin, own| plugin
            .response_filter(session, upstream_response, own)
            .await)
    }

    async fn custom_forwarding(
        &self,
        session: &mut Session,
        ctx: &mut Self::CTX,
        custom_message_to_upstream: Option<mpsc::Sender<Bytes>>,
        custom_message_to_downstream: mpsc::Sender<Bytes>,
    ) -> Result<()> {
        by_side!(self, ctx, |plugin, own| {
            plugin
                .custom_forwarding(session, own, custom_message_to_upstream, custom_message_to_downstream)
                .await
        })
    }

    async fn downstream_custom_message_proxy_filter(
        &self,
        session: &mut Session,
        custom_message: Bytes,
        ctx: &mut Self::CTX,
        final_hop: bool,
    ) -> Result<Option<Bytes>> {
        by_side!(self, ctx, |plugin, own| {
            plugin
                .downstream_custom_message_proxy_filter(session, custom_message, own, final_hop)
                .await
        })
    }

    async fn upstream_custom_message_proxy_filter(
        &self,
        session: &mut Session,
        custom_message: Bytes,
        ctx: &mut Self::CTX,
        final_hop: bool,
    ) -> Result<Option<Bytes>> {
        by_side!(self, ctx, |plugin, own| {
            plugin
                .upstream_custom_message_proxy_filter(session, custom_message, own, final_hop)
                .await
        })
    }

    fn upstream_response_body_filter(
        &self,
        session: &mut Session,
        body: &mut Option<Bytes>,
        end_of_stream: bool,
        ctx: &mut Self::CTX,
    ) -> Result<Option<Duration>> {
        by_side!(self, ctx, |plugin, own| {
            plugin.upstream_response_body_filter(session, body, end_of_stream, own)
        })
    }

    fn upstream_response_trailer_filter(
        &self,
        session: &mut Session,
        upstream_trailers: &mut HeaderMap,
        ctx: &mut Self::CTX,
    ) -> Result<()> {
        by_side!(self, ctx, |plugin, own| {
            plugin.upstream_response_trailer_filter(session, upstream_trailers, own)
        })
    }

    fn response_body_filter(
        &self,
        session: &mut Session,
        body: &mut Option<Bytes>,
        end_of_stream: bool,
        ctx: &mut Self::CTX,
    ) -> Result<Option<Duration>> {
        by_side!(self, ctx, |plugin, own| plugin.response_body_filter(
            session,
            body,
            end_of_stream,
            own
        ))
    }

    async fn response_trailer_filter(
        &self,
        session: &mut Session,
        upstream_trailers: &mut HeaderMap,
        ctx: &mut Self::CTX,
    ) -> Result<Option<Bytes>> {
        by_side!(self, ctx, |plugin, own| {
            plugin.response_trailer_filter(session, upstream_trailers, own).await
        })
    }

    fn error_while_proxy(
        &self,
        peer: &HttpPeer,
        session: &mut Session,
        e: Box<Error>,
        ctx: &mut Self::CTX,
        client_reused: bool,
    ) -> Box<Error> {
        by_side!(self, ctx, |plugin, own| plugin.error_while_proxy(
            peer,
            session,
            e,
            own,
            client_reused
        ))
    }

    fn should_serve_stale(&self, session: &mut Session, ctx: &mut Self::CTX, error: Option<&Error>) -> bool {
        by_side!(self, ctx, |plugin, own| plugin.should_serve_stale(session, own, error))
    }

    async fn fail_to_proxy(&self, session: &mut Session, e: &Error, ctx: &mut Self::CTX) -> FailToProxy {
        by_side!(self, ctx, |plugin, own| plugin.fail_to_proxy(session, e, own).await)
    }

    async fn logging(&self, session: &mut Session, e: Option<&Error>, ctx: &mut Self::CTX) {
        by_side!(self, ctx, |plugin, own| plugin.logging(session, e, own).await);
    }

    fn persist_connection_context(&self, session: &Session, ctx: &Self::CTX) -> Option<Box<dyn Any + Send + Sync>> {
        by_side_ref!(
            self,
            ctx,
            |plugin, own| plugin.persist_connection_context(session, own),
            None
        )
    }

    fn suppress_error_log(&self, session: &Session, ctx: &Self::CTX, error: &Error) -> bool {
        by_side_ref!(
            self,
            ctx,
            |plugin, own| plugin.suppress_error_log(session, own, error),
            false
        )
    }

    fn suppress_proxy_warn_log(
        &self,
        session: &Session,
        ctx: &Self::CTX,
        error: &Error,
        context: ProxyWarnLogContext,
    ) -> bool {
        by_side_ref!(
            self,
            ctx,
            |plugin, own| plugin.suppress_proxy_warn_log(session, own, error, context),
            false
        )
    }

    fn request_summary(&self, session: &Session, ctx: &Self::CTX) -> String {
        by_side_ref!(
            self,
            ctx,
            |plugin, own| plugin.request_summary(session, own),
            session.as_ref().request_summary()
        )
    }

    fn is_purge(&self, session: &Session, ctx: &Self::CTX) -> bool {
        by_side_ref!(self, ctx, |plugin, own| plugin.is_purge(session, own), false)
    }

    fn purge_action(&self, session: &Session, ctx: &Self::CTX) -> PurgeAction {
        by_side_ref!(
            self,
            ctx,
            |plugin, own| plugin.purge_action(session, own),
            PurgeAction::Delete
        )
    }

    fn purge_response_filter(
        &self,
        session: &Session,
        ctx: &mut Self::CTX,
        purge_status: PurgeStatus,
        purge_response: &mut Cow<'static, ResponseHeader>,
    ) -> Result<()> {
        by_side!(self, ctx, |plugin, own| {
            plugin.purge_response_filter(session, own, purge_status, purge_response)
        })
    }
}
