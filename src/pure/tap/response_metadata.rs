//! What an answer says of itself beside its text: for traces, never for bills.

/// What an answer said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The completion's id.
    pub id: Option<String>,
    /// The model that answered, as the provider names it.
    pub model: Option<String>,
    /// Why its choices ended.
    pub finishes: Finishes,
}

/// Why the choices of an answer ended, in the order in which they did: the first 16 of them. It needs no memory of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Finishes(u64);

impl Finishes {
    /// One more choice ended.
    pub(super) fn note(&mut self, reason: &[u8]) {
        let known = REASONS.iter().position(|name| name.as_bytes() == reason);
        let code = known.unwrap_or(REASONS.len()).saturating_add(1);
        if self.0 >> (u64::BITS - BITS) == 0 {
            self.0 = self.0 << BITS | u64::try_from(code).unwrap_or_default();
        }
    }

    /// Their names: those of OpenAI's interface, or `other`. What a provider writes beyond them is not passed on.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let codes = (0..u64::BITS / BITS)
            .rev()
            .map(move |place| self.0 >> (place * BITS) & MASK);
        codes.filter(|code| *code > 0).map(|code| {
            let at = usize::try_from(code).unwrap_or_default().saturating_sub(1);
            REASONS.get(at).copied().unwrap_or("other")
        })
    }
}

const REASONS: [&str; 6] = [
    "stop",
    "length",
    "tool_calls",
    "content_filter",
    "function_call",
    "error",
];
/// Bits of one reason.
const BITS: u32 = 4;
const MASK: u64 = (1 << BITS) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_keep_their_order_and_are_at_most_16() {
        let mut finishes = Finishes::default();
        assert_eq!(finishes.names().count(), 0);
        for reason in ["stop", "length", "what they like", "error"] {
            finishes.note(reason.as_bytes());
        }
        assert_eq!(
            finishes.names().collect::<Vec<_>>(),
            ["stop", "length", "other", "error"]
        );
        (0..20).for_each(|_| finishes.note(b"tool_calls"));
        let names: Vec<&str> = finishes.names().collect();
        assert_eq!((names.len(), names[0], names[15]), (16, "stop", "tool_calls"));
    }
}
