//! The shape of an answer: which of its JSON values the taps look at.
//!
//! Everything else is skipped, whatever it is called and wherever it stands: `"content"` inside a string, or a `usage`
//! inside a tool's arguments, is no more than text. The scanner asks here at every key.

use super::text::Kind;

/// A container that the taps look into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// An array around the answer; some providers wrap an error so.
    Wrapper,
    /// The answer itself.
    Answer,
    Choices,
    Choice,
    /// `delta` of a streamed choice, `message` of a whole one.
    Message,
    /// The vectors of embeddings, which are not looked into.
    Vectors,
    ToolCalls,
    ToolCall,
    Function,
    /// Content in parts, all counted as one kind of text.
    Parts(Kind),
    Part(Kind),
    Audio,
    Usage,
    /// What a side of a usage report is made of.
    PromptDetails,
    CompletionDetails,
    /// How long Anthropic keeps what it wrote to its cache.
    CacheCreation,
    /// What the provider says that the call cost, in parts.
    Cost,
    /// What the call cost the operator elsewhere.
    CostDetails,
    /// Groq's own object, with a usage report inside.
    Groq,
    Error,
    /// None of these: skipped.
    Other,
}

/// What a value is to the taps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Skip,
    /// The root of the document, or an element of an array around it.
    Root,
    Id,
    Object,
    Created,
    Model,
    /// Random text that a provider pads events with; only its place matters.
    Padding,
    Choices,
    Choice,
    ChoiceIndex,
    FinishReason,
    Delta,
    Message,
    /// The vectors of embeddings.
    Data,
    /// Text in a place of Cloudflare's own: no usage chunk has any.
    Response,
    ToolCalls,
    ToolCall,
    Function,
    /// What a tool is called with: text, or JSON of any other kind but null, which is text as it stands.
    Arguments,
    Text(Kind),
    Part(Kind),
    Audio,
    Usage,
    PromptTokens,
    CompletionTokens,
    TotalTokens,
    /// The details of a side, as an object.
    PromptDetails,
    CompletionDetails,
    /// One of them that has no price of its own.
    CompletionDetail,
    /// Details that may have one.
    CacheReadTokens,
    /// The first of them beside the sides and not among their details.
    CachedTokens,
    ReasoningBeside,
    EstimatedCost,
    CacheWriteTokens,
    AudioTokens,
    ImageTokens,
    ReasoningTokens,
    AudioOutputTokens,
    ImageOutputTokens,
    /// Anthropic's buckets.
    InputTokens,
    OutputTokens,
    ReadBucket,
    WriteBucket,
    CacheCreation,
    Write5mBucket,
    Write1hBucket,
    /// What the provider says that the call cost.
    Cost,
    /// Whether the operator pays the model's own provider, and the aggregator its fee alone.
    IsByok,
    CostDetails,
    /// What the model's own provider charges then.
    UpstreamCost,
    /// The tier by which the provider served the call.
    ServiceTier,
    Groq,
    Error,
    ErrorCode,
    /// The same beside the error's words, where the document itself is the error.
    AnswerCode,
}

