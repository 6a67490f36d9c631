//! Who may use what: tier and domain lock, and the permit that proves the check was made.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::catalogue::Model;
use super::ids::Tier;

/// One entry of a key's domain lock: a host, or `*.example.com` for its subdomains (not the apex). Lower case, no port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DomainPattern(String);

/// A text that is no host pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a host such as app.example.com or *.example.com")]
pub struct DomainPatternError(String);

impl FromStr for DomainPattern {
    type Err = DomainPatternError;

    fn from_str(text: &str) -> Result<DomainPattern, DomainPatternError> {
        let lower = text.to_ascii_lowercase();
        let host = lower.strip_prefix("*.").unwrap_or(&lower);
        let good = !host.is_empty()
            && host.len() <= 253
            && host.split('.').all(|label| {
                !label.is_empty()
                    && label
                        .bytes()
                        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
            });
        if good {
            Ok(DomainPattern(lower))
        } else {
            Err(DomainPatternError(text.to_owned()))
        }
    }
}

impl TryFrom<String> for DomainPattern {
    type Error = DomainPatternError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<DomainPattern> for String {
    fn from(pattern: DomainPattern) -> String {
        pattern.0
    }
}

impl fmt::Display for DomainPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl DomainPattern {
    /// Whether `host` (no port) is meant; case does not matter.
    pub fn matches(&self, host: &str) -> bool {
        match self.0.strip_prefix('*') {
            None => self.0.eq_ignore_ascii_case(host),
            Some(suffix) => {
                let Some(split) = host.len().checked_sub(suffix.len()) else {
                    return false;
                };
                match host.split_at_checked(split) {
                    Some((sub, tail)) => !sub.is_empty() && tail.eq_ignore_ascii_case(suffix),
                    None => false,
                }
            }
        }
    }
}

/// One entry of a key's list of models: a model's id, or `openai/*` for all that begin so.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ModelPattern(String);

/// A text that is no model pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a model's id or the beginning of ids such as openai/*")]
pub struct ModelPatternError(String);

impl FromStr for ModelPattern {
    type Err = ModelPatternError;

    fn from_str(text: &str) -> Result<ModelPattern, ModelPatternError> {
        let id = text.strip_suffix('*').unwrap_or(text);
        let good = |c: char| !c.is_whitespace() && !c.is_control() && c != '*';
        if text.is_empty() || text.len() > MODEL_PATTERN_BYTES_MAX || !id.chars().all(good) {
            return Err(ModelPatternError(text.to_owned()));
        }
        Ok(ModelPattern(text.to_owned()))
    }
}

impl TryFrom<String> for ModelPattern {
    type Error = ModelPatternError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ModelPattern> for String {
    fn from(pattern: ModelPattern) -> String {
        pattern.0
    }
}

impl fmt::Display for ModelPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ModelPattern {
    /// Whether the model of this id is meant.
    pub fn matches(&self, id: &str) -> bool {
        match self.0.strip_suffix('*') {
            None => self.0 == id,
            Some(beginning) => id.starts_with(beginning),
        }
    }
}

/// Longest pattern of a model, in bytes.
const MODEL_PATTERN_BYTES_MAX: usize = 200;

/// The host of an `Origin` or `Referer` header: `scheme://[user@]host[:port][/…]`. Nothing for `null` or anything else.
pub fn host_of(header: &str) -> Option<&str> {
    let (scheme, rest) = header.split_once("://")?;
    if scheme.is_empty()
        || !scheme
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
    {
        return None;
    }
    let authority = rest.split(['/', '?', '#', '\\']).next()?;
    let host_port = authority.rsplit('@').next()?;
    let host = match host_port.strip_prefix('[') {
        Some(v6) => v6.split(']').next()?,
        None => host_port.split(':').next()?,
    };
    (!host.is_empty()).then_some(host)
}

/// Where a request says it comes from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Provenance<'a> {
    /// The `Origin` header.
    pub origin: Option<&'a str>,
    /// The `Referer` header, looked at only without an `Origin`.
    pub referer: Option<&'a str>,
}

/// Why the policy says no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The model starts at a higher tier.
    Tier {
        /// The lowest tier that may use the model.
        needed: Tier,
        /// The caller's.
        has: Tier,
    },
    /// The key is locked to other domains.
    Domain,
}

/// Proof that a caller may use a model. Only [`permit`] makes one, and nothing is reserved or forwarded without it.
#[derive(Clone, Debug)]
pub struct Permit {
    model: Arc<Model>,
}

impl Permit {
    /// The model that may be used.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }
}

/// The domain lock alone, for the paths that name no model. An empty lock lets everyone in.
pub fn domain_allowed(lock: &[DomainPattern], from: Provenance<'_>) -> bool {
    if lock.is_empty() {
        return true;
    }
    let host = from.origin.or(from.referer).and_then(host_of);
    // A browser that was given an address with the root's dot sends it along, and means the same host.
    let host = host.map(|host| host.strip_suffix('.').unwrap_or(host));
    host.is_some_and(|host| lock.iter().any(|pattern| pattern.matches(host)))
}

