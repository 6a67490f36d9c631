//! What a call waits for beside its upstream: that its client leaves, that its upstream has been silent for too long, that a stop no longer
//! waits.
//!
//! Pingora asks anew with each piece of the answer, so the usual wait keeps nothing of its own; what it ends with is handled apart.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use pingora::{ErrorType, Result};

use super::silence::Due;
use super::{Buffered, SILENT, STOPPING, UNHEARD, interrupted};
use crate::gateway::drain::drained_out;

/// What ends the wait.
enum Turn {
    Client(Result<Option<Bytes>>),
    /// Something was begun that is to be written first, or the client has gone.
    Begun,
    /// What was kept is to be written.
    Burst,
    Silence(Due),
    Cut,
}

/// The wait of one call.
pub(super) enum Idle<'call> {
    Waits(&'call mut Buffered),
    /// It ended with something that takes longer.
    Turns(BoxFuture<'call, Result<Option<Bytes>>>),
    Ended,
}

impl Future for Idle<'_> {
    type Output = Result<Option<Bytes>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Idle::Waits(call) = &mut *self {
            let Poll::Ready(turn) = call.poll_turn(context) else {
                return Poll::Pending;
            };
            let Idle::Waits(call) = std::mem::replace(&mut *self, Idle::Ended) else {
                return Poll::Pending;
            };
            *self = Idle::Turns(Box::pin(call.idle(turn)));
        }
        match &mut *self {
            Idle::Turns(turns) => turns.as_mut().poll(context),
            Idle::Waits(_) | Idle::Ended => Poll::Pending,
        }
    }
}

impl Buffered {
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<Turn> {
        // What comes piece by piece ends here each time, so nothing further off is looked at.
        let is_waiting = self.is_hung && self.bell.is_silent(context) && self.silence.is_watched();
        if is_waiting && self.burst.is_empty() && !self.comments.is_begun() && !self.carriage.life.is_cut() {
            return Poll::Pending;
        }
        self.look(context)
    }

    /// Looks at all that may end the wait. While it is pending, each rings the bell.
    fn look(&mut self, context: &mut Context<'_>) -> Poll<Turn> {
        self.is_hung = false;
        let Some(real) = self.real.as_mut() else {
            return Poll::Ready(Turn::Client(Ok(None)));
        };
        if self.gone_at.is_some() || self.comments.is_begun() {
            return Poll::Ready(Turn::Begun);
        }
        if self.burst.is_due() {
            return Poll::Ready(Turn::Burst);
        }
        let rings = self.bell.hang(context);
        let mut rings = Context::from_waker(&rings);
        // Over HTTP/2 a stream's one waker serves its writes as well, which set it anew.
        let keeps_it = !self.overran && !real.is_http2();
        // After it has sent too much, that it leaves is seen when something is written.
        if !self.overran {
            let client = pin!(real.read_body_or_idle(true));
            let read = if keeps_it {
                client.poll(&mut rings)
            } else {
                client.poll(context)
            };
            if let Poll::Ready(read) = read {
                return Poll::Ready(Turn::Client(read));
            }
        }
        let polled = self.poll_upstream(&mut rings);
        self.is_hung = keeps_it && polled.is_pending();
        polled
    }

    fn poll_upstream(&mut self, context: &mut Context<'_>) -> Poll<Turn> {
        if let Poll::Ready(due) = self.silence.poll_lasts(context, &self.comments) {
            return Poll::Ready(Turn::Silence(due));
        }
        if self.carriage.life.is_cut() {
            return Poll::Ready(Turn::Cut);
        }
        Poll::Pending
    }

    /// Goes on from a turn until the call is to end.
    async fn idle(&mut self, mut turn: Turn) -> Result<Option<Bytes>> {
        loop {
            match turn {
                Turn::Client(Ok(bytes)) => return Ok(bytes),
                Turn::Client(Err(error)) if self.is_gone() => return Err(error),
                // Bytes after the request are no reason to leave it without its answer.
                Turn::Client(Err(error)) if *error.etype() == ErrorType::ConnectError => {
                    self.overran = true;
                    self.real_mut().set_keepalive(None);
                }
                Turn::Client(Err(error)) => self.client_gone(error)?,
                Turn::Begun => {}
                Turn::Burst => self.send_kept(),
                Turn::Silence(Due::Comment) => self.comment(),
                Turn::Silence(Due::End) if self.silence.is_begun() => return Err(interrupted(SILENT)),
                Turn::Silence(Due::End) => return Err(interrupted(UNHEARD)),
                Turn::Cut => return Err(interrupted(STOPPING)),
            }
            self.write_begun().await?;
            turn = match self.gone_at {
                None => poll_fn(|context| self.poll_turn(context)).await,
                Some(at) => {
                    let left = self.carriage.drain_max.saturating_sub(at.elapsed());
                    let mut drained = pin!(tokio::time::sleep(left));
                    poll_fn(|context| {
                        if drained.as_mut().poll(context).is_ready() {
                            return Poll::Ready(Turn::Client(Err(drained_out())));
                        }
                        self.poll_upstream(context)
                    })
                    .await
                }
            };
        }
    }

    /// Writes what was begun, for as long as a stop waits.
    async fn write_begun(&mut self) -> Result<()> {
        let Buffered {
            real: Some(real),
            comments,
            carriage,
            gone_at: None,
            ..
        } = self
        else {
            return Ok(());
        };
        if !comments.is_begun() {
            return Ok(());
        }
        let life = &carriage.life;
        let written = {
            let mut writes = pin!(comments.write(real));
            poll_fn(|context| match writes.as_mut().poll(context) {
                Poll::Ready(written) => Poll::Ready(Some(written)),
                Poll::Pending if life.is_cut() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            })
            .await
        };
        match written {
            None => Err(interrupted(STOPPING)),
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => self.client_gone(error),
        }
    }

    /// The upstream is silent: the client is told that the stream is alive, where that can be said.
    fn comment(&mut self) {
        self.send_kept();
        let can = !self.is_gone() && self.shared.between_events.load(Ordering::Relaxed);
        match self.real.as_mut() {
            Some(real) if can && real.response_written().is_some() => {
                self.shared.commented.store(true, Ordering::Relaxed);
                self.comments.begin(real);
            }
            _ => self.comments.pass_over(),
        }
    }

    /// What was kept is written next, like a comment: the loop may drop the write half way.
    fn send_kept(&mut self) {
        if let (Some(kept), Some(real)) = (self.burst.take(), self.real.as_mut()) {
            self.comments.send(real, kept);
        }
    }
}
