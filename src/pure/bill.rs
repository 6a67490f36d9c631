//! What a prompt comes to when no provider reported it.

use super::chat::{PromptBounds, PromptLimits, RequestBody};
use super::tokens::{self, Encoding};
use super::usage::PromptTokens;

/// The prompt's tokens by the tokenizer of the model's family, with what the chat format adds.
pub fn counted_prompt(body: &RequestBody, model: &str, limits: &PromptLimits) -> PromptTokens {
    let text = counted_text(body, Encoding::for_model(model));
    let overhead = if body.inputs() > 0 {
        body.token_ids()
    } else {
        tokens::chat_overhead(body.message_count(), 0)
    };
    // Where the text is not all of the prompt (images, files), its bound is all that is known; the hold covers it.
    let images = body
        .images()
        .saturating_mul(limits.image_tokens_each.min(IMAGE_TOKENS_USUAL));
    let counted = text.saturating_add(overhead).saturating_add(images);
    PromptTokens(counted.min(body.prompt_tokens_bound(&PromptBounds::from(limits))))
}

/// Tokens of all the text that the model sees.
pub fn counted_text(body: &RequestBody, encoding: Encoding) -> u64 {
    let mut sum = 0u64;
    body.visit_text(&mut |text| sum = sum.saturating_add(tokens::count(text, encoding)));
    sum
}

/// The tokens of a prompt of which only the length is known, in bytes of its request: few, so that nobody pays for what was not there.
pub fn estimated_prompt(bytes: u64) -> PromptTokens {
    PromptTokens(bytes / BYTES_A_TOKEN)
}

/// English has 4 to 5 bytes a token, other text fewer.
const BYTES_A_TOKEN: u64 = 6;

/// Tokens of an image where the provider did not report its prompt: what a common tiling of a large image comes to.
const IMAGE_TOKENS_USUAL: u64 = 1_105;
