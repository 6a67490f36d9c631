//! `webhooks:`: who is told of events.

use std::net::IpAddr;

use http::Uri;
use serde::Deserialize;

use super::error::nearest;
use super::{port, variable};
use crate::pure::webhook::{EventKind, Secret, is_public};

/// Somebody who is told of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// Its address, as it was typed.
    pub url: String,
    /// Whether that is `https`.
    pub tls: bool,
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// What the `Host` header says.
    pub authority: String,
    /// Path and query.
    pub path: String,
    /// What messages are signed with: each signs, so that a receiver may change from one to the next.
    pub secrets: Vec<Secret>,
    /// A variable with a secret that is not set: commands live with that, a gateway does not start.
    pub unset: Option<String>,
    /// What it is told.
    pub events: Vec<EventKind>,
    /// Whether it may be on this machine or in a private network.
    pub allow_private: bool,
}

/// What is wrong with webhooks for a gateway, though not for commands: a secret that is not set.
pub(super) fn problems(webhooks: &[Webhook]) -> Vec<String> {
    let numbered = webhooks.iter().enumerate();
    let unset = numbered.filter_map(|(at, webhook)| Some((at, webhook.unset.as_ref()?)));
    unset
        .map(|(number, unset)| format!("webhooks[{number}].secret_env: {}", variable::not_set(unset)))
        .collect()
}

