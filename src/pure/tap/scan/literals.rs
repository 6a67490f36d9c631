//! Numbers, `true`, `false` and `null`.

use super::{Scanner, State};
use crate::pure::tap::accumulator::Reading;
use crate::pure::tap::schema::Role;
use crate::pure::tap::text::Kind;

impl Scanner {
    /// Inside a literal: all up to its end.
    pub(super) fn literal<'a>(&mut self, rest: &'a [u8], first: u8, seen: u8, reading: &mut Reading) -> &'a [u8] {
        let is_literal =
            |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'.' | b'-' | b'+' | b'E' | b'I' | b'N');
        let length = rest.iter().position(|byte| !is_literal(byte)).unwrap_or(rest.len());
        let (run, rest) = rest.split_at_checked(length).unwrap_or((rest, b""));
        if self.role.is_kept() || self.role == Role::Arguments {
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
            if role == Role::Arguments {
                arguments(&self.kept, reading);
            } else if role.is_kept() {
                reading.literal(role, &self.kept);
            }
            self.state = self.after_value();
        }
        rest
    }
}

/// What a tool is called with is a literal: but for null it is text as it stands. Of one that is longer than what is kept, that is counted.
#[cold]
fn arguments(literal: &[u8], reading: &mut Reading) {
    if literal != b"null" {
        reading.spans.texts += 1;
        // Another event with the same bytes around another string is another text: none is read by the short way.
        reading.spans.escaped = true;
        reading.counter.part(Kind::Content, literal);
        reading.counter.end(Kind::Content);
    }
}
