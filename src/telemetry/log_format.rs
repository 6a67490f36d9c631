//! A request as a line: JSON for programs, columns for people. Never a key, a prompt or a completion; a key is named by its id.

use super::record::{Outcome, Record};
use crate::pure::money::Credits;
use crate::pure::time::Timestamp;

use std::time::Duration;

/// Writes lines; it keeps the text of the second that it wrote last.
#[derive(Debug, Default)]
pub(super) struct Lines {
    second: i64,
    text: String,
}

impl Lines {
    /// Appends a request as one line of JSON. The names and their order are fixed; what is not known is null.
    pub(super) fn json(&mut self, record: &Record, to: &mut Vec<u8>) {
        let at = record.at();
        to.extend_from_slice(b"{\"time\":\"");
        to.extend_from_slice(self.second_of(at).as_bytes());
        to.push(b'.');
        padded(to, u64::try_from(at.0.rem_euclid(1000)).unwrap_or(0), 3);
        to.extend_from_slice(b"Z\",\"request_id\":\"");
        to.extend_from_slice(uuid(record).as_bytes());
        to.extend_from_slice(b"\",\"route\":\"");
        to.extend_from_slice(record.route.name().as_bytes());
        to.extend_from_slice(b"\",\"status\":");
        number(to, u64::from(record.status));
        to.extend_from_slice(b",\"outcome\":\"");
        to.extend_from_slice(record.outcome.name().as_bytes());
        to.push(b'"');
        text(to, "reason", record.reason);
        text(
            to,
            "account",
            record.caller.as_ref().map(|(account, _)| account.as_str()),
        );
        text(to, "key_id", record.caller.as_ref().map(|(_, key)| key.as_str()));
        text(to, "model", Some(&*record.target.model).filter(|id| !id.is_empty()));
        text(
            to,
            "provider",
            Some(&*record.target.provider).filter(|name| !name.is_empty()),
        );
        text(to, "upstream_model", record.upstream_model.as_deref());
        figure(to, "attempts", Some(u64::from(record.attempts)));
        let billed = record.billed.as_ref();
        figure(to, "prompt_tokens", billed.map(|billed| billed.usage.prompt.0));
        figure(to, "completion_tokens", billed.map(|billed| billed.usage.completion.0));
        to.extend_from_slice(b",\"cost\":");
        match billed {
            Some(billed) => credits(to, billed.cost),
            None => to.extend_from_slice(b"null"),
        }
        millis(to, "duration_ms", Some(record.duration));
        millis(to, "first_event_ms", record.first_event);
        millis(to, "overhead_ms", Some(record.overhead));
        to.extend_from_slice(b"}\n");
    }

    /// Appends a request as columns.
    pub(super) fn human(&mut self, record: &Record, to: &mut Vec<u8>) {
        let at = record.at();
        let second = self.second_of(at);
        let clock = second.get(11..).unwrap_or(second);
        let account = record.caller.as_ref().map_or("-", |(account, _)| account.as_str());
        let what = if record.target.model.is_empty() {
            record.route.name()
        } else {
            &record.target.model
        };
        let millis = record.duration.as_micros();
        let mut line = format!(
            "{clock} {} {:>7}.{} ms  {account:<12} {what}",
            record.status,
            millis / 1000,
            millis / 100 % 10
        );
        if let Some(billed) = &record.billed {
            let (prompt, completion) = (billed.usage.prompt.0, billed.usage.completion.0);
            line.push_str(&format!("  {prompt}+{completion} tokens  {}", billed.cost));
        }
        if record.attempts > 1 {
            line.push_str(&format!("  {} attempts", record.attempts));
        }
        match (record.reason, record.outcome) {
            (Some(reason), _) => line.push_str(&format!("  {reason}")),
            (None, Outcome::Complete) => {}
            (None, outcome) => line.push_str(&format!("  {}", outcome.name())),
        }
        line.push('\n');
        to.extend_from_slice(line.as_bytes());
    }

    /// `2026-11-20T10:15:00` of a time.
    fn second_of(&mut self, at: Timestamp) -> &str {
        let second = at.0.div_euclid(1000);
        if second != self.second || self.text.is_empty() {
            self.second = second;
            self.text = at.to_string();
            let bare = self.text.trim_end_matches('Z').len();
            self.text.truncate(bare);
        }
        &self.text
    }
}

fn uuid(record: &Record) -> String {
    let mut text = [0u8; uuid::fmt::Hyphenated::LENGTH];
    let id = uuid::Uuid::from_bytes(*record.id.as_bytes());
    id.hyphenated().encode_lower(&mut text).to_owned()
}

fn name(to: &mut Vec<u8>, name: &str) {
    to.extend_from_slice(b",\"");
    to.extend_from_slice(name.as_bytes());
    to.extend_from_slice(b"\":");
}

