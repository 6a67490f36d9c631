//! The bytes of an intent and of a debit, each sealed with a checksum.

use super::{
    ACCOUNT_BYTES_MAX, DEBIT_BYTES, END_USER_BYTES, Found, FoundStage, INTENT_BYTES, Intent, KEY_BYTES_MAX,
    MODEL_BYTES_MAX, NumberedDebit, PromptPlace,
};
use crate::pure::ids::RequestId;
use crate::pure::money::{Credits, Pricing};
use crate::pure::numbers::{CallNumber, ProducerId};
use crate::pure::request_body::{Endpoint, PromptLimits};
use crate::pure::spend::{EndUser, EndUserId, Reset};
use crate::pure::usage::{CompletionTokens, PromptTokens, Usage};

pub(super) fn intent_bytes(intent: &Intent<'_>, place: PromptPlace) -> [u8; INTENT_BYTES] {
    let mut text = [0u8; INTENT_BYTES];
    let mut writer = Writer {
        rest: text.get_mut(4..).unwrap_or_default(),
    };
    writer.put(intent.id.as_bytes());
    writer.put(&[endpoint_byte(intent.endpoint)]);
    for price in intent.pricing.units_each() {
        writer.put(&price.to_le_bytes());
    }
    writer.put(&intent.limits.image_tokens_each.to_le_bytes());
    writer.put(&intent.limits.context_length.to_le_bytes());
    writer.put(&place.first_block.to_le_bytes());
    writer.put(&place.bytes.to_le_bytes());
    writer.put(&place.checksum.to_le_bytes());
    writer.put_text(intent.account.as_str(), ACCOUNT_BYTES_MAX);
    writer.put_text(intent.key.as_str(), KEY_BYTES_MAX);
    writer.put_text(intent.model, MODEL_BYTES_MAX);
    writer.put(&end_user_bytes(intent.end_user));
    seal(&mut text, 0);
    text
}

pub(super) fn read_intent(text: &[u8; INTENT_BYTES]) -> Option<Found> {
    let mut reader = Reader { rest: opened(text, 0)? };
    Some(Found {
        id: RequestId::from_bytes(reader.take()?),
        endpoint: endpoint(u8::from_le_bytes(reader.take()?))?,
        pricing: {
            let prompt = u128::from_le_bytes(reader.take()?);
            Pricing::from_units_each([prompt, u128::from_le_bytes(reader.take()?)])?
        },
        limits: PromptLimits {
            image_tokens_each: u64::from_le_bytes(reader.take()?),
            context_length: u64::from_le_bytes(reader.take()?),
        },
        place: PromptPlace {
            first_block: u32::from_le_bytes(reader.take()?),
            bytes: u32::from_le_bytes(reader.take()?),
            checksum: u32::from_le_bytes(reader.take()?),
        },
        account: reader.take_text()?.parse().ok()?,
        key: reader.take_text()?.to_owned().into(),
        model: reader.take_text()?.to_owned(),
        end_user: end_user(reader.take()?)?,
        stage: FoundStage::Held { number: None },
    })
}

pub(super) fn debit_bytes(debit: &NumberedDebit, id: RequestId) -> [u8; DEBIT_BYTES] {
    let mut text = [0u8; DEBIT_BYTES];
    let mut writer = Writer {
        rest: text.get_mut(4..).unwrap_or_default(),
    };
    writer.put(&debit.number.producer.0.to_le_bytes());
    writer.put(&debit.number.number.to_le_bytes());
    writer.put(&debit.usage.prompt.0.to_le_bytes());
    writer.put(&debit.usage.completion.0.to_le_bytes());
    writer.put(&debit.cost.pico().to_le_bytes());
    seal(&mut text, id_salt(id));
    text
}

pub(super) fn read_debit(text: &[u8; DEBIT_BYTES], id: RequestId) -> Option<NumberedDebit> {
    let mut reader = Reader {
        rest: opened(text, id_salt(id))?,
    };
    Some(NumberedDebit {
        number: {
            let producer = ProducerId(u64::from_le_bytes(reader.take()?));
            CallNumber::new(producer, u64::from_le_bytes(reader.take()?))
        },
        usage: Usage {
            prompt: PromptTokens(u64::from_le_bytes(reader.take()?)),
            completion: CompletionTokens(u64::from_le_bytes(reader.take()?)),
        },
        cost: Credits::from_pico(i64::from_le_bytes(reader.take()?)),
    })
}

/// A debit that an earlier call left in the slot is not this call's: the request is part of the checksum.
pub(super) fn id_salt(id: RequestId) -> u32 {
    crc32fast::hash(id.as_bytes())
}

/// Writes the checksum of what follows it into the first four bytes.
fn seal(text: &mut [u8], salt: u32) {
    let sum = checksum(text.get(4..).unwrap_or_default(), salt);
    if let Some(place) = text.first_chunk_mut::<4>() {
        *place = sum.to_le_bytes();
    }
}

