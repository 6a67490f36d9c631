//! Chat completions, whole and streamed. Called by the provider once a request's body has been read.

use serde::Serialize;
use serde_json::{Value, json};

use super::Options;
use super::exchange::{Exchange, Halt};
use super::refusal::Refusal;
use super::reply::{Choice, Says};
use super::request::{Chat, ResponseMode, StreamUsage};
use super::script::{Script, UsageReport};

/// A chat answer, ready to be sent.
pub(super) struct Plan {
    pub(super) model: String,
    pub(super) script: Script,
    mode: ResponseMode,
    choices: Vec<Choice>,
    usage: Value,
}

impl Plan {
    pub(super) fn new(body: &[u8]) -> Result<Self, Refusal> {
        let chat = Chat::parse(body)?;
        let (script, spoken) = Script::of(&chat.model, chat.last_user_text())?;
        let choices = Choice::all(&chat, spoken, script.tokens)?;
        let completion_tokens = choices.iter().map(|choice| choice.completion_tokens).sum();
        let usage = usage(script.usage, chat.prompt_tokens(), completion_tokens);
        Ok(Plan {
            script,
            mode: chat.mode,
            choices,
            usage,
            model: chat.model,
        })
    }

    pub(super) async fn perform(&self, exchange: &mut Exchange, options: &Options) -> Result<(), Halt> {
        match self.mode {
            ResponseMode::Whole => exchange.whole(&self.script, self.whole(exchange)).await,
            ResponseMode::Stream(usage) => {
                exchange.begin_events().await?;
                match self.events(exchange, usage, options).await {
                    Ok(()) | Err(Halt::Over) => exchange.end_events().await,
                    Err(halt) => Err(halt),
                }
            }
        }
    }

    fn whole(&self, exchange: &Exchange) -> Completion<'_> {
        let choices = self.choices.iter().enumerate().map(|(index, choice)| {
            let message = match &choice.says {
                Says::Text(text) => json!({"role": "assistant", "content": text.text(), "refusal": null}),
                Says::Call { function, arguments } => {
                    let function = json!({"name": function, "arguments": arguments.text()});
                    let call = json!({"id": call_id(exchange, index), "type": "function", "function": function});
                    json!({"role": "assistant", "content": null, "refusal": null, "tool_calls": [call]})
                }
            };
            json!({"index": index, "message": message, "logprobs": null, "finish_reason": choice.finish_reason})
        });
        let usage = Some(&self.usage).filter(|_| self.script.usage != UsageReport::Missing);
        Completion::new(exchange, "chat.completion", &self.model, choices.collect(), usage)
    }

    async fn events(&self, exchange: &mut Exchange, usage: StreamUsage, options: &Options) -> Result<(), Halt> {
        let pace = self.script.pace.unwrap_or(options.event_pause);
        let included = usage == StreamUsage::Included && self.script.usage != UsageReport::Missing;
        // With include_usage, every chunk has the field, and only the last one a value.
        let no_usage_yet = included.then_some(&Value::Null);

        for (index, choice) in self.choices.iter().enumerate() {
            let delta = opening(choice, &call_id(exchange, index));
            self.chunk(exchange, Some(part(index, delta, None)), no_usage_yet)
                .await?;
        }
        let rounds = self
            .choices
            .iter()
            .map(|choice| choice.says.fragments().len())
            .max()
            .unwrap_or(0);
        for round in 0..rounds {
            exchange.pause(pace).await?;
            for (index, choice) in self.choices.iter().enumerate() {
                if let Some(fragment) = choice.says.fragments().get(round) {
                    self.chunk(exchange, Some(part(index, next(choice, fragment), None)), no_usage_yet)
                        .await?;
                }
            }
        }
        for (index, choice) in self.choices.iter().enumerate() {
            let last = part(index, json!({}), Some(choice.finish_reason));
            self.chunk(exchange, Some(last), no_usage_yet).await?;
        }
        if included {
            self.chunk(exchange, None, Some(&self.usage)).await?;
        }
        exchange.terminate(&self.script).await
    }

    async fn chunk(&self, exchange: &mut Exchange, part: Option<Value>, usage: Option<&Value>) -> Result<(), Halt> {
        let parts = part.into_iter().collect();
        let chunk = Completion::new(exchange, "chat.completion.chunk", &self.model, parts, usage);
        exchange.event(&self.script, &chunk).await
    }
}

/// A whole completion, or a chunk of one.
#[derive(Serialize)]
struct Completion<'p> {
    id: String,
    object: &'static str,
    created: u64,
    model: &'p str,
    system_fingerprint: &'static str,
    choices: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<&'p Value>,
}

impl<'p> Completion<'p> {
    fn new(
        exchange: &Exchange,
        object: &'static str,
        model: &'p str,
        choices: Vec<Value>,
        usage: Option<&'p Value>,
    ) -> Self {
        let id = format!("chatcmpl-{}", exchange.id);
        Completion {
            id,
            object,
            created: exchange.created,
            model,
            system_fingerprint: "simulated",
            choices,
            usage,
        }
    }
}

/// One choice of a chunk.
fn part(index: usize, delta: Value, finish_reason: Option<&str>) -> Value {
    json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": finish_reason})
}

/// The first delta of a choice. A call's id and name are in it, and nowhere else.
fn opening(choice: &Choice, call_id: &str) -> Value {
    match &choice.says {
        Says::Text(_) => json!({"role": "assistant", "content": "", "refusal": null}),
        Says::Call { function, .. } => {
            let function = json!({"name": function, "arguments": ""});
            let call = json!({"index": 0, "id": call_id, "type": "function", "function": function});
            json!({"role": "assistant", "content": null, "tool_calls": [call], "refusal": null})
        }
    }
}

fn next(choice: &Choice, fragment: &str) -> Value {
    match choice.says {
        Says::Text(_) => json!({"content": fragment}),
        Says::Call { .. } => json!({"tool_calls": [{"index": 0, "function": {"arguments": fragment}}]}),
    }
}

fn call_id(exchange: &Exchange, index: usize) -> String {
    format!("call_{}{index}", exchange.id)
}

fn usage(report: UsageReport, prompt_tokens: u64, completion_tokens: u64) -> Value {
    if report == UsageReport::Absurd {
        return json!({"prompt_tokens": -1, "completion_tokens": 0.5, "total_tokens": 1_000_000_000_000_000_000_u64});
    }
    json!({
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details":
            {"reasoning_tokens": 0, "audio_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0},
    })
}
