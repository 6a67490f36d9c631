//! What a provider says when it refuses a call, in the shapes that providers have: the message for the client, the code and the field that it
//! names, and whether it speaks of the operator's key or account with the provider, which is not the client's to read.

use serde_json::Value;

use crate::pure::sse::MARK;

/// What could be read of a provider's refusal.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ProviderWords {
    /// Its message, of [`MESSAGE_CHARS_MAX`] characters at most. None where none can be read.
    pub message: Option<String>,
    /// What it names beside.
    pub named: Named,
    /// The entry of the tables by which it speaks of the operator's key or account. None: it speaks of the request.
    pub about_operator: Option<&'static str>,
    /// What the request says is refused, and not who asks: so OpenRouter and xAI answer with 403.
    pub flags_content: bool,
    /// It speaks of a limit by time, whatever its status is: Groq's of tokens a minute is 413 where one request alone exceeds it.
    pub is_rate_limit: bool,
    /// A status that stands in it by that name (Cerebras, Groq), from 400 to 599.
    status: Option<u16>,
}

/// What a refusal names for the client's program: each at most [`NAME_BYTES_MAX`] letters, digits and `_-.:/[]$`. What is no such name is left
/// out and not cut, for a part of a name names something else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// The provider's own code of what is wrong, such as `context_length_exceeded`. A number is none: the status says as much.
    pub code: Option<Box<str>>,
    /// The field of the request that is at fault, as the provider writes it.
    pub param: Option<Box<str>>,
}

impl ProviderWords {
    /// Reads the body of a refusal.
    pub fn read(body: &[u8]) -> ProviderWords {
        let body = body.strip_prefix(&MARK).unwrap_or(body);
        let Ok(value) = serde_json::from_slice::<Value>(body) else {
            return ProviderWords::default();
        };
        let own = ProviderWords::of(&value);
        let Some(inner) = forwarded(&value) else { return own };
        ProviderWords {
            message: inner.message.or(own.message),
            named: Named {
                code: inner.named.code.or(own.named.code),
                param: inner.named.param.or(own.named.param),
            },
            about_operator: own.about_operator.or(inner.about_operator),
            flags_content: own.flags_content || inner.flags_content,
            is_rate_limit: own.is_rate_limit || inner.is_rate_limit,
            status: own.status.or(inner.status),
        }
    }

    /// What an error comes to that came without a status of its own, and has this code.
    pub fn code(&self, code: Option<u16>) -> Option<u16> {
        if self.about_operator.is_some() {
            return Some(OPERATOR_STATUS);
        }
        let is_status = |code: &u16| ERRORS.contains(code);
        let code = code.filter(is_status).or(self.status).or(code);
        match code {
            None | Some(403) if self.flags_content => Some(FLAGGED_STATUS),
            None | Some(400 | 413 | 422) if self.is_rate_limit => Some(429),
            code => code,
        }
    }

    fn of(value: &Value) -> ProviderWords {
        let outer = single(value);
        let error = error_of(outer);
        let message = message(error);
        let by_message = message.as_ref().and_then(|message| match message {
            Message::Written(text) => operator_phrase(text),
            Message::Composed(_) => None,
        });
        let has_code = |codes: &'static [&'static str]| [error, outer].into_iter().find_map(|of| code_of(of, codes));
        let status = [error, outer]
            .into_iter()
            .find_map(|of| of.get("status_code")?.as_u64());
        let name = |field: &str| [error, outer].into_iter().find_map(|of| of.get(field)?.as_str());
        ProviderWords {
            named: Named {
                code: name("code").and_then(plain_name),
                param: name("param").and_then(plain_name),
            },
            about_operator: has_code(OPERATOR_CODES).or(by_message),
            flags_content: is_flagged(error, message.as_ref()) || has_code(CONTENT_CODES).is_some(),
            is_rate_limit: has_code(RATE_LIMIT_CODES).is_some(),
            status: status
                .and_then(|status| u16::try_from(status).ok())
                .filter(|status| ERRORS.contains(status)),
            message: message.map(|message| shortened(message.text())),
        }
    }

    /// Words that are no JSON.
    fn plain(text: &str) -> ProviderWords {
        ProviderWords {
            message: (!text.trim().is_empty()).then(|| shortened(text)),
            about_operator: operator_phrase(text),
            flags_content: begins_with(text, CONTENT_PHRASE),
            ..ProviderWords::default()
        }
    }
}

