//! What the scanner has read of an answer: usage reports, text, how it ended, who it is.

use std::ops::Range;

use rust_decimal::Decimal;

use super::choice_set::ChoiceSet;
use super::response_metadata::{Finishes, Said};
use super::schema::{Node, Role};
use super::served_tier::tier_name;
use super::spans::Spans;
use super::text::{Place, TokenCounter};
use super::usage_object::Sides;
use crate::pure::bill::{Tariff, Used};
use crate::pure::tokens::Encoding;
use crate::pure::usage::{Figure, Naming, Report, Reports, Usage};

/// The reading of one answer. Reports, text and identity are of the whole answer; [`Seen`] and [`Spans`] are of the
/// document (an event, or the whole answer) at hand.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) counter: TokenCounter,
    pub(super) reports: Reports,
    pub(super) identity: Identity,
    finishes: Finishes,
    choice: ChoiceAtHand,
    /// The choices that had a `delta`: in all, and before the document at hand.
    deltas: ChoiceSet,
    earlier_deltas: ChoiceSet,
    /// The choices that end in the document at hand.
    pub(super) ended: ChoiceSet,
    pub(super) seen: Seen,
    pub(super) spans: Spans,
    /// The tier by which the provider served the call, as it says.
    pub(super) served_tier: Option<Box<str>>,
    report: Report,
}

/// What the choice at hand was seen to hold.
#[derive(Clone, Copy, Debug, Default)]
struct ChoiceAtHand {
    /// What comes stands in it.
    is_open: bool,
    /// None where it has said none yet.
    index: Option<u64>,
    has_finish: bool,
    has_delta: bool,
}

/// What an answer's chunks say of themselves.
#[derive(Debug, Default)]
pub(super) struct Identity {
    pub(super) id: Option<String>,
    pub(super) created: Option<u64>,
    pub(super) model: Option<String>,
}

/// What one document was seen to hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// An error in the place where clients look for one.
    pub(super) error: bool,
    /// The numeric code of that error, or what its words stand for.
    pub(super) error_code: Option<u16>,
    /// That of a `code` in the root, which is an error's where there is one without a code of its own: `{"object":"error","code":400}`.
    pub(super) root_code: Option<u16>,
    /// A finish reason that is not null.
    pub(super) finish: bool,
    pub(super) choices: Choices,
    /// A `message` in one of them.
    pub(super) message: bool,
    /// An array of vectors, as embeddings are.
    pub(super) vectors: bool,
    /// Text in a place where no choice has it.
    pub(super) response: bool,
    /// A usage object.
    pub(super) usage: bool,
    /// A report of the completion that is believed.
    pub(super) completion: bool,
    /// One of those stands in no choice: it is of all of them.
    pub(super) completion_of_all: bool,
    /// The sides as the last report has them.
    pub(super) last_sides: Sides,
    /// The sides as the usage object in the document's root has them.
    pub(super) sides: Sides,
}

/// How many tokens had been delivered when a report of the completion came.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReportedAt {
    /// The last one.
    pub(super) last: u64,
    /// The last one that is of all choices.
    pub(super) of_all: Option<u64>,
}

impl ReportedAt {
    /// Of a document of which this was seen, the text in it being `delivered` with that before.
    pub(super) fn note(&mut self, seen: &Seen, delivered: u64) {
        if seen.completion {
            self.last = delivered;
        }
        if seen.completion_of_all {
            self.of_all = Some(delivered);
        }
    }
}

/// The `choices` of a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Choices {
    #[default]
    Absent,
    Empty,
    Some,
}

impl Reading {
    pub(super) fn new(encoding: Encoding, completion_max: Option<u64>, naming: Naming) -> Self {
        Reading {
            counter: TokenCounter::new(encoding),
            reports: Reports::within(completion_max).naming(naming),
            identity: Identity::default(),
            finishes: Finishes::default(),
            choice: ChoiceAtHand::default(),
            deltas: ChoiceSet::default(),
            earlier_deltas: ChoiceSet::default(),
            ended: ChoiceSet::default(),
            seen: Seen::default(),
            spans: Spans::default(),
            served_tier: None,
            report: Report::default(),
        }
    }

    /// A new document of the same answer begins.
    pub(super) fn start_document(&mut self) {
        if self.seen.finish {
            self.ended = ChoiceSet::default();
        }
        self.earlier_deltas = self.deltas;
        self.choice = ChoiceAtHand::default();
        self.seen = Seen::default();
        self.spans = Spans::default();
        self.report = Report::default();
    }

