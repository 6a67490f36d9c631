//! What a stream costs, told in its last usage.
//!
//! An event with a usage that nothing can follow carries the cost, and a stream whose client asked for its usage and was told none, or
//! another, gets an event of its own before `[DONE]`. No event waits for that.

use std::ops::Range;

use super::StreamTap;
use crate::pure::bill::{Bill, Tariff};
use crate::pure::tap::usage_object::{Sides, ToldUsage, retold, without_costs};
use crate::pure::usage::{CompletionTokens, PromptTokens, Reports, Usage};

/// The usages in an event that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EventUsage {
    /// That which a client reads.
    root: Option<RootUsage>,
    /// Where the others stand in the event's data.
    others: Vec<Range<usize>>,
}

/// The usage in the root of an event's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RootUsage {
    /// Where it begins and ends in the event's data.
    span: (usize, usize),
    sides: Sides,
    /// Nothing that is billed follows it.
    is_last: bool,
}

/// What was known of the answer when its client was told what it costs. Whatever a provider sends after that changes no bill.
#[derive(Clone, Debug)]
pub struct ToldUse {
    told: ToldUsage,
    /// All that the provider had reported.
    pub reports: Reports,
    /// What of it was believed, both sides, before it was cut to what was admitted.
    pub reported: Option<Usage>,
    /// Tokens of the text that had been delivered.
    pub delivered: CompletionTokens,
    /// The tier by which the provider had said that it serves the call.
    pub tier: Option<Box<str>>,
}

impl ToldUse {
    /// The bill that the client was told.
    pub fn bill(&self) -> Bill {
        self.told.bill
    }
}

impl StreamTap {
    /// The usages in the event at hand, where there is one that can be told otherwise than it came.
    pub(super) fn event_usage(&mut self, tariff: Option<&Tariff<'_>>) -> Option<EventUsage> {
        let tariff = tariff.filter(|_| self.reading.seen.usage && !self.released)?;
        let root = self.root_usage(tariff);
        let others = std::mem::take(&mut self.reading.spans.other_usages);
        (root.is_some() || !others.is_empty()).then_some(EventUsage { root, others })
    }

    fn root_usage(&self, tariff: &Tariff<'_>) -> Option<RootUsage> {
        let (seen, span) = (&self.reading.seen, &self.reading.spans.usage);
        // Who reports before its end reports after it too.
        let ends_all = seen.finish && tariff.body.choices() == 1 && !self.reports_often;
        // Its choices may be there once more, without anything in them. Where more follows all the same, the end tells what it comes to.
        let follows_end = self.finished && !seen.finish;
        // Who did not ask for the usage chunk, which is left out, is not told what it would correct.
        let may_be_last = seen.completion && !self.done && !self.options.drop_usage_chunk;
        (span.end > span.start).then_some(RootUsage {
            span: (span.start, span.end),
            sides: seen.sides,
            is_last: may_be_last && (ends_all || follows_end),
        })
    }

    /// Whether the event at hand has a usage that may be told otherwise, so that it waits for its end.
    pub(super) fn may_be_retold(&self, tariff: Option<&Tariff<'_>>) -> bool {
        tariff.is_some() && self.reading.seen.usage
    }

    /// The event as its client is told it. None where it stays as it is.
    pub(super) fn retell(&mut self, event: &[u8], usage: &EventUsage, tariff: Option<&Tariff<'_>>) -> Option<Vec<u8>> {
        let is_last = usage.root.is_some_and(|root| root.is_last);
        let told = match tariff {
            Some(tariff) if is_last => self.reported_at_end().and_then(|usage| self.told(usage, true, tariff)),
            _ => None,
        };
        if usage.root.is_some() {
            self.reports_often |= !is_last;
            self.has_untold_usage = true;
        }
        let mut has_told = false;
        let retold_event = in_data(event, |data| {
            let without = without_costs(data, 0, &usage.others);
            let came = without.as_deref().unwrap_or(data);
            let root = usage.root;
            let retold = root.and_then(|root| retold(came, root.span.0..root.span.1, root.sides, told.as_ref()));
            has_told = retold.is_some();
            retold.or(without)
        })?;
        if let Some(told) = told.filter(|_| has_told) {
            self.tell(told, self.reported_at_end());
        }
        Some(retold_event)
    }

