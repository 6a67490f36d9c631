//! The meter of one answer: the tap over the passing bytes, and what it makes of a stream's end.

use bytes::{Bytes, BytesMut};

use super::early_end::EarlyEnd;
use super::metered::{Metered, read};
use super::passed::Passed;
use crate::pure::bill::Tariff;
use crate::pure::charge::{Ceiling, Passing};
use crate::pure::error::{ApiError, STREAM_FAILED, STREAM_WITHOUT_LEDGER, StreamError};
use crate::pure::request_body::{Endpoint, RequestBody, ResponseMode};
use crate::pure::tap::{Forward, Framing, Said, StreamTap, TapOptions, WholeCost, WholeTap};
use crate::pure::tokens::Encoding;
use crate::pure::usage::{CompletionFrom, CompletionTokens, PromptTokens};

/// The tap of an answer that has begun.
pub(in crate::gateway) struct Meter {
    tap: Tap,
    framing: Framing,
    /// What was admitted for the call.
    ceiling: Ceiling,
    /// Bytes of the answer that were passed on, or gathered.
    passed: u64,
    /// The upstream ended its answer.
    ended: bool,
    /// That the provider sent an error event within its stream was told.
    has_failed: bool,
}

#[expect(
    clippy::large_enum_variant,
    reason = "a meter is in a box of its own, and a stream's is asked with each piece"
)]
enum Tap {
    Stream(StreamTap),
    Whole(Box<Whole>),
}

/// A whole answer. The transport gathers it: the client can do nothing with its first bytes anyway until the last has come, and until
/// then it may turn out to be an error object, a page of HTML that came with a 200, or less than a whole.
struct Whole {
    tap: WholeTap,
    cost: WholeCost,
    /// It is one of vectors, not of choices.
    is_vectors: bool,
    /// It was not gathered to its end, or has ended as an answer: what came of it is passed on.
    passes: bool,
}

impl Meter {
    /// A meter for the answer to `body`, for which `ceiling` was admitted. Text is counted by `encoding`, and the provider's reports name the
    /// completion as `completion_from` says.
    pub(in crate::gateway) fn new(
        body: &RequestBody,
        (encoding, completion_from): (Encoding, CompletionFrom),
        framing: Framing,
        ceiling: Ceiling,
    ) -> Meter {
        let completion_max = Some(ceiling.completion.0);
        let tap = match body.mode() {
            ResponseMode::Stream => {
                let options = TapOptions {
                    drop_usage_chunk: !body.asks_usage(),
                    encoding,
                    choices: body.choices(),
                    completion_max,
                    completion_from,
                    ..TapOptions::default()
                };
                Tap::Stream(StreamTap::new(options))
            }
            ResponseMode::Whole => Tap::Whole(Box::new(Whole {
                tap: WholeTap::within(encoding, completion_max, completion_from),
                cost: WholeCost::default(),
                is_vectors: body.endpoint() == Endpoint::Embeddings,
                passes: false,
            })),
        };
        Meter {
            tap,
            framing,
            ceiling,
            passed: 0,
            ended: false,
            has_failed: false,
        }
    }

    /// Whether the answer is a stream of events.
    pub(in crate::gateway) fn is_stream(&self) -> bool {
        matches!(self.tap, Tap::Stream(_))
    }

    /// Whether anything came.
    pub(in crate::gateway) fn has_begun(&self) -> bool {
        self.passed > 0
    }

    /// Whether the target has answered with the piece that has just passed, which may have been the last: what begins and fails is no answer.
    pub(in crate::gateway) fn has_answered(&self, ends: bool) -> bool {
        match &self.tap {
            Tap::Stream(tap) => tap.done() || ((tap.finished() || ends) && !tap.error_event() && !tap.died()),
            Tap::Whole(_) => ends,
        }
    }

    /// Whether the answer is a whole one of which nothing is passed on yet.
    pub(in crate::gateway) fn is_gathered(&self) -> bool {
        match &self.tap {
            Tap::Stream(_) => false,
            Tap::Whole(whole) => !whole.passes,
        }
    }

    /// A whole answer is passed on before its end.
    pub(in crate::gateway) fn stop_gathering(&mut self) {
        if let Tap::Whole(whole) = &mut self.tap {
            whole.passes = true;
        }
    }

    /// Whether what was passed on stands between two events of a stream, so that a comment could follow.
    pub(in crate::gateway) fn is_between_events(&self) -> bool {
        match &self.tap {
            Tap::Stream(tap) => tap.is_between_events(),
            Tap::Whole(_) => false,
        }
    }

    /// Whether a stream has had its last event, so that nothing more is owed to its client. What its upstream reports behind `[DONE]` is still read.
    pub(in crate::gateway) fn has_last_event(&self) -> bool {
        match &self.tap {
            Tap::Stream(tap) => tap.has_last_event(),
            Tap::Whole(_) => false,
        }
    }

    /// The client was sent a comment between two events.
    pub(in crate::gateway) fn commented(&mut self) {
        if let Tap::Stream(tap) = &mut self.tap {
            tap.commented();
        }
    }