    /// A container begins; what it is read as.
    pub(super) fn open(&mut self, role: Role, node: Node) -> Node {
        match role {
            Role::Choices if node == Node::Choices => self.seen.choices = Choices::Empty,
            Role::Choice => {
                self.choice = ChoiceAtHand::default();
                self.choice.is_open = node == Node::Choice;
            }
            Role::Delta if node == Node::Message => {
                self.choice.has_delta = true;
                self.counter.enter(Place::Delta);
            }
            Role::Message if node == Node::Message => return self.open_message(),
            Role::Data => self.seen.vectors |= node == Node::Vectors,
            // It may be anything, so it may be text.
            Role::Response => self.seen.response = true,
            Role::Error => self.seen.error = true,
            Role::Usage => {
                self.seen.usage |= node == Node::Usage;
                self.report = Report::default();
            }
            _ => self.figure(role, Figure::Unbelievable),
        }
        node
    }

    /// The `message` of a choice begins. In an event after one with a `delta` of that choice it repeats what the deltas said (Perplexity's
    /// repeats all words so far, MiniMax' last one the whole answer), so it is not read. One that says its index later is taken for any.
    fn open_message(&mut self) -> Node {
        self.seen.message = true;
        let is_repeated = match self.choice.index {
            Some(index) => self.earlier_deltas.contains(index),
            None => self.earlier_deltas != ChoiceSet::default(),
        };
        if is_repeated {
            return Node::Other;
        }
        self.counter.enter(Place::Message);
        Node::Message
    }

    /// A container ended.
    pub(super) fn close(&mut self, node: Node) {
        match node {
            Node::Usage => {
                self.seen.last_sides = Sides::of(&self.report);
                let is_of_completion = self.reports.add(std::mem::take(&mut self.report));
                self.seen.completion |= is_of_completion;
                self.seen.completion_of_all |= is_of_completion && !self.choice.is_open;
            }
            Node::Choice => {
                self.counter.end_choice();
                let choice = std::mem::take(&mut self.choice);
                // One that says none is the first.
                let index = choice.index.unwrap_or(0);
                if choice.has_finish {
                    self.ended.insert(index);
                }
                if choice.has_delta {
                    self.deltas.insert(index);
                }
            }
            _ => {}
        }
    }

    /// The usage object in the document's root has ended, before this place.
    pub(super) fn end_usage(&mut self, offset: usize) {
        self.spans.usage.end = offset;
        self.seen.sides = self.seen.last_sides;
    }

    /// A string that is kept ended; `None`: it is longer than any that means something.
    pub(super) fn string(&mut self, role: Role, text: Option<&[u8]>) {
        let text_or_empty = text.unwrap_or_default();
        match role {
            Role::Id => keep_first(&mut self.identity.id, text),
            Role::Model => keep_first(&mut self.identity.model, text),
            Role::Object => self.seen.error |= text_or_empty == b"error",
            Role::FinishReason => self.finish(text.unwrap_or(b"other"), b""),
            Role::Error => self.seen.error |= text != Some(b""),
            Role::ErrorCode => note_code(&mut self.seen.error_code, text_or_empty),
            Role::AnswerCode => note_code(&mut self.seen.root_code, text_or_empty),
            Role::Cost => self.report.cost = provider_cost(text_or_empty),
            Role::EstimatedCost => self.report.estimated_cost = provider_cost(text_or_empty),
            Role::IsByok => self.report.is_byok = text_or_empty == b"true",
            Role::UpstreamCost => self.report.upstream_cost = provider_cost(text_or_empty),
            Role::ServiceTier => self.serve(text),
            Role::Response => self.seen.response |= text != Some(b""),
            _ => self.figure(role, Figure::Unbelievable),
        }
    }

    /// A number, `true`, `false` or `null` that is kept ended.
    pub(super) fn literal(&mut self, role: Role, text: &[u8]) {
        match role {
            Role::Created if self.identity.created.is_none() => {
                let created = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
                self.identity.created = created.filter(|created| *created != 0);
            }
            Role::FinishReason => self.finish(text, b"null"),
            // One that is no number counts as one that is left out, which is the first choice's.
            Role::ChoiceIndex => self.choice.index = Some(index(text).unwrap_or(0)),
            Role::Error => self.seen.error |= !matches!(text, b"null" | b"false" | b"0"),
            Role::ErrorCode => note_code(&mut self.seen.error_code, text),
            Role::AnswerCode => note_code(&mut self.seen.root_code, text),
            Role::Cost => self.report.cost = provider_cost(text),
            Role::EstimatedCost => self.report.estimated_cost = provider_cost(text),
            Role::IsByok => self.report.is_byok = text == b"true",
            Role::UpstreamCost => self.report.upstream_cost = provider_cost(text),
            _ => self.figure(role, Figure::from_json(text)),
        }
    }

    /// A text that counts, or padding, ended; it stood at `span`.
    pub(super) fn text(&mut self, role: Role, span: Range<usize>, escaped: bool) {
        match role.text() {
            Some(kind) => {
                self.counter.end(kind);
                if !span.is_empty() {
                    self.spans.escaped |= escaped;
                    self.spans.texts += 1;
                    self.spans.text = span;
                }
            }
            None if role == Role::Padding => self.spans.padding = span,
            None => {}
        }
    }

