//! The silence of an upstream, before its answer and within it: when a comment is due, and when it has lasted too long. `buffered`
//! watches it.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::comment::Comments;
use crate::clock::monotonic;

/// The silence of one call's upstream.
pub(super) struct Silence {
    longest: Longest,
    /// Since when it lasts: the upstream was asked, or was heard.
    since: Instant,
    is_begun: bool,
    alarm: Option<Alarm>,
}

/// The longest silence that is waited for.
#[derive(Clone, Copy, Debug)]
pub(in crate::gateway) struct Longest {
    /// Before the answer.
    pub(in crate::gateway) first_byte: Duration,
    /// Once it has begun.
    pub(in crate::gateway) idle: Duration,
}

/// Wakes a task, and knows which.
struct Alarm {
    sleep: Pin<Box<tokio::time::Sleep>>,
    wakes: Waker,
}

/// What a silence has lasted for.
pub(super) enum Due {
    /// A comment.
    Comment,
    /// The end of the attempt.
    End,
}

impl Silence {
    pub(super) fn new(longest: Longest) -> Silence {
        Silence {
            longest,
            since: monotonic(),
            is_begun: false,
            alarm: None,
        }
    }

    /// The answer begins, if it has not yet.
    pub(super) fn begins(&mut self) {
        if !self.is_begun {
            self.is_begun = true;
            // What is due now may come sooner than what was due before.
            self.alarm = None;
        }
    }

    /// The upstream is heard now.
    pub(super) fn heard(&mut self) {
        self.since = monotonic();
    }

    /// An answer is waited for that has not begun.
    pub(super) fn restart(&mut self) {
        self.is_begun = false;
        self.since = monotonic();
        self.alarm = None;
    }

    /// Whether the answer has begun.
    pub(super) fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// Whether its end was asked for, so that the task is woken.
    pub(super) fn is_watched(&self) -> bool {
        self.alarm.is_some()
    }

    /// Ready when it has lasted for so long that something must be done. Never while the upstream is heard. It may be asked or not at
    /// any time.
    pub(super) fn poll_lasts(&mut self, context: &mut Context<'_>, comments: &Comments) -> Poll<Due> {
        // From here on what is due only moves on, so an alarm is never too late. Until it rings there is nothing to reckon.
        let is_set = |alarm: &Alarm| !alarm.sleep.is_elapsed() && alarm.wakes.will_wake(context.waker());
        if self.alarm.as_ref().is_some_and(is_set) {
            return Poll::Pending;
        }
        loop {
            let now = monotonic();
            let max = if self.is_begun {
                self.longest.idle
            } else {
                self.longest.first_byte
            };
            let end_in = max.saturating_sub(now.saturating_duration_since(self.since));
            if end_in.is_zero() {
                return Poll::Ready(Due::End);
            }
            let comment_in = comments
                .due_at(self.since)
                .filter(|_| self.is_begun)
                .map(|due_at| due_at.saturating_duration_since(now));
            if comment_in.is_some_and(|left| left.is_zero()) {
                return Poll::Ready(Due::Comment);
            }
            let left = comment_in.map_or(end_in, |left| left.min(end_in));
            let alarm = self.alarm.get_or_insert_with(|| Alarm {
                sleep: Box::pin(tokio::time::sleep(left)),
                wakes: context.waker().clone(),
            });
            if alarm.sleep.is_elapsed() {
                alarm.sleep.as_mut().reset(tokio::time::Instant::now() + left);
            }
            if alarm.sleep.as_mut().poll(context).is_pending() {
                alarm.wakes.clone_from(context.waker());
                return Poll::Pending;
            }
        }
    }
}