    /// One piece of the upstream's answer passes; `ends` with its last. The client is told what it costs by this tariff.
    pub(in crate::gateway) fn pass<'t>(
        &mut self,
        body: &mut Option<Bytes>,
        ends: bool,
        tariff: impl Fn() -> Tariff<'t>,
    ) -> Passed {
        let mut is_usual = true;
        if let Some(chunk) = body.as_ref().filter(|chunk| !chunk.is_empty()) {
            self.passed = self
                .passed
                .saturating_add(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
            let forward = match &mut self.tap {
                Tap::Stream(tap) => tap.billed_chunk(chunk, || Some(tariff())),
                Tap::Whole(whole) => whole.cost.chunk(chunk, &mut whole.tap, &tariff()),
            };
            if let Forward::Replace(bytes) = forward {
                *body = Some(bytes);
                is_usual = false;
            }
        }
        if ends && !std::mem::replace(&mut self.ended, true) {
            is_usual = false;
            match &mut self.tap {
                Tap::Stream(tap) => {
                    append(body, tap.billed_end(self.framing, STREAM_FAILED, Some(&tariff())));
                    if tap.died() {
                        return Passed::Died;
                    }
                }
                Tap::Whole(whole) => return whole.end(),
            }
        }
        if is_usual { Passed::On } else { self.failure() }
    }

    /// What a piece comes to in whose place something else passes: the provider may have said that it failed, and that is told once. Behind
    /// the last event nobody reads it.
    fn failure(&mut self) -> Passed {
        match &self.tap {
            Tap::Stream(tap) if tap.error_event() && !tap.done() && !self.has_failed => {
                let code = tap.error_code();
                self.has_failed = true;
                Passed::Failed { code }
            }
            Tap::Stream(_) | Tap::Whole(_) => Passed::On,
        }
    }

    /// Where a stream stands against what was admitted; a whole answer is always within, for its text is not counted before its end.
    pub(in crate::gateway) fn passing(&self, model_id: &str) -> Passing {
        match &self.tap {
            // Asked with each piece, and nearly always this.
            Tap::Stream(tap) if tap.delivered() <= self.ceiling.completion => Passing::Within,
            Tap::Stream(tap) => self.ceiling.passing(tap.delivered_text(), Ceiling::is_known(model_id)),
            Tap::Whole(_) => Passing::Within,
        }
    }

    /// Whether a stream has come to the end of its answer, so that only its report and its last event may follow.
    pub(in crate::gateway) fn is_at_finish(&self) -> bool {
        matches!(&self.tap, Tap::Stream(tap) if tap.is_at_finish())
    }

    /// The client was told what the answer costs, for good.
    pub(in crate::gateway) fn has_told(&self) -> bool {
        matches!(&self.tap, Tap::Stream(tap) if tap.told_bill().is_some())
    }

    /// More was admitted: the hold was raised.
    pub(in crate::gateway) fn extend(&mut self, ceiling: Ceiling) {
        self.ceiling = ceiling;
        if let Tap::Stream(tap) = &mut self.tap {
            tap.extend(ceiling.completion.0);
        }
    }

    /// Tokens that were delivered so far, as they are counted.
    pub(in crate::gateway) fn delivered(&self) -> CompletionTokens {
        match &self.tap {
            Tap::Stream(tap) => tap.delivered(),
            Tap::Whole(whole) => whole.tap.delivered(),
        }
    }

    /// What a stream's client is sent as its end, before the upstream ends it; none for a whole answer.
    #[cold]
    pub(super) fn end_early(&mut self, end: EarlyEnd, tariff: &Tariff<'_>) -> Option<Bytes> {
        let Tap::Stream(tap) = &mut self.tap else { return None };
        Some(match end {
            EarlyEnd::Maximum => tap.end_as_length(tariff.body.choices(), Some(tariff)),
            EarlyEnd::NoCredit => tap.end_without_credit(Some(tariff)),
            EarlyEnd::NoAnswer => tap.billed_fail(STREAM_WITHOUT_LEDGER, Some(tariff)),
            EarlyEnd::Stopped(why) => {
                let error = ApiError::AccountStopped(why).to_wire();
                tap.billed_fail((why.message(), error.kind, error.status), Some(tariff))
            }
        })
    }

    /// What an answer that stopped here would cost: completion tokens, and the prompt's where the provider reported it. None while what
    /// came is an error, or nothing.
    pub(in crate::gateway) fn owed_now(&self) -> Option<(CompletionTokens, Option<PromptTokens>)> {
        let (delivered, reported, reports, is_whole, is_error) = match &self.tap {
            Tap::Stream(tap) => {
                let is_error = tap.error_event() || tap.died();
                (tap.delivered(), tap.reported(), tap.reports(), tap.finished(), is_error)
            }
            Tap::Whole(whole) => {
                let tap = &whole.tap;
                (
                    tap.delivered(),
                    tap.reported(),
                    tap.reports(),
                    tap.complete(),
                    tap.is_error(),
                )
            }
        };
        if is_error && delivered.0 == 0 {
            return None;
        }
        let (completion, prompt) = match reported {
            Some(usage) if is_whole => (usage.completion, Some(usage.prompt)),
            Some(usage) => (usage.completion.max(delivered), Some(usage.prompt)),
            None => (delivered, reports.prompt()),
        };
        let prompt = prompt.map(|prompt| prompt.min(self.ceiling.prompt));
        Some((completion.min(self.ceiling.completion), prompt))
    }

    /// The upstream died, or the process stops: what is left to say to the client. None when nothing can mend the answer.
    pub(in crate::gateway) fn fail(&mut self, why: StreamError, tariff: Option<&Tariff<'_>>) -> Option<Bytes> {
        match &mut self.tap {
            Tap::Stream(tap) => Some(tap.billed_fail(why, tariff)),
            Tap::Whole(_) => None,
        }
    }

    /// What the answer said of itself, once it is over.
    pub(in crate::gateway) fn take_said(&mut self) -> Said {
        match &mut self.tap {
            Tap::Stream(tap) => tap.take_said(),
            Tap::Whole(whole) => whole.tap.take_said(),
        }
    }

    /// What the provider is likely to charge for an answer of which nothing was passed on: the prompt where it reported it, and the
    /// completion that it reported, or that can be counted in what came. None for an error.
    pub(in crate::gateway) fn likely_use(mut self) -> Option<(Option<PromptTokens>, CompletionTokens)> {
        let (reports, reported, delivered, is_error) = match &mut self.tap {
            Tap::Stream(tap) => (tap.reports(), tap.reported(), tap.delivered(), tap.error_event()),
            Tap::Whole(whole) => {
                let tap = &mut whole.tap;
                tap.end();
                (tap.reports(), tap.reported(), tap.delivered(), tap.is_error())
            }
        };
        let completion = reported.map_or(delivered, |usage| usage.completion.max(delivered));
        (!is_error).then_some((reports.prompt(), completion))
    }

    /// What was used.
    pub(in crate::gateway) fn finish(mut self) -> Metered {
        let began = self.passed > 0;
        match &mut self.tap {
            Tap::Stream(tap) => {
                let told = tap.told_use();
                let metered = match told {
                    Some(told) => read(&told.reports, told.reported),
                    None => read(tap.reports(), tap.reported_at_end()),
                };
                Metered {
                    counted_prompt: tap.counted_prompt(),
                    tier: told.map_or_else(|| tap.served_tier().map(Box::from), |told| told.tier.clone()),
                    delivered: told.map_or_else(|| tap.delivered(), |told| told.delivered),
                    is_error: tap.error_event() || tap.died(),
                    is_complete: tap.finished(),
                    is_over: tap.has_last_event(),
                    is_implausible: tap.is_implausible(),
                    began,
                    told: tap.told_bill(),
                    ..metered
                }
            }
            Tap::Whole(whole) if !whole.passes => whole.finish_gathered(),
            Tap::Whole(whole) => {
                let tap = &mut whole.tap;
                tap.end();
                let metered = read(tap.reports(), tap.reported());
                Metered {
                    counted_prompt: whole.cost.counted_prompt(),
                    tier: tap.served_tier().map(Box::from),
                    delivered: tap.delivered(),
                    is_error: tap.is_error(),
                    is_complete: tap.complete(),
                    is_over: tap.complete(),
                    is_part_passed: tap.stopped_within(),
                    is_implausible: tap.is_implausible(),
                    began,
                    told: whole.cost.told_bill(),
                    ..metered
                }
            }
        }
    }
}

