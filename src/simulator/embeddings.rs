//! Embeddings: unit vectors that depend on nothing but the input, so that equal inputs have equal vectors. They carry no meaning.

use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::exchange::{Exchange, Halt};
use super::refusal::Refusal;
use super::request::{Embeddings, Encoding, Input};
use super::script::{Script, UsageReport};
use super::tokens;

/// An embeddings answer, ready to be sent.
pub(super) struct Plan {
    pub(super) model: String,
    pub(super) script: Script,
    vectors: Vec<Vector>,
    usage: Option<Value>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Vector {
    Float(Vec<f32>),
    Base64(String),
}

#[derive(Serialize)]
struct List<'p> {
    object: &'static str,
    data: Vec<Element<'p>>,
    model: &'p str,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<&'p Value>,
}

#[derive(Serialize)]
struct Element<'p> {
    object: &'static str,
    index: usize,
    embedding: &'p Vector,
}

impl Plan {
    pub(super) fn new(body: &[u8]) -> Result<Self, Refusal> {
        let request = Embeddings::parse(body)?;
        let first_text = match request.inputs.first() {
            Some(Input::Text(text)) => text,
            Some(Input::Tokens(_)) | None => "",
        };
        let (script, _) = Script::of(&request.model, first_text)?;
        let prompt_tokens: u64 = request.inputs.iter().map(count).sum();
        let usage = match script.usage {
            UsageReport::True => Some(json!({"prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens})),
            UsageReport::Absurd => Some(json!({"prompt_tokens": -1, "total_tokens": 0.5})),
            UsageReport::Missing => None,
        };
        let vectors = request.inputs.iter().map(|input| {
            let vector = unit_vector(seed(input), request.dimensions);
            match request.encoding {
                Encoding::Float => Vector::Float(vector),
                Encoding::Base64 => Vector::Base64(base64_of(&vector)),
            }
        });
        Ok(Plan {
            script,
            vectors: vectors.collect(),
            usage,
            model: request.model,
        })
    }

    pub(super) async fn perform(&self, exchange: &mut Exchange) -> Result<(), Halt> {
        let element = |(index, embedding)| Element {
            object: "embedding",
            index,
            embedding,
        };
        let data = self.vectors.iter().enumerate().map(element).collect();
        exchange
            .whole(
                &self.script,
                List {
                    object: "list",
                    data,
                    model: &self.model,
                    usage: self.usage.as_ref(),
                },
            )
            .await
    }
}

fn count(input: &Input) -> u64 {
    match input {
        Input::Text(text) => tokens::count(text),
        Input::Tokens(ids) => u64::try_from(ids.len()).unwrap_or(u64::MAX),
    }
}

fn seed(input: &Input) -> u64 {
    let digest = match input {
        Input::Text(text) => Sha256::digest(text),
        Input::Tokens(ids) => Sha256::digest(ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<_>>()),
    };
    digest.iter().take(8).fold(0, |seed, byte| seed << 8 | u64::from(*byte))
}

/// A vector of length 1 in a direction given by `seed`. A shorter one is the beginning of a longer one, scaled, as with real models.
fn unit_vector(mut seed: u64, dimensions: usize) -> Vec<f32> {
    // The splitmix64 generator; the upper 32 bits of each number become a coordinate in -1..1.
    let coordinates = std::iter::repeat_with(|| {
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let upper = (mixed ^ (mixed >> 31)) >> 32;
        upper as f64 / f64::from(1_u32 << 31) - 1.0
    });
    let coordinates: Vec<f64> = coordinates.take(dimensions).collect();
    let length = coordinates.iter().map(|x| x * x).sum::<f64>().sqrt();
    coordinates.iter().map(|x| (x / length) as f32).collect()
}

/// The bytes of little-endian floats, in base64.
pub(super) fn base64_of(vector: &[f32]) -> String {
    base64(
        &vector
            .iter()
            .flat_map(|coordinate| coordinate.to_le_bytes())
            .collect::<Vec<_>>(),
    )
}

/// Standard base64 with padding.
fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let sextet = (bits >> (18 - 6 * place)) & 63;
            text.push(if place > group.len() {
                '='
            } else {
                char::from(BASE64[sextet as usize])
            });
        }
    }
    text
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_as_in_rfc_4648() {
        let cases = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (bytes, text) in cases {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xfb, 0xff]), "+/8=");
    }

    #[test]
    fn vectors_have_length_one_and_depend_on_the_input() {
        let text = |text: &str| unit_vector(seed(&Input::Text(text.to_owned())), 1536);
        let length: f64 = text("a").iter().map(|x| f64::from(*x).powi(2)).sum();
        assert!((length - 1.0).abs() < 1e-5, "{length}");
        assert_eq!(text("a"), text("a"));
        assert_ne!(text("a"), text("b"));
        let cosine: f32 = text("a").iter().zip(text("b")).map(|(a, b)| a * b).sum();
        assert!(cosine.abs() < 0.2, "{cosine}");
    }
}
