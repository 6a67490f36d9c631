//! What the simulated model says: a text that tells the reader what it is, or a call of one of the request's tools. Deterministic.

use serde_json::{Map, Value, json};

use super::refusal::Refusal;
use super::request::{Chat, Tool, ToolChoice};
use super::tokens::{self, Fragments};

/// One choice of an answer.
pub(super) struct Choice {
    pub(super) says: Says,
    /// `stop`, `length` or `tool_calls`.
    pub(super) finish_reason: &'static str,
    pub(super) completion_tokens: u64,
}

pub(super) enum Says {
    Text(Fragments),
    /// A call of this function, with arguments as JSON text.
    Call {
        function: String,
        arguments: Fragments,
    },
}

impl Says {
    pub(super) fn fragments(&self) -> &[String] {
        match self {
            Says::Text(text) => &text.texts,
            Says::Call { arguments, .. } => &arguments.texts,
        }
    }
}

impl Choice {
    /// All choices of a request. `spoken` is the last user's text without its script, `tokens` the wanted length.
    pub(super) fn all(chat: &Chat, spoken: &str, tokens: Option<usize>) -> Result<Vec<Self>, Refusal> {
        if let Some(tool) = called(chat, spoken)? {
            return Ok((0..chat.choices).map(|_| Choice::call(tool, chat.tokens_max)).collect());
        }
        if let Some(tokens) = tokens {
            let text = Fragments::repeated(FILLER, tokens, chat.tokens_max);
            return Ok((0..chat.choices).map(|_| Choice::text(text.clone())).collect());
        }
        let quoted: String = spoken.chars().take(QUOTED_CHARS_MAX).collect();
        let ellipsis = if quoted.len() < spoken.len() { "…" } else { "" };
        let number = |index| {
            if chat.choices == 1 {
                String::new()
            } else {
                format!(" (Choice {} of {}.)", index + 1, chat.choices)
            }
        };
        let say = |index| format!("{OPENING} You said: “{quoted}{ellipsis}”{}{CLOSING}", number(index));
        Ok((0..chat.choices)
            .map(|index| Choice::text(Fragments::of(&say(index), chat.tokens_max)))
            .collect())
    }

    fn text(text: Fragments) -> Self {
        let finish_reason = if text.cut { "length" } else { "stop" };
        Choice {
            completion_tokens: text.tokens,
            says: Says::Text(text),
            finish_reason,
        }
    }

    fn call(tool: &Tool, tokens_max: Option<u64>) -> Self {
        let name_tokens = tokens::count(&tool.name);
        let arguments_max = tokens_max.map(|max| max.saturating_sub(name_tokens));
        let arguments = Fragments::of(&arguments(&tool.parameters).to_string(), arguments_max);
        let finish_reason = if arguments.cut { "length" } else { "tool_calls" };
        // A provider never counts more than the maximum, even if it is less than the name of the function.
        let completion_tokens = (name_tokens + arguments.tokens).min(tokens_max.unwrap_or(u64::MAX));
        Choice {
            says: Says::Call {
                function: tool.name.clone(),
                arguments,
            },
            finish_reason,
            completion_tokens,
        }
    }
}

/// The tool that this request calls, if any.
fn called<'c>(chat: &'c Chat, spoken: &str) -> Result<Option<&'c Tool>, Refusal> {
    let asked = || {
        let user_is_last = chat.messages.last().is_some_and(|message| message.role == "user");
        user_is_last && spoken.to_ascii_lowercase().contains(TOOL_WORD)
    };
    match &chat.tool_choice {
        ToolChoice::Never => Ok(None),
        ToolChoice::Auto => Ok(chat.tools.first().filter(|_| asked())),
        ToolChoice::Required => match chat.tools.first() {
            Some(tool) => Ok(Some(tool)),
            None => Err(Refusal::invalid(
                "tool_choice",
                "'tool_choice' is only allowed when 'tools' are specified.",
            )),
        },
        ToolChoice::Named(name) => match chat.tools.iter().find(|tool| tool.name == *name) {
            Some(tool) => Ok(Some(tool)),
            None => Err(Refusal::invalid(
                "tool_choice",
                format!("Tool choice '{name}' not found in 'tools' parameter."),
            )),
        },
    }
}

/// Arguments that fit a JSON schema's properties: those required, or all when it names none.
fn arguments(schema: &Value) -> Value {
    let Some(properties) = schema["properties"].as_object() else {
        return json!({});
    };
    let required = schema["required"].as_array();
    let wanted = |name: &str| required.is_none_or(|names| names.iter().any(|required| required == name));
    let filled = properties
        .iter()
        .filter(|(name, _)| wanted(name))
        .map(|(name, schema)| (name.clone(), example(schema)));
    Value::Object(filled.collect::<Map<_, _>>())
}

fn example(schema: &Value) -> Value {
    if let Some(first) = schema["enum"].as_array().and_then(|values| values.first()) {
        return first.clone();
    }
    match schema["type"].as_str() {
        Some("integer" | "number") => json!(1),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("object") => arguments(schema),
        _ => json!("Lisbon, Portugal"),
    }
}

const TOOL_WORD: &str = "weather";
const QUOTED_CHARS_MAX: usize = 200;
const OPENING: &str = "This is Tollgate's simulated provider: no language model has read this.";
const CLOSING: &str = " These words come one token at a time, as a real provider sends them, and they are counted and billed like real ones.";
const FILLER: &str =
    " These are the words of a simulated provider, sent again and again until there are as many as were asked for.";
