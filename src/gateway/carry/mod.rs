//! The way of an admitted call: to its targets, one after the other, and of the answer back.
//!
//! Pingora's own proxy loop is not used for it. It would read the body only once the upstream is chosen, it stands between the two
//! connections with a channel and two selections for each piece, and it ends a call whose client has gone. Here one task reads from the
//! upstream and writes to the client, with Pingora's sessions, pool and TLS on both sides. `forward` says what is sent where and what
//! follows a failure, `judge` what becomes of the answer, [`Line`] watches the client and the clock meanwhile.

mod bell;
mod burst;
mod line;
mod silence;
mod target;

use http::{StatusCode, Version, header};
use pingora::http::ResponseHeader;
use pingora::protocols::http::ServerSession;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, Result};

use self::burst::Burst;
use self::line::{Line, interrupted};
pub(super) use self::line::{STOPPING, UNHEARD};
use self::target::Target;
use super::Gateway;
use super::forward;
use super::judge;
use super::observe;
use super::stage::Ctx;
use crate::config::OnDisconnect;
use crate::pure::chat::ResponseMode;

/// Carries the call that `ctx` has admitted, until an answer was passed on.
///
/// # Errors
/// When no attempt is left, when the client has gone, or when an answer broke off: nothing, or a part of the answer, was written.
pub(super) async fn carry(gateway: &Gateway, client: &mut ServerSession, ctx: &mut Ctx) -> Result<()> {
    let mut line = Line::new(&ctx.snapshot.config.timeouts, &gateway.life);
    loop {
        let peer = forward::peer(ctx, &gateway.clock)?;
        observe::attempt(ctx);
        match attempt(gateway, client, ctx, &mut line, &peer).await {
            Ok(()) => return Ok(()),
            Err(error) if error.retry() => log::warn!("request {}: another attempt follows: {error}", ctx.id),
            Err(error) => return Err(error),
        }
    }
}

/// One attempt. Its error says whether there is to be another.
async fn attempt(
    gateway: &Gateway,
    client: &mut ServerSession,
    ctx: &mut Ctx,
    line: &mut Line,
    peer: &HttpPeer,
) -> Result<()> {
    let (session, reused) = match gateway.uplinks.connect(peer).await {
        Ok(connected) => connected,
        Err(error) => return Err(forward::connect_failed(ctx, error.into_up(), &gateway.clock)),
    };
    let mut target = Target::new(session, peer);
    let exchanged = exchange(gateway, client, ctx, line, &mut target).await;
    if let Some(call) = ctx.call() {
        call.client_is_gone = line.is_gone();
    }
    let failed = exchanged.err();
    if failed
        .as_ref()
        .is_some_and(|error| matches!(error.etype(), ErrorType::H2Downgrade | ErrorType::InvalidH2))
    {
        gateway.uplinks.prefer_http1(peer);
    }
    if let Some(session) = target.into_reusable(failed.is_none()) {
        gateway.uplinks.release(session, peer).await;
    }
    match failed {
        None => Ok(()),
        Some(error) => Err(forward::exchange_failed(client, ctx, error, reused, &gateway.clock)),
    }
}

/// The request over a connection, and its answer back.
async fn exchange(
    gateway: &Gateway,
    client: &mut ServerSession,
    ctx: &mut Ctx,
    line: &mut Line,
    target: &mut Target,
) -> Result<()> {
    let Some(call) = ctx.call() else {
        return Error::e_explain(ErrorType::InternalError, "an exchange without a call");
    };
    let mode = call.body.mode();
    let request = forward::request(client.req_header(), call, target.is_http2())?;
    let Some(attempt) = &call.attempt else {
        return Error::e_explain(ErrorType::InternalError, "an exchange without an attempt");
    };
    let body = attempt.body.clone();
    line.begin(attempt.candidate.upstream.provider.on_disconnect == OnDisconnect::Drain);
    line.beside(client, target.send(request, body)).await??;
    let ends = line.beside(client, target.head()).await??;
    line.answer_begins();
    let mut head = judge::judge(target.response()?, ends, ctx, &gateway.clock)?;
    if ends && head.status == StatusCode::OK {
        return Err(interrupted(EMPTY));
    }
    frame(&mut head, client.req_header().version)?;
    pass_on(
        gateway,
        client,
        ctx,
        line,
        target,
        Burst::new(head, mode == ResponseMode::Whole),
    )
    .await
}

/// Passes the answer on, piece by piece. What comes faster than it is handed on leaves together.
async fn pass_on(
    gateway: &Gateway,
    client: &mut ServerSession,
    ctx: &mut Ctx,
    line: &mut Line,
    target: &mut Target,
    mut burst: Burst,
) -> Result<()> {
    line.may_comment = judge::is_between_events(ctx);
    loop {
        let mut failure = None;
        while !burst.is_full() {
            let read = if burst.is_empty() {
                line.beside(client, target.piece()).await?
            } else {
                match line.at_once(target.piece()).await {
                    Some(read) => read,
                    None => break,
                }
            };
            let passed = read.and_then(|mut piece| {
                if std::mem::take(&mut line.has_commented) {
                    judge::commented(ctx);
                }
                judge::pass(&mut piece.bytes, piece.ends, ctx, &gateway.clock)?;
                Ok(piece)
            });
            match passed {
                Ok(piece) => burst.push(piece),
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
            line.may_comment = judge::is_between_events(ctx);
            line.silence.heard();
        }
        let has_ended = burst.has_ended();
        if let Some(part) = burst.take() {
            // Also what came before a failure.
            line.write(client, part).await?;
            // Only now: a client that was slow to take it is not an upstream that was silent.
            line.silence.heard();
        }
        match failure {
            Some(error) => return Err(error),
            None if has_ended => return Ok(()),
            None => {}
        }
    }
}

/// How the answer's length is told to this client.
fn frame(head: &mut ResponseHeader, client: Version) -> Result<()> {
    if client != Version::HTTP_11 {
        // HTTP/1.0 knows no chunks: there the connection's end is the body's. HTTP/2 has frames.
        head.remove_header(&header::TRANSFER_ENCODING);
        return Ok(());
    }
    let is_framed = [header::CONTENT_LENGTH, header::TRANSFER_ENCODING]
        .iter()
        .any(|name| head.headers.contains_key(name));
    if is_framed {
        return Ok(());
    }
    head.insert_header(header::TRANSFER_ENCODING, "chunked")
}

/// An upstream's answer of 200 had no body.
const EMPTY: &str = "UpstreamEmpty";
