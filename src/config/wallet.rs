//! `wallet:`: what the wallet's pages call the service, and where those who use it pay.

use serde::Deserialize;

use super::provider::BaseUrl;

/// What the wallet and the list of prices show beside figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wallet {
    /// The service's name: 1 to 64 characters, none of them a control character.
    pub name: String,
    /// The address of a page where credit is paid for; none: the wallet has no such link.
    pub top_up_url: Option<String>,
}

impl Default for Wallet {
    fn default() -> Wallet {
        Wallet {
            name: "Tollgate".to_owned(),
            top_up_url: None,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawWallet {
    name: Option<String>,
    top_up_url: Option<String>,
}

/// What was written, checked.
pub(super) fn checked(raw: RawWallet) -> Result<Wallet, String> {
    let name = raw.name.unwrap_or_else(|| Wallet::default().name);
    let is_shown = !name.trim().is_empty() && !name.chars().any(char::is_control);
    if !is_shown || name.chars().count() > NAME_CHARS_MAX {
        return Err(format!(
            "wallet.name: {name:?} is not 1 to {NAME_CHARS_MAX} characters without control characters"
        ));
    }
    if let Some(url) = &raw.top_up_url {
        let wrong = |why: &str| format!("wallet.top_up_url: {why}");
        if url.len() > URL_BYTES_MAX || !url.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong(&format!(
                "it must be at most {URL_BYTES_MAX} visible ASCII characters"
            )));
        }
        // What comes behind the host is the page's own affair.
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| wrong("it must begin with https:// or http://"))?;
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let host = format!("{}://{authority}", scheme.to_ascii_lowercase());
        BaseUrl::parse_such_as("https://pay.example.com", &host).map_err(|why| wrong(&why))?;
    }
    Ok(Wallet {
        name,
        top_up_url: raw.top_up_url,
    })
}

const NAME_CHARS_MAX: usize = 64;
const URL_BYTES_MAX: usize = 2_048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_address_of_the_web_is_linked() {
        let read = |text: &str| checked(serde_yaml_ng::from_str(text).unwrap());
        assert_eq!(read("{}"), Ok(Wallet::default()));
        for url in [
            "https://pay.example/topup?plan=1#now",
            "http://127.0.0.1:8000",
            "https://[::1]/x",
        ] {
            let wallet = read(&format!("{{ name: Acme AI, top_up_url: \"{url}\" }}")).unwrap();
            assert_eq!(
                (wallet.name.as_str(), wallet.top_up_url.as_deref()),
                ("Acme AI", Some(url))
            );
        }
        for (text, word) in [
            ("{ top_up_url: \"javascript:alert(1)\" }", "https://"),
            (
                "{ top_up_url: \"javascript://pay.example/%0aalert(1)\" }",
                "wallet.top_up_url",
            ),
            ("{ top_up_url: \"data:text/html,x\" }", "https://"),
            ("{ top_up_url: \"pay.example\" }", "https://"),
            ("{ top_up_url: \"https://\" }", "wallet.top_up_url"),
            (
                "{ top_up_url: \"https://user:word@pay.example/\" }",
                "wallet.top_up_url",
            ),
            ("{ top_up_url: \"https://pay.example/a b\" }", "visible"),
            ("{ name: \"\" }", "wallet.name"),
            ("{ name: \"a\\nb\" }", "wallet.name"),
        ] {
            let problem = read(text).unwrap_err();
            assert!(problem.contains(word), "{text}: {problem}");
        }
        assert!(
            checked(RawWallet {
                name: Some("é".repeat(65)),
                top_up_url: None
            })
            .is_err()
        );
    }
}
