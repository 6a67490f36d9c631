//! The tap of a whole JSON answer: a chat completion, or embeddings.

use super::accumulator::{Choices, Reading};
use super::response_metadata::Said;
use super::scan::Scanner;
use super::spans::Spans;
use super::usage_object::Sides;
use crate::pure::bill::{Tariff, Used};
use crate::pure::error::provider_words::ProviderWords;
use crate::pure::sse::MARK;
use crate::pure::tokens::Encoding;
use crate::pure::usage::{CompletionTokens, Naming, Reports, Usage};

/// Reads a whole answer as it passes. It holds back and changes nothing; its memory is bounded whatever the answer's size.
#[derive(Debug)]
pub struct WholeTap {
    scanner: Scanner,
    reading: Reading,
    /// So many bytes of a byte order mark came first. As many as it has: none is looked for any more.
    mark: usize,
    /// What came, as long as it may be an error: its first [`WORDS_BYTES_MAX`] at most.
    words: Vec<u8>,
}

impl WholeTap {
    /// A tap that counts text with `encoding` when no usage is reported.
    pub fn new(encoding: Encoding) -> Self {
        WholeTap::within(encoding, None, Naming::default())
    }

    /// The same for an answer that can have at most so many completion tokens, over all its choices: a report of more is not believed. Its
    /// provider's reports name them so.
    pub fn within(encoding: Encoding, completion_max: Option<u64>, naming: Naming) -> Self {
        WholeTap {
            scanner: Scanner::new(),
            reading: Reading::new(encoding, completion_max, naming),
            mark: 0,
            words: Vec::new(),
        }
    }

    /// One chunk of the answer passes.
    pub fn chunk(&mut self, chunk: &[u8]) {
        let text = self.behind_mark(chunk);
        self.scanner.feed(text, &mut self.reading);
        if (self.has_choices() || self.has_vectors()) && !self.is_error() {
            self.words = Vec::new();
        } else {
            let room = WORDS_BYTES_MAX.saturating_sub(self.words.len());
            self.words.extend_from_slice(text.get(..room).unwrap_or(text));
        }
    }

