//! In which order the addresses of a name are tried, where one connection is wanted.

use std::net::SocketAddr;

/// The families by turns, the resolver's first one first (RFC 8305 section 4): where one of them leads nowhere, the second try is of the other.
pub fn by_turns(found: impl IntoIterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let mut found = found.into_iter().peekable();
    let is_first_ipv6 = found.peek().is_some_and(SocketAddr::is_ipv6);
    let (first, then): (Vec<_>, Vec<_>) = found.partition(|address| address.is_ipv6() == is_first_ipv6);
    let mut then = then.into_iter();
    let mut turns: Vec<SocketAddr> = first
        .into_iter()
        .flat_map(|address| [Some(address), then.next()])
        .flatten()
        .collect();
    turns.extend(then);
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn families_take_turns() {
        for (texts, expected) in [
            (
                &["[::1]:1", "[::2]:1", "1.1.1.1:1"][..],
                &["[::1]:1", "1.1.1.1:1", "[::2]:1"][..],
            ),
            (
                &["1.1.1.1:1", "[::1]:1", "[::2]:1", "[::3]:1"],
                &["1.1.1.1:1", "[::1]:1", "[::2]:1", "[::3]:1"],
            ),
            (&["1.1.1.1:1", "1.1.1.2:1"], &["1.1.1.1:1", "1.1.1.2:1"]),
            (&[], &[]),
        ] {
            assert_eq!(by_turns(found(texts)), found(expected), "{texts:?}");
        }
    }
}
