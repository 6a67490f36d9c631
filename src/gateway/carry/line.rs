//! The client's end of a call: what is written to it, and what ends the call beside its upstream: that the client leaves, that the
//! upstream has been silent for too long, that a stop no longer waits.
//!
//! Providers that are drained are read to their end for a client that has gone: then nothing more is written.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use pingora::protocols::http::ServerSession;
use pingora::{Error, ErrorType, Result};
use tokio::time::Sleep;

use super::bell::Bell;
use super::burst::Part;
use super::silence::{Due, Silence};
use crate::config::Timeouts;
use crate::gateway::DRAIN_MAX;
use crate::gateway::drain::{DrainPlace, drained_out};
use crate::gateway::life::Life;

/// The client's end of one call, over all its attempts.
pub(super) struct Line {
    pub(super) silence: Silence,
    /// Whether what was passed on stands between two events of a stream.
    pub(super) may_comment: bool,
    /// Whether the client was sent a comment. Whoever looks takes it back.
    pub(super) has_commented: bool,
    /// Tells when a stop no longer waits; the call's task is woken then.
    life: Arc<Life>,
    /// Rung by what is waited for beside the upstream.
    bell: Bell,
    /// Whether it was given to the client's connection and to the clock, which had nothing to tell then.
    is_hung: bool,
    /// Whether the upstream was asked for more since the task last waited, and had nothing.
    is_asked: bool,
    /// Whether the target that is tried now is drained.
    drains: bool,
    /// The client sent more than its request: that is not read, and the connection is not used again.
    overran: bool,
    gone: Option<Gone>,
}

/// The client has gone, and the upstream is read on.
struct Gone {
    end: Pin<Box<Sleep>>,
    _place: DrainPlace,
}

/// What ends a wait for the upstream.
enum Turn {
    /// That the client has gone, or sent something.
    Client(Box<Error>),
    Silence(Due),
    Drained,
    Cut,
}

impl Line {
    pub(super) fn new(timeouts: &Timeouts, life: &Arc<Life>) -> Line {
        Line {
            silence: Silence::new(timeouts),
            may_comment: false,
            has_commented: false,
            life: Arc::clone(life),
            bell: Bell::default(),
            is_hung: false,
            is_asked: false,
            drains: false,
            overran: false,
            gone: None,
        }
    }

    /// An attempt begins; `drains`: at a target that is read to its end for a client that has gone.
    pub(super) fn begin(&mut self, drains: bool) {
        self.drains = drains;
        self.is_asked = false;
        self.is_hung = false;
        self.may_comment = false;
        self.silence.restart();
    }

    /// The attempt's answer begins.
    pub(super) fn answer_begins(&mut self) {
        self.is_hung = false;
        self.silence.begins();
    }

