//! Names and ids, parsed once at the edge: accounts, keys, requests, tiers.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::time::Timestamp;

/// The name of an account: 1 to 64 of `A-Z a-z 0-9 . _ @ -`. It is the account's identity in every store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AccountId(Arc<str>);

/// The public name of a key (`key_` and 16 hexadecimal digits): for logs, listings and revocation. It opens nothing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyId(Arc<str>);

/// SHA-256 of a key's text: the only form of a key that is ever stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyDigest([u8; 32]);

/// A key as its owner holds it. It has no `Debug`, `Display` or `Serialize`, so that it cannot reach a log.
pub struct ApiKey(String);

/// Id of a request, a UUIDv7. The hold of the request carries the same id, which makes a reserve idempotent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RequestId([u8; 16]);

/// What a caller may use, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// The lowest.
    Free,
    /// Above Free.
    Lite,
    /// Above Lite.
    Pro,
    /// The highest.
    Enterprise,
}

/// A text that has not the shape of the id it was read as.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct IdError {
    text: String,
    expected: &'static str,
}

impl AccountId {
    /// The name's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for AccountId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<AccountId, IdError> {
        let good = (1..=64).contains(&text.len())
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'@' | b'-'));
        if good {
            Ok(AccountId(text.into()))
        } else {
            Err(IdError {
                text: text.to_owned(),
                expected: "an account name (1 to 64 of A-Z a-z 0-9 . _ @ -)",
            })
        }
    }
}

impl TryFrom<String> for AccountId {
    type Error = IdError;

    fn try_from(text: String) -> Result<AccountId, IdError> {
        text.parse()
    }
}

impl From<AccountId> for String {
    fn from(id: AccountId) -> String {
        id.0.as_ref().to_owned()
    }
}

impl fmt::Display for AccountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl KeyId {
    /// The id of the key with this digest.
    pub fn of(digest: &KeyDigest) -> KeyId {
        let hex = hex(&digest.0);
        KeyId(format!("key_{}", hex.get(..16).unwrap_or_default()).into())
    }

    /// The id's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for KeyId {
    fn from(text: String) -> KeyId {
        KeyId(text.into())
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl KeyDigest {
    /// The digest's bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The digest with these bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> KeyDigest {
        KeyDigest(bytes)
    }

    /// Lower-case hexadecimal.
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }

    /// Reads [`KeyDigest::to_hex`].
    pub fn from_hex(text: &str) -> Option<KeyDigest> {
        unhex(text).map(KeyDigest)
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", KeyId::of(self))
    }
}

impl ApiKey {
    /// A key of `prefix`, 256 random bits in hexadecimal and a checksum, so that garbage is refused without any I/O.
    pub fn from_random(prefix: &str, random: [u8; 32]) -> ApiKey {
        let body = format!("{prefix}{}", hex(&random));
        let checksum = crc32fast::hash(body.as_bytes());
        ApiKey(format!("{body}{checksum:08x}"))
    }

    /// Reads what a caller sent: the prefix, 64 hexadecimal digits and the checksum over both; nothing else passes.
    pub fn parse(prefix: &str, text: &str) -> Option<ApiKey> {
        let (body, checksum) = text.split_at_checked(text.len().checked_sub(8)?)?;
        let random = body.strip_prefix(prefix)?;
        let lower = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if random.len() != 64 || !random.bytes().all(lower) || !checksum.bytes().all(lower) {
            return None;
        }
        let stated = u32::from_str_radix(checksum, 16).ok()?;
        (stated == crc32fast::hash(body.as_bytes())).then(|| ApiKey(text.to_owned()))
    }

    /// What the store knows the key by.
    pub fn digest(&self) -> KeyDigest {
        KeyDigest(Sha256::digest(self.0.as_bytes()).into())
    }

    /// The key's text, for the one place that shows it to its new owner.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl RequestId {
    /// The id with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> RequestId {
        RequestId(bytes)
    }

    /// The id's bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// When the request came: the first 48 bits of a UUIDv7 are milliseconds since 1970.
    pub const fn time(&self) -> Timestamp {
        let [a, b, c, d, e, f, ..] = self.0;
        Timestamp(i64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }
}

impl FromStr for RequestId {
    type Err = IdError;

    /// Reads the usual form of a UUID.
    fn from_str(text: &str) -> Result<RequestId, IdError> {
        let digits: String = text.split('-').collect();
        let lengths = [8, 4, 4, 4, 12];
        let is_uuid = text.split('-').map(str::len).eq(lengths);
        unhex(&digits)
            .filter(|_| is_uuid)
            .map(RequestId)
            .ok_or_else(|| IdError {
                text: text.to_owned(),
                expected: "the id of a request (a UUID)",
            })
    }
}

