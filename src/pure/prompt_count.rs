//! What a prompt comes to when no provider reported it.

use super::prices::CacheWrites;
use super::request_body::{PromptBounds, PromptLimits, RequestBody};
use super::tokens::{self, Encoding};
use super::usage::{PromptTokens, TokenKinds};

/// The prompt's tokens by the tokenizer of the model's family, with what the chat format adds.
pub fn counted_prompt(body: &RequestBody, model: &str, limits: &PromptLimits) -> PromptTokens {
    let text = counted_with_format(body, model);
    // Where the text is not all of the prompt (images, files), its bound is all that is known; the hold covers it.
    let images = body
        .images()
        .saturating_mul(limits.image_tokens_each.min(IMAGE_TOKENS_USUAL));
    let counted = text.saturating_add(images);
    PromptTokens(counted.min(body.prompt_tokens_bound(&PromptBounds::from(limits))))
}

/// The prompt, and what kinds of tokens it consists of, where no report of it came because the client left: what cannot be counted is as
/// much as was held for it. Sounds and images for which the model has a figure have their own prices. All else has that of a write to the
/// cache, where the request asks for writes.
pub fn unread_prompt(body: &RequestBody, model: &str, bounds: &PromptBounds) -> (PromptTokens, TokenKinds) {
    let counted = counted_with_format(body, model).saturating_add(body.part_tokens_bound(bounds));
    let prompt = counted.min(body.prompt_tokens_bound(bounds));
    let of_kind = |count: u64, each: Option<u64>| each.map_or(0, |each| count.saturating_mul(each));
    let mut kinds = TokenKinds {
        audio: of_kind(body.audios(), bounds.audio_tokens_each),
        image: of_kind(body.images(), bounds.image_tokens_each),
        ..TokenKinds::default()
    };
    let others = prompt.saturating_sub(kinds.audio.saturating_add(kinds.image));
    match body.asks().writes {
        CacheWrites::Unasked => {}
        CacheWrites::Usual => kinds.cache_write = others,
        CacheWrites::Hour => kinds.cache_write_1h = others,
    }
    (PromptTokens(prompt), kinds)
}

/// Tokens of the prompt that can be counted: its text and what the chat format adds, or the tokens that embeddings were given.
fn counted_with_format(body: &RequestBody, model: &str) -> u64 {
    let format = if body.inputs() > 0 {
        body.token_ids()
    } else {
        tokens::chat_overhead(body.message_count(), 0)
    };
    counted_text(body, Encoding::for_model(model)).saturating_add(format)
}

/// Tokens of all the text that the model sees.
pub fn counted_text(body: &RequestBody, encoding: Encoding) -> u64 {
    let mut sum = 0u64;
    body.visit_text(&mut |text| sum = sum.saturating_add(tokens::count(text, encoding)));
    sum
}

/// Text that was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedText {
    /// Its tokens.
    pub tokens: u64,
    /// Its bytes that are not ASCII. Another family's tokenizer may know little of their script, and makes up to a token of each.
    pub non_ascii_bytes: u64,
}

/// The same, until there are more than `limit` tokens: what comes then is not counted, however long it is. At most one token in 16 KiB more
/// than [`counted_text`] where there are no more.
pub fn counted_text_within(body: &RequestBody, encoding: Encoding, limit: u64) -> CountedText {
    let mut non_ascii_bytes = 0u64;
    let tokens = sum_within(body, limit, &mut |piece| {
        non_ascii_bytes = non_ascii_bytes.saturating_add(non_ascii_bytes_of(piece));
        tokens::count(piece, encoding)
    });
    CountedText {
        tokens,
        non_ascii_bytes,
    }
}

