//! Where a request comes from: the address of the connection, or what a trusted proxy says of it.

use std::net::{IpAddr, Ipv6Addr};

use http::HeaderMap;

use crate::config::Network;

/// The client's address. `X-Forwarded-For` is believed from the right, entry by entry, as long as trusted proxies wrote it: the
/// first address that is none of theirs is the client's. Whatever stands further left is the client's own claim.
pub(crate) fn client(peer: IpAddr, headers: &HeaderMap, trusted: &[Network]) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
    let mut client = peer.to_canonical();
    if trusted.is_empty() || !is_trusted(client) {
        return client;
    }
    let lines = headers.get_all(FORWARDED_FOR).iter().rev();
    // Each entry by itself: what a client sends that is no text must not hide what a proxy wrote behind it.
    let entries = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
    for entry in entries.take(HOPS_MAX) {
        let text = std::str::from_utf8(entry).ok();
        let Some(address) = text.and_then(|text| parse(text.trim())) else {
            break;
        };
        client = address.to_canonical();
        if !is_trusted(client) {
            break;
        }
    }
    client
}

/// Whether the client came over TLS, as a trusted proxy says: the last entry of `X-Forwarded-Proto`, which is the nearest proxy's.
pub(crate) fn is_over_tls(peer: IpAddr, headers: &HeaderMap, trusted: &[Network]) -> bool {
    let peer = peer.to_canonical();
    let last = headers.get_all(FORWARDED_PROTO).iter().next_back();
    let entry = last.and_then(|line| line.as_bytes().rsplit(|byte| *byte == b',').next());
    entry.is_some_and(|entry| entry.trim_ascii().eq_ignore_ascii_case(b"https"))
        && trusted.iter().any(|network| network.contains(peer))
}

/// What limits count by: an IPv4 address, or the network of 2^64 addresses that is given to one customer in IPv6.
pub(crate) fn group(address: IpAddr) -> IpAddr {
    first_of(address, GROUP_BITS)
}

/// An IPv4 address, or the largest network that one customer is usually given in IPv6: it has 65,536 of those that limits count by.
pub(crate) fn site(address: IpAddr) -> IpAddr {
    first_of(address, SITE_BITS)
}

/// An IPv4 address, or the first address of the network of so many bits in IPv6.
fn first_of(address: IpAddr, bits: u32) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let host = u128::MAX.checked_shr(bits).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !host))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// An entry: an address, perhaps with a port, as some proxies write it.
fn parse(entry: &str) -> Option<IpAddr> {
    if let Ok(address) = entry.parse() {
        return Some(address);
    }
    if let Ok(with_port) = entry.parse::<std::net::SocketAddr>() {
        return Some(with_port.ip());
    }
    entry.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

const FORWARDED_FOR: &str = "x-forwarded-for";
const FORWARDED_PROTO: &str = "x-forwarded-proto";
/// Bits of the networks of IPv6 that limits count by.
const GROUP_BITS: u32 = 64;
/// Bits of those that one customer may have at most.
const SITE_BITS: u32 = 48;
/// Proxies that a request may have passed.
const HOPS_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn client_of(peer: &str, lines: &[&str], trusted: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(FORWARDED_FOR, HeaderValue::from_bytes(line.as_bytes()).unwrap());
        }
        let trusted: Vec<Network> = trusted.iter().map(|text| text.parse().unwrap()).collect();
        client(peer.parse().unwrap(), &headers, &trusted).to_string()
    }

    #[test]
    fn only_trusted_proxies_are_believed() {
        let proxies = ["10.0.0.0/8", "fd00::/8"];
        for (peer, lines, trusted, expected) in [
            ("198.51.100.7", &["203.0.113.9"][..], &[][..], "198.51.100.7"),
            ("198.51.100.7", &["203.0.113.9"], &proxies, "198.51.100.7"),
            ("10.0.0.1", &["203.0.113.9"], &[], "10.0.0.1"),
            ("10.0.0.1", &[], &proxies, "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.9"], &proxies, "203.0.113.9"),
            ("10.0.0.1", &["1.2.3.4, 203.0.113.9"], &proxies, "203.0.113.9"),
            ("10.0.0.1", &["1.2.3.4, 203.0.113.9, 10.0.0.2"], &proxies, "203.0.113.9"),
            (
                "10.0.0.1",
                &["1.2.3.4", "203.0.113.9,10.0.0.2"],
                &proxies,
                "203.0.113.9",
            ),
            ("10.0.0.1", &["10.0.0.3,10.0.0.2"], &proxies, "10.0.0.3"),
            ("10.0.0.1", &["203.0.113.9:4711"], &proxies, "203.0.113.9"),
            ("fd00::1", &["[2001:db8::1]:80"], &proxies, "2001:db8::1"),
            ("fd00::1", &["[2001:db8::1]"], &proxies, "2001:db8::1"),
            ("::ffff:10.0.0.1", &["203.0.113.9"], &proxies, "203.0.113.9"),
            ("10.0.0.1", &["203.0.113.9, unknown"], &proxies, "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.9,"], &proxies, "10.0.0.1"),
            ("10.0.0.1", &[""], &proxies, "10.0.0.1"),
            // The client's own claim is no text, and its proxy has appended to it.
            ("10.0.0.1", &["\u{e9}, 203.0.113.9"], &proxies, "203.0.113.9"),
            (
                "10.0.0.1",
                &["\u{e9}", "203.0.113.9, 10.0.0.2"],
                &proxies,
                "203.0.113.9",
            ),
            ("10.0.0.1", &["203.0.113.9, \u{e9}, 10.0.0.2"], &proxies, "10.0.0.2"),
        ] {
            assert_eq!(
                client_of(peer, lines, trusted),
                expected,
                "{peer} {lines:?} {trusted:?}"
            );
        }
    }

    #[test]
    fn only_trusted_proxies_say_that_it_was_tls() {
        let trusted: Vec<Network> = vec!["10.0.0.0/8".parse().unwrap()];
        for (peer, lines, expected) in [
            ("10.0.0.1", &["https"][..], true),
            ("::ffff:10.0.0.1", &["http, HTTPS"], true),
            ("10.0.0.1", &["http", "https"], true),
            ("10.0.0.1", &["https, http"], false),
            ("10.0.0.1", &["https", "http"], false),
            ("10.0.0.1", &["\u{e9}, https"], true),
            ("10.0.0.1", &[], false),
            ("198.51.100.7", &["https"], false),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(FORWARDED_PROTO, HeaderValue::from_bytes(line.as_bytes()).unwrap());
            }
            let is_tls = is_over_tls(peer.parse().unwrap(), &headers, &trusted);
            assert_eq!(is_tls, expected, "{peer} {lines:?}");
        }
    }

    #[test]
    fn limits_count_networks_of_ipv6() {
        let group_of = |text: &str| group(text.parse().unwrap()).to_string();
        assert_eq!(group_of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(group_of("203.0.113.9"), "203.0.113.9");
        assert_eq!(group_of("::ffff:203.0.113.9"), "203.0.113.9");
        let site_of = |text: &str| site(text.parse().unwrap()).to_string();
        assert_eq!(site_of("2001:db8:1:2:3:4:5:6"), "2001:db8:1::");
        assert_eq!(site_of("203.0.113.9"), "203.0.113.9");
        assert_eq!(site_of("::ffff:203.0.113.9"), "203.0.113.9");
    }
}