impl TryFrom<String> for RequestId {
    type Error = IdError;

    fn try_from(text: String) -> Result<RequestId, IdError> {
        text.parse()
    }
}

impl From<RequestId> for String {
    fn from(id: RequestId) -> String {
        id.to_string()
    }
}

impl fmt::Display for RequestId {
    /// The usual form of a UUID.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [b'-'; 36];
        // Every place but those of the four dashes.
        let mut places = text
            .iter_mut()
            .enumerate()
            .filter(|(at, _)| !matches!(at, 8 | 13 | 18 | 23));
        for byte in self.0 {
            for nibble in [byte >> 4, byte & 15] {
                if let Some((_, place)) = places.next() {
                    *place = if nibble < 10 { b'0' + nibble } else { b'a' - 10 + nibble };
                }
            }
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Tier {
    /// All tiers, lowest first.
    pub const ALL: [Tier; 4] = [Tier::Free, Tier::Lite, Tier::Pro, Tier::Enterprise];

    /// As the interface writes it (`Balance` of the served OpenAPI description).
    pub fn title(self) -> &'static str {
        match self {
            Tier::Free => "Free",
            Tier::Lite => "Lite",
            Tier::Pro => "Pro",
            Tier::Enterprise => "Enterprise",
        }
    }

    /// As configuration, catalogue and commands write it.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Free => "free",
            Tier::Lite => "lite",
            Tier::Pro => "pro",
            Tier::Enterprise => "enterprise",
        }
    }

    /// Position in [`Tier::ALL`].
    pub fn index(self) -> usize {
        match self {
            Tier::Free => 0,
            Tier::Lite => 1,
            Tier::Pro => 2,
            Tier::Enterprise => 3,
        }
    }
}

impl FromStr for Tier {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Tier, IdError> {
        Tier::ALL
            .into_iter()
            .find(|tier| tier.name().eq_ignore_ascii_case(text))
            .ok_or_else(|| IdError {
                text: text.to_owned(),
                expected: "a tier (free, lite, pro, enterprise)",
            })
    }
}

/// Lower-case hexadecimal of `bytes`.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS.get(usize::from(nibble)).copied().unwrap_or(b'0'));
    bytes.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect()
}

/// Reads `2 x N` lower- or upper-case hexadecimal digits.
pub fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != N.checked_mul(2)? {
        return None;
    }
    let mut bytes = [0u8; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).ok()?;
        if pair.starts_with('+') {
            return None;
        }
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_back_and_any_change_is_refused() {
        let key = ApiKey::from_random("tg_", [7; 32]);
        let text = key.reveal().to_owned();
        assert_eq!(text.len(), 75);
        assert!(ApiKey::parse("tg_", &text).unwrap().digest() == key.digest());
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
            assert!(
                ApiKey::parse("tg_", std::str::from_utf8(&changed).unwrap()).is_none(),
                "position {at}"
            );
            assert!(ApiKey::parse("tg_", &text[..at]).is_none());
        }
        for garbage in [
            "",
            "tg_",
            "sk-1234",
            "é",
            &"é".repeat(40),
            &text.to_uppercase(),
            &format!("{text} "),
        ] {
            assert!(ApiKey::parse("tg_", garbage).is_none());
        }
    }

    #[test]
    fn a_request_id_prints_as_a_uuid() {
        let id = RequestId::from_bytes([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255]);
        assert_eq!(id.to_string(), "00010203-0405-0607-0809-0a0b0c0d0eff");
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in [
            "",
            "00010203-0405-0607-0809-0a0b0c0d0ef",
            "000102030405060708090a0b0c0d0eff",
            "é",
        ] {
            assert!(bad.parse::<RequestId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn names_have_a_shape() {
        assert_eq!("acme-1.x@y_z".parse::<AccountId>().unwrap().as_str(), "acme-1.x@y_z");
        for bad in ["", "a b", "a/b", "é", "a{b}", &"x".repeat(65)] {
            assert!(bad.parse::<AccountId>().is_err(), "{bad:?}");
        }
        assert_eq!(Tier::ALL.map(Tier::index), [0, 1, 2, 3]);
        assert_eq!(Tier::ALL.map(Tier::title), ["Free", "Lite", "Pro", "Enterprise"]);
        assert_eq!("PRO".parse::<Tier>().unwrap(), Tier::Pro);
        assert!("gold".parse::<Tier>().is_err());
    }

    #[test]
    fn hex_reads_back() {
        assert_eq!(unhex::<3>(&hex(&[0, 171, 255])), Some([0, 171, 255]));
        assert_eq!(unhex::<3>("00ab"), None);
        assert_eq!(unhex::<1>("+1"), None);
    }
}
