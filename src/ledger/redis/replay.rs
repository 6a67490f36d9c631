//! Settlements that Redis acknowledged a short while ago, and releases of calls that had their number: it may still lose them.
//!
//! A Redis that restarts or fails over can come back without its last moments. Then these are sent again, which changes nothing
//! where they are not missing. Until then they stand in the journal, so that a gateway that ends in the same minute as its Redis loses
//! nothing either, whether it dies or is stopped: whoever starts next finds them there. A release owes nothing and is not in the journal: where it
//! is lost, the hold stands until its time is over, and the number is open for as long as its producer is known.
//!
//! How old they are counts by the time in which the server took writes. While it takes none it is cut off from its disk or from its replicas,
//! and may lose what it acknowledged last whenever that ends: then nothing grows old here.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::account::Account;
use super::admission_breaker::millis;
use super::queue::{QueuedDebit, ReleaseKind, Work};
use crate::ledger::journal::Entry;
use crate::pure::ids::RequestId;
use crate::pure::numbers::{CallNumber, ProducerId};
use crate::pure::time::Timestamp;

/// The settlements and releases of the last while, oldest first.
#[derive(Debug)]
pub(super) struct ReplayBuffer {
    /// Each with the time of `clock` at which it came.
    acknowledged: VecDeque<(u64, QueuedDebit)>,
    released: VecDeque<(u64, Released)>,
    keep: Duration,
    most: usize,
    clock: WritableTime,
}

/// A call of this process that had its number and gave its hold back.
#[derive(Debug)]
pub(super) struct Released {
    pub(super) account: Arc<Account>,
    pub(super) hold: RequestId,
    pub(super) number: CallNumber,
}

impl Released {
    /// What tells Redis once more. It is under way from now on.
    pub(super) fn again(self) -> Work {
        self.account.begin();
        Work::Release {
            account: self.account,
            hold: self.hold,
            number: Some(self.number),
            kind: ReleaseKind::Sure,
            entry: Entry::none(),
        }
    }
}

/// For how long the server was known to take writes, in milliseconds.
#[derive(Debug, Default)]
struct WritableTime {
    passed_ms: u64,
    /// When it was seen to take them last, by the ledger's monotonic clock; none when it did not at the last look.
    seen_ms: Option<u64>,
}

impl WritableTime {
    /// The time at `now_ms` of the ledger's monotonic clock. Where nobody has looked for longer than [`LOOK_MS_MAX`], no more than that has
    /// passed: the server did not answer, or this process was stopped.
    fn at(&self, now_ms: u64) -> u64 {
        let since_ms = self.seen_ms.map_or(0, |seen_ms| now_ms.saturating_sub(seen_ms));
        self.passed_ms.saturating_add(since_ms.min(LOOK_MS_MAX))
    }
}

impl ReplayBuffer {
    /// Keeps at most so many settlements. Each shard has a ring, so that nothing is pushed out by what another acknowledges.
    pub(super) fn new(keep: Duration, most: usize) -> ReplayBuffer {
        ReplayBuffer {
            acknowledged: VecDeque::new(),
            released: VecDeque::new(),
            keep,
            most,
            clock: WritableTime::default(),
        }
    }

    /// Keeps at most so many settlements from now on: the oldest go, where any may. None goes where that was the bound before.
    pub(super) fn keep_at_most(&mut self, most: usize) {
        if most == self.most {
            return;
        }
        self.most = most;
        while self.acknowledged.len() > most && !self.stands_still() {
            self.let_go();
        }
    }

    /// Keeps a settlement acknowledged at `now_ms`. When this ends, it stays in the journal.
    pub(super) fn push(&mut self, mut debit: QueuedDebit, now_ms: u64) {
        let at = self.clock.at(now_ms);
        self.let_go_before(at);
        if self.acknowledged.len() >= self.most && self.stands_still() {
            // None that is here may go. This one's place in the journal stays taken, for whoever starts next.
            return;
        }
        while self.acknowledged.len() >= self.most {
            self.let_go();
        }
        // It would keep the memory of the call's task as long, and saves Redis work only where the hold is there.
        debit.known = None;
        self.acknowledged.push_back((at, debit));
    }

