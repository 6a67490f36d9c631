//! A network of addresses, as `trusted_proxies` names them.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An address and how many of its leading bits count: `10.0.0.0/8`, `fd00::/8`, or one address alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network {
    first: u128,
    mask: u128,
}

/// A text that is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an address or a network such as 10.0.0.0/8")]
pub struct NetworkError(String);

impl Network {
    /// Whether the address lies in it. An IPv4 address that is written as IPv6 is the IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        bits(address) & self.mask == self.first
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Network, NetworkError> {
        let bad = || NetworkError(text.to_owned());
        let (address, length) = match text.split_once('/') {
            None => (text, None),
            Some((address, length)) => {
                let plain = !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit());
                let length = if plain { length.parse::<u32>().ok() } else { None };
                (address, Some(length.ok_or_else(bad)?))
            }
        };
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let whole = if address.is_ipv4() { 32 } else { 128 };
        let length = length.unwrap_or(whole);
        let ignored = whole.checked_sub(length).ok_or_else(bad)?;
        let mask = u128::MAX.checked_shl(ignored).unwrap_or(0);
        let first = bits(address);
        if first & mask != first {
            // 10.1.2.3/8 is a slip of someone who meant either the address or its network.
            return Err(bad());
        }
        Ok(Network { first, mask })
    }
}

impl fmt::Display for Network {
    /// As it is read: an address alone without a length.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, length) = (Ipv6Addr::from_bits(self.first), self.mask.leading_ones());
        match (first.to_ipv4_mapped(), length.checked_sub(V4_FIRST_BIT)) {
            (Some(v4), Some(32)) => write!(f, "{v4}"),
            (Some(v4), Some(length)) => write!(f, "{v4}/{length}"),
            _ if length == 128 => write!(f, "{first}"),
            _ => write!(f, "{first}/{length}"),
        }
    }
}

impl TryFrom<String> for Network {
    type Error = NetworkError;

    fn try_from(text: String) -> Result<Network, NetworkError> {
        text.parse()
    }
}

impl From<Network> for String {
    fn from(network: Network) -> String {
        network.to_string()
    }
}

/// How many bits of an IPv6 address stand before the IPv4 address that it maps.
const V4_FIRST_BIT: u32 = 96;

/// IPv4 addresses stand where IPv6 maps them, so that both kinds are compared alike.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(network: &str, address: &str) -> bool {
        network.parse::<Network>().unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn networks_contain_their_addresses() {
        assert!(contains("10.0.0.0/8", "10.255.0.1"));
        assert!(!contains("10.0.0.0/8", "11.0.0.1"));
        assert!(contains("127.0.0.1", "127.0.0.1"));
        assert!(!contains("127.0.0.1", "127.0.0.2"));
        assert!(
            contains("127.0.0.1/32", "::ffff:127.0.0.1"),
            "one address, written as IPv6"
        );
        assert!(contains("fd00::/8", "fdff::1"));
        assert!(!contains("fd00::/8", "fe00::1"));
        assert!(contains("0.0.0.0/0", "203.0.113.9"));
        assert!(!contains("0.0.0.0/0", "2001:db8::1"), "IPv4 alone");
        assert!(contains("::/0", "2001:db8::1"));
        assert!(contains("::1", "::1"));
    }

    #[test]
    fn a_network_is_written_as_it_is_read() {
        for text in [
            "10.0.0.0/8",
            "0.0.0.0/0",
            "127.0.0.1",
            "fd00::/8",
            "::/0",
            "::1",
            "2001:db8::/32",
        ] {
            assert_eq!(text.parse::<Network>().unwrap().to_string(), text);
        }
        assert_eq!("10.0.0.1/32".parse::<Network>().unwrap().to_string(), "10.0.0.1");
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for bad in [
            "",
            "10.0.0.0/33",
            "10.0.0.1/8",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "localhost",
            "10.0.0.0/8/8",
            "10.0.0/8",
        ] {
            assert!(bad.parse::<Network>().is_err(), "{bad:?}");
        }
    }
}
