//! A key in place of another one, as a value: what both are afterwards.

use super::KeyRecord;
use super::admin::AdminError;
use super::key_settings::Replaced;
use crate::pure::ids::{KeyDigest, KeyId};
use crate::pure::time::Timestamp;

/// What a rotation asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rotation {
    /// Of the new key.
    pub(super) digest: KeyDigest,
    overlap_ms: i64,
}

impl Rotation {
    /// # Errors
    /// When it cannot be meant.
    pub(super) fn of(digest: &str, overlap_ms: i64) -> Result<Rotation, AdminError> {
        let digest = KeyDigest::from_hex(digest)
            .ok_or_else(|| AdminError::Invalid("the key's digest is not 64 hexadecimal digits".to_owned()))?;
        if !(0..=OVERLAP_MS_MAX).contains(&overlap_ms) {
            return Err(AdminError::Invalid(format!(
                "the overlap is from 0 to {OVERLAP_MS_MAX} milliseconds (366 days)"
            )));
        }
        Ok(Rotation { digest, overlap_ms })
    }

    /// The new key. It expires when the old one did before it was rotated, now or earlier. Where what the old one spends is counted, it
    /// counts as that one, or as what that one counts as: so its limits hold for both as for one, and what was spent stays spent.
    ///
    /// # Errors
    /// When the old one is not good any more.
    pub(super) fn new_key(
        &self,
        old: &KeyRecord,
        counts_as: Option<KeyId>,
        now: Timestamp,
    ) -> Result<KeyRecord, AdminError> {
        let is_over = old.expires.is_some_and(|expires| expires <= now);
        if old.revoked.is_some() || is_over {
            return Err(over(&old.id, if is_over { "expired" } else { "revoked" }));
        }
        let mut key = KeyRecord {
            id: KeyId::of(&self.digest),
            created: now,
            expires: own_expiry(old),
            ..old.clone()
        };
        key.settings.counts_as = counts_as;
        key.settings.replaced = None;
        Ok(key)
    }

    /// The old key: it expires when the overlap is over, or when it would anyhow; without an overlap it is revoked.
    pub(super) fn old_key(&self, old: &KeyRecord, now: Timestamp) -> KeyRecord {
        let mut old = old.clone();
        if self.is_at_once() {
            old.revoked = old.revoked.or(Some(now));
        } else {
            let expires = own_expiry(&old);
            old.settings.replaced = Some(Replaced { expires });
            let end = now.plus_millis(self.overlap_ms);
            old.expires = Some(old.expires.map_or(end, |own| own.min(end)));
        }
        old
    }

    /// Whether the old key is revoked at once.
    pub(super) fn is_at_once(&self) -> bool {
        self.overlap_ms == 0
    }
}

/// When a key expires by itself, whatever overlap it has been given.
fn own_expiry(key: &KeyRecord) -> Option<Timestamp> {
    match key.settings.replaced {
        Some(Replaced { expires }) => expires,
        None => key.expires,
    }
}

/// What is said of a key that is not good any more.
pub(super) fn over(key: &KeyId, why: &str) -> AdminError {
    AdminError::Conflict(format!("{key} is {why} and cannot be rotated; make a new key"))
}

/// What is said when the new key's digest is another key's.
pub(super) fn taken() -> AdminError {
    AdminError::Invalid("the new key is there already; nothing was changed".to_owned())
}

/// The longest overlap: 366 days.
pub(crate) const OVERLAP_MS_MAX: i64 = 366 * 86_400_000;
