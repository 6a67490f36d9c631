//! Upstream providers in the configuration: their addresses and what they are asked with.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::{port, required, variable};
use crate::pure::request_body::{MaximumField, StreamUsage};
use crate::pure::usage::CompletionFrom;

/// An upstream provider.
#[derive(Clone, Debug)]
pub struct Provider {
    /// Its name in the configuration.
    pub name: String,
    /// Address of its API.
    pub base_url: BaseUrl,
    /// What it is asked with.
    pub credential: Credential,
    /// What becomes of a call whose client has gone.
    pub on_disconnect: OnDisconnect,
    /// Request fields that are refused unless they are named here.
    pub allow_fields: Vec<String>,
    /// Headers sent with each request.
    pub headers: BTreeMap<String, String>,
    /// A private certificate authority that is trusted in place of the system's.
    pub ca_file: Option<PathBuf>,
    /// Whether HTTP/2 is offered over TLS.
    pub http2: bool,
    /// Tokens of the words that it puts around a prompt, at most.
    pub prompt_overhead_tokens: u64,
    /// What a call of it is billed by.
    pub cost_from: CostFrom,
    /// Where its reports name the completion that it charges.
    pub completion_from: CompletionFrom,
    /// The field in which it reads the maximum of completion tokens.
    pub maximum_field: MaximumField,
    /// How it comes to report the usage of a stream.
    pub stream_usage: StreamUsage,
}

/// What a call is billed by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CostFrom {
    /// Tokens times the catalogue's prices.
    #[default]
    Prices,
    /// The cost that the provider names in its usage, with the markup, where it names one: aggregators know best what a call cost.
    Usage,
}

/// An address `http(s)://host[:port]/path`, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl {
    /// Whether it is `https`.
    pub tls: bool,
    /// Host name or address in lower case, for SNI and resolution.
    pub host: String,
    /// Port.
    pub port: u16,
    /// What the `Host` header says: the host, with the port unless it is the scheme's own.
    pub authority: String,
    /// Path without a slash at its end.
    pub path: String,
}

/// What a provider is asked with. It has no `Debug` of its text.
#[derive(Clone)]
pub enum Credential {
    /// The provider wants none.
    None,
    /// Sent as `Authorization: Bearer`.
    Bearer(String),
    /// The environment variable of this name is not set: the provider is switched off.
    Missing(String),
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Credential::None => f.write_str("None"),
            Credential::Bearer(_) => f.write_str("Bearer(…)"),
            Credential::Missing(variable) => write!(f, "Missing({variable})"),
        }
    }
}

/// What becomes of a call whose client has gone before its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDisconnect {
    /// Close the upstream at once; prompt and delivered tokens are billed.
    #[default]
    Cancel,
    /// Keep reading, within limits, to get the reported usage.
    Drain,
}

impl Provider {
    /// Whether it can be asked at all.
    pub fn is_on(&self) -> bool {
        !matches!(self.credential, Credential::Missing(_))
    }
}

impl BaseUrl {
    /// Takes the address of a provider apart.
    ///
    /// # Errors
    /// When it is none; the error shows what one looks like.
    pub fn parse(text: &str) -> Result<BaseUrl, String> {
        BaseUrl::parse_such_as("https://api.example.com/v1", text)
    }

