//! OpenAI, Azure, OpenRouter.

use super::{BASE, Ending, Shape};

pub(super) const SHAPES: &[Shape] = &[
    Shape {
        name: "openai: usage chunk asked for",
        events: &[
            r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"gpt-4o-mini-2024-07-18","service_tier":"default","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"ab"}"#,
            r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"gpt-4o-mini-2024-07-18","service_tier":"default","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"content":"Hello"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"a"}"#,
            r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"gpt-4o-mini-2024-07-18","service_tier":"default","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"content":" there"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":""}"#,
            r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"gpt-4o-mini-2024-07-18","service_tier":"default","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"usage":null,"obfuscation":"abcde"}"#,
            r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"gpt-4o-mini-2024-07-18","service_tier":"default","system_fingerprint":"fp_1","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"obfuscation":"x"}"#,
            "data: [DONE]",
        ],
        usage: Some((9, 2)),
        texts: &["Hello", " there"],
        usage_chunk: Some(4),
        ..BASE
    },
    Shape {
        name: "openai: no usage",
        events: &[
            r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#,
            r#"data: {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}"#,
            r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}"#,
            "data: [DONE]",
        ],
        texts: &["Hi"],
        ..BASE
    },
    Shape {
        name: "openai: tool calls in parallel",
        events: &[
            r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"get_weather","arguments":""}}]},"finish_reason":null}]}"#,
            r#"data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"city\":"}}]},"finish_reason":null}]}"#,
            r#"data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":" \"Paris\"}"}},{"index":1,"id":"call_2","type":"function","function":{"name":"get_time","arguments":"{}"}}]},"finish_reason":null}]}"#,
            r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
            r#"data: {"choices":[],"usage":{"prompt_tokens":50,"completion_tokens":30,"total_tokens":80}}"#,
            "data: [DONE]",
        ],
        usage: Some((50, 30)),
        texts: &["get_weather", "{\"city\":", " \"Paris\"}", "get_time", "{}"],
        usage_chunk: Some(4),
        ..BASE
    },
    Shape {
        name: "openai: refusal, two choices, log probabilities",
        events: &[
            r#"data: {"choices":[{"index":0,"delta":{"refusal":"I can't"},"logprobs":{"content":null,"refusal":[{"token":"I","logprob":-0.1,"bytes":[73],"top_logprobs":[]}]},"finish_reason":null},{"index":1,"delta":{"content":"Sure"},"logprobs":{"content":[{"token":"Sure","logprob":-0.2,"bytes":[83],"top_logprobs":[{"token":"content","logprob":-3.5e0,"bytes":null}]}]},"finish_reason":null}]}"#,
            r#"data: {"choices":[{"index":1,"delta":{},"finish_reason":"content_filter"}]}"#,
            "data: [DONE]",
        ],
        texts: &["I can't", "Sure"],
        ..BASE
    },
    Shape {
        name: "openai: legacy function call",
        events: &[
            r#"data: {"choices":[{"index":0,"delta":{"function_call":{"name":"f","arguments":""}},"finish_reason":null}]}"#,
            r#"data: {"choices":[{"index":0,"delta":{"function_call":{"arguments":"{\"a\":1}"}},"finish_reason":"function_call"}]}"#,
            "data: [DONE]",
        ],
        texts: &["f", "{\"a\":1}"],
        ..BASE
    },
    Shape {
        name: "openai: custom tool and audio transcript",
        events: &[
            r#"data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","type":"custom","custom":{"name":"sql","input":"SELECT 1"}}]}}]}"#,
            r#"data: {"choices":[{"index":0,"delta":{"audio":{"id":"a","transcript":"spoken words","data":"AAAA"}},"finish_reason":"stop"}]}"#,
            "data: [DONE]",
        ],
        texts: &["sql", "SELECT 1", "spoken words"],
        ..BASE
    },
    Shape {
        name: "azure: content filter results in a first chunk without choices, no usage in it",
        events: &[
            r#"data: {"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0,"content_filter_results":{"hate":{"filtered":false,"severity":"safe"}}}]}"#,
            r#"data: {"choices":[{"content_filter_offsets":{"check_offset":10},"content_filter_results":{"error":{"code":"x"}},"delta":{"content":"Hi"},"finish_reason":null,"index":0}],"created":1700000000,"id":"chatcmpl-2","model":"gpt-4o","object":"chat.completion.chunk"}"#,
            r#"data: {"choices":[{"delta":{},"finish_reason":"stop","index":0}],"id":"chatcmpl-2"}"#,
            "data: [DONE]",
        ],
        texts: &["Hi"],
        ..BASE
    },
    Shape {
        name: "openrouter: comments while it works, usage with costs in the last chunk",
        events: &[
            ": OPENROUTER PROCESSING",
            ": OPENROUTER PROCESSING",
            r#"data: {"id":"gen-1","provider":"OpenAI","model":"openai/gpt-4o","object":"chat.completion.chunk","created":1700000000,"choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"},"finish_reason":null,"native_finish_reason":null,"logprobs":null}]}"#,
            ": OPENROUTER PROCESSING",
            r#"data: {"id":"gen-1","provider":"OpenAI","model":"openai/gpt-4o","object":"chat.completion.chunk","created":1700000000,"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":"stop","native_finish_reason":"stop","logprobs":null}],"usage":{"prompt_tokens":14,"completion_tokens":3,"total_tokens":17,"cost":0.00014,"is_byok":false,"prompt_tokens_details":{"cached_tokens":0},"cost_details":{"upstream_inference_cost":null},"completion_tokens_details":{"reasoning_tokens":0}}}"#,
            "data: [DONE]",
        ],
        usage: Some((14, 3)),
        texts: &["Hel"],
        ..BASE
    },
    Shape {
        name: "openrouter: the same reasoning in two spellings",
        events: &[
            r#"data: {"id":"gen-2","choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning":"Let me think","reasoning_details":[{"type":"reasoning.text","text":"Let me think","format":"unknown","index":0}]},"finish_reason":null}]}"#,
            r#"data: {"id":"gen-2","choices":[{"index":0,"delta":{"content":"42"},"finish_reason":"stop"}]}"#,
            r#"data: {"id":"gen-2","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":8,"total_tokens":13}}"#,
            "data: [DONE]",
        ],
        usage: Some((5, 8)),
        texts: &["Let me think", "42"],
        usage_chunk: Some(2),
        ..BASE
    },
    Shape {
        name: "openrouter: error after some text",
        events: &[
            r#"data: {"id":"gen-3","object":"chat.completion.chunk","created":1700000000,"model":"a/b","choices":[{"index":0,"delta":{"content":"So"},"finish_reason":null}]}"#,
            r#"data: {"id":"gen-3","object":"chat.completion.chunk","created":1700000000,"model":"a/b","provider":"X","error":{"code":502,"message":"SECRET provider disconnected","metadata":{"provider_name":"X"}},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}"#,
        ],
        texts: &["So"],
        ending: Ending::Error(Some(502)),
        ..BASE
    },
    Shape {
        name: "openrouter: error within a choice",
        events: &[
            r#"data: {"id":"gen-4","choices":[{"index":0,"error":null,"delta":{"content":"So"},"finish_reason":null}]}"#,
            r#"data: {"id":"gen-4","choices":[{"index":0,"error":{"code":502,"message":"SECRET provider disconnected"},"delta":{"content":""},"finish_reason":"error"}]}"#,
        ],
        texts: &["So"],
        ending: Ending::Error(Some(502)),
        ..BASE
    },
    Shape {
        name: "openrouter: error in place of an answer",
        events: &[
            ": OPENROUTER PROCESSING",
            r#"data: {"error":{"message":"SECRET rate limited upstream","code":429},"user_id":"user_1"}"#,
        ],
        ending: Ending::Error(Some(429)),
        ..BASE
    },
];
