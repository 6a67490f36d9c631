//! Webhooks: which events there are, how a message is signed by the Standard Webhooks convention, which addresses it may go to, and when a
//! failed one is sent again.

mod kind;
mod places;

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use sha2::Sha256;

pub use self::kind::EventKind;
pub use self::places::is_public;

/// What a webhook's messages are signed with. It has no `Debug` of its bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// What stands in `webhook-signature` for it: `v1,` and the signature of id, time (seconds since 1970) and body, in base64.
    pub fn signature(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        // A key of any length will do, so this fails for none.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else {
            return String::new();
        };
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl FromStr for Secret {
    type Err = &'static str;

    /// Reads `whsec_` and 24 to 64 bytes in base64. What is wrong is said without the text.
    fn from_str(text: &str) -> Result<Secret, &'static str> {
        if text.contains(',') {
            return Err(
                "it has a comma: each of two secrets has a variable of its own, and secret_env names both, as in A,B",
            );
        }
        let bytes = text
            .strip_prefix("whsec_")
            .ok_or("it does not begin with whsec_")
            .and_then(|text| STANDARD.decode(text).map_err(|_| "behind whsec_ it is not base64"))?;
        match bytes.len() {
            0..SECRET_BYTES_MIN => Err("it is shorter than 24 bytes"),
            SECRET_BYTES_MIN..=SECRET_BYTES_MAX => Ok(Secret(bytes)),
            _ => Err("it is longer than 64 bytes"),
        }
    }
}

/// The pause after so many attempts that failed, in milliseconds: a second, then twice as long each time, at most a quarter of an hour;
/// `spread` (any number) makes it up to a fifth longer, so that not all come at once.
pub fn pause_ms(failed: u32, spread: u64) -> i64 {
    let pause = 1_000_i64
        .checked_shl(failed.saturating_sub(1).min(20))
        .unwrap_or(PAUSE_MS_MAX)
        .min(PAUSE_MS_MAX);
    let fifth = u64::try_from(pause / 5).unwrap_or(1).max(1);
    pause.saturating_add(i64::try_from(spread % fifth).unwrap_or(0))
}

const SECRET_BYTES_MIN: usize = 24;
const SECRET_BYTES_MAX: usize = 64;
const PAUSE_MS_MAX: i64 = 900_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's own libraries.
    #[test]
    fn a_signature_is_the_conventions() {
        let secret: Secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().unwrap();
        let body = br#"{"test": 2432232314}"#;
        assert_eq!(
            secret.signature("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
        assert_eq!(format!("{secret:?}"), "Secret(…)");
    }

    #[test]
    fn a_secret_is_read_or_said_to_be_wrong() {
        for (text, why) in [
            ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "it does not begin with whsec_"),
            ("whsec_…", "behind whsec_ it is not base64"),
            (
                "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS",
                "behind whsec_ it is not base64",
            ),
            ("whsec_", "it is shorter than 24 bytes"),
            ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLQ==", "it is shorter than 24 bytes"),
        ] {
            assert_eq!(text.parse::<Secret>().unwrap_err(), why, "{text}");
        }
        // Somebody took the setting for two secrets in one variable.
        let two = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"; 2].join(",");
        let told = two.parse::<Secret>().unwrap_err();
        assert!(told.contains("secret_env names both"), "{told}");
        let long = format!("whsec_{}", STANDARD.encode([7; 65]));
        assert_eq!(long.parse::<Secret>().unwrap_err(), "it is longer than 64 bytes");
    }

    #[test]
    fn pauses_grow_to_a_bound() {
        assert_eq!(
            [1, 2, 3, 4].map(|failed| pause_ms(failed, 0)),
            [1_000, 2_000, 4_000, 8_000]
        );
        for failed in [11, 64, u32::MAX] {
            assert_eq!(pause_ms(failed, 0), 900_000);
        }
        assert_eq!(pause_ms(1, u64::MAX), 1_000 + i64::try_from(u64::MAX % 200).unwrap());
        assert!((0..10_000).all(|spread| (1_000..1_200).contains(&pause_ms(1, spread))));
    }
}