/// A refusal's message.
enum Message<'v> {
    /// As the provider wrote it.
    Written(&'v str),
    /// Made of the first fault of a list. It begins with the names of fields, which are the client's.
    Composed(String),
}

impl Message<'_> {
    fn text(&self) -> &str {
        match self {
            Message::Written(text) => text,
            Message::Composed(text) => text,
        }
    }
}

/// What stands in a list by itself.
fn single(value: &Value) -> &Value {
    match value.as_array().map(Vec::as_slice) {
        Some([only]) => only,
        _ => value,
    }
}

/// The object, or the text, that describes the error.
fn error_of(outer: &Value) -> &Value {
    single(outer.get("error").unwrap_or(outer))
}

fn message(error: &Value) -> Option<Message<'_>> {
    let said = error.get("message").or_else(|| error.get("detail")).unwrap_or(error);
    let said = said.get("detail").unwrap_or(said);
    let said = match said.as_array() {
        Some(faults) => faults.first().and_then(fault).map(Message::Composed),
        None => said.as_str().map(Message::Written),
    };
    said.filter(|message| !message.text().trim().is_empty())
}

/// A fault of a list: the place of the field, and what is wrong with it.
fn fault(fault: &Value) -> Option<String> {
    let what = fault.get("msg")?.as_str()?;
    let steps = fault.get("loc").and_then(Value::as_array).map(Vec::as_slice);
    let steps = steps.unwrap_or_default().iter();
    let place: Vec<String> = steps
        .map(|step| step.as_str().map_or_else(|| step.to_string(), str::to_owned))
        .collect();
    if place.is_empty() {
        return Some(what.to_owned());
    }
    Some(format!("{}: {what}", place.join(".")))
}

/// The words of the provider behind an aggregator, which passes them on as text.
fn forwarded(value: &Value) -> Option<ProviderWords> {
    let error = error_of(single(value));
    if error.get("message")?.as_str()? != FORWARDED {
        return None;
    }
    let raw = error.get("metadata")?.get("raw")?;
    let Some(text) = raw.as_str() else {
        return Some(ProviderWords::of(raw));
    };
    Some(match serde_json::from_str::<Value>(text) {
        Ok(inner) => ProviderWords::of(&inner),
        Err(_) => ProviderWords::plain(text),
    })
}

fn shortened(text: &str) -> String {
    text.chars().take(MESSAGE_CHARS_MAX).collect()
}

fn plain_name(text: &str) -> Option<Box<str>> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:/[]$".contains(&byte);
    let is_name = !text.is_empty() && text.len() <= NAME_BYTES_MAX && text.bytes().all(is_plain);
    is_name.then(|| Box::from(text))
}

/// Whether it says what of the request's content is refused: OpenRouter has a list of reasons beside its message.
fn is_flagged(error: &Value, message: Option<&Message<'_>>) -> bool {
    let reasons = error.get("metadata").and_then(|metadata| metadata.get("reasons"));
    let has_reasons = reasons
        .and_then(Value::as_array)
        .is_some_and(|reasons| !reasons.is_empty());
    has_reasons || matches!(message, Some(Message::Written(text)) if begins_with(text, CONTENT_PHRASE))
}