impl Node {
    /// The role of the member `key` of an object.
    pub(super) fn member(self, key: &[u8]) -> Role {
        match self {
            Node::Answer => match key {
                b"choices" => Role::Choices,
                b"usage" => Role::Usage,
                b"error" => Role::Error,
                b"id" => Role::Id,
                b"object" => Role::Object,
                b"created" => Role::Created,
                b"model" => Role::Model,
                b"obfuscation" => Role::Padding,
                b"x_groq" => Role::Groq,
                b"service_tier" => Role::ServiceTier,
                b"data" => Role::Data,
                b"response" => Role::Response,
                b"code" => Role::AnswerCode,
                _ => Role::Skip,
            },
            Node::Choice => match key {
                b"delta" => Role::Delta,
                b"message" => Role::Message,
                b"finish_reason" => Role::FinishReason,
                b"index" => Role::ChoiceIndex,
                b"text" => Role::Text(Kind::ChoiceText),
                b"usage" => Role::Usage,
                b"error" => Role::Error,
                _ => Role::Skip,
            },
            Node::Message => match key {
                b"content" | b"refusal" => Role::Text(Kind::Content),
                b"reasoning_content" => Role::Text(Kind::ReasoningContent),
                b"reasoning" => Role::Text(Kind::Reasoning),
                b"reasoning_details" => Role::Text(Kind::ReasoningDetails),
                b"tool_calls" => Role::ToolCalls,
                b"function_call" => Role::Function,
                b"audio" => Role::Audio,
                _ => Role::Skip,
            },
            Node::ToolCall => match key {
                b"function" | b"custom" => Role::Function,
                _ => Role::Skip,
            },
            Node::Function => match key {
                b"name" => Role::Text(Kind::Content),
                b"arguments" | b"input" => Role::Arguments,
                _ => Role::Skip,
            },
            Node::Part(kind) => match key {
                b"text" | b"thinking" | b"summary" | b"refusal" => Role::Text(kind),
                _ => Role::Skip,
            },
            Node::Audio if key == b"transcript" => Role::Text(Kind::Content),
            Node::Usage => match key {
                b"prompt_tokens" => Role::PromptTokens,
                b"completion_tokens" => Role::CompletionTokens,
                b"total_tokens" => Role::TotalTokens,
                b"prompt_tokens_details" => Role::PromptDetails,
                b"completion_tokens_details" => Role::CompletionDetails,
                b"prompt_cache_hit_tokens" => Role::CacheReadTokens,
                b"cached_tokens" => Role::CachedTokens,
                b"reasoning_tokens" => Role::ReasoningBeside,
                b"input_tokens" => Role::InputTokens,
                b"output_tokens" => Role::OutputTokens,
                b"cache_read_input_tokens" => Role::ReadBucket,
                b"cache_creation_input_tokens" => Role::WriteBucket,
                b"cache_creation" => Role::CacheCreation,
                b"cost" => Role::Cost,
                b"estimated_cost" => Role::EstimatedCost,
                b"is_byok" => Role::IsByok,
                b"cost_details" => Role::CostDetails,
                b"service_tier" => Role::ServiceTier,
                _ => Role::Skip,
            },
            Node::CacheCreation => match key {
                b"ephemeral_5m_input_tokens" => Role::Write5mBucket,
                b"ephemeral_1h_input_tokens" => Role::Write1hBucket,
                _ => Role::Skip,
            },
            Node::PromptDetails => match key {
                b"cached_tokens" => Role::CacheReadTokens,
                b"cache_write_tokens" | b"cache_creation_input_tokens" | b"cache_creation_tokens" => {
                    Role::CacheWriteTokens
                }
                // Anthropic's own name, and LiteLLM's.
                b"cache_creation" | b"cache_creation_token_details" => Role::CacheCreation,
                b"audio_tokens" => Role::AudioTokens,
                b"image_tokens" => Role::ImageTokens,
                _ => Role::Skip,
            },
            Node::CompletionDetails => match key {
                b"reasoning_tokens" => Role::ReasoningTokens,
                b"audio_tokens" => Role::AudioOutputTokens,
                b"image_tokens" => Role::ImageOutputTokens,
                b"accepted_prediction_tokens" | b"rejected_prediction_tokens" => Role::CompletionDetail,
                _ => Role::Skip,
            },
            Node::Cost if key == b"total_cost" => Role::Cost,
            Node::CostDetails if key == b"upstream_inference_cost" => Role::UpstreamCost,
            Node::Groq if key == b"usage" => Role::Usage,
            // Why a stream was stopped early.
            Node::Groq if key == b"error" => Role::Error,
            Node::Error if key == b"code" => Role::ErrorCode,
            Node::Audio | Node::Cost | Node::CostDetails | Node::Groq | Node::Error => Role::Skip,
            Node::Wrapper | Node::Choices | Node::Vectors | Node::ToolCalls | Node::Parts(_) | Node::Other => {
                Role::Skip
            }
        }
    }

    /// The role of an element of an array.
    pub(super) fn element(self) -> Role {
        match self {
            Node::Wrapper => Role::Root,
            Node::Choices => Role::Choice,
            Node::ToolCalls => Role::ToolCall,
            Node::Parts(kind) => Role::Part(kind),
            _ => Role::Skip,
        }
    }
}

impl Role {
    /// The node of an object in this role.
    pub(super) fn object(self) -> Node {
        match self {
            Role::Root => Node::Answer,
            Role::Choice => Node::Choice,
            Role::Delta | Role::Message => Node::Message,
            Role::ToolCall => Node::ToolCall,
            Role::Function => Node::Function,
            Role::Part(kind) | Role::Text(kind) => Node::Part(kind),
            Role::Audio => Node::Audio,
            Role::Usage => Node::Usage,
            Role::PromptDetails => Node::PromptDetails,
            Role::CompletionDetails => Node::CompletionDetails,
            Role::CacheCreation => Node::CacheCreation,
            Role::Cost => Node::Cost,
            Role::CostDetails => Node::CostDetails,
            Role::Groq => Node::Groq,
            Role::Error => Node::Error,
            _ => Node::Other,
        }
    }

    /// The node of an array in this role.
    pub(super) fn array(self) -> Node {
        match self {
            Role::Root => Node::Wrapper,
            Role::Choices => Node::Choices,
            Role::Data => Node::Vectors,
            Role::ToolCalls => Node::ToolCalls,
            Role::Text(kind) | Role::Part(kind) => Node::Parts(kind),
            _ => Node::Other,
        }
    }

    /// The kind of text that a string in this role is counted as.
    pub(super) fn text(self) -> Option<Kind> {
        match self {
            Role::Text(kind) | Role::Part(kind) => Some(kind),
            Role::Arguments => Some(Kind::Content),
            _ => None,
        }
    }

    /// Whether a string or literal in this role is kept until it ends.
    pub(super) fn is_kept(self) -> bool {
        matches!(
            self,
            Role::Id
                | Role::Object
                | Role::Created
                | Role::Model
                | Role::ChoiceIndex
                | Role::FinishReason
                | Role::Response
                | Role::PromptTokens
                | Role::CompletionTokens
                | Role::TotalTokens
                | Role::CompletionDetail
                | Role::CacheReadTokens
                | Role::CachedTokens
                | Role::ReasoningBeside
                | Role::CacheWriteTokens
                | Role::AudioTokens
                | Role::ImageTokens
                | Role::ReasoningTokens
                | Role::AudioOutputTokens
                | Role::ImageOutputTokens
                | Role::InputTokens
                | Role::OutputTokens
                | Role::ReadBucket
                | Role::WriteBucket
                | Role::Write5mBucket
                | Role::Write1hBucket
                | Role::Cost
                | Role::EstimatedCost
                | Role::IsByok
                | Role::UpstreamCost
                | Role::ServiceTier
                | Role::Error
                | Role::ErrorCode
                | Role::AnswerCode
        )
    }
}