impl Whole {
    /// The answer's end: it is passed on, if it is an answer.
    fn end(&mut self) -> Passed {
        if self.tap.is_cut() {
            return Passed::Cut;
        }
        let has_content = match self.is_vectors {
            true => self.tap.has_vectors(),
            false => self.tap.has_choices(),
        };
        let is_answer = self.tap.complete() && self.tap.is_object() && !self.tap.is_error() && has_content;
        if !self.passes && !is_answer {
            let code = self.tap.error_code();
            return Passed::NoAnswer { code };
        }
        self.passes = true;
        Passed::On
    }

    /// What was used of an answer of which nothing was passed on: at most its prompt is owed.
    fn finish_gathered(&self) -> Metered {
        Metered {
            is_error: self.tap.is_error(),
            is_over: self.tap.complete(),
            ..read(self.tap.reports(), None)
        }
    }
}

/// Puts `tail` after what passes.
pub(in crate::gateway) fn append(body: &mut Option<Bytes>, tail: Bytes) {
    if tail.is_empty() {
        return;
    }
    let chunk = body.take().unwrap_or_default();
    *body = Some(if chunk.is_empty() { tail } else { joined(&chunk, &tail) });
}

/// One after the other.
pub(in crate::gateway) fn joined(head: &[u8], tail: &[u8]) -> Bytes {
    let mut joined = BytesMut::with_capacity(head.len().saturating_add(tail.len()));
    joined.extend_from_slice(head);
    joined.extend_from_slice(tail);
    joined.freeze()
}

#[cfg(test)]
mod tests;
