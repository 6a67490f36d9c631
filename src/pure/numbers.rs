//! Which of its numbers a producer has resolved at an account: the rules by which a call is billed once.
//!
//! A call is named by its producer (one life of one gateway), its account and a number, which is given before the ledger hears of the
//! call and never again. Calls end in any order, and a call's messages may be lost, doubled or late by days. So an account keeps, for
//! each producer, the highest number that it has met and those up to it that are *not* resolved: as much as is running.
//!
//! [`RULES`] is what every store is held to. A number that is closed never opens again, and only the step that closes a number may move
//! the balance.

/// When a producer came to be, in seconds since 1970 by the ledger's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Birth(pub u32);

/// What an account knows of one producer's numbers. Numbers count from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Numbers {
    high: u64,
    /// First and last of each run of numbers up to `high` that are not resolved; ascending, apart from each other.
    open: Vec<(u64, u64)>,
}

/// The rules, as one value: each store does what these do.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Whether a producer that the account does not know was forgotten: nothing of it may be applied.
    pub is_stale: fn(Birth, Option<Birth>) -> bool,
    /// Whether a number is resolved. A reserve under such a number holds nothing.
    pub is_closed: fn(&Numbers, u64) -> bool,
    /// A reserve was granted: its number is met, and those before it that have not come yet are too.
    pub grant: fn(&mut Numbers, u64),
    /// A reserve was refused. Whether that closed its number: a late copy of a reserve that was granted before must not, so only a number
    /// that is met for the first time is closed; else its producer gives it back as it does a hold.
    pub deny: fn(&mut Numbers, u64) -> bool,
    /// A call has ended, with a debit or without. False when its number was closed before: then nothing else may change.
    pub resolve: fn(&mut Numbers, u64) -> bool,
    /// A hold's time is over: its number stays what it was, for the settlement may still come.
    pub expire: fn(&mut Numbers, u64),
    /// The producer has nothing below this number that it would still send. How many were open, which are lost.
    pub floor: fn(&mut Numbers, u64) -> u64,
    /// Everything that the producer left behind was resolved. How many were open.
    pub retire: fn(&mut Numbers) -> u64,
    /// Whether a producer may be forgotten that has been silent for so many days.
    pub may_forget: fn(&Numbers, i64) -> bool,
    /// What an account remembers of those that it forgot.
    pub forget: fn(Option<Birth>, Birth) -> Option<Birth>,
}

/// The rules that hold.
pub const RULES: Rules = Rules {
    is_stale: |born, forgotten| forgotten.is_some_and(|latest| born <= latest),
    is_closed: Numbers::is_closed,
    grant: Numbers::touch,
    deny: Numbers::deny,
    resolve: Numbers::resolve,
    expire: |_, _| {},
    floor: Numbers::floor,
    retire: Numbers::retire,
    may_forget: |numbers, silent_days| numbers.open.is_empty() && silent_days > SILENT_DAYS_MAX,
    forget: |forgotten, born| forgotten.max(Some(born)),
};

/// A producer that was silent for longer is forgotten.
pub const SILENT_DAYS_MAX: i64 = 30;

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

    /// Whether this number was resolved.
    pub fn is_closed(&self, number: u64) -> bool {
        number <= self.high && self.run_of(number).is_err()
    }

    /// This number is met.
    pub fn touch(&mut self, number: u64) {
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

    /// Closes a number when it was not met before. False when it was.
    pub fn deny(&mut self, number: u64) -> bool {
        number > self.high && self.resolve(number)
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

    /// Closes what is below `floor`, and says how many were open.
    pub fn floor(&mut self, floor: u64) -> u64 {
        let below = floor.saturating_sub(1);
        let mut lost: u64 = 0;
        self.open.retain_mut(|(first, last)| {
            if *first > below {
                return true;
            }
            let closed = (*last).min(below);
            lost = lost.saturating_add(closed.saturating_sub(*first).saturating_add(1));
            *first = floor;
            *first <= *last
        });
        self.high = self.high.max(below);
        lost
    }

    /// Closes everything that is open, and says how many that were.
    pub fn retire(&mut self) -> u64 {
        self.floor(self.high.saturating_add(1))
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
