//! Which of its numbers a producer has resolved at an account: the rules by which a call is billed once.
//!
//! A call that owes something is named by its producer (one life of one gateway), its account and a number, which is given and written
//! into the journal before the first byte of its answer is passed on, and never given again. A call that ends before that owes nothing and
//! needs no name: its hold is given back by the request's id, and that as often as one likes.
//!
//! Calls end in any order, and a call's messages may be lost, doubled or late by days. So an account keeps, for each producer, the highest
//! number that it has met and those up to it that are *not* resolved: as much as is running.
//!
//! [`RULES`] is what every store and every sender is held to. A number that is closed never opens again, and only the step that closes a
//! number moves the balance.

use std::fmt::Write;

use super::time::Timestamp;

/// When a producer came to be, in seconds since 1970 by the ledger's clock. Producers of versions that did not say have 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Birth(pub u32);

/// Who gives numbers: one life of one gateway, for a week at most. The upper half says when it was born; the lower half is random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProducerId(pub u64);

/// The name of a call that owes something, within its account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallNumber {
    /// Who gave the number.
    pub producer: ProducerId,
    /// When that one was born.
    pub born: Birth,
    /// Counts from 1 for each account.
    pub number: u64,
}

/// What an account knows of one producer's numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Numbers {
    high: u64,
    /// First and last of each run of numbers up to `high` that are not resolved; ascending, apart from each other.
    open: Vec<(u64, u64)>,
}

/// Gives the calls of one account their numbers.
#[derive(Clone, Debug, Default)]
pub struct Numbering {
    producer: Option<ProducerId>,
    last: u64,
}

/// The rules, as one value: each store does what these do.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Whether a producer that the account does not know was forgotten, as far as the account can tell: nothing of it may be applied.
    pub is_stale: fn(Birth, Option<Birth>) -> bool,
    /// A call has ended. False when its number was closed before: then nothing else may change.
    pub resolve: fn(&mut Numbers, u64) -> bool,
    /// Whether a producer may be forgotten that has been silent for so many days. What is open then comes too late, and is stale.
    pub may_forget: fn(i64) -> bool,
    /// What an account remembers of those that it forgot.
    pub forget: fn(Option<Birth>, Birth) -> Option<Birth>,
    /// Whether a call whose number is stale may get another: only when its settlement was sent once, so that no copy was ever applied.
    pub may_renumber: fn(u32) -> bool,
    /// When the producer is born that gives numbers at `now` in place of a stale one.
    pub born: fn(Birth, Option<Birth>) -> Birth,
}

/// The rules that hold.
pub const RULES: Rules = Rules {
    is_stale: |born, forgotten| forgotten.is_some_and(|latest| born <= latest),
    resolve: Numbers::resolve,
    may_forget: |silent_days| silent_days > SILENT_DAYS_MAX,
    forget: |forgotten, born| forgotten.max(Some(born)),
    may_renumber: |sent| sent <= 1,
    born: |now, forgotten| forgotten.map_or(now, |latest| now.max(Birth(latest.0.saturating_add(1)))),
};

/// A producer that was silent for longer is forgotten.
pub const SILENT_DAYS_MAX: i64 = 30;

/// A producer gives numbers for so long: always younger than those that are forgotten.
pub const PRODUCER_DAYS_MAX: i64 = 7;

impl Birth {
    /// The birth of a producer that is made now.
    pub fn at(now: Timestamp) -> Birth {
        Birth(u32::try_from(now.0.div_euclid(1000).max(1)).unwrap_or(u32::MAX))
    }
}

impl ProducerId {
    /// A producer of this birth.
    pub fn new(born: Birth, random: u32) -> ProducerId {
        ProducerId(u64::from(born.0) << 32 | u64::from(random))
    }

    /// When it was born. Means nothing for a producer of a version that did not say.
    pub fn born(self) -> Birth {
        Birth(u32::try_from(self.0 >> 32).unwrap_or(u32::MAX))
    }

