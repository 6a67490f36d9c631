//! What a whole answer costs, told in its `usage`.
//!
//! From where that object begins, or another usage, the answer's bytes wait until the answer is whole, for only then is it known what it
//! costs. When more than [`TAIL_BYTES_MAX`] would have to wait, what stands before the usage of the root passes, or before one that is open.
//! Where that is not enough, all that waits passes, without a cost.

use bytes::Bytes;

use super::usage_object::{ToldUsage, retold, without_costs};
use super::{Forward, WholeTap};
use crate::pure::bill::{Bill, Tariff};
use crate::pure::request_body::Endpoint;
use crate::pure::usage::{PromptTokens, Usage};

/// Puts the cost into one whole answer as it passes its tap.
#[derive(Debug, Default)]
pub struct WholeCost {
    stage: Stage,
    /// Bytes of the answer that came.
    came: usize,
    /// What waits: the answer from a usage on.
    tail: Vec<u8>,
    counted_prompt: Option<PromptTokens>,
    /// What was told.
    told: Option<Bill>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// No usage has begun that has not passed.
    #[default]
    Before,
    /// One has, at this place of the answer.
    Since(usize),
    /// What comes passes.
    Over,
}

impl WholeCost {
    /// The prompt, where it was counted for the client to be told.
    pub fn counted_prompt(&self) -> Option<PromptTokens> {
        self.counted_prompt
    }

    /// The bill that stands in the answer: it is owed as it is, whatever comes after that.
    pub fn told_bill(&self) -> Option<Bill> {
        self.told
    }

    /// Where in the answer the bytes begin that wait for its end; none where all that came has left.
    pub fn waits_since(&self) -> Option<usize> {
        match self.stage {
            Stage::Since(place) => Some(place),
            Stage::Before | Stage::Over => None,
        }
    }

    /// One chunk passes the tap: what leaves in its place.
    pub fn chunk(&mut self, chunk: &Bytes, tap: &mut WholeTap, tariff: &Tariff<'_>) -> Forward {
        let begin = self.came;
        self.came = begin.saturating_add(chunk.len());
        tap.chunk(chunk);
        let begins = self.stage == Stage::Before;
        if begins && let Some(place) = tap.spans().first_usage(begin) {
            self.stage = Stage::Since(place);
        }
        match self.stage {
            Stage::Before if tap.complete() => {
                self.stage = Stage::Over;
                let with = self.with_usage(chunk, begin, tap, tariff);
                with.map_or(Forward::Unchanged, |bytes| Forward::Replace(Bytes::from(bytes)))
            }
            Stage::Before | Stage::Over => Forward::Unchanged,
            Stage::Since(place) => {
                let at = if begins {
                    place.saturating_sub(begin).min(chunk.len())
                } else {
                    0
                };
                if begins && tap.complete() {
                    // The whole of it is at hand, as it mostly is.
                    self.stage = Stage::Over;
                    let retold = self.retell(chunk, begin, tap, tariff);
                    return retold.map_or(Forward::Unchanged, |bytes| Forward::Replace(Bytes::from(bytes)));
                }
                self.tail.extend_from_slice(chunk.get(at..).unwrap_or_default());
                let is_too_long = self.tail.len() > TAIL_BYTES_MAX;
                if !tap.complete() && tap.is_cut() && !is_too_long {
                    return Forward::Replace(chunk.slice(..at));
                }
                let mut leaves = std::mem::take(&mut self.tail);
                self.stage = match self.still_waits(place, tap) {
                    Some(start) => {
                        let length = start.saturating_sub(place).min(leaves.len());
                        self.tail = leaves.split_off(length);
                        Stage::Since(start)
                    }
                    // The usage that tells the cost may be yet to come.
                    None if tap.is_cut() => Stage::Before,
                    None => Stage::Over,
                };
                // What it costs is not known yet where more is to come, but what it does not.
                let told = if tap.complete() || is_too_long {
                    self.retell(&leaves, place, tap, tariff)
                } else {
                    None
                };
                let head = chunk.get(..at).unwrap_or_default();
                Forward::Replace(Bytes::from([head, told.as_deref().unwrap_or(&leaves)].concat()))
            }
        }
    }