/// Checks tier and domain lock, the tier first.
pub fn permit(model: &Arc<Model>, tier: Tier, lock: &[DomainPattern], from: Provenance<'_>) -> Result<Permit, Refusal> {
    if tier < model.tier {
        return Err(Refusal::Tier {
            needed: model.tier,
            has: tier,
        });
    }
    if !domain_allowed(lock, from) {
        return Err(Refusal::Domain);
    }
    Ok(Permit {
        model: Arc::clone(model),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, host: &str) -> bool {
        pattern.parse::<DomainPattern>().unwrap().matches(host)
    }

    #[test]
    fn patterns() {
        assert!(matches("app.example.com", "APP.example.com"));
        assert!(!matches("app.example.com", "xapp.example.com"));
        assert!(matches("*.example.com", "a.example.com"));
        assert!(matches("*.example.com", "a.b.Example.com"));
        assert!(!matches("*.example.com", "example.com"), "the apex is not a subdomain");
        assert!(!matches("*.example.com", ".example.com"));
        assert!(!matches("*.example.com", "evilexample.com"));
        assert!(!matches("*.example.com", "a.example.com.evil.org"));
        for bad in ["", "*", "*.", "http://a", "a:80", "a/b", "a..b", "*.*.a"] {
            assert!(bad.parse::<DomainPattern>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn model_patterns() {
        let matches = |pattern: &str, id| pattern.parse::<ModelPattern>().unwrap().matches(id);
        assert!(matches("openai/*", "openai/gpt-4o") && matches("*", "a/b") && matches("a/b", "a/b"));
        assert!(!matches("openai/*", "openai-x/gpt") && !matches("a/b", "a/b2") && !matches("a/b2", "a/b"));
        for bad in ["", "a*b", "**", "a b", "a\n", "*a"] {
            assert!(bad.parse::<ModelPattern>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn hosts_of_headers() {
        assert_eq!(host_of("https://app.example.com:8443/x?y"), Some("app.example.com"));
        assert_eq!(host_of("https://good.com@evil.com/"), Some("evil.com"));
        assert_eq!(host_of("https://evil.com/https://good.com"), Some("evil.com"));
        assert_eq!(host_of("https://evil.com\\@good.com"), Some("evil.com"));
        assert_eq!(host_of("http://[::1]:3000"), Some("::1"));
        for bad in ["null", "", "app.example.com", "://x", "https://", "https:///x"] {
            assert_eq!(host_of(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_lock_wants_a_matching_header() {
        let lock = ["app.example.com".parse().unwrap()];
        let from = |origin, referer| Provenance { origin, referer };
        assert!(domain_allowed(&[], from(None, None)));
        assert!(!domain_allowed(&lock, from(None, None)));
        assert!(domain_allowed(&lock, from(Some("https://app.example.com"), None)));
        assert!(domain_allowed(&lock, from(None, Some("https://app.example.com/page"))));
        assert!(
            !domain_allowed(&lock, from(Some("null"), Some("https://app.example.com/page"))),
            "Origin decides"
        );
    }

    #[test]
    fn the_dot_of_the_root_makes_no_other_host() {
        let lock = ["app.example.com".parse().unwrap(), "*.example.org".parse().unwrap()];
        for (origin, is_allowed) in [
            ("https://app.example.com.", true),
            ("https://app.example.com.:8443", true),
            ("https://a.example.org.", true),
            ("https://app.example.com..", false),
            ("https://example.org.", false),
            ("https://.example.org.", false),
            ("https://.", false),
        ] {
            let from = Provenance {
                origin: Some(origin),
                referer: None,
            };
            assert_eq!(domain_allowed(&lock, from), is_allowed, "{origin}");
        }
    }

    #[test]
    fn patterns_are_written_as_they_were_read_up_to_their_longest() {
        let host = "A.Example.com".parse::<DomainPattern>().unwrap();
        assert_eq!(String::from(host), "a.example.com");
        let model = "openai/*".parse::<ModelPattern>().unwrap();
        assert_eq!(String::from(model), "openai/*");
        for (length, is_good) in [(200, true), (201, false), (202, false)] {
            assert_eq!("m".repeat(length).parse::<ModelPattern>().is_ok(), is_good, "{length}");
        }
        for (length, is_good) in [(253, true), (254, false), (255, false)] {
            assert_eq!("h".repeat(length).parse::<DomainPattern>().is_ok(), is_good, "{length}");
        }
    }

    #[test]
    fn a_permit_needs_the_models_tier_and_then_the_keys_domain() {
        let yaml = "models:\n  - id: a/m\n    name: M\n    provider: A\n    context_length: 1000\n    max_completion_tokens: 100\n    \
             modality: text->text\n    pricing: { prompt: \"0.000001\", completion: \"0.000002\" }\n    tier: lite\n    \
             purposes: [chat]\n    targets: [ { provider: p, model: m } ]\npurposes: { chat: a/m }\n";
        let catalogue = crate::pure::catalogue::Catalogue::parse(yaml, Default::default()).unwrap();
        let (model, lock) = (catalogue.model("a/m").unwrap(), ["a.b".parse().unwrap()]);
        let (good, bad) = (Some("https://a.b"), Some("https://c.d"));
        let refused = Some(Refusal::Tier {
            needed: Tier::Lite,
            has: Tier::Free,
        });
        for (tier, origin, refusal) in [
            (Tier::Free, good, refused),
            (Tier::Free, bad, refused),
            (Tier::Lite, good, None),
            (Tier::Lite, bad, Some(Refusal::Domain)),
            (Tier::Pro, good, None),
            (Tier::Pro, bad, Some(Refusal::Domain)),
        ] {
            let from = Provenance { origin, referer: None };
            let permit = permit(model, tier, &lock, from);
            assert_eq!(permit.as_ref().err(), refusal.as_ref(), "{tier:?} {origin:?}");
            assert!(permit.is_err() || permit.unwrap().model().id == model.id);
        }
    }
}