    /// What the answer was used for, of which `usage` is `is_reported`, or counted.
    pub(super) fn used(&self, usage: Usage, is_reported: bool, tariff: &Tariff<'_>) -> Used<'_> {
        let reported = is_reported.then_some(usage);
        Used {
            usage,
            kinds: self.reports.kinds_of(reported),
            tier: self.served_tier.as_deref(),
            cost: reported.and_then(|usage| tariff.provider_cost(&self.reports, usage)),
        }
    }

    /// What the answer said of itself; it is said once.
    pub(super) fn take_said(&mut self) -> Said {
        Said {
            id: self.identity.id.take(),
            model: self.identity.model.take(),
            finishes: self.finishes,
        }
    }

    /// A choice ended for this reason, unless it is the word for none.
    fn finish(&mut self, reason: &[u8], none: &[u8]) {
        if reason != none {
            self.seen.finish = true;
            self.choice.has_finish = true;
            self.finishes.note(reason);
        }
    }

    /// The provider served the call by this tier, of which None is longer than what is kept: the last word counts.
    fn serve(&mut self, tier: Option<&[u8]>) {
        let is_known = self
            .served_tier
            .as_deref()
            .is_some_and(|known| Some(known.as_bytes()) == tier);
        if !is_known && tier != Some(b"") {
            self.served_tier = Some(tier_name(tier.unwrap_or_default()));
        }
    }

    fn figure(&mut self, role: Role, figure: Figure) {
        match role {
            Role::PromptTokens => self.report.prompt = figure,
            Role::CompletionTokens => self.report.completion = figure,
            Role::TotalTokens => self.report.total = figure,
            Role::CompletionDetail => self.report.completion_detail = self.report.completion_detail.larger(figure),
            // Some providers say it twice, under both names.
            Role::CacheReadTokens => self.report.cache_read = self.report.cache_read.larger(figure),
            Role::CachedTokens => self.report.cached = figure,
            Role::ReasoningBeside => self.report.reasoning_beside = figure,
            Role::CacheWriteTokens => self.report.cache_write = self.report.cache_write.larger(figure),
            Role::AudioTokens => self.report.audio = figure,
            Role::ImageTokens => self.report.image = figure,
            Role::ReasoningTokens => self.report.reasoning = figure,
            Role::AudioOutputTokens => self.report.audio_output = figure,
            Role::ImageOutputTokens => self.report.image_output = figure,
            Role::InputTokens => self.report.buckets.input = figure,
            Role::OutputTokens => self.report.buckets.output = figure,
            Role::ReadBucket => self.report.buckets.read = figure,
            Role::WriteBucket => self.report.buckets.write = figure,
            Role::Write5mBucket => self.report.buckets.write_5m = figure,
            Role::Write1hBucket => self.report.buckets.write_1h = figure,
            _ => {}
        }
    }
}

impl Seen {
    /// The numeric code of the error that it holds, or what its words stand for.
    pub(super) fn error_code(&self) -> Option<u16> {
        self.error_code.or(self.root_code.filter(|_| self.error))
    }
}

/// What an error says of itself by its `code`: a number, or a word that stands for 400.
fn note_code(code: &mut Option<u16>, text: &[u8]) {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    match (number, &code) {
        (Some(_), _) => *code = number,
        (None, None) if REQUESTS_FAULTS.contains(&text) => *code = Some(400),
        (None, _) => {}
    }
}

/// The first that says something: Azure's first event, of its filter, has empty ones.
fn keep_first(slot: &mut Option<String>, text: Option<&[u8]>) {
    if slot.is_none() {
        let text = text.filter(|text| !text.is_empty());
        *slot = text.and_then(|text| String::from_utf8(text.to_vec()).ok());
    }
}

/// A provider's cost as it stands there, to 28 digits. None for what is no amount, is negative, or beyond [`PROVIDER_COST_MAX`].
fn provider_cost(text: &[u8]) -> Option<Decimal> {
    let text = std::str::from_utf8(text).ok()?;
    let cost = Decimal::from_str_exact(text).or_else(|_| Decimal::from_scientific(text));
    let cost = cost.or_else(|_| text.parse::<Decimal>());
    cost.ok()
        .filter(|cost| !cost.is_sign_negative() && *cost <= PROVIDER_COST_MAX)
}

/// No call costs more than this, in any currency.
const PROVIDER_COST_MAX: Decimal = Decimal::ONE_THOUSAND;

/// Nearly always one digit.
#[inline]
fn index(text: &[u8]) -> Option<u64> {
    match text {
        [digit @ b'0'..=b'9'] => Some(u64::from(digit.saturating_sub(b'0'))),
        text => std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()),
    }
}

/// Codes of errors of which the request is to blame for certain. A `type` says less: OpenAI's `invalid_request_error` is also that of a
/// credential which it refuses.
const REQUESTS_FAULTS: [&[u8]; 2] = [b"context_length_exceeded", b"content_filter"];
