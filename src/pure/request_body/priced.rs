//! Fields that change what a call costs: they pass where the catalogue has that price, and are refused where it has not.

pub(super) use super::fields::CACHE_CONTROL;
use super::fields::{self, FieldRules, FieldSet};
use super::scan::Span;
use super::{BodyError, RequestBody};
use crate::pure::prices::{Asks, CacheWrites, PriceTable, is_usual_tier};

/// What a request says in fields that change its price.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PricedFields {
    /// The value of `service_tier`.
    service_tier: Option<Span>,
    /// The value of `modalities`.
    modalities: Option<Span>,
    writes: CacheWrites,
}

impl PricedFields {
    /// Whether the request says nothing in them.
    pub(super) fn is_empty(&self) -> bool {
        self.service_tier.is_none() && self.modalities.is_none() && self.writes == CacheWrites::Unasked
    }

    /// A refused field of the request, with its value.
    pub(super) fn note(&mut self, name: &str, value: Span, bytes: &[u8]) {
        match name {
            SERVICE_TIER => self.service_tier = Some(value),
            MODALITIES => self.modalities = Some(value),
            CACHE_CONTROL => self.note_write(value, bytes),
            _ => {}
        }
    }

    /// A `cache_control` within a message or a tool: refused, as at the top, unless it has a price.
    #[cold]
    pub(super) fn note_write_within(&mut self, refused: &mut FieldSet, value: Span, bytes: &[u8]) {
        if let Some(field) = fields::find(CACHE_CONTROL.as_bytes()) {
            refused.insert(field);
        }
        self.note_write(value, bytes);
    }

    /// A `cache_control`, wherever it stands.
    fn note_write(&mut self, value: Span, bytes: &[u8]) {
        self.writes = self.writes.max(writes(value.of(bytes)));
    }
}

impl RequestBody {
    /// What of the request decides which prices its call can come to.
    pub fn asks(&self) -> Asks<'_> {
        let prompt = &self.prompt;
        Asks {
            tier: self.service_tier(),
            writes: self.writes(),
            has_media: prompt.images > 0 || prompt.audios > 0 || prompt.files > 0 || prompt.open_ended,
            wants_media: self.refuses(MODALITIES) || self.refuses(AUDIO),
        }
    }

    /// Whether its provider's report alone tells what its call used: it has parts whose tokens cannot be counted, or asks for reasoning, for
    /// sounds or images, or for something to be kept in a cache.
    pub fn is_known_by_report_alone(&self) -> bool {
        let asks = self.asks();
        asks.has_media || asks.wants_media || asks.writes != CacheWrites::Unasked || self.asks_reasoning()
    }

    /// Errors with the first field that is present, asks for something, and is let through neither by `rules`, those of the provider that
    /// would get the request, nor by a price of its own among the model's `prices`.
    pub fn check_fields(&self, rules: &FieldRules, prices: Option<&PriceTable>) -> Result<(), BodyError> {
        if self.refused.is_empty() {
            return Ok(());
        }
        let mut priced = FieldSet::default();
        for name in [SERVICE_TIER, MODALITIES, AUDIO, CACHE_CONTROL] {
            if self.refuses(name)
                && prices.is_some_and(|prices| self.is_priced(name, prices))
                && let Some(field) = fields::find(name.as_bytes())
            {
                priced.insert(field);
            }
        }
        let checked = rules.check(self.refused.without(priced));
        checked.map_err(|error| self.as_written(error))
    }

    /// A refusal by what the client wrote: `hosted_tools` is the name that `allow_fields` has for what stands in `tools`.
    fn as_written(&self, error: BodyError) -> BodyError {
        let in_tools = self.names.as_ref().is_some_and(|names| names.hosted_tools);
        match error {
            BodyError::Refused {
                field: fields::HOSTED_TOOLS,
                ..
            } if in_tools => BodyError::HostedTools,
            error => error,
        }
    }

    /// Whether what a field says has a price.
    fn is_priced(&self, name: &str, prices: &PriceTable) -> bool {
        let kinds = &prices.usual().kinds;
        match name {
            SERVICE_TIER => self
                .service_tier()
                .is_some_and(|tier| is_usual_tier(tier) || prices.has_tier(tier)),
            MODALITIES => self.modalities().is_some_and(|wanted| {
                !wanted.is_empty()
                    && wanted.iter().all(|kind| match kind.as_str() {
                        "text" => true,
                        "audio" => kinds.audio_output.is_some(),
                        "image" => kinds.image_output.is_some(),
                        _ => false,
                    })
            }),
            AUDIO => kinds.audio_output.is_some(),
            CACHE_CONTROL => match self.writes() {
                CacheWrites::Unasked => true,
                CacheWrites::Usual => kinds.input_cache_write.is_some(),
                CacheWrites::Hour => kinds.input_cache_write_1h.is_some(),
            },
            _ => false,
        }
    }

    fn writes(&self) -> CacheWrites {
        self.names
            .as_ref()
            .map_or(CacheWrites::Unasked, |names| names.priced.writes)
    }

    fn refuses(&self, name: &str) -> bool {
        !self.refused.is_empty() && fields::find(name.as_bytes()).is_some_and(|field| self.refused.contains(field))
    }

    /// The tier that is asked for. None where it is no plain text.
    fn service_tier(&self) -> Option<&str> {
        let value = self.names.as_ref()?.priced.service_tier?.of(&self.bytes);
        let tier = value.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        std::str::from_utf8(tier).ok().filter(|tier| !tier.contains('\\'))
    }

    /// The kinds of answers that are asked for. None where they are none, or more than have a price: they may be megabytes, and are read on
    /// the thread that passes streams on.
    fn modalities(&self) -> Option<Vec<String>> {
        let value = self.names.as_ref()?.priced.modalities?.of(&self.bytes);
        let is_short = value.len() <= MODALITIES_BYTES_MAX;
        is_short.then(|| serde_json::from_slice(value).ok()).flatten()
    }
}

/// For how long a value of `cache_control` has something kept.
fn writes(value: &[u8]) -> CacheWrites {
    let is_plain = !value.contains(&b'\\') && memchr::memmem::find_iter(value, b"\"ttl\"").count() <= 1;
    let Ok(serde_json::Value::Object(control)) = serde_json::from_slice(value) else {
        return CacheWrites::Hour;
    };
    match control.get("ttl") {
        None | Some(serde_json::Value::Null) if is_plain => CacheWrites::Usual,
        Some(serde_json::Value::String(ttl)) if is_plain && ttl == "5m" => CacheWrites::Usual,
        _ => CacheWrites::Hour,
    }
}

pub(super) const SERVICE_TIER: &str = "service_tier";
const MODALITIES: &str = "modalities";
/// Bytes of the longest `modalities` that have a price: far above what three kinds need.
const MODALITIES_BYTES_MAX: usize = 1 << 10;
const AUDIO: &str = "audio";