    /// Where the usage begins from which on the answer waits still, when too much of it waits since `place`: that of the root, which tells the
    /// cost, or else one that is open, whose own cost is yet to be taken out. It is behind `place`, so that something leaves each time.
    fn still_waits(&self, place: usize, tap: &WholeTap) -> Option<usize> {
        let mut starts = tap.spans().unfinished_usages().filter(|_| tap.is_cut());
        starts.find(|start| *start > place && self.came.saturating_sub(*start) <= TAIL_BYTES_MAX)
    }

    /// Bytes of the answer that begin at `place`, without the provider's own cost in any usage, and with what it costs in that of the root,
    /// where that can be told. None where they stay as they are.
    fn retell(&mut self, bytes: &[u8], place: usize, tap: &mut WholeTap, tariff: &Tariff<'_>) -> Option<Vec<u8>> {
        let without = without_costs(bytes, place, &tap.spans().other_usages);
        let came = without.as_deref().unwrap_or(bytes);
        let has_usage = tap.spans().usage.start > 0;
        let told = match has_usage {
            true => self.with_cost(came, place, tap, tariff),
            false => self.with_usage(came, place, tap, tariff),
        };
        told.or(without)
    }

    /// Bytes of the answer that begin at `place` and have the whole usage of the root, with the cost.
    fn with_cost(&mut self, bytes: &[u8], place: usize, tap: &mut WholeTap, tariff: &Tariff<'_>) -> Option<Vec<u8>> {
        let span = tap.spans().usage.clone();
        let (from, to) = (span.start.checked_sub(place)?, span.end.checked_sub(place)?);
        let told = match tap.complete() {
            true => self.told(tap, tariff),
            false => None,
        };
        let retold = retold(bytes, from..to, tap.sides(), told.as_ref())?;
        self.told = told.map(|told| told.bill);
        Some(retold)
    }

    /// The end of an answer, which begins at `place`, with a usage where it has none in its root.
    fn with_usage(&mut self, bytes: &[u8], place: usize, tap: &mut WholeTap, tariff: &Tariff<'_>) -> Option<Vec<u8>> {
        let spans = tap.spans();
        if spans.usage_is_none || spans.usage.start > 0 || !tap.complete() {
            return None;
        }
        let brace = spans.end.checked_sub(1)?.checked_sub(place)?;
        let told = self.told(tap, tariff).filter(|_| is_answer(tap, tariff))?;
        let (before, after) = bytes.split_at_checked(brace)?;
        self.told = Some(told.bill);
        Some([before, b",\"usage\":", &told.object(), after].concat())
    }

    /// What the answer, which is whole, is billed.
    fn told(&mut self, tap: &mut WholeTap, tariff: &Tariff<'_>) -> Option<ToldUsage> {
        if tap.is_error() {
            return None;
        }
        let reported = tap.reported();
        let usage = match reported {
            Some(reported) => reported,
            None if is_answer(tap, tariff) => {
                tap.end();
                self.counted_prompt = tap.reports().prompt().or_else(|| tariff.counted_prompt());
                Usage {
                    prompt: self.counted_prompt?,
                    completion: tap.delivered(),
                }
            }
            None => return None,
        };
        ToldUsage::of(&tap.used(usage, reported.is_some(), tariff), tariff)
    }
}

/// Whether this is what the request asked for, a chat or vectors, so that it costs something whatever is reported.
fn is_answer(tap: &WholeTap, tariff: &Tariff<'_>) -> bool {
    let is_vectors = tariff.body.endpoint() == Endpoint::Embeddings && tap.has_vectors();
    tap.is_answer() || is_vectors && !tap.is_error()
}

/// The most bytes of an answer that wait for its end.
const TAIL_BYTES_MAX: usize = 64 << 10;
