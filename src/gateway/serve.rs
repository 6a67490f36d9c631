//! One request of a connection: its head is read, it is answered, and what came of it is noted.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Version, header};
use pingora::apps::{HttpPersistentSettings, ReusedHttpStream};
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use pingora::{Error, ErrorSource, ErrorType, Result};

use super::Gateway;
use super::address;
use super::bounded::Room;
use super::carry;
use super::forward;
use super::native::Failed;
use super::observe;
use super::respond;
use super::settle::Ending;
use super::stage::{Answer, Ctx, Stage};
use super::trace;

impl Gateway {
    /// Serves the next request of a connection: the connection for the one after it, if it can be used again.
    pub(super) async fn serve(&self, mut session: ServerSession, shutdown: &ShutdownWatch) -> Option<ReusedHttpStream> {
        read_head(&mut session, shutdown).await?;
        let mut ctx = Ctx::new(self.snapshot.load_full(), &self.telemetry, self.life.enter());
        self.begin(&mut session, &mut ctx);
        if *shutdown.borrow() {
            session.set_keepalive(None);
        }
        let answered = self.answer(&mut session, &mut ctx).await;
        if let Err(error) = &answered {
            tell(&mut session, &mut ctx, error).await;
        }
        let is_gone = ctx.call().is_some_and(|call| call.client_is_gone);
        end(&session, &mut ctx, answered.as_ref().err().map(|error| &**error));
        if is_gone || answered.is_err() {
            return None;
        }
        let settings = HttpPersistentSettings::for_session(&session);
        let stream = session.finish().await.ok()??;
        Some(ReusedHttpStream::from_reusable_stream(stream, settings))
    }

    /// Its head is there: what the connection is to keep to until its end.
    fn begin(&self, session: &mut ServerSession, ctx: &mut Ctx) {
        if let Some(room) = session.stream().and_then(Room::of) {
            room.head_came();
        }
        let timeouts = ctx.snapshot.config.timeouts;
        let peer = session
            .client_addr()
            .and_then(|peer| peer.as_inet())
            .map(SocketAddr::ip);
        let trusted = &ctx.snapshot.config.trusted_proxies;
        ctx.client = peer.map(|peer| address::client(peer, &session.req_header().headers, trusted));
        if session.req_header().version < Version::HTTP_11 || self.life.is_stopping() {
            session.set_keepalive(None);
        } else if session.get_keepalive().is_some() {
            session.set_keepalive(Some(timeouts.keepalive.as_secs().max(1)));
        }
        // The whole body has its own time-out; this one only ends what that does not see.
        session.set_read_timeout(Some(timeouts.body.saturating_mul(2)));
        session.set_write_timeout(Some(timeouts.write));
        session.set_total_drain_timeout(Some(SHORT_BODY_MAX));
        ctx.origin = session.req_header().headers.get(header::ORIGIN).cloned();
        trace::begin(session.req_header(), ctx);
    }

    /// # Errors
    /// When the client has gone, or an upstream failed and [`tell`] is to say so.
    async fn answer(&self, session: &mut ServerSession, ctx: &mut Ctx) -> Result<()> {
        match self.decide(session, ctx).await {
            Ok(true) => Ok(()),
            Ok(false) => carry::carry(self, session, ctx).await,
            Err(Failed::Api(error)) => {
                if let Some(tally) = &mut ctx.tally {
                    tally.failed(&error);
                }
                respond::error(session, ctx, &error.to_wire()).await
            }
            Err(Failed::Wire(error)) => Err(error),
        }
    }
}

/// Reads a request's head; none when there is no other, or it is none. An idle connection is closed when the service stops.
async fn read_head(session: &mut ServerSession, shutdown: &ShutdownWatch) -> Option<()> {
    let stops = async {
        // Its owner is gone: that is no reason to close a connection.
        if shutdown.clone().wait_for(|stops| *stops).await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let read = tokio::select! {
        biased; // What has come already is served.
        read = session.read_request() => read,
        () = stops => return None,
    };
    let refused = match read {
        // To tunnel is not what this is for, and the method changes what the rest of a request means.
        Ok(true) if session.req_header().method == Method::CONNECT => 405,
        Ok(true) => return Some(()),
        Ok(false) => return None,
        Err(error) => {
            log::debug!("a request could not be read: {error}");
            if !matches!(error.etype(), ErrorType::InvalidHTTPHeader) {
                session.shutdown().await;
                return None;
            }
            400
        }
    };
    if let Err(error) = session.respond_error(refused).await {
        log::debug!("a refusal was not taken: {error}");
    }
    session.shutdown().await;
    None
}

/// Tells the client of a failure, as far as it can still be told.
async fn tell(session: &mut ServerSession, ctx: &mut Ctx, error: &Error) {
    // Clients that leave are normal traffic.
    if *error.esource() == ErrorSource::Downstream {
        return;
    }
    let failure = forward::final_error(ctx.call(), error);
    let wire = failure.to_wire();
    let (id, path) = (ctx.id, session.req_header().uri.path());
    log::error!("request {id} {path} failed with {}: {error}", wire.status);
    let told = if !respond::has_begun(session) {
        if let Some(tally) = ctx.tally() {
            tally.failed(&failure);
        }
        // The connection is closed after a failure, and this says so.
        session.set_keepalive(None);
        respond::error(session, ctx, &wire).await
    } else {
        let tail = ctx.call().and_then(|call| match &mut call.answer {
            Answer::Metered(meter) => meter.fail(),
            Answer::Refusal { error, .. } => Some(Bytes::from(error.to_wire().body())),
            Answer::None => None,
        });
        match tail {
            // Something may be half written to it.
            Some(_) if ctx.call().is_some_and(|call| call.client_is_gone) => Ok(()),
            Some(tail) => session.write_response_body(tail, true).await,
            None => Ok(()),
        }
    };
    if let Err(error) = told {
        log::debug!("request {id}: the failure could not be told: {error}");
    }
}

/// The request is over: it is noted, and a call is billed.
fn end(session: &ServerSession, ctx: &mut Ctx, error: Option<&Error>) {
    let gone = ctx.call().is_some_and(|call| call.client_is_gone);
    let ending = match error {
        None => Ending::Complete,
        Some(error) if forward::is_upstreams(error) && !gone => Ending::UpstreamFailed,
        Some(error) if gone || *error.esource() == ErrorSource::Downstream => Ending::ClientGone,
        Some(_) => Ending::UpstreamFailed,
    };
    observe::ended(session, ctx, ending);
    if let Stage::Admitted(mut call) = std::mem::replace(&mut ctx.stage, Stage::Ended) {
        call.settle(ending);
    }
}

/// How long a short body of a refused request is waited for.
const SHORT_BODY_MAX: Duration = Duration::from_secs(5);
