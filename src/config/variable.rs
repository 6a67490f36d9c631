//! Names of environment variables in the configuration: where somebody wrote the secret itself, it is told without being shown.

/// The name of a variable, or what is said of a text that is none. The text is in no message: it may be a secret.
pub(super) fn checked(text: String) -> Result<String, String> {
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let is_plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if begins && is_plain && text.len() <= LENGTH_MAX && !is_like_a_key(&text) {
        return Ok(text);
    }
    Err(format!(
        "it must be the name of an environment variable, such as OPENAI_API_KEY (A-Z a-z 0-9 _, at most {LENGTH_MAX}), and not the \
         secret itself; what stands here is not shown"
    ))
}

/// What is said of a variable that is needed and has nothing.
pub(super) fn not_set(name: &str) -> String {
    format!("the environment variable {name} is not set, or empty")
}

/// Whether a text may be a key that happens to have the letters of a name: random letters and digits, longer than a word.
fn is_like_a_key(text: &str) -> bool {
    let is_random = |part: &str, least: usize| {
        part.len() >= least && part.bytes().any(|b| b.is_ascii_digit()) && part.bytes().any(|b| b.is_ascii_alphabetic())
    };
    let is_prefixed = PREFIXES.iter().any(|prefix| {
        text.strip_prefix(prefix)
            .is_some_and(|rest| is_random(rest, PREFIXED_KEY_LENGTH))
    });
    is_prefixed || text.split('_').any(|part| is_random(part, KEY_LENGTH))
}

/// Longest name of a variable.
const LENGTH_MAX: usize = 64;
/// Letters and digits without a `_` that no word is as long as.
const KEY_LENGTH: usize = 20;
/// The same behind a prefix of keys.
const PREFIXED_KEY_LENGTH: usize = 12;
/// What providers' keys, and ours, begin with.
const PREFIXES: [&str; 9] = ["sk_", "pk_", "rk_", "gsk_", "hf_", "r8_", "xai_", "ghp_", "tg_"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_pass_and_secrets_are_not_repeated() {
        for name in [
            "OPENAI_API_KEY",
            "_x",
            "key2",
            "hf_token",
            "TOLLGATE_TEST_NEVER_SET",
            "OPENAI_KEY_EU_WEST_1",
        ] {
            assert_eq!(checked(name.to_owned()).as_deref(), Ok(name));
        }
        let long = "A".repeat(65);
        for secret in [
            "sk-abc",
            "",
            "2KEY",
            "Bearer x",
            "$OPENAI_API_KEY",
            "KEY=1",
            "gsk_a1b2c3d4e5f6g7h8",
            "sk_live_51HabcdefGHIJKL",
            "AIzaSyD3f9a8b7c6d5e4f3a2b1",
            "0123456789abcdef0123456789abcdef",
            "abcdef0123456789abcdef0123456789",
            &long,
        ] {
            let told = checked(secret.to_owned()).expect_err(secret);
            let shown = !secret.is_empty() && told.contains(secret);
            assert!(told.contains("name of an environment variable") && !shown, "{told}");
        }
    }
}
