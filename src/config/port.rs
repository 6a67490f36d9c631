//! The port of an address: what stands behind its host.

use http::uri::Authority;

/// The port, from 1 to 65535, that an authority without a user names; `own` where nothing, or a colon alone, stands behind its host.
///
/// # Errors
/// When what stands there is no such port: taken for `own`, it would be another service.
pub(super) fn of(authority: &Authority, own: u16) -> Result<u16, String> {
    let rest = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
    if matches!(rest, "" | ":") {
        return Ok(own);
    }
    let digits = rest
        .strip_prefix(':')
        .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let port = digits
        .and_then(|digits| digits.parse::<u16>().ok())
        .filter(|port| *port != 0);
    port.ok_or_else(|| {
        format!(
            "{:?}: what stands behind the host is not : and a port from 1 to 65535",
            authority.as_str()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_behind_a_host_is_nothing_or_a_port() {
        let of = |text: &str| of(&text.parse().unwrap(), 443);
        for (text, port) in [
            ("a.example", 443),
            ("a.example:", 443),
            ("a.example:1", 1),
            ("a.example:8443", 8443),
            ("a.example:65535", 65_535),
            ("[::1]", 443),
            ("[::1]:8443", 8443),
        ] {
            assert_eq!(of(text), Ok(port), "{text}");
        }
        for text in [
            "a.example:0",
            "a.example:80000",
            "a.example:65536",
            "a.example:+80",
            "a.example:8443x",
            "[::1]:80000",
        ] {
            let says = format!("{text:?}: what stands behind the host is not : and a port from 1 to 65535");
            assert_eq!(of(text), Err(says), "{text}");
        }
    }
}
