//! The client's end of what is carried: what is written to it, and what ends the wait for its upstream: that the client leaves, that
//! the upstream is silent for too long, that a stop no longer waits.
//!
//! A plugin may have the upstream read on for a client that has left: then nothing more is written.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use pingora::proxy::Session;
use pingora::{Error, ErrorType, Result};
use tokio::time::Sleep;

use super::carried::{Carried, TimeLimits};
use super::deadline::{ended, left, silent, stopped, write_within};
use super::idle_timeout::{Due, IdleTimeout};
use super::wake_flag::WakeFlag;
use super::write_batch::Part;
use crate::net::bounded_stream::cork;

/// The client's end, over all attempts.
pub(super) struct Downstream<'p, P> {
    plugin: &'p P,
    limits: TimeLimits,
    idle: IdleTimeout,
    /// Set by what is waited for beside the upstream.
    wake_flag: WakeFlag,
    /// Whether it was given to the client's connection and to the clock, which had nothing to tell then.
    is_armed: bool,
    /// Whether the upstream was asked for more since the task last waited, and had nothing.
    is_asked: bool,
    presence: Presence,
}

/// Whether there is still someone to write to.
enum Presence {
    /// Its connection is read, which tells when it leaves.
    Watched,
    /// It sent more than its request: that is not read, so that it leaves is seen when something is written.
    Unwatched,
    /// It has left, and the upstream is read on until then.
    Left(Pin<Box<Sleep>>),
}

/// What ends a wait for the upstream.
enum Turn {
    /// That the client has left, or sent something.
    Client(Box<Error>),
    Idle(Due),
    /// The upstream was read on for long enough.
    ReadOnEnded,
    /// The plugin ends the call.
    Ended,
    Cut,
}

/// What a wait for the upstream gave.
pub(super) enum Waited<T> {
    /// The upstream did what it was waited for.
    Done(T),
    /// What was gathered is to leave. Told once.
    Gathered,
    /// The upstream has not ended an answer that is complete. Told once.
    Complete,
}

/// Whether a wait goes on after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    On,
    /// What was gathered is to leave.
    Gathered,
    /// A complete answer is to end.
    Complete,
}