fn text(to: &mut Vec<u8>, key: &str, value: Option<&str>) {
    name(to, key);
    match value {
        // Names of the configuration may hold anything that a string may.
        Some(value) if serde_json::to_writer(&mut *to, value).is_ok() => {}
        _ => to.extend_from_slice(b"null"),
    }
}

fn figure(to: &mut Vec<u8>, key: &str, value: Option<u64>) {
    name(to, key);
    match value {
        Some(value) => number(to, value),
        None => to.extend_from_slice(b"null"),
    }
}

/// Milliseconds with three decimals.
fn millis(to: &mut Vec<u8>, key: &str, value: Option<Duration>) {
    name(to, key);
    let Some(value) = value else {
        return to.extend_from_slice(b"null");
    };
    let micros = u64::try_from(value.as_micros()).unwrap_or(u64::MAX);
    number(to, micros / 1000);
    to.push(b'.');
    padded(to, micros % 1000, 3);
}

/// The exact amount, without trailing zeros, from the integer.
fn credits(to: &mut Vec<u8>, amount: Credits) {
    let pico = amount.pico();
    if pico < 0 {
        to.push(b'-');
    }
    let pico = pico.unsigned_abs();
    number(to, pico / PICO);
    let mut decimals = pico % PICO;
    if decimals == 0 {
        return;
    }
    let mut digits = 12;
    while decimals.is_multiple_of(10) {
        (decimals, digits) = (decimals / 10, digits - 1);
    }
    to.push(b'.');
    padded(to, decimals, digits);
}

fn number(to: &mut Vec<u8>, value: u64) {
    to.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// The number with zeros before it, `digits` in all.
fn padded(to: &mut Vec<u8>, value: u64, digits: usize) {
    let mut buffer = itoa::Buffer::new();
    let text = buffer.format(value);
    to.extend(std::iter::repeat_n(b'0', digits.saturating_sub(text.len())));
    to.extend_from_slice(text.as_bytes());
}

const PICO: u64 = 1_000_000_000_000;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::Telemetry;
    use super::super::record::{Billed, RouteName};
    use super::super::recorder::Recorder;
    use super::*;
    use crate::pure::ids::RequestId;
    use crate::pure::usage::{CompletionTokens, PromptTokens, Usage};

    /// The line of a request that `write` has changed.
    fn line(write: impl FnOnce(&mut Record)) -> serde_json::Value {
        let telemetry = Arc::new(Telemetry::default());
        telemetry.logs.store(true, std::sync::atomic::Ordering::Relaxed);
        let id = RequestId::from_bytes([0x01, 0x9a, 0, 0, 0, 1, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, 0xff]);
        let mut recorder = Recorder::new(&telemetry, id, crate::clock::monotonic());
        recorder.route(RouteName::Chat);
        drop(recorder);
        let mut out = Vec::new();
        let mut write = Some(write);
        telemetry.take_waiting(|records| {
            for mut record in records {
                if let Some(write) = write.take() {
                    write(&mut record);
                }
                Lines::default().json(&record, &mut out);
            }
        });
        assert_eq!(out.pop(), Some(b'\n'));
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn what_is_not_known_is_null_and_every_name_is_there() {
        let line = line(|_| ());
        assert_eq!(line["request_id"], "019a0000-0001-7000-8000-0000000000ff");
        assert_eq!(line["time"], "2025-10-20T05:03:11.361Z");
        assert_eq!((&line["status"], &line["outcome"]), (&0.into(), &"dropped".into()));
        for name in [
            "reason",
            "account",
            "key_id",
            "model",
            "provider",
            "upstream_model",
            "cost",
            "first_event_ms",
        ] {
            assert!(line.as_object().unwrap()[name].is_null(), "{name}");
        }
        assert_eq!(line.as_object().unwrap().len(), 18);
    }

    #[test]
    fn amounts_keep_all_their_digits() {
        for (pico, text) in [
            (0, "0"),
            (1, "0.000000000001"),
            (37_432_500, "0.0000374325"),
            (10_500_000_000_000, "10.5"),
            (-1_000_000_000_000, "-1"),
            (i64::MAX, "9223372.036854775807"),
        ] {
            let mut out = Vec::new();
            credits(&mut out, Credits::from_pico(pico));
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }

    #[test]
    fn times_and_tokens() {
        let line = line(|record| {
            record.duration = Duration::from_micros(12_045);
            record.upstream_model = Some("a \"b\"\n".into());
            let usage = Usage {
                prompt: PromptTokens(3),
                completion: CompletionTokens(4),
            };
            let (cost, held) = (Credits::PICO, Credits::ZERO);
            record.billed = Some(Billed { usage, cost, held });
        });
        assert_eq!(line["duration_ms"], 12.045);
        assert_eq!(
            (&line["prompt_tokens"], &line["completion_tokens"]),
            (&3.into(), &4.into())
        );
        assert_eq!(line["upstream_model"], "a \"b\"\n");
    }
}