fn non_ascii_bytes_of(text: &str) -> u64 {
    let count = text.bytes().filter(|byte| !byte.is_ascii()).count();
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// The sum of `count` over pieces of the text, until it is above `limit`.
fn sum_within(body: &RequestBody, limit: u64, count: &mut dyn FnMut(&str) -> u64) -> u64 {
    let mut sum = 0u64;
    body.visit_text(&mut |text| {
        let mut rest = text;
        while !rest.is_empty() && sum <= limit {
            let (piece, after) = rest.split_at_checked(piece_length(rest)).unwrap_or((rest, ""));
            sum = sum.saturating_add(count(piece));
            rest = after;
        }
    });
    sum
}

/// How many bytes of `text` are counted at once: whole characters, and at least one.
fn piece_length(text: &str) -> usize {
    let end = (PIECE_BYTES..=PIECE_BYTES.saturating_add(3)).find(|end| text.is_char_boundary(*end));
    end.unwrap_or(text.len())
}

/// The tokens of a prompt of which only the length is known, in bytes of its request: few, so that nobody pays for what was not there.
pub fn estimated_prompt(bytes: u64) -> PromptTokens {
    PromptTokens(bytes / BYTES_A_TOKEN)
}

/// Text that is counted at once, where counting may stop.
const PIECE_BYTES: usize = 16 << 10;

/// English has 4 to 5 bytes a token, other text fewer.
const BYTES_A_TOKEN: u64 = 6;

/// Tokens of an image where the provider did not report its prompt: what a common tiling of a large image comes to.
const IMAGE_TOKENS_USUAL: u64 = 1_105;

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::pure::request_body::Endpoint;

    fn body(text: &str) -> RequestBody {
        let body = serde_json::json!({ "model": "m", "messages": [{ "role": "user", "content": text }] });
        RequestBody::parse(Bytes::from(body.to_string()), Endpoint::Chat).unwrap()
    }

    #[test]
    fn a_prompt_is_its_text_and_what_frames_it_or_its_tokens_as_they_came() {
        let limits = PromptLimits {
            image_tokens_each: 1_000,
            context_length: 8_192,
        };
        let counted = |body: &RequestBody| counted_prompt(body, "text-embedding-3-small", &limits).0;
        assert_eq!(counted(&body("Hello world")), 2 + tokens::chat_overhead(1, 0));
        for (input, tokens) in [(serde_json::json!([1, 2, 3]), 3), (serde_json::json!("Hello world"), 2)] {
            let input = serde_json::json!({ "model": "m", "input": input });
            let input = RequestBody::parse(Bytes::from(input.to_string()), Endpoint::Embeddings).unwrap();
            assert_eq!(counted(&input), tokens);
        }
    }

    #[test]
    fn a_prompt_that_was_not_read_on_for_has_each_part_at_the_figure_for_its_kind() {
        let bounds = PromptBounds {
            image_tokens_each: Some(1_000),
            audio_tokens_each: Some(200),
            file_tokens_each: Some(30_000),
            overhead_tokens: 7,
            context_length: 100_000,
        };
        let unread = |content: serde_json::Value, more: &str, bounds: &PromptBounds| {
            let message = serde_json::json!([{ "role": "user", "content": content }]);
            let body = Bytes::from(format!(r#"{{"model":"m","messages":{message}{more}}}"#));
            let body = RequestBody::parse(body, Endpoint::Chat).unwrap();
            unread_prompt(&body, "openai/m", bounds)
        };
        let text = serde_json::json!({ "type": "text", "text": "Hello" });
        let counted = 1 + tokens::chat_overhead(1, 0);
        let image = serde_json::json!({ "type": "image_url", "image_url": { "url": "https://x/y" } });
        let sound = serde_json::json!({ "type": "input_audio", "input_audio": { "data": "QUJD" } });
        let file = serde_json::json!({ "type": "file", "file": { "file_data": "QUJD" } });
        let none = TokenKinds::default();
        let of_media = TokenKinds {
            audio: 200,
            image: 2_000,
            ..none
        };
        let all = serde_json::json!([text, image, image, sound, file]);
        assert_eq!(
            unread(all.clone(), "", &bounds),
            (PromptTokens(counted + 32_200), of_media)
        );
        assert_eq!(
            unread(serde_json::json!([text]), "", &bounds),
            (PromptTokens(counted), none)
        );
        // One that has no figure, or is of no known kind, is as much as the context has room for, at the price of any token.
        let film = serde_json::json!({ "type": "film", "film": "x" });
        let without = PromptBounds {
            audio_tokens_each: None,
            ..bounds
        };
        for (part, bounds) in [(film, bounds), (sound, without)] {
            assert_eq!(
                unread(serde_json::json!([text, part]), "", &bounds),
                (PromptTokens(100_000), none)
            );
        }
        // What is not of such a kind is written where that is asked for.
        let (usual, hour) = (r#","cache_control":{}"#, r#","cache_control":{"ttl":"1h"}"#);
        let (prompt, kinds) = unread(all.clone(), usual, &bounds);
        assert!(prompt.0 >= counted + 32_200, "{prompt:?}");
        let cache_write = TokenKinds {
            cache_write: prompt.0 - 2_200,
            ..of_media
        };
        assert_eq!(kinds, cache_write);
        let (prompt, kinds) = unread(all, hour, &bounds);
        let cache_write_1h = TokenKinds {
            cache_write_1h: prompt.0 - 2_200,
            ..of_media
        };
        assert_eq!(kinds, cache_write_1h);
    }

    #[test]
    fn counting_stops_where_more_cannot_be_paid() {
        let long = body(&"é漢 word ".repeat(500_000));
        let counted = counted_text_within(&long, Encoding::O200k, 100).tokens;
        assert!((101..20_000).contains(&counted), "{counted}");
        let many =
            serde_json::json!({ "model": "m", "messages": vec![serde_json::json!({ "content": "word" }); 10_000] });
        let many = RequestBody::parse(Bytes::from(many.to_string()), Endpoint::Chat).unwrap();
        assert_eq!(counted_text_within(&many, Encoding::O200k, 100).tokens, 101);
    }

    #[test]
    fn of_megabytes_that_cannot_be_paid_a_few_kibibytes_are_tokenised() {
        let long = body(&"four words of text ".repeat(250_000));
        assert!(long.prompt_bytes() > 4 << 20);
        for (payable, bytes_max) in [(0, PIECE_BYTES), (1_000, PIECE_BYTES), (10_000, 5 * PIECE_BYTES)] {
            let mut bytes = 0;
            let sum = sum_within(&long, payable, &mut |piece| {
                bytes += piece.len();
                tokens::count(piece, Encoding::O200k)
            });
            assert!(sum > payable, "{sum}");
            assert!((1..=bytes_max).contains(&bytes), "{bytes} bytes for {payable} tokens");
        }
    }

    #[test]
    fn what_can_be_paid_is_counted_whole() {
        for text in ["", "Hello world", &"é漢 word ".repeat(20_000)] {
            let body = body(text);
            let whole = counted_text(&body, Encoding::O200k);
            let within = counted_text_within(&body, Encoding::O200k, u64::MAX).tokens;
            assert!((whole..=whole + 20).contains(&within), "{whole} {within}");
        }
    }

    #[test]
    fn bytes_that_are_not_ascii_are_counted_with_the_text() {
        for (text, bytes) in [
            ("", 0),
            ("Hello\u{7f}", 0),
            ("é漢 word", 5),
            ("😀 ".repeat(10_000).as_str(), 40_000),
        ] {
            let counted = counted_text_within(&body(text), Encoding::O200k, u64::MAX);
            assert_eq!(counted.non_ascii_bytes, bytes);
        }
    }

    #[test]
    fn a_prompt_of_unknown_text_is_a_token_for_six_bytes() {
        for (bytes, tokens) in [(0, 0), (5, 0), (6, 1), (600, 100)] {
            assert_eq!(estimated_prompt(bytes).0, tokens, "{bytes}");
        }
    }
}
