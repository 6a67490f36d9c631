//! What an answer tells of its cost, and the answer as its provider sent it.

use rust_decimal::Decimal;
use serde_json::Value;

/// The answer without what it tells of its cost: the provider's bytes, where its usage was told as it came.
pub fn without_cost(text: &str) -> String {
    let mut rest = text;
    let mut out = String::new();
    while let Some((before, after)) = rest.split_once(",\"cost\":") {
        let (_, details) = after.split_once("\"upstream_inference_completions_cost\":").unwrap();
        out.push_str(before);
        rest = details.split_once('}').unwrap().1;
    }
    out + rest
}

/// The cost that an answer tells, in its last usage: all its digits.
pub fn told_cost(text: &str) -> Option<Decimal> {
    let (_, after) = text.rsplit_once("\"cost\":")?;
    after.split([',', '}']).next()?.parse().ok()
}

/// A stream with each usage as its provider may have reported it: without its sides and its cost. An event that only tells a cost, which
/// the gateway adds before `[DONE]`, is left out.
pub fn reported(stream: &str) -> String {
    let text = stream.replace("\r\n", "\n").replace('\r', "\n");
    let mut out = String::new();
    for event in text.split_inclusive("\n\n") {
        let data: Vec<&str> = event.lines().filter_map(|line| line.strip_prefix("data:")).collect();
        let data = data.join(" ");
        match serde_json::from_str::<Value>(&data) {
            Ok(value) if is_own(&data, &value) => {}
            Ok(mut value) if value["usage"].is_object() => {
                for name in [
                    "cost",
                    "cost_details",
                    "prompt_tokens",
                    "completion_tokens",
                    "total_tokens",
                ] {
                    value["usage"].as_object_mut().unwrap().remove(name);
                }
                out += &format!("data: {value}\n\n");
            }
            _ => out += event,
        }
    }
    out
}

/// Whether an event is the gateway's own, which tells a cost before `[DONE]`: in words and order as only the gateway writes it.
fn is_own(data: &str, event: &Value) -> bool {
    let tokens = |name: &str| &event["usage"][name];
    data.trim().starts_with(&format!(
        "{{\"id\":{},\"object\":\"chat.completion.chunk\",\"created\":{},\"model\":{},\"choices\":[],\"usage\":{{\"prompt_tokens\":{},\
         \"completion_tokens\":{},\"total_tokens\":{},\"cost\":",
        event["id"],
        event["created"],
        event["model"],
        tokens("prompt_tokens"),
        tokens("completion_tokens"),
        tokens("total_tokens")
    ))
}
