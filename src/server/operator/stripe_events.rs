//! Which of Stripe's messages were told of lately, so that whoever sends one again raises no second alarm.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};

/// The last [`KEPT_MAX`] of them, by the digest of their event's id: an id has any length.
#[derive(Default)]
pub(super) struct StripeEvents {
    last: Mutex<VecDeque<[u8; 32]>>,
}

impl StripeEvents {
    /// Notes a message of an event, which was signed then, in seconds since 1970. Whether it is not among the last ones.
    pub(super) fn is_new(&self, event: &[u8], signed_at: i64) -> bool {
        let mut hash = Sha256::new();
        hash.update(signed_at.to_le_bytes());
        hash.update(event);
        let digest: [u8; 32] = hash.finalize().into();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.contains(&digest) {
            return false;
        }
        if last.len() >= KEPT_MAX {
            last.pop_front();
        }
        last.push_back(digest);
        true
    }
}

/// 32 KiB.
const KEPT_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_new_once_until_many_others_came() {
        let events = StripeEvents::default();
        assert!(events.is_new(b"evt_0", 1));
        for number in 1..KEPT_MAX - 1 {
            assert!(events.is_new(format!("evt_{number}").as_bytes(), 1), "{number}");
        }
        assert!(!events.is_new(b"evt_0", 1));
        assert!(events.is_new(b"evt_0", 2), "another try");
        assert!(events.is_new(b"one more", 1));
        assert!(events.is_new(b"evt_0", 1), "it made room");
    }
}
