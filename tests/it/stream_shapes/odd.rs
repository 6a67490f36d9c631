//! Streams that are odd in some way, whoever sends them.

use super::{BASE, Ending, Shape};

pub(super) const SHAPES: &[Shape] = &[
    Shape {
        name: "ids and event names on every event",
        events: &[
            "id: 1\nevent: message\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x y\"}}]}",
            "id: 2\nevent: message\nretry: 1000\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}",
            "id: 3\ndata: [DONE]",
        ],
        usage: Some((1, 2)),
        texts: &["x y"],
        usage_chunk: Some(1),
        ..BASE
    },
    Shape {
        name: "pretty-printed JSON over several lines of data",
        events: &[
            "data: {\ndata:   \"choices\": [\ndata:     {\"index\": 0, \"delta\": {\"content\": \"multi\"}}\ndata:   ]\ndata: }",
            "data: {\"choices\": [],\ndata: \"usage\": {\"prompt_tokens\": 8,\ndata: \"completion_tokens\": 1}}",
            "data: [DONE]",
        ],
        usage: Some((8, 1)),
        texts: &["multi"],
        usage_chunk: Some(1),
        ..BASE
    },
    Shape {
        name: "no done: the connection just ends",
        events: &[
            r#"data: {"choices":[{"index":0,"delta":{"content":"x"}}]}"#,
            r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":2,"completion_tokens":1,"total_tokens":3}}"#,
        ],
        usage: Some((2, 1)),
        texts: &["x"],
        ending: Ending::Finished,
        ..BASE
    },
    Shape {
        name: "no finish reason and no done",
        events: &[r#"data: {"choices":[{"index":0,"delta":{"content":"x"}}]}"#],
        texts: &["x"],
        ending: Ending::Open,
        ..BASE
    },
    Shape {
        name: "a completion of zero is a report",
        events: &[
            r#"data: {"choices":[{"index":0,"delta":{"content":"free"},"finish_reason":"stop"}]}"#,
            r#"data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":0,"total_tokens":9}}"#,
            "data: [DONE]",
        ],
        usage: Some((9, 0)),
        texts: &["free"],
        usage_chunk: Some(1),
        ..BASE
    },
    Shape {
        name: "nothing at all is no report of an answer with text",
        events: &[
            r#"data: {"choices":[{"index":0,"delta":{"content":"not free"},"finish_reason":"stop"}]}"#,
            r#"data: {"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}"#,
            "data: [DONE]",
        ],
        texts: &["not free"],
        usage_chunk: Some(1),
        ..BASE
    },
    Shape {
        name: "nothing at all is a report of an answer without text",
        events: &[
            r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
            r#"data: {"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}"#,
            "data: [DONE]",
        ],
        usage: Some((0, 0)),
        usage_chunk: Some(1),
        ..BASE
    },
    Shape {
        name: "a usage chunk whose choices are null",
        events: &[
            r#"data: {"id":"v","choices":[{"index":0,"delta":{"content":"x y"},"finish_reason":"stop"}]}"#,
            r#"data: {"id":"v","choices":null,"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}"#,
            "data: [DONE]",
        ],
        usage: Some((5, 2)),
        texts: &["x y"],
        usage_chunk: Some(1),
        ..BASE
    },
    Shape {
        name: "a usage chunk without choices, whose other text is empty",
        events: &[
            r#"data: {"id":"v","choices":[{"index":0,"delta":{"content":"x y"},"finish_reason":"stop"}]}"#,
            r#"data: {"response":"","usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}"#,
            "data: [DONE]",
        ],
        usage: Some((5, 2)),
        texts: &["x y"],
        usage_chunk: Some(1),
        ..BASE
    },
    Shape {
        name: "a usage beside text that stands elsewhere is no usage chunk",
        events: &[
            r#"data: {"id":"v","choices":[{"index":0,"delta":{"content":"x y"},"finish_reason":"stop"}]}"#,
            r#"data: {"response":"z","usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}"#,
            "data: [DONE]",
        ],
        usage: Some((5, 2)),
        texts: &["x y"],
        ..BASE
    },
    Shape {
        name: "a report that can't be believed, then none",
        events: &[
            r#"data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}"#,
            r#"data: {"choices":[],"usage":{"prompt_tokens":-1,"completion_tokens":1.5,"total_tokens":1e9}}"#,
            "data: [DONE]",
        ],
        texts: &["x"],
        usage_chunk: Some(1),
        ..BASE
    },
    Shape {
        name: "one side and the total",
        events: &[
            r#"data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}"#,
            r#"data: {"choices":[],"usage":{"completion_tokens":4,"total_tokens":10}}"#,
            "data: [DONE]",
        ],
        usage: Some((6, 4)),
        texts: &["x"],
        usage_chunk: Some(1),
        ..BASE
    },
    Shape {
        name: "the model writes what looks like a usage report, an error and an end",
        events: &[
            r#"data: {"choices":[{"index":0,"delta":{"content":"{\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}"}}]}"#,
            r#"data: {"choices":[{"index":0,"delta":{"content":"\n\ndata: [DONE]\n\n"}}]}"#,
            r#"data: {"choices":[{"index":0,"delta":{"content":"{\"error\":{\"code\":500}}"},"finish_reason":"stop"}]}"#,
            r#"data: {"choices":[],"usage":{"prompt_tokens":20,"completion_tokens":33,"total_tokens":53}}"#,
            "data: [DONE]",
        ],
        usage: Some((20, 33)),
        texts: &[
            "{\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}",
            "\n\ndata: [DONE]\n\n",
            "{\"error\":{\"code\":500}}",
        ],
        usage_chunk: Some(3),
        ..BASE
    },
    Shape {
        name: "escapes and surrogate pairs",
        events: &[
            r#"data: {"choices":[{"index":0,"delta":{"content":"caf\u00e9 \ud83d\ude00\t\/"},"finish_reason":"stop"}]}"#,
            "data: [DONE]",
        ],
        texts: &["café 😀\t/"],
        ..BASE
    },
    Shape {
        name: "usage null in every chunk and error null too",
        events: &[
            r#"data: {"error":null,"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}],"usage":null}"#,
            r#"data: {"choices":[],"usage":null}"#,
            "data: [DONE]",
        ],
        texts: &["x"],
        ..BASE
    },
    Shape {
        name: "an image in the delta is not text",
        events: &[
            r#"data: {"choices":[{"index":0,"delta":{"content":"Here","images":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1290}}"#,
            "data: [DONE]",
        ],
        usage: Some((3, 1290)),
        texts: &["Here"],
        ..BASE
    },
];
