//! A list of models in OpenRouter's form, as long as theirs.

// A list of models in the format of OpenRouter's `GET /api/v1/models`, made up: no name or price in it is anyone's.
//
// The format is that of OpenRouter's documentation (openrouter.ai/docs, section "Models API"): an object with `data`, an array of models
// with `id`, `canonical_slug`, `name`, `created`, `description`, `context_length`, `architecture`, `pricing` (decimal text per token or per
// unit), `top_provider`, `per_request_limits` and `supported_parameters`. Its oddities are in it too: prices of -1 for routers,
// missing maxima, free variants after a colon, image answers, prices per request, a price that is an object.

/// A list of so many models; `cents` moves the prices, so that two lists differ.
pub(crate) fn openrouter_list(models: usize, cents: u64) -> String {
    let entries: Vec<serde_json::Value> = (0..models).map(|number| model(number, cents)).collect();
    serde_json::to_string_pretty(&serde_json::json!({ "data": entries })).unwrap()
}

/// The id of the model of this number.
pub(super) fn openrouter_id(number: usize) -> String {
    let makers = ["acme", "borealis", "cobalt", "delphi", "ember", "fjord", "granite"];
    let kind = match number % 22 {
        3 => "coder",
        7 => "vision",
        13 => "embed",
        _ => "chat",
    };
    let variant = if number % 22 == 5 { ":free" } else { "" };
    format!("{}/{kind}-{number}{variant}", makers[number % makers.len()])
}

fn model(number: usize, cents: u64) -> serde_json::Value {
    let id = openrouter_id(number);
    let embedding = number % 22 == 13;
    let free = number % 22 == 5;
    let (inputs, outputs) = match number % 22 {
        7 => (vec!["text", "image"], vec!["text"]),
        13 => (vec!["text"], vec!["embeddings"]),
        17 => (vec!["text"], vec!["text", "image"]),
        _ => (vec!["text"], vec!["text"]),
    };
    // From $0.05 to about $60 per 1M tokens, as decimal text per token.
    let prompt = if free {
        0
    } else {
        5 + cents + (number as u64 * 37) % 2000
    };
    let completion = if free || embedding { 0 } else { prompt * 4 };
    let price = |cents: u64| {
        format!("0.{:08}", cents)
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned()
    };
    let mut pricing = serde_json::json!({
        "prompt": price(prompt), "completion": price(completion), "request": "0", "image": "0", "web_search": "0",
        "internal_reasoning": "0", "input_cache_read": price(prompt / 10),
    });
    match number % 220 {
        19 => pricing["prompt"] = "-1".into(),
        41 => pricing["request"] = "0.005".into(),
        63 => pricing["image_output"] = serde_json::json!({ "per": "image" }),
        _ => {}
    }
    let max = (!number.is_multiple_of(3)).then_some(4096 + 1024 * (number % 30));
    serde_json::json!({
        "id": id, "canonical_slug": id, "hugging_face_id": null, "created": 1_760_000_000 + number,
        "name": format!("Maker {}: Model {number}", number % 7),
        "description": format!("The model of number {number}, made up for tests.\n\nA second paragraph that no listing shows."),
        "context_length": 8192 << (number % 6),
        "architecture": {
            "modality": format!("{}->{}", inputs.join("+"), outputs.join("+")), "input_modalities": inputs,
            "output_modalities": outputs, "tokenizer": "Other", "instruct_type": null,
        },
        "pricing": pricing,
        "top_provider": { "context_length": 8192, "max_completion_tokens": max, "is_moderated": false },
        "per_request_limits": null,
        "supported_parameters": ["max_tokens", "temperature", "tools"],
    })
}
