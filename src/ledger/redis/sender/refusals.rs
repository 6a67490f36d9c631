//! What Redis does not take, in the log: a server that is full refuses all that waits several times a second, and lines of money would be lost
//! among as many of its own.

use redis::RedisError;

/// Counts settlements and releases that were refused, each as often as it was.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// Those of the batch that is read, and why the first of them was.
    of_batch: u64,
    why: Option<String>,
    /// Those before it that were not told.
    untold: u64,
    /// When it was told last, by the ledger's monotonic clock.
    told_ms: Option<u64>,
}

impl Refusals {
    /// One of the batch was refused.
    pub(super) fn heard(&mut self, error: &RedisError) {
        self.of_batch = self.of_batch.saturating_add(1);
        if self.why.is_none() {
            self.why = Some(error.to_string());
        }
    }

    /// The batch is read: tells of the first one, and then of all that were refused meanwhile, every [`TOLD_EVERY_MS`] at most.
    pub(super) fn tell(&mut self, now_ms: u64) {
        let Some(why) = self.why.take() else { return };
        let count = std::mem::take(&mut self.of_batch);
        if self
            .told_ms
            .is_some_and(|told_ms| now_ms.saturating_sub(told_ms) < TOLD_EVERY_MS)
        {
            self.untold = self.untold.saturating_add(count);
            return;
        }
        self.told_ms = Some(now_ms);
        match std::mem::take(&mut self.untold) {
            0 => log::warn!("Redis does not take {count} settlements or releases: {why}"),
            untold => {
                log::warn!("Redis does not take {count} settlements or releases, and refused {untold} before: {why}")
            }
        }
    }
}

/// How often it is told at most that Redis refuses them.
const TOLD_EVERY_MS: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::logged::logged;

    #[test]
    fn what_is_refused_is_told_at_first_and_then_with_how_many_there_were() {
        let mut refusals = Refusals::default();
        let refused = |text: &str| redis::parse_redis_value(text.as_bytes()).unwrap().extract_error();
        let full = refused("-OOM it is full\r\n").unwrap_err();
        let mut told = |count: u64, now_ms: u64| {
            logged(|| {
                (0..count).for_each(|_| refusals.heard(&full));
                refusals.tell(now_ms);
            })
        };
        let line = |counts: &str| vec![format!("WARN Redis does not take {counts}: {full}")];
        assert_eq!(told(0, 0), [""; 0], "nothing was");
        assert_eq!(told(3, 7), line("3 settlements or releases"));
        assert_eq!(told(3, 9_000), [""; 0]);
        assert_eq!(told(4, 10_006), [""; 0]);
        assert_eq!(told(2, 10_007), line("2 settlements or releases, and refused 7 before"));
        assert_eq!(told(1, 20_006), [""; 0]);
        assert_eq!(told(1, 30_000), line("1 settlements or releases, and refused 1 before"));
    }
}
