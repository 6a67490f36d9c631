//! The answer's way to the client: what is passed on, what is kept for a moment, and what follows when the client has gone.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;
use pingora::protocols::http::custom::server::Session as _;
use pingora::protocols::http::{HttpTask, ServerSession};
use pingora::{Error, ErrorSource, Result};

use super::{Buffered, EMPTY, interrupted};
use crate::gateway::drain::{DrainPlace, drained_out};
use crate::pure::chat::ResponseMode;

impl Buffered {
    /// The client has gone: an error, unless this call is drained.
    pub(super) fn client_gone(&mut self, error: Box<Error>) -> Result<()> {
        if self.is_gone() {
            return Ok(());
        }
        // Before the answer has begun nothing is owed, so nothing is worth waiting for.
        if !self.shared.drains.load(Ordering::Relaxed) || !self.silence.is_begun() {
            return Err(error);
        }
        let Some(place) = DrainPlace::take() else {
            return Err(error);
        };
        self.drained = Some(place);
        self.gone_at = Some(crate::clock::monotonic());
        // The wait has another end from now on.
        self.is_hung = false;
        self.shared.gone.store(true, Ordering::Relaxed);
        self.burst.take();
        // Whatever was half written, this connection is of no more use.
        self.real_mut().set_keepalive(None);
        Ok(())
    }

    fn check_drain(&self) -> Result<()> {
        match self.gone_at {
            Some(at) if at.elapsed() >= self.carriage.drain_max => Err(drained_out()),
            _ => Ok(()),
        }
    }

    /// Sends what is left of a comment, which nothing may overtake.
    pub(super) async fn end_comment(&mut self) -> Result<()> {
        match self.real.as_mut() {
            Some(real) if self.gone_at.is_none() && self.comments.is_begun() => self.comments.write(real).await,
            _ => Ok(()),
        }
    }

    /// Passes a part of the answer on; whether it was the last.
    pub(super) fn deliver(&mut self, tasks: Vec<HttpTask>) -> BoxFuture<'_, Result<bool>> {
        match self.queue(tasks) {
            None => Box::pin(poll_fn(|context| self.poll_queue(context))),
            Some(tasks) => Box::pin(self.answer(tasks)),
        }
    }

    /// Puts pieces of a stream over HTTP/1 in the connection's queue, if nothing is before them; gives back what takes the long way.
    fn queue(&mut self, tasks: Vec<HttpTask>) -> Option<Vec<HttpTask>> {
        let is_piece = |task: &HttpTask| matches!(task, HttpTask::Body(Some(bytes), false) if !bytes.is_empty());
        // Only a stream is flushed with each piece; nor does its head ever wait.
        let is_stream = self.carriage.mode == ResponseMode::Stream;
        let takes_them = is_stream && self.gone_at.is_none() && self.response_written().is_some();
        let Some(real) = self
            .real
            .as_mut()
            .filter(|real| takes_them && matches!(***real, ServerSession::H1(_)))
        else {
            return Some(tasks);
        };
        if self.comments.is_begun() || !tasks.iter().all(is_piece) {
            return Some(tasks);
        }
        self.silence.begins();
        if let Some(bytes) = self.burst.take_in(tasks) {
            real.send_downstream_proxy_task(HttpTask::Body(Some(bytes), false));
        }
        None
    }

    /// Writes the queue. The write's progress, and its time, are the connection's.
    fn poll_queue(&mut self, context: &mut Context<'_>) -> Poll<Result<bool>> {
        let Some(real) = self.real.as_mut() else {
            return Poll::Ready(Ok(true));
        };
        let mut written = Ok(false);
        if real.has_pending_downstream_proxy_tasks() {
            written = ready!(pin!(real.write_downstream_proxy_tasks()).poll(context));
        }
        self.silence.heard();
        Poll::Ready(written.or_else(|error| self.not_taken(error).map(|()| false)))
    }

    /// Any part of an answer.
    async fn answer(&mut self, tasks: Vec<HttpTask>) -> Result<bool> {
        if tasks.iter().any(is_empty_answer) {
            return Err(interrupted(EMPTY));
        }
        let begun = tasks.iter().any(|task| match task {
            HttpTask::Header(header, _) => !header.status.is_informational(),
            HttpTask::Body(..) | HttpTask::UpgradedBody(..) | HttpTask::Trailer(_) | HttpTask::Done => true,
            HttpTask::Failed(_) => false,
        });
        if begun {
            self.silence.begins();
        }
        let passed = self.pass(tasks).await;
        if begun {
            // Only now: a client that was slow to take this is not an upstream that was silent.
            self.silence.heard();
        }
        passed
    }

    async fn pass(&mut self, tasks: Vec<HttpTask>) -> Result<bool> {
        if self.is_gone() {
            self.check_drain()?;
            let mut ended = false;
            for task in tasks {
                if let HttpTask::Failed(error) = task {
                    return Err(error);
                }
                ended |= task.is_end();
            }
            return Ok(ended);
        }
        let Some(mut tasks) = self.head.gather(tasks).and_then(|tasks| self.keep(tasks)) else {
            return Ok(false);
        };
        // A failure is told after what came before it, and also when the client has gone meanwhile.
        let failure = match tasks.pop() {
            Some(HttpTask::Failed(error)) if tasks.is_empty() => return Err(error),
            Some(HttpTask::Failed(error)) => Some(error),
            last => {
                tasks.extend(last);
                None
            }
        };
        let ended = tasks.iter().any(HttpTask::is_end);
        let written = match self.end_comment().await {
            Ok(()) => self.real_mut().response_duplex_vec(tasks).await,
            Err(error) => Err(error),
        };
        let done = match written {
            Ok(done) => done,
            Err(error) => self.not_taken(error).map(|()| ended)?,
        };
        failure.map_or(Ok(done), Err)
    }

    /// The client did not take a part of the answer, unless it was the upstream's failure that was passed on.
    fn not_taken(&mut self, error: Box<Error>) -> Result<()> {
        match error.esource() {
            ErrorSource::Upstream => Err(error),
            _ => self.client_gone(error),
        }
    }

    /// Keeps a part of the answer for the next, or gives what is to be written now. A client that is slow is not given more than waits
    /// for it already.
    fn keep(&mut self, tasks: Vec<HttpTask>) -> Option<Vec<HttpTask>> {
        if self.comments.is_begun() {
            return Some(self.burst.join(tasks));
        }
        self.burst.keep(tasks)
    }
}

/// A 200 whose head is all of it: no stream, and no JSON.
fn is_empty_answer(task: &HttpTask) -> bool {
    matches!(task, HttpTask::Header(header, true) if header.status == http::StatusCode::OK)
}