    /// Whether the client has gone and the upstream is read on.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.is_some()
    }

    /// Does `work`, which is the upstream's, for as long as that is worth waiting for.
    ///
    /// # Errors
    /// When it is not: of the client when that has gone, of the upstream when it is silent or the process stops. `work` is dropped.
    pub(super) async fn beside<W: Future>(&mut self, client: &mut ServerSession, work: W) -> Result<W::Output> {
        let mut work = pin!(work);
        loop {
            let turn = poll_fn(|context| {
                // It was asked a moment ago, and wakes this task.
                if !std::mem::take(&mut self.is_asked)
                    && let Poll::Ready(done) = work.as_mut().poll(context)
                {
                    return Poll::Ready(Ok(done));
                }
                self.poll_turn(client, context).map(Err)
            })
            .await;
            match turn {
                Ok(done) => return Ok(done),
                Err(turn) => self.take(client, turn).await?,
            }
        }
    }

    /// What `work`, which is the upstream's, gives without waiting. If it does not, the next [`Line::beside`] is to go on with it.
    pub(super) async fn at_once<W: Future>(&mut self, work: W) -> Option<W::Output> {
        let mut work = pin!(work);
        let done = poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => Poll::Ready(None),
        })
        .await;
        self.is_asked = done.is_none();
        done
    }

    fn poll_turn(&mut self, client: &mut ServerSession, context: &mut Context<'_>) -> Poll<Turn> {
        // What comes piece by piece ends here each time, so nothing further off is looked at.
        if self.is_hung && self.bell.is_silent(context) && !self.life.is_cut() {
            return Poll::Pending;
        }
        self.look(client, context)
    }

    /// Looks at all that may end the wait. While it is pending, each rings the bell.
    fn look(&mut self, client: &mut ServerSession, context: &mut Context<'_>) -> Poll<Turn> {
        self.is_hung = false;
        let rings = self.bell.hang(context);
        let mut rings = Context::from_waker(&rings);
        let mut keeps_it = true;
        if let Some(gone) = &mut self.gone {
            if gone.end.as_mut().poll(&mut rings).is_ready() {
                return Poll::Ready(Turn::Drained);
            }
        } else if !self.overran {
            // After it has sent too much, that it leaves is seen when something is written. Over HTTP/2 a stream's one waker serves its
            // writes as well, which set it anew.
            keeps_it = !client.is_http2();
            let read = pin!(client.read_body_or_idle(true));
            let polled = if keeps_it {
                read.poll(&mut rings)
            } else {
                read.poll(context)
            };
            if let Poll::Ready(read) = polled {
                let error = read.err().unwrap_or_else(drained_out);
                return Poll::Ready(Turn::Client(error));
            }
        }
        if let Poll::Ready(due) = self.silence.poll_lasts(&mut rings) {
            return Poll::Ready(Turn::Silence(due));
        }
        if self.life.is_cut() {
            return Poll::Ready(Turn::Cut);
        }
        self.is_hung = keeps_it;
        Poll::Pending
    }

    /// What follows a turn, until the wait goes on.
    async fn take(&mut self, client: &mut ServerSession, turn: Turn) -> Result<()> {
        match turn {
            // Bytes after the request are no reason to leave it without its answer.
            Turn::Client(error) if *error.etype() == ErrorType::ConnectError => {
                self.overran = true;
                client.set_keepalive(None);
                Ok(())
            }
            Turn::Client(error) => self.client_gone(client, error),
            Turn::Drained => Err(drained_out()),
            Turn::Silence(Due::Comment) => self.comment(client).await,
            Turn::Silence(Due::End) if self.silence.is_begun() => Err(interrupted(SILENT)),
            Turn::Silence(Due::End) => Err(interrupted(UNHEARD)),
            Turn::Cut => Err(interrupted(STOPPING)),
        }
    }

    /// The upstream is silent: the client is told that the stream is alive, where that can be said. Clients skip a comment, and nothing
    /// between the gateway and them takes the connection for dead.
    async fn comment(&mut self, client: &mut ServerSession) -> Result<()> {
        self.silence.commented();
        if !self.may_comment {
            return Ok(());
        }
        self.has_commented = true;
        self.write(client, Part::Body(Bytes::from_static(COMMENT), false)).await
    }

    /// Writes a part of the answer. A client that has gone is written nothing.
    ///
    /// # Errors
    /// When the client has gone, unless the call is drained.
    pub(super) async fn write(&mut self, client: &mut ServerSession, part: Part) -> Result<()> {
        if self.is_gone() {
            return Ok(());
        }
        let is_asked = &mut self.is_asked;
        let written = match part {
            Part::Begin(tasks) => unless_waits(is_asked, client.response_duplex_vec(tasks))
                .await
                .map(|_| ()),
            Part::Body(bytes, ends) => unless_waits(is_asked, client.write_response_body(bytes, ends)).await,
        };
        written.or_else(|error| self.client_gone(client, error))
    }

    /// The client has gone: an error, unless this call is drained.
    fn client_gone(&mut self, client: &mut ServerSession, error: Box<Error>) -> Result<()> {
        let error = error.into_down();
        // Before the answer has begun nothing is owed, so nothing is worth waiting for.
        if !self.drains || !self.silence.is_begun() {
            return Err(error);
        }
        let Some(place) = DrainPlace::take() else {
            return Err(error);
        };
        self.gone = Some(Gone {
            end: Box::pin(tokio::time::sleep(DRAIN_MAX)),
            _place: place,
        });
        // The wait has another end from now on.
        self.is_hung = false;
        // Whatever was half written, this connection is of no more use.
        client.set_keepalive(None);
        Ok(())
    }
}

/// Does `write`; when it has to wait, the upstream's waker may be used up meanwhile.
async fn unless_waits<W: Future>(is_asked: &mut bool, write: W) -> W::Output {
    let mut write = pin!(write);
    poll_fn(|context| {
        let polled = write.as_mut().poll(context);
        *is_asked &= polled.is_ready();
        polled
    })
    .await
}

/// The upstream is to blame, or the stop.
pub(super) fn interrupted(what: &'static str) -> Box<Error> {
    let mut error = Error::new(ErrorType::Custom(what));
    error.as_up();
    error
}

/// An upstream has not begun to answer in time.
pub(in crate::gateway) const UNHEARD: &str = "UpstreamUnheard";
/// An upstream that had begun to answer has been silent for too long.
const SILENT: &str = "UpstreamSilent";
/// The process stops and no longer waits.
pub(in crate::gateway) const STOPPING: &str = "GatewayStopping";
const COMMENT: &[u8] = b": waiting\n\n";
