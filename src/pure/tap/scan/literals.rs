//! Numbers, `true`, `false` and `null`.

use super::{Scanner, State};
use crate::pure::tap::accumulator::Reading;
use crate::pure::tap::schema::Role;

impl Scanner {
    /// Inside a literal: all up to its end.
    pub(super) fn literal<'a>(&mut self, rest: &'a [u8], first: u8, seen: u8, reading: &mut Reading) -> &'a [u8] {
        let is_literal =
            |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'.' | b'-' | b'+' | b'E' | b'I' | b'N');
        let length = rest.iter().position(|byte| !is_literal(byte)).unwrap_or(rest.len());
        let (run, rest) = rest.split_at_checked(length).unwrap_or((rest, b""));
        if self.role.is_kept() {
            self.keep_bytes(run);
        }
        if rest.is_empty() {
            let seen = seen.saturating_add(u8::try_from(run.len()).unwrap_or(u8::MAX));
            let byte = if matches!(first, b't' | b'f' | b'n') {
                first
            } else {
                run.last().copied().unwrap_or(first)
            };
            self.state = State::Literal(byte, seen);
        } else {
            let role = std::mem::replace(&mut self.role, Role::Skip);
            if role.is_kept() {
                reading.literal(role, &self.kept);
            }
            self.state = self.after_value();
        }
        rest
    }
}
