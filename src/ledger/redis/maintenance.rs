//! Whether maintenance is on, as this process knows it: a command of its own has switched it, or it was read from Redis. A reading never
//! undoes a switch that came after it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is known.
#[derive(Debug, Default)]
pub(super) struct Maintenance {
    is_on: AtomicBool,
    /// How often commands of this process have switched it.
    switches: Mutex<u64>,
}

impl Maintenance {
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// A command of this process has switched it.
    pub(super) fn switched(&self, is_on: bool) {
        let mut switches = self.lock();
        *switches = switches.wrapping_add(1);
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// How often commands of this process have switched it. To be asked before it is read.
    pub(super) fn switches(&self) -> u64 {
        *self.lock()
    }

    /// Redis says so, and was asked after so many switches. What it said before a later one is not believed.
    pub(super) fn was_read(&self, switches: u64, is_on: bool) {
        let now = self.lock();
        if *now == switches {
            self.is_on.store(is_on, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.switches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_before_a_switch_does_not_undo_it() {
        let maintenance = Maintenance::default();
        let before = maintenance.switches();
        maintenance.was_read(before, true);
        assert!(maintenance.is_on(), "nobody has switched it");
        maintenance.switched(true);
        maintenance.was_read(before, false);
        assert!(maintenance.is_on());
        maintenance.was_read(maintenance.switches(), false);
        assert!(!maintenance.is_on());
    }
}
