//! The calls of the long run: each made up at random, with what it must cost.

use std::ops::ControlFlow;

use crate::{
    books::Debit,
    catalogue::{Catalogue, Model},
    client::{Arrived, Expect, Failure, Listener, Reply},
    common::Result,
    random::Random,
    request::{Call, KILOBYTE, Kind, prose},
    script::{Ending, Form, Script, Writes},
};

/// Models by what may be done to them.
pub(crate) struct Models {
    /// Of these all is well.
    chat: Vec<Model>,
    embedding: Vec<Model>,
    /// Of these the tokens of a text are known, so that what is not reported can be counted.
    counted: Vec<Model>,
    /// Its provider fails, so that its breaker opens: no other call is for it.
    failing: Model,
}

impl Models {
    pub(crate) fn of(catalogue: Catalogue) -> Result<Self> {
        let mut chat = catalogue.chat;
        let is_counted = |model: &Model| model.id.starts_with("openai/") && !model.id.starts_with("openai/gpt-4");
        let place = chat
            .iter()
            .position(is_counted)
            .ok_or("no model whose tokens can be counted")?;
        let failing = chat.remove(place);
        let counted: Vec<Model> = chat.iter().filter(|model| is_counted(model)).cloned().collect();
        if counted.is_empty() {
            return Err("only one model whose tokens can be counted".into());
        }
        Ok(Self {
            chat,
            embedding: catalogue.embedding,
            counted,
            failing,
        })
    }
}

/// A call, and how it goes.
pub(crate) struct Planned<'a> {
    pub(crate) call: Call<'a>,
    pub(crate) fate: Fate,
    model: &'a Model,
}

/// How a call goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fate {
    Whole,
    Embeddings,
    Stream,
    /// The provider closes within the stream.
    Cut,
    /// The provider answers with an error.
    Refused,
    /// The client closes within the stream.
    Leaves,
}

impl Fate {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Embeddings => "embeddings",
            Self::Stream => "stream",
            Self::Cut => "cut",
            Self::Refused => "refused",
            Self::Leaves => "leaves",
        }
    }

    /// Of sixteen calls three fail.
    fn any(random: &mut Random) -> Self {
        match random.below(16) {
            0..5 => Self::Whole,
            5..8 => Self::Embeddings,
            8..13 => Self::Stream,
            13 => Self::Cut,
            14 => Self::Refused,
            _ => Self::Leaves,
        }
    }
}

impl<'a> Planned<'a> {
    pub(crate) fn any(models: &'a Models, random: &mut Random) -> Self {
        let fate = Fate::any(random);
        let model = match fate {
            Fate::Whole | Fate::Stream => one_of(&models.chat, random),
            Fate::Embeddings => one_of(&models.embedding, random),
            Fate::Leaves => one_of(&models.counted, random),
            Fate::Cut | Fate::Refused => &models.failing,
        };
        let kind = match fate {
            Fate::Whole => Kind::Whole,
            Fate::Embeddings => Kind::Embeddings,
            Fate::Stream | Fate::Cut | Fate::Leaves => Kind::Stream,
            Fate::Refused if random.below(2) == 0 => Kind::Whole,
            Fate::Refused => Kind::Stream,
        };
        let mut up_to = |most: u64| u32::try_from(random.below(most + 1)).unwrap_or_default();
        // A report of no tokens at all is none: what it would cost is counted from the texts, which only the gateway does for each model.
        let (events, prompt, more) = (1 + up_to(60), 1 + up_to((PROMPT_MAX - 1).into()), up_to(200));
        let script = Script {
            writes: if up_to(1) == 0 { Writes::Many } else { Writes::Each },
            form: match fate {
                Fate::Stream => Form::ALL[usize::try_from(up_to(4)).unwrap_or_default()],
                _ => Form::Words,
            },
            ending: match fate {
                Fate::Whole | Fate::Embeddings | Fate::Stream => Ending::Done,
                Fate::Cut => Ending::Cut,
                Fate::Refused => Ending::Error,
                Fate::Leaves => Ending::Stall,
            },
            prompt,
            tag: up_to(u32::MAX.into()),
            completion: if kind == Kind::Stream { events + more } else { more },
            ..Script::stream(events)
        };
        // Some are long. None is shorter than the prompt that is reported: one above its bound is billed at the bound.
        let bytes = if up_to(15) == 0 {
            20 * KILOBYTE
        } else {
            usize::try_from(PROMPT_MAX + up_to(900)).unwrap_or(KILOBYTE)
        };
        Self {
            call: Call {
                kind,
                model: &model.id,
                script,
                text: prose(bytes),
            },
            fate,
            model,
        }
    }

