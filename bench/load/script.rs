//! What a request asks the simulated upstream to do, as text in its body: `sim events=100 pace_ms=20 …;`. A gateway passes the text on
//! unchanged, while it rewrites the model and drops unknown headers.

use memchr::memmem;

/// The answer that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Script {
    /// Content events of a stream.
    pub(crate) events: u32,
    /// Pause before each event but the first.
    pub(crate) pace_ms: u32,
    pub(crate) writes: Writes,
    pub(crate) form: Form,
    pub(crate) ending: Ending,
    /// The tokens that its report has.
    pub(crate) prompt: u32,
    pub(crate) completion: u32,
    /// What the answer carries, so that it is known whose it is.
    pub(crate) tag: u32,
}

/// How the events of a stream without pauses are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writes {
    /// All in one.
    Many,
    /// Each by itself, one right after the other.
    Each,
}

/// What an event carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Text of all kinds.
    Plain,
    /// English words of one token each: how many tokens were delivered is then known.
    Words,
    /// A piece of the arguments of a tool call.
    Tools,
    /// A word with its probability, and those of five more.
    Logprobs,
    /// Text of one choice of two, in turn.
    Choices,
}

/// How the answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// As it should.
    Done,
    /// The connection closes behind the events.
    Cut,
    /// Nothing follows the events, until the other side closes.
    Stall,
    /// There is none: the answer is an error.
    Error,
}

impl Script {
    /// A stream of so many events in one write.
    pub(crate) const fn stream(events: u32) -> Self {
        Self {
            events,
            pace_ms: 0,
            writes: Writes::Many,
            form: Form::Plain,
            ending: Ending::Done,
            prompt: 220,
            completion: events,
            tag: 0,
        }
    }

    /// An answer as a whole, chat or embeddings.
    pub(crate) const fn whole() -> Self {
        let stream = Self::stream(0);
        Self {
            completion: 238,
            ..stream
        }
    }

    /// The text that stands for it, as long whatever the tag.
    pub(crate) fn text(self) -> String {
        let Self {
            events,
            pace_ms,
            writes,
            form,
            ending,
            prompt,
            completion,
            tag,
        } = self;
        let (writes, form, ending) = (writes.name(), form.name(), ending.name());
        format!(
            "sim events={events} pace_ms={pace_ms} writes={writes} form={form} end={ending} prompt={prompt} completion={completion} tag={tag:010};"
        )
    }

    /// The script in the beginning of a body. None where there is none, or one that cannot be read.
    pub(crate) fn find(body: &[u8]) -> Option<Self> {
        let beginning = &body[..body.len().min(WITHIN)];
        let start = memmem::find(beginning, BEFORE)? + BEFORE.len();
        let end = start + beginning[start..].iter().position(|byte| *byte == b';')?;
        let mut fields = std::str::from_utf8(&beginning[start..end]).ok()?.split(' ');
        let mut value = |name: &str| fields.next()?.strip_prefix(name)?.strip_prefix('=');
        let script = Self {
            events: value("events")?.parse().ok()?,
            pace_ms: value("pace_ms")?.parse().ok()?,
            writes: one_of(&Writes::ALL, Writes::name, value("writes")?)?,
            form: one_of(&Form::ALL, Form::name, value("form")?)?,
            ending: one_of(&Ending::ALL, Ending::name, value("end")?)?,
            prompt: value("prompt")?.parse().ok()?,
            completion: value("completion")?.parse().ok()?,
            tag: value("tag")?.parse().ok()?,
        };
        fields.next().is_none().then_some(script)
    }

    /// Events that a client sees when it asked for usage: content, the finish of each choice, usage, `[DONE]`.
    pub(crate) fn events_seen(self) -> u64 {
        u64::from(self.events) + self.form.choices() + 2
    }
}

impl Writes {
    const ALL: [Self; 2] = [Self::Many, Self::Each];

    fn name(self) -> &'static str {
        match self {
            Self::Many => "many",
            Self::Each => "each",
        }
    }
}

impl Form {
    pub(crate) const ALL: [Self; 5] = [Self::Plain, Self::Words, Self::Tools, Self::Logprobs, Self::Choices];

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Words => "words",
            Self::Tools => "tools",
            Self::Logprobs => "logprobs",
            Self::Choices => "choices",
        }
    }

    /// Choices of an answer.
    pub(crate) fn choices(self) -> u64 {
        if self == Self::Choices { 2 } else { 1 }
    }
}

impl Ending {
    const ALL: [Self; 4] = [Self::Done, Self::Cut, Self::Stall, Self::Error];

    fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Cut => "cut",
            Self::Stall => "stall",
            Self::Error => "error",
        }
    }
}

fn one_of<T: Copy>(all: &[T], name: impl Fn(T) -> &'static str, wanted: &str) -> Option<T> {
    all.iter().copied().find(|one| name(*one) == wanted)
}

const BEFORE: &[u8] = b"sim ";
/// It stands in the first message, or begins the input.
const WITHIN: usize = 1024;
