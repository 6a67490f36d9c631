//! By what name the admin listener may be asked. It asks for no key, so a page on the internet whose name was pointed at this machine must
//! not read it in the browser of somebody who can reach it (DNS rebinding).

use std::net::IpAddr;

use http::header::HOST;
use pingora::http::RequestHeader;

/// Whether a request names this listener by an address, `localhost`, a name without a dot (nobody can register one) or one of `others`.
/// One that names nothing is from no browser.
pub(super) fn is_ours(request: &RequestHeader, others: &[String]) -> bool {
    let mut named = request.headers.get_all(HOST).iter();
    let text = match (named.next(), named.next()) {
        (None, _) => return true,
        (Some(_), Some(_)) => return false,
        (Some(one), None) => one.to_str(),
    };
    text.is_ok_and(|text| is_own_name(text, others))
}

fn is_own_name(host: &str, others: &[String]) -> bool {
    // An IPv6 address stands in brackets; whatever else has a colon has a port.
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    !name.is_empty()
        && (!name.contains(['.', ':'])
            || name.parse::<IpAddr>().is_ok()
            || name.ends_with(".localhost")
            || others.iter().any(|other| other.eq_ignore_ascii_case(name)))
}

/// What is said to a request by another name.
pub(super) const NOT_OURS: &str =
    "This listener is asked by an address, by localhost, by a name without a dot, or by a name in admin_hosts.\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_somebody_else_may_own_are_refused() {
        let others = ["gw1.example.com".to_owned()];
        for ours in [
            "127.0.0.1:9090",
            "10.1.2.3",
            "[::1]:9090",
            "[fe80::1]",
            "localhost:9090",
            "LOCALHOST",
            "tollgate:9090",
            "tollgate.localhost",
            "GW1.example.com:9090",
            "gw1.example.com.",
        ] {
            assert!(is_own_name(ours, &others), "{ours}");
        }
        for theirs in [
            "evil.example:9090",
            "127.0.0.1.evil.example",
            "",
            ":9090",
            "[evil.example]",
            ".",
        ] {
            assert!(!is_own_name(theirs, &others), "{theirs}");
        }
    }
}
