//! The transport: carries one request to its upstreams and the answer back, and drives the hooks of a
//! [`ProxyHttp`](pingora::proxy::ProxyHttp) on the way, in Pingora's order. It knows nothing of keys, money, targets or what an answer
//! means: those are the plugin's.
//!
//! Pingora's own loop reads the body only once the upstream is chosen, stands between the two connections with a channel and two
//! selections for each piece, and ends a call whose client has gone. Here one task reads from the upstream and writes to the client, over
//! Pingora's sessions and TLS on both sides. A plugin calls [`Transport::carry`] at the end of its `request_filter`.
//!
//! What differs from Pingora's loop, each held by the differential test in `tests/it/differential`:
//! informational answers stay inside; trailers stay inside; an answer's end is always told to the body filters, with an empty last piece
//! where the head was all of it; pieces that are there at once come to the body filters as one; no body modules run; the connection pool
//! is its own.

mod carried;
pub(super) mod deadline;
mod downstream;
mod gathering;
mod idle_timeout;
mod joined;
mod upstream_session;
mod wake_flag;
mod write_batch;

use std::pin::pin;
use std::sync::atomic::AtomicUsize;

use http::Version;
use pingora::proxy::Session;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorSource, ErrorType, Result};

pub use self::carried::{Carried, TimeLimits};
use self::deadline::{has_timed_out, is_ended, stopped};
use self::downstream::{Downstream, Waited};
pub use self::gathering::{GatherLimits, Until};
use self::joined::join;
use self::upstream_session::{Piece, UpstreamSession, name_authority};
use self::write_batch::WriteBatch;
use crate::net::connection_pool::ConnectionPool;
use crate::net::error_text::ErrorText;

/// Connections to upstreams, and the way over them. One for each plugin.
#[derive(Default)]
pub struct Transport {
    connections: ConnectionPool,
    /// Bytes of all the answers that are gathered now.
    gathered: AtomicUsize,
}

impl Transport {
    /// Without a connection yet. Reads the system's certificates.
    pub fn new() -> Transport {
        Transport::default()
    }

    /// Carries the request until an answer was passed on, over as many attempts as `error_while_proxy` and `fail_to_connect` ask for by
    /// the retry of the errors that they give.
    ///
    /// Hooks are driven from `upstream_peer` to `error_while_proxy`. Neither `fail_to_proxy` nor `logging` is: on an error the plugin
    /// returns it from its `request_filter`, and Pingora calls both.
    ///
    /// # Errors
    /// When no attempt is left, the client has left, or an answer broke off: nothing, or a part of the answer, was written.
    pub async fn carry<P>(&self, plugin: &P, session: &mut Session, ctx: &mut P::CTX) -> Result<()>
    where
        P: Carried + Send + Sync,
        P::CTX: Send + Sync,
    {
        let mut client = Downstream::new(plugin, plugin.time_limits(ctx));
        for _ in 0..ATTEMPTS_MAX {
            let peer = plugin.upstream_peer(session, ctx).await?;
            match self.attempt(plugin, session, ctx, &mut client, &peer).await {
                Err(error) if error.retry() => log::debug!("another attempt follows: {}", ErrorText(&error)),
                ended => return ended,
            }
        }
        Error::e_explain(ErrorType::InternalError, "a request was tried too often")
    }

