//! Events that cannot be claimed, in the log: a gateway tries that twice a second, and the ledger, or a part of it, may be away for long.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// When it was told last.
#[derive(Debug, Default)]
pub(crate) struct Unclaimed {
    told: Option<Instant>,
}

impl Unclaimed {
    /// Tells that a claim failed, for all that is due or for some of it: at first, and then every [`TOLD_EVERY`] at most.
    pub(super) fn tell(&mut self, now: Instant, what: &str, why: &dyn Display) {
        if self
            .told
            .is_some_and(|told| now.saturating_duration_since(told) < TOLD_EVERY)
        {
            return;
        }
        self.told = Some(now);
        log::warn!("{what} events for webhooks that are due cannot be claimed, and wait: {why}");
    }
}

/// How often it is told at most.
const TOLD_EVERY: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::monotonic;
    use crate::ledger::tests::logged::logged;

    #[test]
    fn it_is_told_once_a_minute() {
        let (mut unclaimed, first) = (Unclaimed::default(), monotonic());
        let mut told = |after_ms: u64, what: &str| {
            let now = first + Duration::from_millis(after_ms);
            logged(|| unclaimed.tell(now, what, &"it is away"))
        };
        let line = |what: &str| {
            format!("WARN {what} events for webhooks that are due cannot be claimed, and wait: it is away")
        };
        assert_eq!(told(0, "some"), [line("some")]);
        assert_eq!(told(500, "some"), [""; 0]);
        assert_eq!(told(59_999, "all"), [""; 0]);
        assert_eq!(told(60_000, "all"), [line("all")]);
    }
}