    /// Whether it has given numbers for long enough at `now`.
    pub fn is_old(self, now: Timestamp) -> bool {
        let age = i64::from(Birth::at(now).0).saturating_sub(i64::from(self.born().0));
        age > PRODUCER_DAYS_MAX * 86_400
    }
}

impl CallNumber {
    /// The number of a producer that says when it was born.
    pub fn new(producer: ProducerId, number: u64) -> CallNumber {
        CallNumber {
            producer,
            born: producer.born(),
            number,
        }
    }
}

impl Numbering {
    /// Whose numbers it gives; none before the first.
    pub fn producer(&self) -> Option<ProducerId> {
        self.producer
    }

    /// The next number of the producer, from 1 for one that gives its first.
    pub fn next(&mut self, producer: ProducerId) -> CallNumber {
        if self.producer != Some(producer) {
            (self.producer, self.last) = (Some(producer), 0);
        }
        self.last = self.last.saturating_add(1);
        CallNumber::new(producer, self.last)
    }
}

impl Numbers {
    /// What a store kept; none when the runs are not ascending and apart, or reach beyond `high`.
    pub fn restored(high: u64, open: Vec<(u64, u64)>) -> Option<Numbers> {
        let mut before: u64 = 0;
        for (first, last) in &open {
            let apart = before == 0 || before.checked_add(1).is_some_and(|next| next < *first);
            if *first == 0 || first > last || !apart || *last > high {
                return None;
            }
            before = *last;
        }
        Some(Numbers { high, open })
    }

    /// The highest number met; 0 before the first.
    pub fn high(&self) -> u64 {
        self.high
    }

    /// The numbers up to [`Numbers::high`] that are not resolved: first and last of each run.
    pub fn open(&self) -> &[(u64, u64)] {
        &self.open
    }

    /// The open numbers as a store keeps them: `first-last` or one number, a blank between.
    pub fn open_text(&self) -> String {
        let mut text = String::new();
        for (first, last) in &self.open {
            let gap = if text.is_empty() { "" } else { " " };
            let written = if first == last {
                write!(text, "{gap}{first}")
            } else {
                write!(text, "{gap}{first}-{last}")
            };
            if written.is_err() {
                break; // A text in memory takes everything.
            }
        }
        text
    }

    /// What [`Numbers::open_text`] wrote; none when it is not that.
    pub fn read(high: u64, open: &str) -> Option<Numbers> {
        let run = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some((first.parse().ok()?, last.parse().ok()?))
        };
        let open = open.split_ascii_whitespace().map(run).collect::<Option<Vec<_>>>()?;
        Numbers::restored(high, open)
    }

    /// Whether this number was resolved.
    pub fn is_closed(&self, number: u64) -> bool {
        number <= self.high && self.run_of(number).is_err()
    }

    /// This number is met, and those before it that have not come yet are open.
    fn touch(&mut self, number: u64) {
        if number <= self.high {
            return;
        }
        let next = self.high.saturating_add(1);
        match self.open.last_mut() {
            Some((_, last)) if *last == self.high && self.high > 0 => *last = number,
            _ => self.open.push((next, number)),
        }
        self.high = number;
    }

    /// Closes a number. False when it was closed already.
    pub fn resolve(&mut self, number: u64) -> bool {
        // The usual case: the next number, and it is resolved as it comes.
        if number == self.high.saturating_add(1) {
            self.high = number;
            return true;
        }
        self.touch(number);
        let Ok(at) = self.run_of(number) else {
            return false;
        };
        let Some((first, last)) = self.open.get(at).copied() else {
            return false;
        };
        let below = (first < number).then(|| (first, number.saturating_sub(1)));
        let above = (number < last).then(|| (number.saturating_add(1), last));
        self.open.splice(at..=at, below.into_iter().chain(above));
        true
    }

    /// The run that has this number, or where it would be.
    fn run_of(&self, number: u64) -> Result<usize, usize> {
        self.open.binary_search_by(|(first, last)| {
            if *last < number {
                std::cmp::Ordering::Less
            } else if *first > number {
                std::cmp::Ordering::Greater
            } else {
                std::cmp::Ordering::Equal
            }
        })
    }
}

#[cfg(test)]
mod tests;
