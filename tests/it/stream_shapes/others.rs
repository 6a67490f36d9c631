//! Everyone else.

use super::{BASE, Ending, Shape};

pub(super) const SHAPES: &[Shape] = &[
    Shape {
        name: "anthropic, compatible endpoint",
        events: &[
            r#"data: {"id":"msg_1","choices":[{"index":0,"delta":{"role":"assistant"}}],"created":1700000000,"model":"claude-x","object":"chat.completion.chunk"}"#,
            r#"data: {"id":"msg_1","choices":[{"index":0,"delta":{"content":"Good morning"}}],"created":1700000000,"model":"claude-x","object":"chat.completion.chunk"}"#,
            r#"data: {"id":"msg_1","choices":[{"finish_reason":"stop","index":0,"delta":{}}],"created":1700000000,"model":"claude-x","object":"chat.completion.chunk"}"#,
            r#"data: {"id":"msg_1","choices":[],"created":1700000000,"model":"claude-x","object":"chat.completion.chunk","usage":{"completion_tokens":5,"prompt_tokens":12,"total_tokens":17}}"#,
            "data: [DONE]",
        ],
        usage: Some((12, 5)),
        texts: &["Good morning"],
        usage_chunk: Some(3),
        ..BASE
    },
    Shape {
        name: "anthropic: overloaded, with an event name",
        events: &[
            r#"data: {"id":"msg_2","choices":[{"index":0,"delta":{"content":"A"}}]}"#,
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"SECRET Overloaded\"}}",
        ],
        texts: &["A"],
        ending: Ending::Error(None),
        ..BASE
    },
    Shape {
        name: "gemini, compatible endpoint: cumulative usage in every chunk, CRLF",
        events: &[
            r#"data: {"choices":[{"delta":{"content":"One","role":"assistant"},"index":0}],"created":1700000000,"id":"x","model":"gemini-2.5-flash","object":"chat.completion.chunk","usage":{"completion_tokens":1,"prompt_tokens":6,"total_tokens":7}}"#,
            r#"data: {"choices":[{"delta":{"content":" two three","role":"assistant"},"finish_reason":"stop","index":0}],"created":1700000000,"id":"x","model":"gemini-2.5-flash","object":"chat.completion.chunk","usage":{"completion_tokens":3,"prompt_tokens":6,"total_tokens":40}}"#,
            "data: [DONE]",
        ],
        end: "\r\n\r\n",
        usage: Some((6, 3)),
        texts: &["One", " two three"],
        ..BASE
    },
    Shape {
        name: "gemini: tool call without an index, whole",
        events: &[
            r#"data: {"choices":[{"delta":{"role":"assistant","tool_calls":[{"function":{"arguments":"{\"q\":\"é\"}","name":"search"},"id":"f-1","type":"function"}]},"finish_reason":"tool_calls","index":0}],"usage":{"completion_tokens":9,"prompt_tokens":60,"total_tokens":69}}"#,
            "data: [DONE]",
        ],
        usage: Some((60, 9)),
        texts: &["{\"q\":\"é\"}", "search"],
        ..BASE
    },
    Shape {
        name: "groq: usage in x_groq of the last chunk",
        events: &[
            r#"data: {"id":"chatcmpl-g","object":"chat.completion.chunk","created":1700000000,"model":"llama","system_fingerprint":"fp","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"x_groq":{"id":"req_1"}}"#,
            r#"data: {"id":"chatcmpl-g","object":"chat.completion.chunk","created":1700000000,"model":"llama","system_fingerprint":"fp","choices":[{"index":0,"delta":{"content":"Hey"},"logprobs":null,"finish_reason":null}]}"#,
            r#"data: {"id":"chatcmpl-g","object":"chat.completion.chunk","created":1700000000,"model":"llama","system_fingerprint":"fp","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"x_groq":{"id":"req_1","usage":{"queue_time":0.01,"prompt_tokens":18,"prompt_time":0.001,"completion_tokens":7,"completion_time":0.02,"total_tokens":25,"total_time":0.021}}}"#,
            "data: [DONE]",
        ],
        usage: Some((18, 7)),
        texts: &["Hey"],
        ..BASE
    },
    Shape {
        name: "groq: usage twice, in x_groq and in a usage chunk",
        events: &[
            r#"data: {"choices":[{"index":0,"delta":{"content":"Hey"},"finish_reason":null}]}"#,
            r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"x_groq":{"id":"r","usage":{"prompt_tokens":18,"completion_tokens":7,"total_tokens":25}}}"#,
            r#"data: {"choices":[],"usage":{"prompt_tokens":18,"completion_tokens":7,"total_tokens":25},"x_groq":{"id":"r","usage":{"prompt_tokens":18,"completion_tokens":7,"total_tokens":25}}}"#,
            "data: [DONE]",
        ],
        usage: Some((18, 7)),
        texts: &["Hey"],
        usage_chunk: Some(2),
        ..BASE
    },
    Shape {
        name: "groq: error event in the stream",
        events: &[
            "event: error\ndata: {\"error\":{\"message\":\"SECRET tool call failed\",\"type\":\"invalid_request_error\",\"status_code\":400}}",
        ],
        ending: Ending::Error(Some(400)),
        ..BASE
    },
    Shape {
        name: "groq: why the stream was stopped early, in its own object",
        events: &[
            r#"data: {"id":"g1","object":"chat.completion.chunk","created":1700000000,"model":"llama","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}],"x_groq":{"id":"r","error":null}}"#,
            r#"data: {"id":"g1","object":"chat.completion.chunk","created":1700000000,"model":"llama","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"x_groq":{"id":"r","error":"SECRET over capacity"}}"#,
        ],
        texts: &["Hi"],
        ending: Ending::Error(None),
        ..BASE
    },
    Shape {
        name: "mistral: usage in the last chunk",
        events: &[
            r#"data: {"id":"m1","object":"chat.completion.chunk","created":1700000000,"model":"mistral-small","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#,
            r#"data: {"id":"m1","object":"chat.completion.chunk","created":1700000000,"model":"mistral-small","choices":[{"index":0,"delta":{"content":"Bonjour"},"finish_reason":null}],"p":"abcdefgh"}"#,
            r#"data: {"id":"m1","object":"chat.completion.chunk","created":1700000000,"model":"mistral-small","choices":[{"index":0,"delta":{"content":""},"finish_reason":"stop"}],"usage":{"prompt_tokens":4,"total_tokens":6,"completion_tokens":2}}"#,
            "data: [DONE]",
        ],
        usage: Some((4, 2)),
        texts: &["Bonjour"],
        ..BASE
    },
    Shape {
        name: "mistral: content in parts, thinking among them",
        events: &[
            r#"data: {"choices":[{"index":0,"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"Hmm"}]}]},"finish_reason":null}]}"#,
            r#"data: {"choices":[{"index":0,"delta":{"content":[{"type":"text","text":"Yes"}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":4,"total_tokens":9,"completion_tokens":5}}"#,
            "data: [DONE]",
        ],
        usage: Some((4, 5)),
        texts: &["Hmm", "Yes"],
        ..BASE
    },
    Shape {
        name: "deepseek: reasoning content first, usage in the last chunk, keep-alive comments",
        events: &[
            ": keep-alive",
            r#"data: {"id":"d","object":"chat.completion.chunk","created":1700000000,"model":"deepseek-reasoner","system_fingerprint":"fp","choices":[{"index":0,"delta":{"role":"assistant","content":null,"reasoning_content":""},"logprobs":null,"finish_reason":null}]}"#,
            r#"data: {"id":"d","object":"chat.completion.chunk","created":1700000000,"model":"deepseek-reasoner","system_fingerprint":"fp","choices":[{"index":0,"delta":{"content":null,"reasoning_content":"First"},"logprobs":null,"finish_reason":null}]}"#,
            r#"data: {"id":"d","object":"chat.completion.chunk","created":1700000000,"model":"deepseek-reasoner","system_fingerprint":"fp","choices":[{"index":0,"delta":{"content":"Answer","reasoning_content":null},"logprobs":null,"finish_reason":null}]}"#,
            r#"data: {"id":"d","object":"chat.completion.chunk","created":1700000000,"model":"deepseek-reasoner","system_fingerprint":"fp","choices":[{"index":0,"delta":{"content":"","reasoning_content":null},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":90,"total_tokens":101,"prompt_cache_hit_tokens":0,"prompt_cache_miss_tokens":11,"completion_tokens_details":{"reasoning_tokens":80}}}"#,
            "data: [DONE]",
        ],
        usage: Some((11, 90)),
        texts: &["First", "Answer"],
        ..BASE
    },
    Shape {
        name: "vllm: cumulative usage in every chunk, then a usage chunk",
        events: &[
            r#"data: {"id":"chatcmpl-v","object":"chat.completion.chunk","created":1700000000,"model":"q","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":{"prompt_tokens":31,"total_tokens":31,"completion_tokens":0}}"#,
            r#"data: {"id":"chatcmpl-v","object":"chat.completion.chunk","created":1700000000,"model":"q","choices":[{"index":0,"delta":{"content":"Hi"},"logprobs":null,"finish_reason":null}],"usage":{"prompt_tokens":31,"total_tokens":32,"completion_tokens":1}}"#,
            r#"data: {"id":"chatcmpl-v","object":"chat.completion.chunk","created":1700000000,"model":"q","choices":[{"index":0,"delta":{"content":"!"},"logprobs":null,"finish_reason":"stop","stop_reason":null}],"usage":{"prompt_tokens":31,"total_tokens":33,"completion_tokens":2}}"#,
            r#"data: {"id":"chatcmpl-v","object":"chat.completion.chunk","created":1700000000,"model":"q","choices":[],"usage":{"prompt_tokens":31,"total_tokens":33,"completion_tokens":2}}"#,
            "data: [DONE]",
        ],
        usage: Some((31, 2)),
        texts: &["Hi", "!"],
        usage_chunk: Some(3),
        ..BASE
    },
    Shape {
        name: "vllm: old error object",
        events: &[
            r#"data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}"#,
            r#"data: {"object":"error","message":"SECRET EngineDeadError","type":"InternalServerError","param":null,"code":500}"#,
        ],
        texts: &["Hi"],
        ending: Ending::Error(Some(500)),
        ..BASE
    },
    Shape {
        name: "vllm: new error object, then done",
        events: &[
            r#"data: {"error":{"message":"SECRET EngineDeadError","type":"InternalServerError","param":null,"code":500}}"#,
        ],
        ending: Ending::Error(Some(500)),
        ..BASE
    },
    Shape {
        name: "ollama: finish reason in a chunk of its own",
        events: &[
            r#"data: {"id":"chatcmpl-7","object":"chat.completion.chunk","created":1700000000,"model":"llama3.2","system_fingerprint":"fp_ollama","choices":[{"index":0,"delta":{"role":"assistant","content":"Yo"},"finish_reason":null}]}"#,
            r#"data: {"id":"chatcmpl-7","object":"chat.completion.chunk","created":1700000000,"model":"llama3.2","system_fingerprint":"fp_ollama","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":"stop"}]}"#,
            r#"data: {"id":"chatcmpl-7","object":"chat.completion.chunk","created":1700000000,"model":"llama3.2","system_fingerprint":"fp_ollama","choices":[],"usage":{"prompt_tokens":26,"completion_tokens":2,"total_tokens":28}}"#,
            "data: [DONE]",
        ],
        usage: Some((26, 2)),
        texts: &["Yo"],
        usage_chunk: Some(2),
        ..BASE
    },
    Shape {
        name: "llama.cpp: timings beside the usage, the object last",
        events: &[
            r#"data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"Ok"}}],"created":1700000000,"id":"chatcmpl-l","model":"gguf","system_fingerprint":"b1","object":"chat.completion.chunk"}"#,
            r#"data: {"choices":[{"finish_reason":"stop","index":0,"delta":{}}],"created":1700000000,"id":"chatcmpl-l","model":"gguf","system_fingerprint":"b1","object":"chat.completion.chunk"}"#,
            r#"data: {"choices":[],"created":1700000000,"id":"chatcmpl-l","model":"gguf","system_fingerprint":"b1","object":"chat.completion.chunk","usage":{"completion_tokens":1,"prompt_tokens":13,"total_tokens":14},"timings":{"prompt_n":13,"prompt_ms":10.5,"predicted_n":1,"predicted_ms":5.25}}"#,
            "data: [DONE]",
        ],
        usage: Some((13, 1)),
        texts: &["Ok"],
        usage_chunk: Some(2),
        ..BASE
    },
    Shape {
        name: "llama.cpp: an error line of its own kind is no event and no error",
        events: &[
            "error: {\"code\":500}",
            r#"data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}"#,
            "data: [DONE]",
        ],
        texts: &["x"],
        ..BASE
    },
    Shape {
        name: "moonshot: usage inside the last choice",
        events: &[
            r#"data: {"id":"k","object":"chat.completion.chunk","created":1700000000,"model":"kimi","choices":[{"index":0,"delta":{"content":"Ni"},"finish_reason":null}]}"#,
            r#"data: {"id":"k","object":"chat.completion.chunk","created":1700000000,"model":"kimi","choices":[{"index":0,"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":19,"completion_tokens":2,"total_tokens":21}}]}"#,
            "data: [DONE]",
        ],
        usage: Some((19, 2)),
        texts: &["Ni"],
        ..BASE
    },
    Shape {
        name: "x.ai: a usage chunk with details, CR line ends",
        events: &[
            r#"data: {"id":"x","choices":[{"index":0,"delta":{"content":"Grok","role":"assistant"}}]}"#,
            r#"data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
            r#"data: {"id":"x","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9,"prompt_tokens_details":{"text_tokens":7,"audio_tokens":0,"image_tokens":0,"cached_tokens":6},"completion_tokens_details":{"reasoning_tokens":0},"num_sources_used":0}}"#,
            "data: [DONE]",
        ],
        end: "\r\r",
        usage: Some((7, 2)),
        texts: &["Grok"],
        usage_chunk: Some(2),
        ..BASE
    },
    Shape {
        name: "cohere, compatible endpoint: no space after the colon, an empty finish reason",
        events: &[
            r#"data:{"id":"c","choices":[{"index":0,"finish_reason":"","delta":{"role":"assistant","content":"A b"}}]}"#,
            r#"data:{"id":"c","choices":[{"index":0,"finish_reason":"stop","delta":{}}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}"#,
            "data:[DONE]",
        ],
        usage: Some((3, 2)),
        texts: &["A b"],
        ..BASE
    },
];