/// The code of the table that one of these fields is. Others, such as `param`, may have the client's own text in them.
fn code_of(error: &Value, table: &'static [&'static str]) -> Option<&'static str> {
    let fields = ["code", "type", "status"].into_iter();
    let named = fields.filter_map(|field| error.get(field)?.as_str());
    let details = error.get("details").and_then(Value::as_array).into_iter().flatten();
    let reasons = details.filter_map(|detail| detail.get("reason")?.as_str());
    named.chain(reasons).find_map(|said| {
        let mut codes = table.iter().copied();
        codes.find(|code| code.eq_ignore_ascii_case(said))
    })
}

/// The phrase of the table that the message begins with. Further on it may repeat what the client wrote, and a client must not be able to
/// turn a fault of its request into a fail-over and an alarm.
fn operator_phrase(message: &str) -> Option<&'static str> {
    let mut phrases = OPERATOR_PHRASES.iter().copied();
    phrases.find(|phrase| begins_with(message, phrase))
}

fn begins_with(message: &str, phrase: &str) -> bool {
    let begins = message.trim_start().as_bytes().get(..phrase.len());
    begins.is_some_and(|begins| begins.eq_ignore_ascii_case(phrase.as_bytes()))
}

/// Most characters of a provider's message that are passed on.
pub const MESSAGE_CHARS_MAX: usize = 2_000;
/// The status that a provider's words stand for which speak of the operator's key or account, whatever status or code came with them.
pub const OPERATOR_STATUS: u16 = 403;
/// The status of a request whose content a provider refuses.
pub const FLAGGED_STATUS: u16 = 400;
/// Statuses of errors.
const ERRORS: std::ops::Range<u16> = 400..600;
/// The longest name that is passed on.
pub const NAME_BYTES_MAX: usize = 128;
/// What OpenRouter says where a provider's own words stand in `metadata.raw`.
const FORWARDED: &str = "Provider returned error";
/// Whole values of `code`, `type`, `status` and `details[].reason`, in any case.
const OPERATOR_CODES: &[&str] = &[
    // OpenAI, and who speaks as it does.
    "insufficient_quota",
    "billing_hard_limit_reached",
    "billing_not_active",
    "account_deactivated",
    "invalid_api_key",
    // Anthropic.
    "authentication_error",
    "billing_error",
    // Google.
    "API_KEY_INVALID",
    "API_KEY_SERVICE_BLOCKED",
    "API_KEY_IP_ADDRESS_BLOCKED",
    "API_KEY_HTTP_REFERRER_BLOCKED",
    "BILLING_DISABLED",
    "CONSUMER_SUSPENDED",
    "SERVICE_DISABLED",
    // Groq.
    "organization_restricted",
    // Moonshot and Alibaba.
    "exceeded_current_quota_error",
    "Arrearage",
];
/// How messages begin, in any case. "You exceeded your current quota" is not among them: Google says so of a limit of a minute.
const OPERATOR_PHRASES: &[&str] = &[
    // Google.
    "Missing or invalid Authorization header",
    "API key not valid",
    "API key expired",
    "API key not found. Please pass a valid API key",
    "User location is not supported for the API use",
    // Anthropic.
    "Your credit balance is too low to access",
    "You have reached your specified API usage limits",
    "This organization has been disabled",
    // OpenAI and xAI.
    "Incorrect API key provided",
    "Billing hard limit has been reached",
    "Your account is not active, please check your billing details",
    "Your organization must be verified to",
    // Groq.
    "Organization has been restricted",
    // Zhipu, whose code is the number 1113.
    "Insufficient balance or no resource package",
    "余额不足或无可用资源包",
    // OpenRouter, of its settings.
    "No endpoints found matching your data policy",
    "No endpoints available matching your guardrail restrictions",
];

/// Codes of a request whose content is refused.
const CONTENT_CODES: &[&str] = &["content_filter", "content_policy_violation"];
/// How xAI's message of one begins.
const CONTENT_PHRASE: &str = "Content violates usage guidelines";
/// Codes of a limit by time.
const RATE_LIMIT_CODES: &[&str] = &["rate_limit_exceeded"];

#[cfg(test)]
mod tests;
