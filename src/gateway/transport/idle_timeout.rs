//! How long an upstream has been silent, before its answer and within it: when a comment is due, and when it has lasted too long. And
//! how long an answer has been gathered, or the end of a complete one waited for: one alarm serves them all.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::task::unconstrained;

use super::carried::TimeLimits;
use crate::clock::monotonic;

/// For how long the upstream of one request has sent nothing.
pub(super) struct IdleTimeout {
    /// The longest that is waited for before the answer. None: without limit.
    first_byte_max: Option<Duration>,
    /// And once it has begun.
    idle_max: Option<Duration>,
    /// How long the end of a complete answer is waited for. None: as the rest of it is.
    end_max: Option<Duration>,
    /// Until when, then, whatever the upstream sends. None: the answer is not complete, or that was told.
    end_until: Option<Instant>,
    /// What a comment ends; none: there are no comments.
    comment_every: Option<Duration>,
    commented_at: Option<Instant>,
    /// How long the answer may be gathered, silent or not. None: it is not, or it has been waited for meanwhile.
    gathered_within: Option<Duration>,
    /// Until when, then. None: it is not gathered, or that was told.
    gathered_until: Option<Instant>,
    /// Since when it lasts: the upstream is waited for after it was asked or heard. None: it has not been waited for since.
    since: Option<Instant>,
    is_begun: bool,
    alarm: Option<Alarm>,
}

/// Wakes a task, and knows which.
struct Alarm {
    sleep: Pin<Box<tokio::time::Sleep>>,
    wakes: Waker,
}

/// What an idle time has lasted for, or the gathering of an answer.
pub(super) enum Due {
    /// A comment.
    Comment,
    /// What was gathered is to leave. Told once.
    Gathered,
    /// The end of a complete answer, which its upstream has not ended. Told once.
    Complete,
    /// The end of the attempt.
    End,
}

/// What follows at a moment of an idle time.
enum Next {
    Due(Due),
    /// Nothing before so long.
    In(Duration),
    Never,
}

impl IdleTimeout {
    pub(super) fn new(limits: &TimeLimits) -> IdleTimeout {
        IdleTimeout {
            first_byte_max: limits.first_byte,
            idle_max: limits.idle,
            end_max: limits.end.map(|end| limits.idle.map_or(end, |idle| end.min(idle))),
            end_until: None,
            comment_every: limits.comment,
            commented_at: None,
            gathered_within: None,
            gathered_until: None,
            since: None,
            is_begun: false,
            alarm: None,
        }
    }

    /// The answer begins, and may be gathered for so long.
    pub(super) fn begins(&mut self, gathered_within: Option<Duration>) {
        self.is_begun = true;
        self.since = None;
        self.gathered_within = gathered_within;
        self.gathered_until = None;
        self.end_until = None;
        // What is due now may come sooner than what was due before.
        self.alarm = None;
    }

    /// All of the answer has come but its end. It is waited for from the first time that this is told: whether that was long enough, for an
    /// upstream that always has more is never waited for.
    pub(super) fn completes(&mut self) -> bool {
        let Some(within) = self.end_max else {
            return false;
        };
        let now = monotonic();
        if let Some(until) = self.end_until {
            return now >= until;
        }
        self.end_until = now.checked_add(within);
        // It may come sooner than what was due before.
        self.alarm = None;
        false
    }

    /// The upstream is heard now. The clock is looked at when it is waited for again, once for all that came without a wait.
    pub(super) fn heard(&mut self) {
        self.since = None;
    }

    /// The upstream is waited for: unless it was before, its idle time begins.
    pub(super) fn waits(&mut self) {
        if self.since.is_none() {
            self.begins_at(monotonic());
        }
    }

    /// The idle time begins, unless it has. Since when it lasts.
    fn begins_at(&mut self, now: Instant) -> Instant {
        if let Some(within) = self.gathered_within.take() {
            self.gathered_until = now.checked_add(within);
        }
        *self.since.get_or_insert(now)
    }

    /// It was commented on, or the comment that was due is passed over.
    pub(super) fn commented(&mut self) {
        self.commented_at = Some(monotonic());
    }

    /// When the next comment is due in an idle time since then.
    fn comment_at(&self, since: Instant) -> Option<Instant> {
        let last = self.commented_at.map_or(since, |at| at.max(since));
        self.comment_every
            .filter(|_| self.is_begun)
            .and_then(|every| last.checked_add(every))
    }

    /// An answer is waited for that has not begun.
    pub(super) fn restart(&mut self) {
        self.is_begun = false;
        self.gathered_within = None;
        self.gathered_until = None;
        self.end_until = None;
        self.since = None;
        self.alarm = None;
    }

    /// Whether the answer has begun.
    pub(super) fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// Ready when it has lasted for so long that something must be done. Never while the upstream is heard. It may be asked or not at
    /// any time.
    pub(super) fn poll_lasts(&mut self, context: &mut Context<'_>) -> Poll<Due> {
        // From here on what is due only moves on, so an alarm is never too late. Until it goes off there is nothing to reckon.
        let is_set = |alarm: &Alarm| !alarm.sleep.is_elapsed() && alarm.wakes.will_wake(context.waker());
        if self.alarm.as_ref().is_some_and(is_set) {
            self.waits();
            return Poll::Pending;
        }
        loop {
            let now = monotonic();
            let left = match self.next(now) {
                Next::Due(due) => return Poll::Ready(due),
                Next::In(left) => left,
                Next::Never => return Poll::Pending,
            };
            let alarm = self.alarm.get_or_insert_with(|| Alarm {
                sleep: Box::pin(tokio::time::sleep(left)),
                wakes: context.waker().clone(),
            });
            if alarm.sleep.is_elapsed() {
                alarm.sleep.as_mut().reset((now + left).into());
            }
            // A task that has spent its budget is told to come again before the clock is asked, which then does not know of it.
            if pin!(unconstrained(alarm.sleep.as_mut())).poll(context).is_pending() {
                alarm.wakes.clone_from(context.waker());
                return Poll::Pending;
            }
        }
    }

    /// What is due now, or how long nothing is.
    fn next(&mut self, now: Instant) -> Next {
        let since = self.begins_at(now);
        if let Some(until) = self.end_until {
            // Nothing else is waited for any more.
            let left = until.saturating_duration_since(now);
            if left.is_zero() {
                self.end_until = None;
                return Next::Due(Due::Complete);
            }
            return Next::In(left);
        }
        let max = if self.is_begun {
            self.idle_max
        } else {
            self.first_byte_max
        };
        let lasted = now.saturating_duration_since(since);
        let end_in = max.map(|max| max.saturating_sub(lasted));
        if end_in.is_some_and(|left| left.is_zero()) {
            return Next::Due(Due::End);
        }
        let comment_in = self.comment_at(since).map(|at| at.saturating_duration_since(now));
        if comment_in.is_some_and(|left| left.is_zero()) {
            return Next::Due(Due::Comment);
        }
        let gathered_in = self.gathered_until.map(|at| at.saturating_duration_since(now));
        if gathered_in.is_some_and(|left| left.is_zero()) {
            self.gathered_until = None;
            return Next::Due(Due::Gathered);
        }
        let next = comment_in.into_iter().chain(end_in).chain(gathered_in).min();
        next.map_or(Next::Never, Next::In)
    }
}
