//! Who works on the ledger from outside: operators, their roles, and what a role may do.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::ids::{ApiKey, KeyDigest};

/// What an operator is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Reads everything but the list of operators, whom the log of acts names; changes nothing.
    Read,
    /// Suspends accounts and manages keys.
    Support,
    /// Adds and corrects credit.
    Billing,
    /// May do all there is.
    Admin,
}

/// What an endpoint or a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Right {
    /// To read accounts, keys, credit, usage, receipts, models, providers and the log.
    Read,
    /// To suspend an account and to let it call again.
    Suspend,
    /// To make, change, rotate and revoke keys.
    Keys,
    /// To add and correct credit.
    Credit,
    /// To make accounts and change their terms, to close them, and to manage operators and webhooks.
    Manage,
}

impl Right {
    /// All.
    pub const ALL: [Right; 5] = [Right::Read, Right::Suspend, Right::Keys, Right::Credit, Right::Manage];
}

impl Role {
    /// All.
    pub const ALL: [Role; 4] = [Role::Read, Role::Support, Role::Billing, Role::Admin];

    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::Support => "support",
            Role::Billing => "billing",
            Role::Admin => "admin",
        }
    }

    /// Whether the role has the right.
    pub fn may(self, right: Right) -> bool {
        match right {
            Right::Read => true,
            Right::Suspend | Right::Keys => matches!(self, Role::Support | Role::Admin),
            Right::Credit => matches!(self, Role::Billing | Role::Admin),
            Right::Manage => self == Role::Admin,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Role, String> {
        Role::ALL
            .into_iter()
            .find(|role| role.name() == text)
            .ok_or_else(|| format!("a role is admin, billing, support or read, not {text}"))
    }
}

/// A token of 256 random bits, made as keys are: its checksum refuses a typing mistake without any look-up.
pub fn token(random: [u8; 32]) -> ApiKey {
    ApiKey::from_random(TOKEN_PREFIX, random)
}

/// What the store knows a token by; nothing for a text that cannot be one.
pub fn digest_of_token(text: &str) -> Option<KeyDigest> {
    ApiKey::parse(TOKEN_PREFIX, text).map(|token| token.digest())
}

/// The public id of the operator whose token has this digest: `op_` and 16 hexadecimal digits. It opens nothing.
pub fn operator_id(digest: &KeyDigest) -> String {
    let hex = digest.to_hex();
    format!("op_{}", hex.get(..16).unwrap_or_default())
}

/// Whether an operator can have this id.
pub fn is_operator_id(text: &str) -> bool {
    is_public_id("op_", text)
}

/// Whether the text is what public ids are: this prefix, and 16 lowercase hexadecimal digits.
pub fn is_public_id(prefix: &str, text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.strip_prefix(prefix)
        .is_some_and(|digits| digits.len() == 16 && digits.bytes().all(is_digit))
}

/// What every operator's token begins with.
pub const TOKEN_PREFIX: &str = "tgop_";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_by_its_digest_and_a_mistyped_one_by_nothing() {
        let token = token([7; 32]);
        let text = token.reveal();
        assert_eq!(digest_of_token(text), Some(token.digest()));
        assert_eq!(
            operator_id(&token.digest()),
            format!("op_{}", &token.digest().to_hex()[..16])
        );
        let swapped = text.replacen("07", "70", 1);
        assert_eq!(digest_of_token(&swapped), None);
        assert_eq!(digest_of_token(ApiKey::from_random("tg_", [7; 32]).reveal()), None);
    }

    #[test]
    fn roles_have_their_rights_and_no_more() {
        use Right::{Credit, Keys, Manage, Read, Suspend};
        let rights = [Read, Suspend, Keys, Credit, Manage];
        let of = |role: Role| rights.into_iter().filter(|right| role.may(*right)).collect::<Vec<_>>();
        assert_eq!(of(Role::Read), [Read]);
        assert_eq!(of(Role::Support), [Read, Suspend, Keys]);
        assert_eq!(of(Role::Billing), [Read, Credit]);
        assert_eq!(of(Role::Admin), rights);
        for role in Role::ALL {
            assert_eq!(role.name().parse(), Ok(role));
        }
    }

    #[test]
    fn a_public_id_is_its_prefix_and_16_lowercase_digits() {
        let id = operator_id(&KeyDigest::from_bytes([0xa9; 32]));
        assert!(is_operator_id(&id), "{id}");
        for (text, is_id) in [
            ("op_0123456789abcdef", true),
            ("op_0123456789abcde", false),
            ("op_0123456789abcdef0", false),
            ("op_0123456789abcdeF", false),
            ("op_0123456789abcdeg", false),
            ("key_0123456789abcdef", false),
            ("0123456789abcdef", false),
            ("op_", false),
            ("", false),
        ] {
            assert_eq!(is_operator_id(text), is_id, "{text}");
            assert_eq!(is_public_id("op_", text), is_id, "{text}");
        }
    }

    #[test]
    fn a_right_checksum_makes_no_token_of_another_shape() {
        let hex = "0f".repeat(32);
        let checked = |body: String| format!("{body}{:08x}", crc32fast::hash(body.as_bytes()));
        for (digits, is_token) in [
            (hex.clone(), true),
            (hex[1..].to_owned(), false),
            (format!("{hex}0"), false),
            (hex.to_uppercase(), false),
        ] {
            let text = checked(format!("{TOKEN_PREFIX}{digits}"));
            assert_eq!(digest_of_token(&text).is_some(), is_token, "{text}");
        }
        assert_eq!(KeyDigest::from_bytes([7; 32]).as_bytes(), &[7; 32]);
    }
}