fn opened(text: &[u8], salt: u32) -> Option<&[u8]> {
    let (sum, rest) = text.split_first_chunk::<4>()?;
    (u32::from_le_bytes(*sum) == checksum(rest, salt)).then_some(rest)
}

/// Of another kind than that of a region of zeros, which is 0.
fn checksum(text: &[u8], salt: u32) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(salt ^ 0x7467_6a31);
    hasher.update(text);
    hasher.finalize()
}

fn endpoint_byte(endpoint: Endpoint) -> u8 {
    match endpoint {
        Endpoint::Chat => 1,
        Endpoint::ChatStream => 2,
        Endpoint::Embeddings => 3,
    }
}

fn endpoint(byte: u8) -> Option<Endpoint> {
    match byte {
        1 => Some(Endpoint::Chat),
        2 => Some(Endpoint::ChatStream),
        3 => Some(Endpoint::Embeddings),
        _ => None,
    }
}

fn end_user_bytes(end_user: Option<EndUser>) -> [u8; END_USER_BYTES] {
    let mut bytes = [0; END_USER_BYTES];
    if let Some(EndUser { id, reset }) = end_user {
        let kind: u8 = match reset {
            Reset::None => 1,
            Reset::Daily => 2,
            Reset::Weekly => 3,
            Reset::Monthly => 4,
        };
        let each = [kind].into_iter().chain(*id.as_bytes());
        bytes.iter_mut().zip(each).for_each(|(place, byte)| *place = byte);
    }
    bytes
}

fn end_user(bytes: [u8; END_USER_BYTES]) -> Option<Option<EndUser>> {
    let [kind, id @ ..] = bytes;
    let reset = match kind {
        0 => return Some(None),
        1 => Reset::None,
        2 => Reset::Daily,
        3 => Reset::Weekly,
        4 => Reset::Monthly,
        _ => return None,
    };
    let id = EndUserId::from_bytes(id);
    Some(Some(EndUser { id, reset }))
}

struct Writer<'a> {
    rest: &'a mut [u8],
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let rest = std::mem::take(&mut self.rest);
        // The sizes above add up to less than a slot's, which a test checks.
        if let Some((place, rest)) = rest.split_at_mut_checked(bytes.len()) {
            place.copy_from_slice(bytes);
            self.rest = rest;
        }
    }

    fn put_text(&mut self, text: &str, max: usize) {
        let bytes = text.as_bytes().get(..text.len().min(max)).unwrap_or_default();
        self.put(&[u8::try_from(bytes.len()).unwrap_or(0)]);
        self.put(bytes);
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*taken)
    }

    fn take_text(&mut self) -> Option<&'a str> {
        let [length] = self.take::<1>()?;
        let (text, rest) = self.rest.split_at_checked(usize::from(length))?;
        self.rest = rest;
        std::str::from_utf8(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_endpoint_is_read_as_it_was_written() {
        let all = [Endpoint::Chat, Endpoint::ChatStream, Endpoint::Embeddings];
        for each in all {
            assert_eq!(endpoint(endpoint_byte(each)), Some(each));
        }
        assert_eq!(
            all.map(endpoint_byte).into_iter().collect::<HashSet<u8>>().len(),
            all.len()
        );
        for none in [0, 4, 255] {
            assert_eq!(endpoint(none), None, "{none}");
        }
    }

    /// Money: what an earlier call left in a slot is no debit of the one that has the slot now.
    #[test]
    fn a_debit_is_read_by_its_own_request_alone() {
        let [own, other] = [1, 2].map(|byte| RequestId::from_bytes([byte; 16]));
        let debit = NumberedDebit {
            number: CallNumber::new(ProducerId(3), 4),
            usage: Usage {
                prompt: PromptTokens(5),
                completion: CompletionTokens(6),
            },
            cost: Credits::from_pico(7),
        };
        let text = debit_bytes(&debit, own);
        let read = read_debit(&text, own).unwrap();
        assert_eq!(
            (read.number, read.usage, read.cost),
            (debit.number, debit.usage, debit.cost)
        );
        assert!(read_debit(&text, other).is_none());
    }

    #[test]
    fn each_end_user_is_read_as_it_was_written() {
        let id = EndUserId::of("anna");
        let all = Reset::ALL.map(|reset| Some(EndUser { id, reset }));
        for each in all.into_iter().chain([None]) {
            assert_eq!(end_user(end_user_bytes(each)), Some(each));
        }
        assert_eq!(
            all.map(end_user_bytes).into_iter().collect::<HashSet<_>>().len(),
            all.len()
        );
        let [kind, ..] = &mut end_user_bytes(all[0]);
        assert_eq!(*kind, 1, "journals of earlier versions are read");
        let mut unknown = end_user_bytes(all[0]);
        unknown[0] = 5;
        assert_eq!(end_user(unknown), None);
    }
}