    /// Keeps a release acknowledged at `now_ms`. The oldest goes where there is no room: no money is lost with it.
    pub(super) fn push_released(&mut self, released: Released, now_ms: u64) {
        let at = self.clock.at(now_ms);
        self.let_go_before(at);
        if self.released.len() >= RELEASED_MAX {
            self.released.pop_front();
        }
        self.released.push_back((at, released));
    }

    /// The server takes writes at `now_ms`, as far as it says: lets go of what is old enough.
    pub(super) fn tend(&mut self, now_ms: u64) {
        self.clock.passed_ms = self.clock.at(now_ms);
        self.clock.seen_ms = Some(now_ms);
        self.let_go_before(self.clock.passed_ms);
    }

    /// The server takes no writes at `now_ms`: nothing grows old until it does ([`ReplayBuffer::tend`]).
    pub(super) fn stand_still(&mut self, now_ms: u64) {
        self.clock.passed_ms = self.clock.at(now_ms);
        self.clock.seen_ms = None;
    }

    /// Whether the server took no writes when it was looked at last, or was not looked at yet.
    pub(super) fn stands_still(&self) -> bool {
        self.clock.seen_ms.is_none()
    }

    /// Has the journal say for how long it was kept here, as if it had been acknowledged so long before `now`: whoever finds it there counts by
    /// that, and does not know when the server took no writes.
    pub(super) fn date(&mut self, now_ms: u64, now: Timestamp) {
        let clock_ms = self.clock.at(now_ms);
        for (at, debit) in &mut self.acknowledged {
            let age_ms = i64::try_from(clock_ms.saturating_sub(*at)).unwrap_or(i64::MAX);
            debit.entry.keep(now.plus_millis(age_ms.saturating_neg()));
        }
    }

    fn let_go_before(&mut self, clock_ms: u64) {
        let oldest = clock_ms.saturating_sub(millis(self.keep));
        while self.acknowledged.front().is_some_and(|(at, _)| *at < oldest) {
            self.let_go();
        }
        while self.released.front().is_some_and(|(at, _)| *at < oldest) {
            self.released.pop_front();
        }
    }

    /// Takes all settlements, oldest first.
    pub(super) fn take_all(&mut self) -> Vec<QueuedDebit> {
        self.acknowledged.drain(..).map(|(_, debit)| doubted(debit)).collect()
    }

    /// Takes those settlements that are another's now, oldest first.
    pub(super) fn take_those(&mut self, is_taken: impl Fn(&QueuedDebit) -> bool) -> Vec<QueuedDebit> {
        let (taken, kept): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.acknowledged)
            .into_iter()
            .partition(|(_, debit)| is_taken(debit));
        self.acknowledged = kept;
        taken.into_iter().map(|(_, debit)| doubted(debit)).collect()
    }

    /// Takes these of an account's settlements, as far as they are here.
    pub(super) fn take(&mut self, account: &Account, producer: ProducerId, numbers: &[u64]) -> Vec<QueuedDebit> {
        self.take_those(|debit| {
            debit.account.id() == account.id()
                && debit.number.producer == producer
                && numbers.contains(&debit.number.number)
        })
    }

    /// Takes these releases, oldest first.
    pub(super) fn take_released(&mut self, is_taken: impl Fn(&Released) -> bool) -> Vec<Released> {
        let (taken, kept): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.released)
            .into_iter()
            .partition(|(_, released)| is_taken(released));
        self.released = kept;
        taken.into_iter().map(|(_, released)| released).collect()
    }

    fn let_go(&mut self) {
        if let Some((_, mut debit)) = self.acknowledged.pop_front() {
            debit.entry.close();
        }
    }
}

/// Redis may have lost it.
fn doubted(mut debit: QueuedDebit) -> QueuedDebit {
    debit.entry.doubted();
    debit.is_doubted = true;
    debit
}

/// For how long a server is taken to go on as it was seen to be. It is looked at each second.
const LOOK_MS_MAX: u64 = 5_000;

/// Settlements that all shards together keep at most, half of a journal: those of six seconds from a gateway that keeps one Redis busy by
/// itself. Redis loses two at most when it runs as conf/README.md says. With what its receipt says, and its slot in the journal, each takes
/// some two kilobytes: a gateway that keeps so many has 320 to 380 MiB.
pub(super) const RING_MAX: usize = 131_072;

/// Releases that a shard keeps at most: each is told once more by itself, before what happens after it.
const RELEASED_MAX: usize = 4096;
