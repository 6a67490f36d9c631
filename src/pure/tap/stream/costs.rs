//! What a stream costs, told in its last usage.
//!
//! An event with a usage that nothing can follow carries the cost, and a stream whose client asked for its usage and was told none, or
//! another, gets an event of its own before `[DONE]`. No event waits for that.

use std::ops::Range;

use super::StreamTap;
use crate::pure::bill::Tariff;
use crate::pure::tap::accumulator::Choices;
use crate::pure::tap::usage_object::{ToldUsage, retold};
use crate::pure::usage::{Figure, PromptTokens, Usage};

/// The usage in an event that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventUsage {
    /// Where it begins and ends in the event's data.
    span: (usize, usize),
    sides: (Figure, Figure),
    /// Nothing that is billed follows it.
    is_last: bool,
}

impl StreamTap {
    /// The usage in the event at hand, where there is one that can be told otherwise than it came.
    pub(super) fn event_usage(&self, tariff: Option<&Tariff<'_>>) -> Option<EventUsage> {
        let (seen, span) = (&self.reading.seen, &self.reading.spans.usage);
        let tariff = tariff.filter(|_| seen.usage && span.end > span.start && !self.released)?;
        // Who reports before its end reports after it too.
        let ends_all = seen.finish && tariff.body.choices() == 1 && !self.reports_often;
        let follows_end = self.finished && seen.choices != Choices::Some;
        Some(EventUsage {
            span: (span.start, span.end),
            sides: seen.sides,
            is_last: seen.completion && (ends_all || follows_end),
        })
    }

    /// Whether the event at hand has a usage that may be told otherwise, so that it waits for its end.
    pub(super) fn may_be_retold(&self, tariff: Option<&Tariff<'_>>) -> bool {
        tariff.is_some() && self.reading.seen.usage
    }

    /// The event as its client is told it. None where it stays as it is.
    pub(super) fn retell(&mut self, event: &[u8], usage: EventUsage, tariff: Option<&Tariff<'_>>) -> Option<Vec<u8>> {
        let told = match tariff {
            Some(tariff) if usage.is_last => self.reported().and_then(|usage| self.told(usage, true, tariff)),
            _ => None,
        };
        self.reports_often |= !usage.is_last;
        let retold_event = in_data(event, usage.span.0..usage.span.1, |object| {
            retold(object, 0..object.len(), usage.sides, told.as_ref())
        })?;
        if told.is_some() {
            self.told = told;
        }
        Some(retold_event)
    }

    /// What is to be told before `[DONE]`: the usage with its cost, when the client asked for one and was told none, or another.
    pub(super) fn last_usage(&mut self, tariff: Option<&Tariff<'_>>) -> Vec<u8> {
        let Some(tariff) = tariff.filter(|_| !self.options.drop_usage_chunk) else {
            return Vec::new();
        };
        let delivered = self.delivered();
        let reported = self.reported();
        let usage = match (reported, delivered.0 > 0 || self.finished) {
            (Some(reported), _) => reported,
            (None, true) => {
                let prompt = self.reading.reports.prompt();
                let Some(prompt) = prompt.or_else(|| self.count_prompt(tariff)) else {
                    return Vec::new();
                };
                Usage {
                    prompt,
                    completion: delivered,
                }
            }
            (None, false) => return Vec::new(),
        };
        match self.told(usage, reported.is_some(), tariff) {
            Some(told) if self.told != Some(told) => {
                self.told = Some(told);
                told.event(&self.reading.identity)
            }
            _ => Vec::new(),
        }
    }

    /// The usage that the client was last told with its cost: what is billed, once the stream has its end.
    pub fn told_usage(&self) -> Option<Usage> {
        self.told
            .filter(|_| self.done || self.closed)
            .map(|told| told.bill.usage)
    }

    /// The prompt, where it was counted for the client to be told.
    pub fn counted_prompt(&self) -> Option<PromptTokens> {
        self.counted_prompt
    }

    fn count_prompt(&mut self, tariff: &Tariff<'_>) -> Option<PromptTokens> {
        self.counted_prompt = self.counted_prompt.or_else(|| tariff.counted_prompt());
        self.counted_prompt
    }

    fn told(&self, usage: Usage, is_reported: bool, tariff: &Tariff<'_>) -> Option<ToldUsage> {
        ToldUsage::of(&self.reading.used(usage, is_reported, tariff), tariff)
    }
}

/// The event with another object at `span` of its data. None where there is none, or `with` makes none. Data that stands in several lines is
/// told in one.
fn in_data(event: &[u8], span: Range<usize>, with: impl FnOnce(&[u8]) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    let mut lines = data_lines(event);
    let (first, others) = (lines.next()?, lines.next());
    let (before, data, after) = match others {
        None => (
            event.get(..first.start)?,
            event.get(first.clone())?.to_vec(),
            event.get(first.end..)?,
        ),
        Some(_) => {
            let lines: Vec<&[u8]> = data_lines(event).filter_map(|line| event.get(line)).collect();
            (&b"data: "[..], lines.join(&b' '), &b"\n\n"[..])
        }
    };
    let object = with(data.get(span.clone())?)?;
    Some([before, data.get(..span.start)?, &object, data.get(span.end..)?, after].concat())
}

/// Where the values of the event's lines of data stand.
fn data_lines(event: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < event.len() {
            let line = event.get(at..)?;
            let length = line
                .iter()
                .position(|byte| matches!(byte, b'\n' | b'\r'))
                .unwrap_or(line.len());
            let (start, end) = (at, at.saturating_add(length));
            at = end.saturating_add(1);
            if let Some(value) = event.get(start..end)?.strip_prefix(b"data:") {
                let blank = usize::from(value.first() == Some(&b' '));
                return Some(start.saturating_add(5).saturating_add(blank)..end);
            }
        }
        None
    })
}