    /// What of a chunk follows the byte order mark that an answer may begin with: to clients that take one it is white space. Half of one is no
    /// JSON.
    fn behind_mark<'a>(&mut self, chunk: &'a [u8]) -> &'a [u8] {
        let mut text = chunk;
        while let (Some(expected), Some((byte, rest))) = (MARK.get(self.mark), text.split_first()) {
            if byte != expected {
                if self.mark > 0 {
                    self.scanner.feed(&MARK, &mut self.reading);
                }
                self.mark = MARK.len();
                break;
            }
            self.mark += 1;
            text = rest;
        }
        self.scanner.skip(chunk.len() - text.len());
        text
    }

    /// The answer ended, whole or not. Text that is not yet counted is counted now, unless the answer is whole and
    /// its usage was reported.
    pub fn end(&mut self) {
        if self.reported().is_some() && self.complete() {
            self.reading.counter.discard();
        } else {
            self.reading.counter.end_cut();
            self.reading.counter.commit();
        }
    }

    /// What the provider reported, for both sides. The completion side of an answer without choices is 0 unless it
    /// says otherwise. None where the report says that there was nothing, and the answer has text or vectors.
    pub fn reported(&self) -> Option<Usage> {
        let usage = match self.reading.seen.choices {
            Choices::Absent if !self.reading.seen.error => self.reading.reports.usage_without_completion(),
            Choices::Absent | Choices::Empty | Choices::Some => self.reading.reports.usage(),
        };
        let has_text = self.reading.spans.texts > 0 || self.delivered().0 > 0;
        let has_content = has_text || self.has_vectors();
        usage.filter(|_| !(has_content && self.reading.reports.is_nothing()))
    }

    /// Whether its report stands behind all of its text. One of an answer without any, such as one that reasoned up to its maximum, stands
    /// behind its choices.
    pub fn reports_all_text(&self) -> bool {
        let (spans, bytes) = (&self.reading.spans, self.reading.counter.bytes());
        let is_behind_choices = || (1..=spans.usage.start).contains(&spans.choices_end);
        let is_behind_text = spans.usage.end > 0 && spans.text_before(spans.usage.start) == bytes;
        is_behind_text && (bytes > 0 || is_behind_choices())
    }

    /// Whether a report gave a completion that this answer cannot have.
    pub fn is_implausible(&self) -> bool {
        self.reading.reports.is_implausible()
    }

    /// All that the provider reported, also of one side only, or what was not believed.
    pub fn reports(&self) -> &Reports {
        &self.reading.reports
    }

    /// Tokens of the answer's text, complete after [`WholeTap::end`] and only when [`WholeTap::reported`] is `None` or
    /// the answer is not whole.
    pub fn delivered(&self) -> CompletionTokens {
        CompletionTokens(self.reading.counter.committed())
    }

    /// What has come passes: it is counted, for [`WholeTap::delivered_before`].
    pub fn count_passed(&mut self) {
        self.reading.counter.count_passed();
    }

    /// Tokens of the text that came, as far as it is counted: before [`WholeTap::end`] all of what [`WholeTap::count_passed`] was told of but its
    /// last 1,024 bytes, and words that stand there twice may count twice. `waits_since`: what begins there, at a usage, has not passed. Its text
    /// is a part of all tokens by its bytes.
    pub fn delivered_before(&self, waits_since: Option<usize>) -> CompletionTokens {
        let counter = &self.reading.counter;
        let open = counter.open().saturating_add(counter.open_waiting());
        let all = counter.committed().saturating_add(open);
        let Some(place) = waits_since else {
            return CompletionTokens(all);
        };
        let passed = u128::from(self.reading.spans.text_before(place));
        let bytes = u128::from(counter.bytes()).max(1);
        let tokens = u128::from(all).saturating_mul(passed) / bytes;
        CompletionTokens(u64::try_from(tokens).map_or(all, |tokens| tokens.min(all)))
    }

    /// What the answer said of itself, once it is over.
    pub fn take_said(&mut self) -> Said {
        self.reading.take_said()
    }

    /// The answer is an error in the place where clients look for one, whatever its status says.
    pub fn is_error(&self) -> bool {
        self.reading.seen.error
    }

    /// It is an error, or speaks as one of the operator's key or account with the provider.
    pub fn is_failure(&self) -> bool {
        self.is_error() || self.about_operator().is_some()
    }

    /// The numeric code of that error, or what its words stand for.
    pub fn error_code(&self) -> Option<u16> {
        ProviderWords::read(&self.words).code(self.reading.seen.error_code())
    }

    /// By which words it speaks of the operator's key or account with the provider, of what is no answer.
    pub fn about_operator(&self) -> Option<&'static str> {
        ProviderWords::read(&self.words).about_operator
    }

    /// Whether it is an error that refuses what the request says.
    pub fn flags_content(&self) -> bool {
        self.is_error() && ProviderWords::read(&self.words).flags_content
    }

    /// One whole JSON object (or array) passed, and nothing after it.
    pub fn complete(&self) -> bool {
        self.scanner.is_complete()
    }

    /// It has an array of choices, which may be empty, and no error. (Never true of embeddings.)
    pub fn is_answer(&self) -> bool {
        self.has_choices() && !self.is_error()
    }

    /// It has an array of choices, as every chat completion has, whatever is in it.
    pub fn has_choices(&self) -> bool {
        self.reading.seen.choices != Choices::Absent
    }

    /// It has an array of vectors, as all embeddings have.
    pub fn has_vectors(&self) -> bool {
        self.reading.seen.vectors
    }

    /// It is an object, as every answer is.
    pub fn is_object(&self) -> bool {
        self.reading.spans.end > 0
    }

    /// Nothing but white space has come.
    pub fn is_blank(&self) -> bool {
        self.scanner.is_blank()
    }

    /// It is no JSON, whatever follows.
    pub fn is_broken(&self) -> bool {
        self.scanner.is_broken()
    }

    /// It stopped before its end: what there is could still become a whole document, or there is nothing.
    pub fn is_cut(&self) -> bool {
        !self.scanner.is_complete() && !self.scanner.is_broken()
    }

    /// It stopped within the object that it is.
    pub fn stopped_within(&self) -> bool {
        self.scanner.is_cut()
    }

    /// What the answer was used for: see [`Reading::used`].
    pub(super) fn used(&self, usage: Usage, is_reported: bool, tariff: &Tariff<'_>) -> Used<'_> {
        self.reading.used(usage, is_reported, tariff)
    }

    /// The tier by which the provider served the call, as it says.
    pub fn served_tier(&self) -> Option<&str> {
        self.reading.served_tier.as_deref()
    }

    /// Where things stand in the answer.
    pub(super) fn spans(&self) -> &Spans {
        &self.reading.spans
    }

    /// The sides as the usage object in the root has them.
    pub(super) fn sides(&self) -> Sides {
        self.reading.seen.sides
    }

    /// Bytes of text that wait to be counted.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.reading.counter.waiting()
    }
}

/// So much of an answer is kept while it may be an error, for its words to be read: as of a refusal.
const WORDS_BYTES_MAX: usize = 64 << 10;
