//! The catalogue and configuration that a test's gateway starts with, as JSON values (which are YAML too) that a test may change.

use rust_decimal::Decimal;
use serde_json::{Value, json};

/// A model for 0 credits, open to every tier.
pub const FREE: &str = "acme/free";
/// A cheap model, open to every tier: the one that most tests use.
pub const SMALL: &str = "acme/small";
/// A model from the tier Pro on, with prices of many decimals.
pub const LARGE: &str = "acme/large";
/// A model of the tier Enterprise alone.
pub const HUGE: &str = "acme/huge";
/// A model with two targets: `main`, then `spare`.
pub const TWIN: &str = "acme/twin:duo";
/// An embedding model.
pub const EMBED: &str = "acme/embed-small";

/// The base prices of the models, prompt and completion: what the tests compute costs from.
pub const PRICES: [(&str, &str, &str); 6] = [
    (FREE, "0", "0"),
    (SMALL, "0.00000015", "0.0000006"),
    (LARGE, "0.000003", "0.00001512345"),
    (HUGE, "0.00002", "0.00008"),
    (TWIN, "0.000001", "0.000002"),
    (EMBED, "0.00000002", "0"),
];

/// What a call must cost, computed without the code under test.
pub fn cost(model: &str, prompt: u64, completion: u64) -> Decimal {
    let (_, prompt_price, completion_price) = PRICES
        .iter()
        .find(|(id, _, _)| *id == model)
        .copied()
        .unwrap_or_else(|| panic!("no price for {model}"));
    let price = |text: &str| text.parse::<Decimal>().unwrap();
    (Decimal::from(prompt) * price(prompt_price) + Decimal::from(completion) * price(completion_price))
        * Decimal::new(115, 2)
}

/// The default catalogue.
pub fn catalogue() -> Value {
    let main = |model: &str| json!([{ "provider": "main", "model": model }]);
    let chat = json!([
        "chat",
        "vision",
        "code",
        "fast",
        "router",
        "planner",
        "executor",
        "slide",
        "slot_extract"
    ]);
    let twin = json!([{ "provider": "main", "model": "up-twin" }, { "provider": "spare", "model": "up-twin-2" }]);
    json!({
        "models": [
            model(FREE, "Free Chat", "free", json!(["free", "chat"]), main("up-free")),
            model(SMALL, "Small Chat", "free", chat, main("up-small")),
            model(LARGE, "Large Reasoner", "pro", json!(["code", "planner"]), main("up-large")),
            model(HUGE, "Huge", "enterprise", json!(["planner"]), main("up-huge")),
            model(TWIN, "Twin", "lite", json!(["chat"]), twin),
            model(EMBED, "Small Embedding", "free", json!(["embedding"]), main("up-embed")),
        ],
        "purposes": {
            "chat": SMALL, "vision": SMALL, "code": LARGE, "fast": SMALL, "router": SMALL, "planner": LARGE, "executor": SMALL,
            "embedding": EMBED, "free": FREE, "slide": SMALL, "slot_extract": SMALL,
        },
    })
}

/// One model of a catalogue; its prices are those of [`PRICES`].
pub fn model(id: &str, name: &str, tier: &str, purposes: Value, targets: Value) -> Value {
    let (_, prompt, completion) = PRICES.iter().find(|(priced, _, _)| *priced == id).copied().unwrap();
    let embedding = purposes == json!(["embedding"]);
    json!({
        "id": id,
        "name": name,
        "provider": "Acme AI",
        "description": format!("{name} of the tests"),
        "context_length": 128_000,
        "max_completion_tokens": if embedding { 0 } else { 4_096 },
        "modality": if embedding { "text->embedding" } else { "text+image->text" },
        "pricing": { "prompt": prompt, "completion": completion },
        "tier": tier,
        "purposes": purposes,
        "targets": targets,
    })
}
