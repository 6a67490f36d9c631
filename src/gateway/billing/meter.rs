//! The meter of one answer: the tap over the passing bytes, and what it makes of a stream's end.

use std::time::Instant;

use bytes::Bytes;

use super::append::append;
use super::early_end::EarlyEnd;
use super::metered::{Metered, read};
use super::passed::Passed;
use super::stream_start::StreamStart;
use super::whole_answer::Whole;
use crate::pure::bill::Tariff;
use crate::pure::charge::{Ceiling, Passing};
use crate::pure::error::{ApiError, STREAM_FAILED, STREAM_WITHOUT_LEDGER, StreamError};
use crate::pure::prices::CacheWrites;
use crate::pure::request_body::{RequestBody, ResponseMode};
use crate::pure::tap::{Forward, Framing, Said, StreamTap, TapOptions, WholeTap};
use crate::pure::tokens::Encoding;
use crate::pure::usage::{CompletionFrom, CompletionTokens, Naming, PromptTokens};

mod about_operator;
mod finish;
mod likely_use;
mod unread;

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
    /// It is a stream of which nothing leaves before its first event.
    awaits_event: bool,
    /// How a stream has begun.
    start: StreamStart,
    /// With how many tokens, and since when, a stream is complete: see [`Meter::note_finish`].
    finished_at: Option<(CompletionTokens, Instant)>,
}