    /// The same of an address of something else.
    ///
    /// # Errors
    /// When it is none; the error shows `example`.
    pub(crate) fn parse_such_as(example: &str, text: &str) -> Result<BaseUrl, String> {
        let bad = || match text.contains('@') {
            // Perhaps with a password.
            true => format!("it must be an address such as {example}, without an @; what stands here is not shown"),
            false => format!("{text:?} is not an address such as {example}"),
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(bad)?;
        let tls = match scheme {
            "https" => true,
            "http" => false,
            _ => return Err(bad()),
        };
        let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
        let url: http::Uri = format!("{scheme}://{authority}/").parse().map_err(|_| bad())?;
        let host = url.host().filter(|host| !host.is_empty()).ok_or_else(bad)?;
        let host = host.to_ascii_lowercase();
        if authority.contains('@') || path.contains(['?', '#']) {
            return Err(bad());
        }
        let own_port = if tls { 443 } else { 80 };
        let port = port::of(url.authority().ok_or_else(bad)?, own_port)?;
        let authority = if port == own_port {
            host.clone()
        } else {
            format!("{host}:{port}")
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(BaseUrl {
            tls,
            host,
            port,
            authority,
            path: path.trim_end_matches('/').to_owned(),
        })
    }

    /// Whether its host is this domain, or one within it.
    pub(crate) fn is_within(&self, domain: &str) -> bool {
        let before = self.host.strip_suffix(domain);
        before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawProvider {
    pub(super) base_url: String,
    #[serde(default)]
    pub(super) api_key_env: Option<String>,
    #[serde(default)]
    pub(super) on_disconnect: OnDisconnect,
    #[serde(default)]
    pub(super) allow_fields: Vec<String>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) ca_file: Option<PathBuf>,
    #[serde(default = "yes")]
    pub(super) http2: bool,
    #[serde(default)]
    pub(super) prompt_overhead_tokens: u32,
    #[serde(default)]
    pub(super) cost_from: CostFrom,
    #[serde(default)]
    pub(super) completion_from: Option<CompletionFrom>,
    #[serde(default)]
    pub(super) maximum_field: Option<MaximumField>,
    #[serde(default)]
    pub(super) stream_usage: Option<StreamUsage>,
}

pub(super) fn checked_provider(
    name: &str,
    raw: RawProvider,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Provider, String> {
    let variable = raw.api_key_env.map(variable::checked).transpose();
    let credential = match variable.map_err(|problem| format!("api_key_env: {problem}"))? {
        None => Credential::None,
        Some(variable) => match environment(&variable)
            .map(|text| text.trim().to_owned())
            .filter(|t| !t.is_empty())
        {
            Some(text) if http::HeaderValue::from_str(&text).is_ok() => Credential::Bearer(text),
            Some(_) => return Err(format!("the value of {variable} cannot stand in a header")),
            None => Credential::Missing(variable),
        },
    };
    for (header, value) in &raw.headers {
        let good =
            http::HeaderName::from_bytes(header.as_bytes()).is_ok() && http::HeaderValue::from_str(value).is_ok();
        if !good {
            return Err(format!("headers: {header:?} is not a header name with a plain value"));
        }
    }
    let base_url = BaseUrl::parse(&raw.base_url).map_err(|e| format!("base_url: {e}"))?;
    if let Some(file) = &raw.ca_file {
        required::check("ca_file", &file.to_string_lossy(), "a path")?;
    }
    Ok(Provider {
        name: name.to_owned(),
        completion_from: raw.completion_from.unwrap_or_else(|| usual_completion(&base_url)),
        maximum_field: raw.maximum_field.unwrap_or_else(|| usual_maximum(&base_url)),
        stream_usage: raw.stream_usage.unwrap_or_else(|| usual_stream_usage(&base_url)),
        base_url,
        credential,
        on_disconnect: raw.on_disconnect,
        allow_fields: raw.allow_fields,
        headers: raw.headers,
        ca_file: raw.ca_file,
        http2: raw.http2,
        prompt_overhead_tokens: u64::from(raw.prompt_overhead_tokens),
        cost_from: raw.cost_from,
    })
}

/// Google's own address has hidden reasoning in the total alone; nearly everyone else reports it with the completion.
fn usual_completion(url: &BaseUrl) -> CompletionFrom {
    match url.host.as_str() {
        "generativelanguage.googleapis.com" => CompletionFrom::Total,
        _ => CompletionFrom::Report,
    }
}

/// Mistral reports the usage of each stream in its last event, and answers 422 where it is asked to.
fn usual_stream_usage(url: &BaseUrl) -> StreamUsage {
    match url.is_within("mistral.ai") {
        true => StreamUsage::Unasked,
        false => StreamUsage::Ask,
    }
}

/// The reasoning models of OpenAI and Azure OpenAI take only the newer name of the maximum, and at Alibaba the older one does not bound what a
/// model thinks; nearly everyone else reads the older one.
fn usual_maximum(url: &BaseUrl) -> MaximumField {
    match NEWER_MAXIMUM_DOMAINS.iter().any(|domain| url.is_within(domain)) {
        true => MaximumField::MaxCompletionTokens,
        false => MaximumField::MaxTokens,
    }
}

/// Where OpenAI's own models are served: `api.openai.com`, `eu.api.openai.com`, `NAME.openai.azure.com`, and the other two names of an
/// Azure resource. And where Alibaba's are: `dashscope.aliyuncs.com`, `NAME.maas.aliyuncs.com` and others.
const NEWER_MAXIMUM_DOMAINS: [&str; 5] = [
    "openai.com",
    "openai.azure.com",
    "services.ai.azure.com",
    "cognitiveservices.azure.com",
    "aliyuncs.com",
];

fn yes() -> bool {
    true
}