    /// One attempt. The retry of its error says whether there is to be another.
    async fn attempt<P>(
        &self,
        plugin: &P,
        session: &mut Session,
        ctx: &mut P::CTX,
        client: &mut Downstream<'_, P>,
        peer: &HttpPeer,
    ) -> Result<()>
    where
        P: Carried + Send + Sync,
        P::CTX: Send + Sync,
    {
        let is_fresh = plugin.wants_fresh_connection(ctx);
        // Whether the client is there or not: that a target cannot be reached is found out by clients of any patience.
        let mut connected = match self.connections.connect(peer, is_fresh).await {
            Ok(connected) => connected,
            Err(error) => {
                let error = plugin.fail_to_connect(session, peer, ctx, error.into_up());
                return Err(error.into_up());
            }
        };
        let (is_reused, idle_time) = (connected.is_reused, connected.idle_time.take());
        let mut upstream = UpstreamSession::new(connected, peer);
        let (fd, digest) = (upstream.fd(), upstream.digest());
        let exchanged = match plugin
            .connected_to_upstream(session, is_reused, peer, fd, digest, ctx)
            .await
        {
            Ok(()) => {
                let gathered = &self.gathered;
                exchange(plugin, session, ctx, client, &mut upstream, peer, gathered).await
            }
            Err(error) => Err(error),
        };
        let failed = exchanged.err();
        // One over HTTP/2 that was heard since its idle time ended worked then, and may have when this one came.
        let is_unheard = idle_time.is_some_and(|idle_time| idle_time.lasts());
        let had_waited = is_reused && (!upstream.is_http2() || is_unheard);
        let mut is_silent = false;
        if let Some(error) = &failed {
            is_silent = has_timed_out(error);
            match error.etype() {
                ErrorType::H2Downgrade | ErrorType::InvalidH2 => self.connections.http2_failed(peer, error),
                _ if *error.esource() == ErrorSource::Upstream && !is_silent && !upstream.has_heard() => {
                    self.connections.offer_http2(peer);
                }
                _ => {}
            }
        }
        if failed.is_none() && upstream.is_http2() {
            self.connections.http2_answered(peer);
        }
        if let Some(upstream) = upstream.into_reusable(failed.is_none()) {
            self.connections.release(upstream, peer, is_silent);
        }
        match failed {
            None => Ok(()),
            Some(error) => Err(plugin.error_while_proxy(peer, session, error, ctx, had_waited)),
        }
    }
}

/// The request over a connection, and its answer back.
async fn exchange<P>(
    plugin: &P,
    session: &mut Session,
    ctx: &mut P::CTX,
    client: &mut Downstream<'_, P>,
    upstream: &mut UpstreamSession,
    peer: &HttpPeer,
    gathered: &AtomicUsize,
) -> Result<()>
where
    P: Carried + Send + Sync,
    P::CTX: Send + Sync,
{
    let mut request = Box::new(plugin.upstream_request(session, ctx));
    if upstream.is_http2() {
        request.set_version(Version::HTTP_2);
    }
    plugin.upstream_request_filter(session, &mut request, ctx).await?;
    if upstream.is_http2() {
        name_authority(&mut request, peer.is_tls())?;
    }
    let mut body = None;
    plugin.request_body_filter(session, &mut body, true, ctx).await?;
    client.attempt_begins();
    client.is_there(session, ctx).await?;
    let body = body.unwrap_or_default();
    client
        .beside(session, ctx, pin!(upstream.send(request, body)))
        .await??;
    let mut ends = client.beside(session, ctx, pin!(upstream.head())).await??;
    let mut head = Box::new(plugin.upstream_response(upstream.response()?));
    plugin.upstream_response_filter(session, &mut head, ctx).await?;
    plugin.response_filter(session, &mut head, ctx).await?;
    // After the filters: also the head that comes for a client that has left is looked at.
    let limits = plugin.gathers(ctx);
    client.answer_begins(ctx, limits.map(|limits| limits.within))?;
    let mut batch = WriteBatch::new(head, session.req_header().version, limits, gathered);
    if ends {
        // The body filters are told of every answer's end, also when its head is all of it.
        let piece = Piece { bytes: None, ends };
        batch.push(filter(plugin, session, ctx, client, piece).await?);
    }
    loop {
        let failure = if ends {
            None
        } else {
            fill(plugin, session, ctx, client, upstream, &mut batch).await?
        };
        ends = batch.has_ended();
        let is_full = batch.is_full();
        if batch.begins_unfinished() {
            plugin.begins_unfinished(ctx);
        }
        // Also what came before a failure, unless all of it was to leave together.
        let mut next = batch.take()?;
        while let Some(part) = next {
            client.write(session, ctx, part).await?;
            // Only now: a client that was slow to take it is not an upstream that was silent.
            client.heard();
            next = batch.rest();
        }
        match failure {
            Some(error) => return Err(error),
            None if ends => return Ok(()),
            // Where there is always more, nothing waits for what would say so.
            None if plugin.is_cut() => return Err(stopped()),
            // More of it is likely to be there. What others wait for comes first, such as the first event of a stream.
            None if is_full => client.yields().await,
            None => {}
        }
    }
}

