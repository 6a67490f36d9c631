//! What a provider is known to read and to report by its address, unless its configuration says otherwise.

use super::*;
use crate::pure::request_body::{MaximumField, StreamUsage};

#[test]
fn the_field_of_the_maximum_is_said_or_known_by_the_address() {
    use MaximumField::{MaxCompletionTokens, MaxTokens};
    let of = |host: &str, said: &str| {
        let config = parse(&format!(
            "providers: {{ p: {{ base_url: 'https://{host}/v1'{said} }} }}"
        ))
        .unwrap();
        config.providers["p"].maximum_field
    };
    for (host, usual) in [
        ("api.openai.com", MaxCompletionTokens),
        ("API.OPENAI.COM", MaxCompletionTokens),
        ("eu.api.openai.com", MaxCompletionTokens),
        ("x.openai.azure.com", MaxCompletionTokens),
        ("X.OpenAI.Azure.com:8443", MaxCompletionTokens),
        ("x.services.ai.azure.com", MaxCompletionTokens),
        ("x.cognitiveservices.azure.com", MaxCompletionTokens),
        ("dashscope-intl.aliyuncs.com", MaxCompletionTokens),
        ("x.eu-central-1.maas.aliyuncs.com", MaxCompletionTokens),
        ("x.azure.com", MaxTokens),
        ("notopenai.com", MaxTokens),
        ("my-openai.azure.com", MaxTokens),
        ("openai.com.evil.example", MaxTokens),
        ("openrouter.ai", MaxTokens),
        ("127.0.0.1:8080", MaxTokens),
    ] {
        assert_eq!(of(host, ""), usual, "{host}");
        let said = of(host, ", maximum_field: max_completion_tokens");
        assert_eq!(said, MaxCompletionTokens, "{host}");
        assert_eq!(of(host, ", maximum_field: max_tokens"), MaxTokens, "{host}");
    }
    let wrong = parse("providers: { p: { base_url: 'https://a.example', maximum_field: n_predict } }");
    assert!(wrong.unwrap_err().to_string().contains("max_completion_tokens"));
}

/// Mistral answers 422 to `stream_options.include_usage`, and reports the usage of each stream.
#[test]
fn whether_a_stream_is_asked_for_its_usage_is_said_or_known_by_the_address() {
    use StreamUsage::{Ask, Unasked};
    let of = |host: &str, said: &str| {
        let provider = format!("providers: {{ p: {{ base_url: 'https://{host}/v1'{said} }} }}");
        parse(&provider).unwrap().providers["p"].stream_usage
    };
    for (host, usual) in [
        ("api.mistral.ai", Unasked),
        ("mistral.ai.evil.example", Ask),
        ("api.openai.com", Ask),
        ("127.0.0.1:8080", Ask),
    ] {
        assert_eq!(of(host, ""), usual, "{host}");
        assert_eq!(of(host, ", stream_usage: ask"), Ask, "{host}");
        assert_eq!(of(host, ", stream_usage: unasked"), Unasked, "{host}");
    }
    let wrong = parse("providers: { p: { base_url: 'https://a.example', stream_usage: never } }");
    assert!(wrong.unwrap_err().to_string().contains("unasked"));
}

/// It was the scheme's own port: the credential went to another service of the host.
#[test]
fn a_port_that_is_none_is_a_mistake() {
    for port in [":0", ":80000", ":8443x", ":+8443"] {
        for scheme in ["http", "https"] {
            let text = format!("providers:\n  p:\n    base_url: '{scheme}://a.example{port}/v1'\n");
            let error = parse(&text).expect_err(port).to_string();
            let says = format!(
                "base_url: \"a.example{port}\": what stands behind the host is not : and a port from 1 to 65535"
            );
            assert!(error.starts_with("t.yaml:3: ") && error.ends_with(&says), "{error}");
        }
        let traces = parse(&format!("traces:\n  endpoint: 'http://a.example{port}'\n"));
        assert!(traces.is_err(), "{port}");
    }
    for (host, port) in [
        ("a.example", 443),
        ("a.example:", 443),
        ("[::1]", 443),
        ("[::1]:8443", 8443),
    ] {
        let config = parse(&format!("providers: {{ p: {{ base_url: 'https://{host}/v1' }} }}")).unwrap();
        assert_eq!(config.providers["p"].base_url.port, port, "{host}");
    }
}
