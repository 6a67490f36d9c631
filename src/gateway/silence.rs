//! The silence of an upstream that has begun to answer: when a comment is due, and when it has lasted too long. `buffered` watches it.

use std::pin::Pin;
use std::time::{Duration, Instant};

use super::comment::Comments;
use crate::clock::monotonic;

/// The silence of one call's upstream.
pub(super) struct Silence {
    /// The longest that is waited for.
    max: Duration,
    /// When the upstream was last heard; none before its answer has begun.
    heard_at: Option<Instant>,
    alarm: Option<Pin<Box<tokio::time::Sleep>>>,
}

/// What a silence has lasted for.
pub(super) enum Due {
    /// A comment.
    Comment,
    /// The end of the call.
    End,
}

impl Silence {
    pub(super) fn new(max: Duration) -> Silence {
        Silence {
            max,
            heard_at: None,
            alarm: None,
        }
    }

    /// The upstream is heard now.
    pub(super) fn heard(&mut self) {
        self.heard_at = Some(monotonic());
    }

    /// An answer is waited for that has not begun.
    pub(super) fn restart(&mut self) {
        self.heard_at = None;
    }

    /// Whether the answer has begun.
    pub(super) fn is_begun(&self) -> bool {
        self.heard_at.is_some()
    }

    /// Waits until it has lasted for so long that something must be done. Never returns while the upstream is heard, or before its
    /// answer begins: that wait has the peer's own time-out. It may be dropped at any time.
    pub(super) async fn lasts(&mut self, comments: &Comments) -> Due {
        let Some(heard_at) = self.heard_at else {
            return std::future::pending().await;
        };
        loop {
            let end_in = self.max.saturating_sub(heard_at.elapsed());
            if end_in.is_zero() {
                return Due::End;
            }
            let comment_in = comments
                .due_at(heard_at)
                .map(|due_at| due_at.saturating_duration_since(monotonic()));
            if comment_in.is_some_and(|left| left.is_zero()) {
                return Due::Comment;
            }
            // What is due only moves on, so an alarm that was set before is never too late.
            let left = comment_in.map_or(end_in, |left| left.min(end_in));
            let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep(left)));
            if alarm.is_elapsed() {
                alarm.as_mut().reset(tokio::time::Instant::now() + left);
            }
            alarm.as_mut().await;
        }
    }
}
