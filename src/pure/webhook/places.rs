//! Which addresses webhooks may go to: those of the internet, unless an operator allows others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address is one of the internet: not of this machine, a private network, a link, a provider's inside or a cloud's metadata.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => match embedded_v4(address) {
            Some(inner) => is_public_v4(inner),
            None => is_public_v6(address),
        },
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_other = matches!(
        (a, b, c),
        // This network; carriers' NAT (100.64/10); protocol assignments, 6to4 relays; benchmarks; reserved and broadcast.
        (0, ..) | (100, 64..=127, _) | (192, 0, 0) | (192, 88, 99) | (198, 18..=19, _) | (240..=255, ..)
    );
    !(is_other
        || address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation())
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    // Only 2000::/3 is given to anybody; of that not Teredo and other protocol assignments (2001::/23) nor documentation.
    let [a, b, ..] = address.segments();
    let is_given = a & 0xe000 == 0x2000;
    let is_assigned = a == 0x2001 && b < 0x0200;
    let is_documentation = (a == 0x2001 && b == 0x0db8) || (a == 0x3fff && b < 0x1000);
    is_given && !is_assigned && !is_documentation
}

/// The IPv4 address that an IPv6 one stands for: mapped, compatible, translated (NAT64), 6to4.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let of = |high: u16, low: u16| Some(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)));
    match address.segments() {
        // :: and ::1 are of this machine, and so is what they would stand for.
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] => of(high, low),
        [0, 0, 0, 0, 0xffff, 0, high, low] => of(high, low),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => of(high, low),
        [0x2002, high, low, ..] => of(high, low),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_internet_are_public() {
        for inside in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.170",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "203.0.113.9",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0:127.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "100::1",
            "2001:1ff::1",
            "3fff::1",
            "3fff:fff::1",
        ] {
            assert!(!is_public(inside.parse().unwrap()), "{inside}");
        }
        for outside in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.20.0.1",
            "2606:4700::1111",
            "2001:4860:4860::8888",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "::ffff:0:8.8.8.8",
            "2001:200::1",
            "3fff:1000::1",
            "3ffe:1::1",
            "2a00:db8::1",
        ] {
            assert!(is_public(outside.parse().unwrap()), "{outside}");
        }
    }
}