    /// What a right answer is.
    pub(crate) fn expect(&self) -> Expect {
        match self.fate {
            Fate::Whole | Fate::Embeddings => Expect::Json,
            Fate::Stream => Expect::Stream {
                events: Some(self.call.script.events_seen()),
            },
            Fate::Cut => Expect::Broken(FAILED),
            Fate::Refused => Expect::Denied(FAILED),
            // It never ends.
            Fate::Leaves => Expect::Stream { events: None },
        }
    }

    /// Content events after which the client closes.
    pub(crate) fn leaves_after(&self) -> Option<u64> {
        (self.fate == Fate::Leaves).then(|| u64::from(self.call.script.events))
    }

    /// What it costs when it went as it should; else what is wrong.
    pub(crate) fn debit(
        &self,
        result: &std::result::Result<Reply, Failure>,
        content: u64,
    ) -> std::result::Result<Debit, String> {
        let (script, price) = (self.call.script, &self.model.price);
        let reported = (u64::from(script.prompt), u64::from(script.completion));
        let is_whole = content == u64::from(script.events);
        match (self.fate, result) {
            (Fate::Whole | Fate::Stream, Ok(_)) => Ok(Debit::Exactly(price.cost(reported.0, reported.1))),
            (Fate::Embeddings, Ok(_)) => Ok(Debit::Exactly(price.cost(reported.0, 0))),
            (Fate::Cut, Ok(reply)) if reply.status != 200 => Ok(Debit::Exactly(0)),
            (Fate::Refused, Ok(_)) => Ok(Debit::Exactly(0)),
            (Fate::Cut, Ok(_)) | (Fate::Leaves, Err(Failure::Stopped)) if is_whole => {
                Ok(Debit::Exactly(price.cost(self.counted_prompt(), content)))
            }
            (_, Err(failure)) => Err(format!("{}: {failure}", self.fate.name())),
            (_, Ok(_)) => Err(format!(
                "{}: {content} events of {} arrived",
                self.fate.name(),
                script.events
            )),
        }
    }

    /// The same where a kill of the gateway fell into it: what the kill left open costs what lies between, and what it cannot cause is
    /// wrong. So is a 503: SIGKILL leaves no time for one, and a gateway that starts does not listen before its ledger is open.
    pub(crate) fn debit_beside_kill(
        &self,
        result: &std::result::Result<Reply, Failure>,
        content: u64,
    ) -> std::result::Result<Debit, String> {
        match (self.debit(result, content), result) {
            (Err(_), Err(failure)) if failure.is_of_a_kill() => Ok(match failure {
                // It was never sent.
                Failure::Connect(_) => Debit::Exactly(0),
                _ => self.debit_when_killed(content),
            }),
            (debit, _) => debit,
        }
    }

    /// What it costs when the gateway died within it, `content` events having arrived: what was delivered, up to all of it.
    pub(crate) fn debit_when_killed(&self, content: u64) -> Debit {
        let (script, price) = (self.call.script, &self.model.price);
        let low = if content > 0 { price.cost(1, content) } else { 0 };
        let prompt = u64::from(script.prompt).max(self.counted_prompt());
        let completion = match self.fate {
            Fate::Embeddings => 0,
            _ => u64::from(script.completion.max(script.events)),
        };
        match self.fate {
            Fate::Refused => Debit::Exactly(0),
            _ => Debit::Between(low, price.cost(prompt, completion)),
        }
    }

    /// The prompt by OpenAI's tokenizer, three tokens for each message and three for the answer's beginning.
    fn counted_prompt(&self) -> u64 {
        let encoding = tiktoken_rs::o200k_base_singleton();
        let script = self.call.script.text();
        let tokens = |text: &str| encoding.encode_ordinary(text).len() as u64;
        tokens(&script) + tokens(&self.call.text) + 3 + 3 + 3
    }
}

/// Counts content events, and closes after so many.
pub(crate) struct Counting {
    pub(crate) content: u64,
    pub(crate) leaves_after: Option<u64>,
}

impl Listener for Counting {
    fn events(&mut self, arrived: &Arrived<'_>) -> ControlFlow<()> {
        self.content += arrived.delays_ns.len() as u64;
        match self.leaves_after {
            Some(after) if self.content >= after => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

fn one_of<'a>(models: &'a [Model], random: &mut Random) -> &'a Model {
    &models[usize::try_from(random.below(models.len() as u64)).unwrap_or_default()]
}

/// The most tokens that are reported of a prompt.
const PROMPT_MAX: u32 = 400;
/// What a caller is told when every target fails, or none is asked.
const FAILED: &[u16] = &[500, 502, 503];