#[expect(
    clippy::large_enum_variant,
    reason = "a meter is in a box of its own, and a stream's is asked with each piece"
)]
enum Tap {
    Stream(StreamTap),
    Whole(Box<Whole>),
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
        let naming = Naming {
            completion_from,
            hour_writes: body.asks().writes == CacheWrites::Hour,
        };
        let tap = match body.mode() {
            ResponseMode::Stream => {
                let options = TapOptions {
                    drop_usage_chunk: !body.asks_usage(),
                    encoding,
                    choices: body.choices(),
                    completion_max,
                    naming,
                    ..TapOptions::default()
                };
                Tap::Stream(StreamTap::new(options))
            }
            ResponseMode::Whole => {
                let tap = WholeTap::within(encoding, completion_max, naming);
                Tap::Whole(Box::new(Whole::new(tap, body.endpoint())))
            }
        };
        Meter {
            tap,
            framing,
            ceiling,
            passed: 0,
            ended: false,
            has_failed: false,
            awaits_event: false,
            start: StreamStart::default(),
            finished_at: None,
        }
    }

    /// Nothing of a stream is passed on before its first event.
    pub(in crate::gateway) fn await_event(&mut self) {
        self.awaits_event = self.is_stream();
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
            Tap::Whole(whole) => ends && whole.is_answer(),
        }
    }

    /// Whether the whole answer that has passed on, and has ended, was none, for it began to pass before that was known: the code of the
    /// error that it came to be, if it has one.
    pub(in crate::gateway) fn was_none(&self) -> Option<Option<u16>> {
        match &self.tap {
            Tap::Whole(whole) if !whole.is_answer() => Some(whole.tap.error_code().filter(|_| whole.tap.is_error())),
            Tap::Whole(_) | Tap::Stream(_) => None,
        }
    }

    /// Whether nothing of the answer is passed on yet, but for white space: of a whole one before its end, of a stream that is to begin with
    /// its first event.
    pub(in crate::gateway) fn is_gathered(&self) -> bool {
        match &self.tap {
            Tap::Stream(_) => self.awaits_event,
            Tap::Whole(whole) => !whole.passes(),
        }
    }

    /// The answer is passed on before what it waited for. Of a whole one that is white space at most, only that is: see [`Whole`].
    pub(in crate::gateway) fn stop_gathering(&mut self) {
        match &mut self.tap {
            Tap::Stream(_) => self.awaits_event = false,
            Tap::Whole(whole) => whole.stop_gathering(),
        }
    }

    /// Whether what was passed on stands between two events of a stream, so that a comment could follow.
    pub(in crate::gateway) fn is_between_events(&self) -> bool {
        match &self.tap {
            Tap::Stream(tap) => tap.is_between_events() && !self.awaits_event,
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
        let passed = self.take(body, ends, tariff);
        if self.awaits_event {
            self.begin(passed, ends)
        } else {
            passed
        }
    }

    /// What a piece comes to before which nothing of the stream was passed on: with its first event it begins, and what fails before it has
    /// is no answer.
    #[cold]
    fn begin(&mut self, passed: Passed, ends: bool) -> Passed {
        let Tap::Stream(tap) = &self.tap else { return passed };
        match passed {
            Passed::Failed { code } => Passed::NoAnswer { code },
            Passed::Died => Passed::Cut,
            Passed::On if tap.has_event() => {
                self.awaits_event = false;
                Passed::On
            }
            Passed::On if ends => Passed::Cut,
            Passed::On | Passed::Cut | Passed::NoAnswer { .. } => passed,
        }
    }

    fn take<'t>(&mut self, body: &mut Option<Bytes>, ends: bool, tariff: impl Fn() -> Tariff<'t>) -> Passed {
        let mut is_usual = true;
        if let Some(chunk) = body.as_ref().filter(|chunk| !chunk.is_empty()) {
            self.passed = self
                .passed
                .saturating_add(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
            let forward = match &mut self.tap {
                Tap::Stream(_) if self.start.is_other(chunk) => Forward::Replace(Bytes::new()),
                Tap::Stream(tap) => tap.billed_chunk(chunk, || Some(tariff())),
                Tap::Whole(whole) => whole.chunk(chunk, &tariff()),
            };
            if let Forward::Replace(bytes) = forward {
                *body = Some(bytes);
                is_usual = false;
            }
        }
        let ends = ends || self.start.is_over() || matches!(&self.tap, Tap::Whole(whole) if whole.is_lost());
        if ends && !std::mem::replace(&mut self.ended, true) {
            is_usual = false;
            match &mut self.tap {
                Tap::Stream(tap) => {
                    let error = self.start.other().filter(|other| other.is_failure());
                    let error = error.map(|other| other.error_code());
                    let told = error.and_then(ApiError::within_stream);
                    let why = told
                        .as_ref()
                        .map_or(STREAM_FAILED, |told| (told.message.as_str(), told.kind, told.status));
                    append(body, tap.billed_end(self.framing, why, Some(&tariff())));
                    if let Some(code) = error {
                        self.has_failed = true;
                        return Passed::Failed { code };
                    }
                    if tap.died() {
                        return Passed::Died;
                    }
                }
                Tap::Whole(whole) => return whole.end(body),
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
            Tap::Whole(whole) => whole.delivered(),
        }
    }

    /// What a stream's client is sent as its end, before the upstream ends it; none for a whole answer.
    #[cold]
    pub(super) fn end_early(&mut self, end: EarlyEnd, tariff: &Tariff<'_>) -> Option<Bytes> {
        let Tap::Stream(tap) = &mut self.tap else { return None };
        if self.awaits_event {
            // Its client gets a status yet.
            return None;
        }
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

    /// What has come of an answer that stopped here: completion tokens, which may be more than was admitted, and the prompt's where the
    /// provider reported it, as far as that was admitted. None while what came is an error, or nothing.
    pub(super) fn come(&self) -> Option<(CompletionTokens, Option<PromptTokens>)> {
        let (delivered, reported, reports, is_whole, is_error) = match &self.tap {
            Tap::Stream(tap) => {
                let is_error = tap.error_event() || tap.died();
                (
                    tap.delivered_to_date(),
                    tap.reported(),
                    tap.reports(),
                    tap.finished(),
                    is_error,
                )
            }
            Tap::Whole(whole) => {
                let tap = &whole.tap;
                (
                    whole.delivered(),
                    whole.reported(),
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
        Some((completion, prompt))
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
        match (&mut self.tap, self.start.other()) {
            (Tap::Stream(_), Some(other)) => other.take_said(),
            (Tap::Stream(tap), None) => tap.take_said(),
            (Tap::Whole(whole), _) => whole.tap.take_said(),
        }
    }

    /// What was used.
    pub(in crate::gateway) fn finish(mut self) -> Metered {
        let began = self.passed > 0;
        // Certainly no answer, whether all of it came or not.
        let is_other = self.start.other().is_some();
        match &mut self.tap {
            Tap::Stream(tap) if self.awaits_event || is_other => Metered {
                is_error: tap.error_event() || tap.died() || is_other,
                is_over: tap.has_last_event() || is_other,
                ..read(tap.reports(), None)
            },
            Tap::Stream(tap) => {
                tap.stop();
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
                    is_over: tap.has_last_event() || tap.has_last_report(),
                    is_implausible: tap.is_implausible(),
                    began,
                    told: tap.told_bill(),
                    ..metered
                }
            }
            Tap::Whole(whole) => whole.finish(began),
        }
    }
}

#[cfg(test)]
mod tests;
