//! The bodies of requests, checked as a real provider checks them. Unknown fields are ignored. Performs nothing.

use serde::Deserialize;
use serde_json::Value;

use super::refusal::Refusal;
use super::tokens;

/// A chat request that can be answered.
pub(super) struct Chat {
    pub(super) model: String,
    pub(super) messages: Vec<Message>,
    pub(super) mode: ResponseMode,
    pub(super) choices: u64,
    pub(super) tokens_max: Option<u64>,
    pub(super) tools: Vec<Tool>,
    pub(super) tool_choice: ToolChoice,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseMode {
    Whole,
    Stream(StreamUsage),
}

/// Whether a stream ends with a usage chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamUsage {
    Included,
    Left,
}

pub(super) struct Message {
    pub(super) role: String,
    /// All text parts.
    pub(super) text: String,
    /// As the model would count it: text, images, tool calls and the overhead of a message.
    pub(super) prompt_tokens: u64,
}

pub(super) struct Tool {
    pub(super) name: String,
    /// JSON schema of the arguments.
    pub(super) parameters: Value,
    pub(super) prompt_tokens: u64,
}

pub(super) enum ToolChoice {
    Auto,
    Never,
    Required,
    Named(String),
}

impl Chat {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Refusal> {
        let raw: RawChat = serde_json::from_slice(body).map_err(|error| Refusal::unreadable(&error))?;
        let model = model(raw.model)?;
        let messages = raw
            .messages
            .ok_or_else(|| Refusal::invalid("messages", "Missing required parameter: 'messages'."))?;
        if messages.is_empty() {
            return Err(Refusal::invalid(
                "messages",
                "Invalid 'messages': empty array. Expected an array with minimum length 1.",
            ));
        }
        let mode = match (raw.stream.unwrap_or(false), raw.stream_options) {
            (
                true,
                Some(RawStreamOptions {
                    include_usage: Some(true),
                }),
            ) => ResponseMode::Stream(StreamUsage::Included),
            (true, _) => ResponseMode::Stream(StreamUsage::Left),
            (false, None) => ResponseMode::Whole,
            (false, Some(_)) => {
                let message = "The 'stream_options' parameter is only allowed when 'stream' is enabled.";
                return Err(Refusal::invalid("stream_options", message));
            }
        };
        let tokens_max = match (raw.max_tokens, raw.max_completion_tokens) {
            (Some(_), Some(_)) => {
                let message = "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.";
                return Err(Refusal::invalid("max_tokens", message));
            }
            (Some(0), _) | (_, Some(0)) => {
                return Err(Refusal::invalid(
                    "max_tokens",
                    "Invalid maximum of tokens: expected a value >= 1.",
                ));
            }
            (max, None) | (None, max) => max,
        };
        let choices = raw.n.unwrap_or(1);
        if !(1..=CHOICES_MAX).contains(&choices) {
            return Err(Refusal::invalid(
                "n",
                format!("Invalid 'n': expected a value between 1 and {CHOICES_MAX}."),
            ));
        }
        Ok(Chat {
            model,
            messages: messages.into_iter().map(Message::parse).collect::<Result<_, _>>()?,
            mode,
            choices,
            tokens_max,
            tools: raw
                .tools
                .unwrap_or_default()
                .iter()
                .map(Tool::parse)
                .collect::<Result<_, _>>()?,
            tool_choice: ToolChoice::parse(raw.tool_choice.as_ref())?,
        })
    }

    /// What the prompt counts, with the overhead of the chat format.
    pub(super) fn prompt_tokens(&self) -> u64 {
        let messages: u64 = self.messages.iter().map(|message| message.prompt_tokens).sum();
        let tools: u64 = self.tools.iter().map(|tool| tool.prompt_tokens).sum();
        messages + tools + REPLY_PRIMER_TOKENS
    }

    /// The text of the last message of the user.
    pub(super) fn last_user_text(&self) -> &str {
        self.messages
            .iter()
            .rev()
            .find(|message| message.role == "user")
            .map_or("", |message| &message.text)
    }
}

impl Message {
    fn parse(raw: RawMessage) -> Result<Self, Refusal> {
        if !ROLES.contains(&raw.role.as_str()) {
            let message = format!("Invalid value: '{}'. Supported values are: {ROLES:?}.", raw.role);
            return Err(Refusal::invalid("messages", message));
        }
        let mut prompt_tokens = MESSAGE_TOKENS + tokens::count(&raw.role);
        let text = match raw.content {
            Value::String(text) => text,
            Value::Array(parts) => {
                let images = parts.iter().filter(|part| part["type"] == "image_url");
                prompt_tokens += images.map(|_| IMAGE_TOKENS).sum::<u64>();
                let texts: Option<Vec<&str>> = parts
                    .iter()
                    .map(|part| {
                        if part["type"] == "text" {
                            part["text"].as_str()
                        } else {
                            part["type"].as_str().map(|_| "")
                        }
                    })
                    .collect();
                texts
                    .ok_or_else(|| {
                        Refusal::invalid("messages", "Invalid content part: expected a 'type' and its field.")
                    })?
                    .concat()
            }
            Value::Null if raw.role == "assistant" && raw.tool_calls.is_some() => String::new(),
            _ => {
                let message = "Invalid value for 'content': expected a string, got null or another type.";
                return Err(Refusal::invalid("messages", message));
            }
        };
        prompt_tokens += tokens::count(&text);
        prompt_tokens += raw.name.map_or(0, |name| tokens::count(&name) + 1);
        prompt_tokens += raw.tool_calls.map_or(0, |calls| tokens::count(&calls.to_string()));
        Ok(Message {
            role: raw.role,
            text,
            prompt_tokens,
        })
    }
}