/// Fills a batch: waits for the next piece, and takes in what is there already. What has failed is told after what came before it.
///
/// # Errors
/// When the wait has ended: the client has left, the upstream is silent, or the process stops.
async fn fill<P>(
    plugin: &P,
    session: &mut Session,
    ctx: &mut P::CTX,
    client: &mut Downstream<'_, P>,
    upstream: &mut UpstreamSession,
    batch: &mut WriteBatch<'_>,
) -> Result<Option<Box<Error>>>
where
    P: Carried + Send + Sync,
    P::CTX: Send + Sync,
{
    while !batch.is_full() {
        let read = if batch.is_empty() {
            match client.answering(session, ctx, pin!(upstream.piece())).await {
                Ok(Waited::Done(read)) => read,
                Ok(Waited::Gathered) => {
                    // What there is leaves before more is read: a failure that has come meanwhile is then one within the answer.
                    batch.stop_gathering();
                    break;
                }
                // The upstream keeps its connection open behind all that it had to say.
                Ok(Waited::Complete) => Ok(Piece::end()),
                Err(error) if is_ended(&error) => {
                    return end(plugin, session, ctx, client, batch, error).await;
                }
                Err(error) => return Err(error),
            }
        } else {
            match client.at_once(pin!(upstream.piece())).await {
                Some(read) => read,
                None => break,
            }
        };
        let first = match read {
            Ok(piece) => piece,
            // Nothing of a complete answer is missing.
            Err(_) if plugin.is_complete(ctx) => Piece::end(),
            Err(error) => return Ok(Some(error)),
        };
        let (piece, failure) = if batch.is_urgent() {
            (first, None)
        } else {
            join(client, upstream, first).await
        };
        if let Err(error) = take_in(plugin, session, ctx, client, batch, piece).await {
            return Ok(Some(error));
        }
        client.heard();
        // What fails behind the answer's end is no matter of the answer, nor is what fails in the place of that end.
        if failure.is_some() && !batch.has_ended() {
            if !plugin.is_complete(ctx) {
                return Ok(failure);
            }
            if let Err(error) = take_in(plugin, session, ctx, client, batch, Piece::end()).await {
                return Ok(Some(error));
            }
        }
        if !batch.is_empty() {
            // All that was there is in it.
            break;
        }
    }
    Ok(None)
}

/// The call has to end: the plugin's filters may give the answer an end.
///
/// # Errors
/// `why`, when they do not.
async fn end<P>(
    plugin: &P,
    session: &mut Session,
    ctx: &mut P::CTX,
    client: &mut Downstream<'_, P>,
    batch: &mut WriteBatch<'_>,
    why: Box<Error>,
) -> Result<Option<Box<Error>>>
where
    P: Carried + Send + Sync,
    P::CTX: Send + Sync,
{
    let empty = Piece {
        bytes: None,
        ends: false,
    };
    match filter(plugin, session, ctx, client, empty).await {
        Ok(piece) if piece.ends => {
            batch.push(piece);
            Ok(None)
        }
        Ok(_) => Err(why),
        Err(error) => Ok(Some(error)),
    }
}

/// Takes a piece into a batch, through the plugin's filters; and the answer's end behind it, when the answer is complete and that has been
/// waited for long enough.
async fn take_in<P>(
    plugin: &P,
    session: &mut Session,
    ctx: &mut P::CTX,
    client: &mut Downstream<'_, P>,
    batch: &mut WriteBatch<'_>,
    piece: Piece,
) -> Result<()>
where
    P: Carried + Send + Sync,
    P::CTX: Send + Sync,
{
    let piece = filter(plugin, session, ctx, client, piece).await?;
    let is_over = !piece.ends && plugin.is_complete(ctx) && client.completes();
    batch.push(piece);
    if batch.waits_for_event() && plugin.may_leave(ctx) {
        batch.has_event();
    }
    if is_over {
        batch.push(filter(plugin, session, ctx, client, Piece::end()).await?);
    }
    Ok(())
}

/// One piece of an answer through the plugin's filters, which may ask for a pause before it is written.
async fn filter<P>(
    plugin: &P,
    session: &mut Session,
    ctx: &mut P::CTX,
    client: &mut Downstream<'_, P>,
    mut piece: Piece,
) -> Result<Piece>
where
    P: Carried + Send + Sync,
    P::CTX: Send + Sync,
{
    let first = plugin.upstream_response_body_filter(session, &mut piece.bytes, piece.ends, ctx)?;
    let second = plugin.response_body_filter(session, &mut piece.bytes, piece.ends, ctx)?;
    if let Some(pause) = first.max(second) {
        client.waits_elsewhere();
        tokio::time::sleep(pause).await;
    }
    piece.ends |= plugin.ends_here(ctx);
    Ok(piece)
}

/// Most attempts of one request: far above what targets and their addresses come to.
const ATTEMPTS_MAX: usize = 256;

#[cfg(test)]
mod tests;
