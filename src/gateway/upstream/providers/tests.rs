//! Which hosts are kept, and what providers may be configured with.

use std::path::Path;

use super::*;

#[test]
fn a_host_is_forgotten_once_nothing_uses_it() {
    let upstreams = Upstreams::default();
    let load = |host: &str| {
        let provider = format!("{{ base_url: \"http://{host}:1/v1\", api_key_env: KEY }}");
        let text = format!("providers: {{ main: {provider} }}");
        let config = Config::parse(Path::new("t.yaml"), &text, &|_| Some("secret".to_owned())).unwrap();
        upstreams.for_config(&config).unwrap()
    };
    let known = || {
        let hosts = upstreams.hosts.lock().unwrap();
        let mut names: Vec<String> = hosts.keys().map(|(host, ..)| host.clone()).collect();
        names.sort();
        names
    };
    let first = load("a.example");
    let second = load("b.example");
    assert_eq!(known(), ["a.example", "b.example"], "the old configuration is in force");
    drop(first);
    let third = load("b.example");
    assert_eq!(known(), ["b.example"]);
    assert!(Arc::ptr_eq(&second["main"].host, &third["main"].host));
}

/// The problems of a provider at this address, `http2` or not, that has this header.
fn problems_with(base_url: &str, http2: bool, (name, value): (&str, &str)) -> Vec<String> {
    let provider = format!("{{ base_url: \"{base_url}\", http2: {http2}, headers: {{ {name}: {value} }} }}");
    let text = format!("providers: {{ p: {provider} }}");
    let config = Config::parse(Path::new("t.yaml"), &text, &|_| None).unwrap();
    problems(&config)
}

/// Each request that had one failed at a provider that speaks HTTP/2; then they were refused for those also that are asked over HTTP/1.1.
#[test]
fn a_header_of_one_connection_can_be_set_where_http2_is_not_offered() {
    for (header, is_always, is_over_http1) in [
        (("connection", "x"), false, false),
        (("Keep-Alive", "timeout=5"), false, true),
        (("proxy-connection", "keep-alive"), false, true),
        (("upgrade", "x"), false, true),
        (("te", "trailers"), true, true),
        (("TE", "deflate"), false, false),
        (("x-team", "gateway"), true, true),
    ] {
        let name = header.0;
        for (base_url, http2, can_be_set) in [
            ("https://a", true, is_always),
            ("https://a", false, is_over_http1),
            ("http://a", true, is_over_http1),
        ] {
            let problem = format!("providers.p: headers: {name:?} cannot be set");
            let expected = if can_be_set { vec![] } else { vec![problem] };
            let found = problems_with(base_url, http2, header);
            assert_eq!(found, expected, "{name}, {base_url}, http2: {http2}");
        }
    }
}
