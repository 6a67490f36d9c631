//! Which address is tried next, and how names are kept fresh.

use std::net::TcpListener;

use super::*;

fn found(texts: &[&str]) -> Vec<SocketAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn unreached(ipv6: u8, ipv4: u8) -> Unreached {
    Unreached {
        ipv4,
        ipv6,
        ..Unreached::default()
    }
}

/// The addresses that a call tries of which none can be reached, each by whether it is of IPv6.
fn tried(addresses: &Addresses) -> Vec<bool> {
    let (mut unreached, mut tried) = (Unreached::default(), Vec::new());
    while let Some(address) = addresses.pick(&mut unreached) {
        assert!(addresses.has_another(unreached));
        unreached.note(address.is_ipv6());
        tried.push(address.is_ipv6());
    }
    assert!(!addresses.has_another(unreached));
    tried
}

#[test]
fn at_most_three_addresses_are_tried_and_those_of_ipv6_first_where_they_are_best() {
    for (texts, expected) in [
        (
            &["[::1]:1", "[::2]:1", "1.1.1.1:1", "1.1.1.2:1"][..],
            &[true, true, false][..],
        ),
        (&["[::1]:1", "1.1.1.1:1", "1.1.1.2:1"], &[true, false, false]),
        (&["[::1]:1", "1.1.1.1:1"], &[true, false]),
        (&["[::1]:1", "[::2]:1", "[::3]:1", "[::4]:1"], &[true, true, true]),
        // The resolver says by its order that IPv6 leads nowhere.
        (&["1.1.1.1:1", "[::1]:1", "[::2]:1"], &[false]),
        (&["1.1.1.1:1", "1.1.1.2:1"], &[false, false]),
        (&[], &[]),
    ] {
        let addresses = Addresses::of("provider.example", 1);
        addresses.learn(found(texts));
        assert_eq!(tried(&addresses), expected, "{texts:?}");
    }
}

/// One took the turn of another, which then tried an address twice that was dead, and none that was not.
#[test]
fn no_call_tries_an_address_twice_whatever_others_try_meanwhile() {
    let addresses = Addresses::of("provider.example", 1);
    addresses.learn(found(&["1.1.1.1:1", "1.1.1.2:1", "1.1.1.3:1"]));
    for others in 0..4 {
        let (mut unreached, mut tried) = (Unreached::default(), std::collections::BTreeSet::new());
        while let Some(address) = addresses.pick(&mut unreached) {
            assert!(tried.insert(address), "{address} twice beside {others}");
            unreached.note(address.is_ipv6());
            for _ in 0..others {
                addresses.pick(&mut Unreached::default());
            }
        }
        assert_eq!(tried.len(), 3);
    }
}

#[test]
fn what_was_reached_comes_first() {
    let addresses = Addresses::of("provider.example", 1);
    addresses.learn(found(&["[::1]:1", "[::2]:1", "1.1.1.1:1", "1.1.1.2:1"]));
    addresses.reached(false);
    assert_eq!(tried(&addresses), [false, false, true]);
    // A call that began before goes on with those that it has not tried.
    assert!(addresses.pick(&mut unreached(2, 0)).unwrap().is_ipv4());
    addresses.reached(true);
    assert_eq!(tried(&addresses), [true, true, false]);

    // Of one family.
    addresses.learn(found(&["1.1.1.1:1"]));
    addresses.reached(false);
    assert_eq!(tried(&addresses), [false]);
    addresses.learn(found(&["[::1]:1"]));
    assert_eq!(tried(&addresses), [true]);
}

#[test]
fn ipv6_comes_first_again_once_it_leads_somewhere() {
    let listener = TcpListener::bind("[::1]:0").unwrap();
    let address = listener.local_addr().unwrap();
    let addresses = Addresses::of("provider.example", 1);
    addresses.learn(vec![address, "127.0.0.1:1".parse().unwrap()]);
    addresses.reached(false);
    for _ in 1..IPV4_FIRST {
        addresses.try_ipv6();
        assert_eq!(tried(&addresses), [false, true]);
    }
    addresses.try_ipv6();
    assert_eq!(tried(&addresses), [true, false]);

    addresses.reached(false);
    drop(listener);
    for _ in 0..20 {
        addresses.try_ipv6();
        assert_eq!(tried(&addresses), [false, true]);
    }
}