impl<'p, P: Carried + Sync> Downstream<'p, P> {
    pub(super) fn new(plugin: &'p P, limits: TimeLimits) -> Downstream<'p, P> {
        Downstream {
            plugin,
            limits,
            idle: IdleTimeout::new(&limits),
            wake_flag: WakeFlag::default(),
            is_armed: false,
            is_asked: false,
            presence: Presence::Watched,
        }
    }

    /// An attempt begins: its upstream is about to be asked.
    pub(super) fn attempt_begins(&mut self) {
        self.is_asked = false;
        self.is_armed = false;
        self.idle.restart();
    }

    /// Looks for the client before an upstream is asked on its behalf: it may have left while its call was admitted, or a connection was made.
    /// It is looked at once more where it only said more than its request.
    ///
    /// # Errors
    /// When it has left, and those of [`Downstream::beside`].
    pub(super) async fn is_there(&mut self, session: &mut Session, ctx: &mut P::CTX) -> Result<()> {
        loop {
            // The first look may only say that others come first: by the turn of its connection, which begins anew then, or by tokio's budget.
            let turn = tokio::task::unconstrained(poll_fn(|context| {
                let mut looked = self.look(session, ctx, context);
                if looked.is_pending() {
                    looked = self.look(session, ctx, context);
                }
                Poll::Ready(match looked {
                    Poll::Ready(turn) => Some(turn),
                    Poll::Pending => None,
                })
            }));
            let Some(turn) = turn.await else { return Ok(()) };
            self.take(session, ctx, turn).await?;
            if self.has_left() {
                return Err(left());
            }
        }
    }

    /// The attempt's answer begins, and may be gathered for so long.
    ///
    /// # Errors
    /// When the client has left and the plugin does not want to read on for it.
    pub(super) fn answer_begins(&mut self, ctx: &mut P::CTX, gathered_within: Option<Duration>) -> Result<()> {
        self.is_armed = false;
        self.idle.begins(gathered_within);
        if self.has_left() {
            let within = self.plugin.client_left(ctx, true).ok_or_else(left)?;
            self.presence = Presence::Left(Box::pin(tokio::time::sleep(within)));
        }
        Ok(())
    }

    /// All of the answer has passed but its end, which is waited for as long as the limits say: whether that is over.
    pub(super) fn completes(&mut self) -> bool {
        // The wait has another end from now on.
        self.is_armed = false;
        self.idle.completes()
    }

    /// The upstream was heard.
    pub(super) fn heard(&mut self) {
        self.idle.heard();
    }

    fn has_left(&self) -> bool {
        matches!(self.presence, Presence::Left(_))
    }

    /// Does `work`, which is the upstream's, for as long as that is worth waiting for.
    ///
    /// # Errors
    /// When it is not: of the client when that has left, of the upstream when it is silent, of the process when that stops. `work` is
    /// dropped.
    pub(super) async fn beside<W: Future>(
        &mut self,
        session: &mut Session,
        ctx: &mut P::CTX,
        mut work: Pin<&mut W>,
    ) -> Result<W::Output> {
        loop {
            match self.answering(session, ctx, work.as_mut()).await? {
                Waited::Done(done) => return Ok(done),
                // Neither comes before an answer has begun.
                Waited::Gathered | Waited::Complete => {}
            }
        }
    }

    /// The same while an answer comes, which may be gathered or complete: then the time for that may be over before.
    ///
    /// # Errors
    /// Those of [`Downstream::beside`].
    pub(super) async fn answering<W: Future>(
        &mut self,
        session: &mut Session,
        ctx: &mut P::CTX,
        mut work: Pin<&mut W>,
    ) -> Result<Waited<W::Output>> {
        loop {
            let turn = poll_fn(|context| {
                // It was asked a moment ago, and wakes this task.
                if !std::mem::take(&mut self.is_asked)
                    && let Poll::Ready(done) = work.as_mut().poll(context)
                {
                    return Poll::Ready(Ok(done));
                }
                self.poll_turn(session, ctx, context).map(Err)
            })
            .await;
            match turn {
                Ok(done) => return Ok(Waited::Done(done)),
                Err(turn) => match self.take(session, ctx, turn).await? {
                    Wait::On => {}
                    Wait::Gathered => return Ok(Waited::Gathered),
                    Wait::Complete => return Ok(Waited::Complete),
                },
            }
        }
    }

    /// What `work`, which is the upstream's, gives without waiting. If it does not, the next [`Downstream::beside`] is to go on with it.
    pub(super) async fn at_once<W: Future>(&mut self, mut work: Pin<&mut W>) -> Option<W::Output> {
        let done = poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => Poll::Ready(None),
        })
        .await;
        self.is_asked = done.is_none();
        done
    }

    /// Lets what else runs on this thread come first.
    pub(super) async fn yields(&mut self) {
        self.waits_elsewhere();
        tokio::task::yield_now().await;
    }

    /// The task is about to wait for something else. The upstream may wake it meanwhile, which uses its waker up: it has to be asked again.
    pub(super) fn waits_elsewhere(&mut self) {
        self.is_asked = false;
    }

    fn poll_turn(&mut self, session: &mut Session, ctx: &P::CTX, context: &mut Context<'_>) -> Poll<Turn> {
        // What comes piece by piece ends here each time, so nothing further off is looked at.
        if self.is_armed && self.wake_flag.is_clear(context) && !self.plugin.is_cut() {
            self.idle.waits();
            return Poll::Pending;
        }
        self.look(session, ctx, context)
    }

    /// Looks at all that may end the wait. While it is pending, each sets the flag.
    fn look(&mut self, session: &mut Session, ctx: &P::CTX, context: &mut Context<'_>) -> Poll<Turn> {
        self.is_armed = false;
        let waker = self.wake_flag.arm(context);
        let mut flagged = Context::from_waker(&waker);
        let mut keeps_waker = true;
        match &mut self.presence {
            Presence::Watched => {
                let client = &mut session.downstream_session;
                // Over HTTP/2 a stream's one waker serves its writes as well, which set it anew.
                keeps_waker = !client.is_http2();
                let read = pin!(client.read_body_or_idle(true));
                let polled = if keeps_waker {
                    read.poll(&mut flagged)
                } else {
                    read.poll(context)
                };
                if let Poll::Ready(read) = polled {
                    return Poll::Ready(Turn::Client(read.err().unwrap_or_else(left)));
                }
            }
            Presence::Unwatched => {}
            Presence::Left(until) => {
                if until.as_mut().poll(&mut flagged).is_ready() {
                    return Poll::Ready(Turn::ReadOnEnded);
                }
            }
        }
        if self.plugin.poll_end(ctx, &mut flagged).is_ready() {
            return Poll::Ready(Turn::Ended);
        }
        if let Poll::Ready(due) = self.idle.poll_lasts(&mut flagged) {
            return Poll::Ready(Turn::Idle(due));
        }
        if self.plugin.is_cut() {
            return Poll::Ready(Turn::Cut);
        }
        self.is_armed = keeps_waker;
        Poll::Pending
    }

    /// What follows a turn.
    async fn take(&mut self, session: &mut Session, ctx: &mut P::CTX, turn: Turn) -> Result<Wait> {
        match turn {
            // Bytes after the request are no reason to leave it without its answer.
            Turn::Client(error) if *error.etype() == ErrorType::ConnectError => {
                self.presence = Presence::Unwatched;
                session.set_keepalive(None);
            }
            // Over HTTP/2 it has reset its stream, which is no write that failed.
            Turn::Client(error) if *error.etype() == ErrorType::H2Error => {
                let reset = Error::because(ErrorType::ConnectionClosed, "the client has reset its stream", error);
                self.client_left(session, ctx, reset)?;
            }
            Turn::Client(error) => self.client_left(session, ctx, error)?,
            Turn::ReadOnEnded => return Err(left()),
            Turn::Idle(Due::Comment) => self.comment(session, ctx).await?,
            Turn::Idle(Due::Gathered) => return Ok(Wait::Gathered),
            Turn::Idle(Due::Complete) => return Ok(Wait::Complete),
            Turn::Idle(Due::End) => return Err(silent()),
            Turn::Ended => return Err(ended()),
            Turn::Cut => return Err(stopped()),
        }
        Ok(Wait::On)
    }

    /// The upstream is silent: the client is told that the stream is alive, where that can be said. Clients skip a comment, and nothing
    /// between the gateway and them takes the connection for dead.
    async fn comment(&mut self, session: &mut Session, ctx: &mut P::CTX) -> Result<()> {
        self.idle.commented();
        if self.has_left() || !self.plugin.may_comment(ctx) {
            return Ok(());
        }
        let comment = Part {
            head: None,
            bytes: Bytes::from_static(COMMENT),
            ends: false,
        };
        // In a box, for it is rare and would else be a part of every wait.
        Box::pin(self.write(session, ctx, comment)).await?;
        self.plugin.commented(ctx);
        Ok(())
    }

    /// Writes a part of the answer. A client that has left is written nothing.
    ///
    /// # Errors
    /// When the client has left and the upstream is not read on for it, and when the process stops while the client takes nothing.
    pub(super) async fn write(&mut self, session: &mut Session, ctx: &mut P::CTX, part: Part) -> Result<()> {
        if self.has_left() {
            return Ok(());
        }
        let (plugin, limit) = (self.plugin, self.limits.write);
        let written = {
            let is_asked = &mut self.is_asked;
            let client = &mut session.downstream_session;
            let write = pin!(async {
                let Part { head, bytes, ends } = part;
                let is_first = head.is_some();
                if let Some(head) = head {
                    // Pingora flushes the head of a stream: it leaves with the first bytes.
                    let _corked = (!ends && !bytes.is_empty())
                        .then(|| client.stream().and_then(cork))
                        .flatten();
                    client.write_response_header(head).await?;
                }
                if ends && !is_first && !bytes.is_empty() {
                    // And each chunk: the last leaves with the end of the chunks.
                    let corked = client.stream().and_then(cork);
                    if let Some(corked) = corked {
                        client.write_response_body(bytes, false).await?;
                        drop(corked);
                        return client.write_response_body(Bytes::new(), true).await;
                    }
                }
                client.write_response_body(bytes, ends).await
            });
            let waits = || {
                // The upstream's waker may be used up meanwhile.
                *is_asked = false;
                plugin.is_cut()
            };
            write_within(limit, waits, write).await
        };
        match written {
            Err(error) if super::deadline::is_stopped(&error) => Err(error),
            Err(error) => self.client_left(session, ctx, error),
            Ok(()) => Ok(()),
        }
    }

    /// The client has left: an error, unless the upstream is read on.
    fn client_left(&mut self, session: &mut Session, ctx: &mut P::CTX, error: Box<Error>) -> Result<()> {
        let error = error.into_down();
        // Whatever was half written, this connection is of no more use.
        session.set_keepalive(None);
        let Some(within) = self.plugin.client_left(ctx, self.idle.is_begun()) else {
            return Err(error);
        };
        self.presence = Presence::Left(Box::pin(tokio::time::sleep(within)));
        // The wait has another end from now on.
        self.is_armed = false;
        Ok(())
    }
}

const COMMENT: &[u8] = b": waiting\n\n";

#[cfg(test)]
mod tests;