    /// What is to be told before `[DONE]`: the usage with its cost, when the client asked for one and was told none, or another, or read one
    /// without a cost since. Before another `[DONE]` there is nothing.
    pub(super) fn last_usage(&mut self, tariff: Option<&Tariff<'_>>) -> Vec<u8> {
        if std::mem::replace(&mut self.has_end, true) {
            return Vec::new();
        }
        let Some(tariff) = tariff.filter(|_| !self.options.drop_usage_chunk) else {
            return Vec::new();
        };
        let delivered = self.delivered();
        let reported = self.reported_at_end();
        let usage = match (reported, delivered.0 > 0 || self.finished()) {
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
            Some(told) if self.has_untold_usage || self.told.as_ref().is_none_or(|before| before.told != told) => {
                self.tell(told, reported);
                told.event(&self.reading.identity)
            }
            _ => Vec::new(),
        }
    }

    /// What the bill that the client was told last is made of, when the stream has its end, whichever that was.
    pub fn told_use(&self) -> Option<&ToldUse> {
        self.told.as_ref().filter(|_| self.has_end || self.closed)
    }

    /// The bill that the client was told last, when the stream has its end: it is owed as it is. Whatever came after it the client was not
    /// told of: text behind the last usage, an error, a connection that was cut.
    pub fn told_bill(&self) -> Option<Bill> {
        self.told_use().map(ToldUse::bill)
    }

    fn tell(&mut self, told: ToldUsage, reported: Option<Usage>) {
        self.has_untold_usage = false;
        self.told = Some(ToldUse {
            told,
            reports: self.reading.reports,
            reported,
            delivered: self.delivered(),
            tier: self.served_tier().map(Box::from),
        });
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

/// The event with what `with` makes of its data. None where it has none, or `with` makes none. Data that stands in several lines is told in
/// the first of them; lines between them that are none of data stay.
fn in_data(event: &[u8], with: impl FnOnce(&[u8]) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    let lines: Vec<DataLine> = data_lines(event).collect();
    let (first, last) = (lines.first()?, lines.last()?);
    let values = lines.iter().filter_map(|line| event.get(line.value.clone()));
    let told = with(&values.collect::<Vec<&[u8]>>().join(&b' '))?;
    let before = event.get(..first.value.start)?;
    // A line that is the name alone has no colon that the data could follow.
    let colon: &[u8] = if before.ends_with(b"data") { b":" } else { b"" };
    let mut out = [before, colon, &told].concat();
    for (line, next) in lines.iter().zip(lines.iter().skip(1)) {
        out.extend_from_slice(without_last_end(event.get(line.value.end..next.start)?));
    }
    out.extend_from_slice(event.get(last.value.end..)?);
    Some(out)
}

/// Lines with their ends, but for the end of the last one.
fn without_last_end(lines: &[u8]) -> &[u8] {
    let lines_or_cr = lines.strip_suffix(b"\n").unwrap_or(lines);
    lines_or_cr.strip_suffix(b"\r").unwrap_or(lines_or_cr)
}

/// Where a line of an event's data stands.
struct DataLine {
    start: usize,
    value: Range<usize>,
}

/// The event's lines of data.
fn data_lines(event: &[u8]) -> impl Iterator<Item = DataLine> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < event.len() {
            let line = event.get(at..)?;
            let length = memchr::memchr2(b'\n', b'\r', line).unwrap_or(line.len());
            let (start, end) = (at, at.saturating_add(length));
            at = end.saturating_add(1);
            let line = event.get(start..end)?;
            let line = line
                .strip_prefix(BYTE_ORDER_MARK)
                .filter(|_| start == 0)
                .unwrap_or(line);
            let value: &[u8] = match line.strip_prefix(b"data:") {
                Some(value) => value.strip_prefix(b" ").unwrap_or(value),
                None if line == b"data" => b"",
                None => continue,
            };
            let value = end.saturating_sub(value.len())..end;
            return Some(DataLine { start, value });
        }
        None
    })
}

/// A stream may begin with one; it is no part of its first line.
const BYTE_ORDER_MARK: &[u8] = "\u{FEFF}".as_bytes();