impl Webhook {
    /// Whether it is told of events of this kind: all are told of a test.
    pub fn wants(&self, kind: EventKind) -> bool {
        kind == EventKind::Test || self.events.contains(&kind)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawWebhook {
    url: String,
    secret_env: String,
    #[serde(default)]
    events: Option<Vec<String>>,
    #[serde(default)]
    allow_private: bool,
}

/// What was written, checked; `environment` gives the secrets.
pub(super) fn checked(
    raw: Vec<RawWebhook>,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<Webhook>, String> {
    if raw.len() > WEBHOOKS_MAX {
        return Err(format!("webhooks: more than {WEBHOOKS_MAX}"));
    }
    let mut all: Vec<Webhook> = Vec::new();
    for (number, raw) in raw.into_iter().enumerate() {
        let one = webhook(raw, environment).map_err(|problem| format!("webhooks[{number}].{problem}"))?;
        if all.iter().any(|other| other.url == one.url) {
            return Err(format!("webhooks[{number}].url: {} is there before", one.url));
        }
        all.push(one);
    }
    Ok(all)
}

fn webhook(raw: RawWebhook, environment: &dyn Fn(&str) -> Option<String>) -> Result<Webhook, String> {
    let (secrets, unset) = secrets(&raw.secret_env, environment).map_err(|problem| format!("secret_env: {problem}"))?;
    let events = match raw.events {
        None => EventKind::ALL.into(),
        Some(names) => kinds(&names).map_err(|problem| format!("events: {problem}"))?,
    };
    let bad = |problem: String| format!("url: {problem}");
    let uri: Uri = raw
        .url
        .parse()
        .map_err(|_| bad(format!("{:?} is no address such as https://example.com/hooks", raw.url)))?;
    let tls = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err(bad(format!("{:?} does not begin with https://", raw.url))),
    };
    let authority = uri.authority().filter(|authority| !authority.host().is_empty());
    let authority = authority.ok_or_else(|| bad(format!("{:?} has no host", raw.url)))?;
    if authority.as_str().contains('@') {
        return Err(bad(
            "no name or password may stand in it; messages are signed".to_owned()
        ));
    }
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    let address = host.parse::<IpAddr>().ok();
    let is_own = host == "localhost" || address.is_some_and(|address| address.is_loopback());
    let may_be_clear = is_own && raw.allow_private;
    if !tls && !may_be_clear {
        return Err(bad(
            "only to this machine, with allow_private, it may be http; else it is https".to_owned(),
        ));
    }
    if !raw.allow_private && address.is_some_and(|address| !is_public(address)) {
        return Err(bad(format!(
            "{host} is no address of the internet; allow_private: true lets it be told"
        )));
    }
    Ok(Webhook {
        tls,
        port: port::of(authority, if tls { 443 } else { 80 }).map_err(bad)?,
        authority: authority.as_str().to_owned(),
        path: match uri.path_and_query().map_or("", |path| path.as_str()) {
            path if path.starts_with('/') => path.to_owned(),
            // A query behind the host.
            query => format!("/{query}"),
        },
        url: raw.url,
        host,
        secrets,
        unset,
        events,
        allow_private: raw.allow_private,
    })
}

fn secrets(names: &str, environment: &dyn Fn(&str) -> Option<String>) -> Result<(Vec<Secret>, Option<String>), String> {
    let names: Vec<&str> = names.split(',').map(str::trim).collect();
    if names.len() > SECRETS_MAX {
        return Err(format!("more than {SECRETS_MAX} variables"));
    }
    let (mut secrets, mut unset) = (Vec::new(), None);
    for name in names {
        let name = variable::checked(name.to_owned())?;
        let Some(text) = environment(&name).filter(|text| !text.trim().is_empty()) else {
            unset = unset.or(Some(name));
            continue;
        };
        let secret = text.trim().parse::<Secret>();
        secrets.push(
            secret
                .map_err(|problem| format!("{name} is no secret (whsec_ and 24 to 64 bytes in base64): {problem}"))?,
        );
    }
    Ok((secrets, unset))
}

fn kinds(names: &[String]) -> Result<Vec<EventKind>, String> {
    if names.is_empty() {
        return Err("there are none; leave it out for all".to_owned());
    }
    let kind = |name: &String| {
        let near = || nearest(name, EventKind::ALL.into_iter().map(EventKind::name));
        name.parse::<EventKind>()
            .map_err(|unknown| format!("{unknown}{}", near()))
    };
    names.iter().map(kind).collect()
}

/// The most webhooks.
const WEBHOOKS_MAX: usize = 16;
/// One, and another while it is changed.
const SECRETS_MAX: usize = 2;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::Config;
    use crate::pure::webhook::EventKind;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn parse(webhook: &str) -> Result<Config, String> {
        let environment = |name: &str| match name {
            "A" | "B" => Some(SECRET.to_owned()),
            "SHORT" => Some("whsec_AAAA".to_owned()),
            _ => None,
        };
        let text = format!("webhooks:\n  - {webhook}\n");
        Config::parse(Path::new("t.yaml"), &text, &environment).map_err(|error| error.to_string())
    }

    #[test]
    fn a_webhook_is_read() {
        let config =
            parse("{ url: 'https://hooks.example.com:8443/a?b=c', secret_env: 'A, B', events: [credits.added] }");
        let [webhook] = &config.unwrap().webhooks[..] else {
            panic!("one")
        };
        assert_eq!((webhook.host.as_str(), webhook.port), ("hooks.example.com", 8443));
        assert_eq!((webhook.path.as_str(), webhook.secrets.len()), ("/a?b=c", 2));
        assert!(webhook.wants(EventKind::CreditsAdded) && webhook.wants(EventKind::Test));
        assert!(!webhook.wants(EventKind::LowBalance));
        let shown = format!("{webhook:?}");
        assert!(!shown.contains("MfKQ"), "{shown}");
        for url in [
            "http://127.0.0.1:9/x",
            "http://[::1]:9",
            "http://localhost:9",
            "https://10.0.0.1",
        ] {
            let config = parse(&format!("{{ url: '{url}', secret_env: A, allow_private: true }}"));
            assert_eq!(config.unwrap().webhooks[0].events.len(), EventKind::ALL.len(), "{url}");
        }
        // What is sent asks for a path, which begins with a slash.
        for (url, path) in [("https://a.example", "/"), ("https://a.example?b=c", "/?b=c")] {
            let config = parse(&format!("{{ url: '{url}', secret_env: A }}"));
            assert_eq!(config.unwrap().webhooks[0].path, path);
        }
    }

    #[test]
    fn a_secret_that_is_not_set_keeps_a_gateway_from_starting_and_no_command() {
        let config = parse("{ url: 'https://x.example', secret_env: 'A,NOT' }").unwrap();
        assert_eq!(
            super::problems(&config.webhooks),
            ["webhooks[0].secret_env: the environment variable NOT is not set, or empty"]
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (webhook, said) in [
            ("{ url: 'ftp://x', secret_env: A }", "does not begin with https://"),
            ("{ url: 'https://', secret_env: A }", "no address such as"),
            ("{ url: '/x', secret_env: A }", "does not begin with https://"),
            (
                "{ url: 'https://x.example:80000', secret_env: A }",
                "a port from 1 to 65535",
            ),
            (
                "{ url: 'https://x.example:8443x/y', secret_env: A }",
                "a port from 1 to 65535",
            ),
            ("{ url: 'https://u:p@x.example', secret_env: A }", "no name or password"),
            (
                "{ url: 'http://x.example', secret_env: A, allow_private: true }",
                "only to this machine",
            ),
            ("{ url: 'http://127.0.0.1', secret_env: A }", "only to this machine"),
            (
                "{ url: 'https://169.254.169.254', secret_env: A }",
                "is no address of the internet",
            ),
            (
                "{ url: 'https://[::ffff:10.0.0.1]', secret_env: A }",
                "is no address of the internet",
            ),
            (
                "{ url: 'https://x.example', secret_env: SHORT }",
                "shorter than 24 bytes",
            ),
            (
                "{ url: 'https://x.example', secret_env: 'A,B,A' }",
                "more than 2 variables",
            ),
            (
                "{ url: 'https://x.example', secret_env: whsec_MfKQ9r8GKYqrTwjUPD8ILPZI }",
                "not the secret itself",
            ),
            (
                "{ url: 'https://x.example', secret_env: A, events: [] }",
                "leave it out for all",
            ),
            (
                "{ url: 'https://x.example', secret_env: A, events: [account.lowbalance] }",
                "did you mean account.low_balance?",
            ),
            ("{ url: 'https://x.example', secret_env: A, event: [] }", "event"),
            (
                "{ url: 'https://x.example', secret_env: A }\n  - { url: 'https://x.example', secret_env: B }",
                "is there before",
            ),
        ] {
            let told = parse(webhook).expect_err(webhook);
            assert!(told.contains(said) && !told.contains("MfKQ"), "{webhook}: {told}");
        }
    }
}
