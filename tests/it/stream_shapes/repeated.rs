//! Streams that say the same words in two places. They count once.

use super::{BASE, Ending, Shape};

pub(super) const SHAPES: &[Shape] = &[
    Shape {
        name: "perplexity: all words so far in a message beside each delta, and a cost in parts",
        events: &[
            r#"data: {"id":"p","model":"sonar","created":1700000000,"object":"chat.completion.chunk","choices":[{"index":0,"finish_reason":null,"message":{"role":"assistant","content":"One"},"delta":{"role":"assistant","content":"One"}}]}"#,
            r#"data: {"id":"p","model":"sonar","created":1700000000,"object":"chat.completion.chunk","choices":[{"index":0,"finish_reason":null,"message":{"role":"assistant","content":"One two"},"delta":{"role":"assistant","content":" two"}}]}"#,
            r#"data: {"id":"p","model":"sonar","created":1700000000,"object":"chat.completion.chunk","choices":[{"index":0,"finish_reason":null,"message":{"role":"assistant","content":"One two three"},"delta":{"role":"assistant","content":" three"}}]}"#,
            r#"data: {"id":"p","model":"sonar","created":1700000000,"object":"chat.completion.chunk","usage":{"prompt_tokens":14,"completion_tokens":3,"total_tokens":17,"search_context_size":"low","cost":{"input_tokens_cost":0.00001,"output_tokens_cost":0.00002,"request_cost":0.005,"total_cost":0.00503}},"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"One two three"},"delta":{"role":"assistant","content":""}}]}"#,
            "data: [DONE]",
        ],
        usage: Some((14, 3)),
        texts: &["One", " two", " three"],
        ..BASE
    },
    Shape {
        name: "perplexity: the same without a usage, the index last",
        events: &[
            r#"data: {"choices":[{"delta":{"content":"One"},"message":{"content":"One"},"index":0}]}"#,
            r#"data: {"choices":[{"message":{"content":"One two"},"delta":{"content":" two"},"index":0}]}"#,
            r#"data: {"choices":[{"message":{"content":"One two three"},"delta":{"content":" three"},"index":0,"finish_reason":"stop"}]}"#,
            "data: [DONE]",
        ],
        texts: &["One", " two", " three"],
        ..BASE
    },
    Shape {
        name: "together: each text in the choice and in its delta",
        events: &[
            r#"data: {"id":"t","object":"chat.completion.chunk","created":1700000000,"choices":[{"index":0,"text":"One","logprobs":null,"finish_reason":null,"seed":null,"delta":{"token_id":30,"role":"assistant","content":"One","tool_calls":null}}],"model":"m","usage":null}"#,
            r#"data: {"id":"t","object":"chat.completion.chunk","created":1700000000,"choices":[{"index":0,"text":" two","logprobs":null,"finish_reason":null,"seed":null,"delta":{"token_id":31,"role":"assistant","content":" two","tool_calls":null}}],"model":"m","usage":null}"#,
            r#"data: {"id":"t","object":"chat.completion.chunk","created":1700000000,"choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"stop","seed":7,"delta":{"token_id":32,"role":"assistant","content":"","tool_calls":null}}],"model":"m","usage":null}"#,
            "data: [DONE]",
        ],
        texts: &["One", " two"],
        ..BASE
    },
    Shape {
        name: "minimax: the last event repeats the whole answer",
        events: &[
            r#"data: {"id":"m","choices":[{"index":0,"delta":{"content":"One two","role":"assistant"}}],"created":1700000000,"model":"abab","object":"chat.completion.chunk"}"#,
            r#"data: {"id":"m","choices":[{"index":0,"delta":{"content":" three","role":"assistant"}}],"created":1700000000,"model":"abab","object":"chat.completion.chunk"}"#,
            r#"data: {"id":"m","choices":[{"finish_reason":"stop","index":0,"message":{"content":"One two three","role":"assistant"}}],"created":1700000000,"model":"abab","object":"chat.completion","usage":{"total_tokens":12,"total_characters":0,"prompt_tokens":9,"completion_tokens":3}}"#,
        ],
        usage: Some((9, 3)),
        texts: &["One two", " three"],
        ending: Ending::Finished,
        ..BASE
    },
    Shape {
        name: "a message in each event and never a delta: its text is new",
        events: &[
            r#"data: {"choices":[{"index":0,"message":{"content":"One"}}]}"#,
            r#"data: {"choices":[{"index":0,"message":{"content":" two"},"finish_reason":"stop"}]}"#,
            "data: [DONE]",
        ],
        texts: &["One", " two"],
        ..BASE
    },
];
