//! The meter of one answer: the tap over the passing bytes, and what it makes of a stream's end.

use bytes::{Bytes, BytesMut};

use crate::pure::chat::{RequestBody, ResponseMode};
use crate::pure::tap::{Forward, StreamTap, TapOptions, WholeTap};
use crate::pure::tokens::Encoding;
use crate::pure::usage::{CompletionTokens, PromptTokens, Reports, Usage};

/// The tap of an answer that has begun.
pub(super) struct Meter {
    tap: Tap,
    /// Bytes of the answer that were passed on.
    passed: u64,
    /// The upstream ended its answer.
    ended: bool,
}

enum Tap {
    Stream(Box<StreamTap>),
    Whole(Box<WholeTap>),
}

/// What is known of an answer's use once it is over.
pub(super) struct Metered {
    /// The provider's report of both sides.
    pub(super) reported: Option<Usage>,
    /// The provider's report of the prompt alone.
    pub(super) prompt: Option<PromptTokens>,
    /// Tokens counted in what was delivered.
    pub(super) delivered: CompletionTokens,
    /// The upstream said that it failed, or what came was no answer.
    pub(super) is_error: bool,
    /// The answer came to its end.
    pub(super) is_complete: bool,
    /// Whether anything was passed on.
    pub(super) began: bool,
    /// Reports that were not believed.
    pub(super) rejected_reports: u64,
}

impl Meter {
    /// A meter for the answer to `body`.
    pub(super) fn new(body: &RequestBody, encoding: Encoding) -> Meter {
        let tap = match body.mode() {
            ResponseMode::Stream => {
                let options = TapOptions {
                    drop_usage_chunk: !body.asks_usage(),
                    encoding,
                    ..TapOptions::default()
                };
                Tap::Stream(Box::new(StreamTap::new(options)))
            }
            ResponseMode::Whole => Tap::Whole(Box::new(WholeTap::new(encoding))),
        };
        Meter {
            tap,
            passed: 0,
            ended: false,
        }
    }

    /// Whether the answer is a stream of events.
    pub(super) fn is_stream(&self) -> bool {
        matches!(self.tap, Tap::Stream(_))
    }

    /// One piece of the upstream's answer passes; `ends` with its last.
    pub(super) fn pass(&mut self, body: &mut Option<Bytes>, ends: bool) {
        if let Some(chunk) = body.as_ref().filter(|chunk| !chunk.is_empty()) {
            self.passed = self
                .passed
                .saturating_add(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
            match &mut self.tap {
                Tap::Stream(tap) => {
                    if let Forward::Replace(bytes) = tap.chunk(chunk) {
                        *body = Some(bytes);
                    }
                }
                Tap::Whole(tap) => tap.chunk(chunk),
            }
        }
        if ends && !self.ended {
            self.ended = true;
            if let Tap::Stream(tap) = &mut self.tap {
                append(body, tap.end());
            }
        }
    }

    /// The upstream died: what is left to say to the client. None when nothing can mend the answer.
    pub(super) fn fail(&mut self, message: &str, kind: &str, code: u16) -> Option<Bytes> {
        match &mut self.tap {
            Tap::Stream(tap) => Some(tap.fail(message, kind, code)),
            Tap::Whole(_) => None,
        }
    }

    /// What was used.
    pub(super) fn finish(mut self) -> Metered {
        let began = self.passed > 0;
        match &mut self.tap {
            Tap::Stream(tap) => {
                let metered = read(tap.reports(), tap.reported());
                Metered {
                    delivered: tap.delivered(),
                    is_error: tap.error_event(),
                    is_complete: tap.finished(),
                    began,
                    ..metered
                }
            }
            Tap::Whole(tap) => {
                tap.end();
                let metered = read(tap.reports(), tap.reported());
                Metered {
                    delivered: tap.delivered(),
                    is_error: tap.is_error(),
                    is_complete: tap.complete(),
                    began,
                    ..metered
                }
            }
        }
    }
}

fn read(reports: &Reports, reported: Option<Usage>) -> Metered {
    Metered {
        reported,
        prompt: reports.prompt(),
        rejected_reports: reports.rejected(),
        delivered: CompletionTokens(0),
        is_error: false,
        is_complete: false,
        began: false,
    }
}

fn append(body: &mut Option<Bytes>, tail: Bytes) {
    if tail.is_empty() {
        return;
    }
    *body = Some(match body.take().filter(|chunk| !chunk.is_empty()) {
        None => tail,
        Some(chunk) => {
            let mut joined = BytesMut::with_capacity(chunk.len().saturating_add(tail.len()));
            joined.extend_from_slice(&chunk);
            joined.extend_from_slice(&tail);
            joined.freeze()
        }
    });
}