impl Tool {
    fn parse(raw: &Value) -> Result<Self, Refusal> {
        let Some(name) = raw["function"]["name"].as_str() else {
            return Err(Refusal::invalid(
                "tools",
                "Missing required parameter: 'tools[0].function.name'.",
            ));
        };
        let parameters = raw["function"]["parameters"].clone();
        Ok(Tool {
            name: name.to_owned(),
            parameters,
            prompt_tokens: tokens::count(&raw["function"].to_string()),
        })
    }
}

impl ToolChoice {
    fn parse(raw: Option<&Value>) -> Result<Self, Refusal> {
        match raw {
            None => Ok(ToolChoice::Auto),
            Some(Value::String(word)) if word == "auto" => Ok(ToolChoice::Auto),
            Some(Value::String(word)) if word == "none" => Ok(ToolChoice::Never),
            Some(Value::String(word)) if word == "required" => Ok(ToolChoice::Required),
            Some(choice) => match choice["function"]["name"].as_str() {
                Some(name) => Ok(ToolChoice::Named(name.to_owned())),
                None => Err(Refusal::invalid("tool_choice", "Invalid value for 'tool_choice'.")),
            },
        }
    }
}

/// An embeddings request that can be answered.
pub(super) struct Embeddings {
    pub(super) model: String,
    pub(super) inputs: Vec<Input>,
    pub(super) dimensions: usize,
    pub(super) encoding: Encoding,
}

/// One thing to embed: a text, or the ids of its tokens.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Input {
    Text(String),
    Tokens(Vec<u32>),
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Encoding {
    #[default]
    Float,
    Base64,
}

impl Embeddings {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Refusal> {
        let raw: RawEmbeddings = serde_json::from_slice(body).map_err(|error| Refusal::unreadable(&error))?;
        let model = model(raw.model)?;
        let inputs = match raw.input {
            None => return Err(Refusal::invalid("input", "Missing required parameter: 'input'.")),
            Some(RawInput::One(input)) => vec![input],
            Some(RawInput::Many(inputs)) => inputs,
        };
        let empty = |input: &Input| match input {
            Input::Text(text) => text.is_empty(),
            Input::Tokens(ids) => ids.is_empty(),
        };
        if inputs.is_empty() || inputs.len() > INPUTS_MAX || inputs.iter().any(empty) {
            let message = format!("Invalid 'input': expected 1 to {INPUTS_MAX} inputs, none of them empty.");
            return Err(Refusal::invalid("input", message));
        }
        let dimensions = raw.dimensions.unwrap_or(DIMENSIONS);
        if !(1..=DIMENSIONS_MAX).contains(&dimensions) {
            let message = format!("Invalid 'dimensions': expected a value between 1 and {DIMENSIONS_MAX}.");
            return Err(Refusal::invalid("dimensions", message));
        }
        Ok(Embeddings {
            model,
            inputs,
            dimensions,
            encoding: raw.encoding_format.unwrap_or_default(),
        })
    }
}

fn model(model: Option<String>) -> Result<String, Refusal> {
    model
        .filter(|model| !model.is_empty())
        .ok_or_else(|| Refusal::invalid("model", "you must provide a model parameter"))
}

#[derive(Deserialize)]
struct RawChat {
    model: Option<String>,
    messages: Option<Vec<RawMessage>>,
    stream: Option<bool>,
    stream_options: Option<RawStreamOptions>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    n: Option<u64>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
}

#[derive(Deserialize)]
struct RawStreamOptions {
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
struct RawMessage {
    role: String,
    #[serde(default)]
    content: Value,
    name: Option<String>,
    tool_calls: Option<Value>,
}

#[derive(Deserialize)]
struct RawEmbeddings {
    model: Option<String>,
    input: Option<RawInput>,
    dimensions: Option<usize>,
    encoding_format: Option<Encoding>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawInput {
    One(Input),
    Many(Vec<Input>),
}

const ROLES: [&str; 6] = ["system", "developer", "user", "assistant", "tool", "function"];
const CHOICES_MAX: u64 = 128;
const INPUTS_MAX: usize = 2_048;
const DIMENSIONS: usize = 1_536;
const DIMENSIONS_MAX: usize = 3_072;
/// What each message costs beside its role and text, and the answer's opening once.
const MESSAGE_TOKENS: u64 = 3;
const REPLY_PRIMER_TOKENS: u64 = 3;
/// An image of low detail.
const IMAGE_TOKENS: u64 = 85;
