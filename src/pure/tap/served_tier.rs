//! The name of the tier by which a provider says that it served a call.

/// A tier as its provider names it. Of a name that no catalogue can have a part is kept, with a mark that stands in no catalogue's name: it is a
/// tier without prices, and none of those that have some.
pub(super) fn tier_name(tier: &[u8]) -> Box<str> {
    match std::str::from_utf8(tier) {
        Ok(name) if (1..=TIER_BYTES_MAX).contains(&name.len()) => name.into(),
        _ => {
            let part = tier.get(..TIER_BYTES_MAX).unwrap_or(tier);
            format!("{}\u{2026}", String::from_utf8_lossy(part)).into()
        }
    }
}

/// A longer name of a tier is none that a catalogue has.
const TIER_BYTES_MAX: usize = 32;
