//! Which of a host's addresses are tried, and in what time.

use pingora::{Error, ErrorType};

use super::*;

const CONNECT: Duration = Duration::from_secs(4);

fn of(addresses: &[&str]) -> Addresses {
    let found: Vec<SocketAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
    let own = Arc::into_inner(Addresses::of("provider.example", 1)).unwrap();
    own.known.store(Arc::new(Known::of(found, |_| true)));
    own
}

/// What is tried, and for how many seconds, of a call for which each address fails so.
fn tries(addresses: &Addresses, kind: &ErrorType) -> Vec<(String, u64)> {
    let (mut tried, mut all) = (Tried::default(), Vec::new());
    loop {
        let choice = addresses.pick(&mut tried).unwrap();
        all.push((choice.address.to_string(), choice.within(CONNECT).as_secs()));
        tried.failed(&Error::explain(kind.clone(), "a test"));
        if !addresses.has_another(&tried) {
            return all;
        }
    }
}

/// A call whose first address is refused, and whose second is connected to.
fn turns(addresses: &Addresses) {
    let mut tried = Tried::default();
    addresses.pick(&mut tried).unwrap();
    tried.failed(&Error::explain(ErrorType::ConnectRefused, "a test"));
    addresses.pick(&mut tried).unwrap();
    addresses.connected(&tried);
}

fn first(addresses: &Addresses) -> String {
    let choice = addresses.pick(&mut Tried::default()).unwrap();
    choice.address.to_string()
}

#[test]
fn the_other_family_is_tried_within_the_same_time() {
    let check = |addresses: &[&str], kind: ErrorType, expected: &[(&str, u64)]| {
        let expected: Vec<(String, u64)> = expected.iter().map(|(at, secs)| ((*at).to_owned(), *secs)).collect();
        assert_eq!(tries(&of(addresses), &kind), expected, "{addresses:?} {kind:?}");
    };
    let (waits, refused) = (ErrorType::ConnectTimedout, ErrorType::ConnectRefused);
    check(&["1.0.0.1:1"], waits.clone(), &[("1.0.0.1:1", 4)]);
    let both = ["[a::1]:1", "1.0.0.1:1"];
    check(&both, waits.clone(), &[("[a::1]:1", 2), ("1.0.0.1:1", 2)]);
    check(&both, refused.clone(), &[("[a::1]:1", 2), ("1.0.0.1:1", 4)]);
    let reversed = ["1.0.0.1:1", "[a::1]:1"];
    check(&reversed, waits.clone(), &[("1.0.0.1:1", 2), ("[a::1]:1", 2)]);
    // One of the other family at once, then what is left.
    let more = ["[a::1]:1", "[a::2]:1", "1.0.0.1:1"];
    let expected = [("[a::1]:1", 2), ("1.0.0.1:1", 2), ("[a::2]:1", 4)];
    check(&more, waits.clone(), &expected);
    let more = ["[a::1]:1", "1.0.0.1:1", "1.0.0.2:1"];
    let expected = [("[a::1]:1", 2), ("1.0.0.1:1", 4), ("1.0.0.2:1", 4)];
    check(&more, refused, &expected);
    let alike = ["1.0.0.1:1", "1.0.0.2:1", "1.0.0.3:1", "1.0.0.4:1"];
    let expected = [("1.0.0.1:1", 4), ("1.0.0.2:1", 4), ("1.0.0.3:1", 4)];
    check(&alike, waits, &expected);
}

#[test]
fn a_family_without_a_way_to_it_is_left_out() {
    let addresses = of(&[]);
    let found: [SocketAddr; 2] = ["1.0.0.1:1", "[a::1]:1"].map(|address| address.parse().unwrap());
    addresses.known.store(Arc::new(Known::of(found.to_vec(), |_| false)));
    let expected = [("1.0.0.1:1".to_owned(), 4)];
    assert_eq!(tries(&addresses, &ErrorType::ConnectTimedout), expected);
}

#[test]
fn what_fails_by_this_machine_is_tried_again_over_the_other_family_alone() {
    let addresses = of(&["[a::1]:1", "[a::2]:1", "1.0.0.1:1"]);
    let mut tried = Tried::default();
    for has_other in [true, false] {
        addresses.pick(&mut tried).unwrap();
        tried.failed(&Error::explain(ErrorType::InternalError, "a test"));
        assert_eq!(addresses.has_other_family(&tried), has_other);
    }
    assert!(addresses.has_another(&tried));
}

#[test]
fn the_family_that_worked_is_tried_first_until_the_other_works_again() {
    let addresses = of(&["[a::1]:1", "1.0.0.1:1"]);
    turns(&addresses);
    assert_eq!(first(&addresses), "1.0.0.1:1");
    // Another call that had begun with the first family before.
    let mut tried = Tried::default();
    tried.choose(Family::Ipv6);
    tried.failed(&Error::explain(ErrorType::ConnectTimedout, "a test"));
    assert_eq!(addresses.pick(&mut tried).unwrap().address.to_string(), "1.0.0.1:1");
    // The same family, at another address.
    let found: [SocketAddr; 2] = ["[a::1]:1", "1.0.0.2:1"].map(|address| address.parse().unwrap());
    addresses
        .known
        .rcu(|known| Known::of(found.to_vec(), |_| true).after(known));
    assert_eq!(first(&addresses), "1.0.0.2:1");

    let now = crate::clock::monotonic();
    let later = |minutes: u64| now.checked_add(Duration::from_secs(minutes * 60)).unwrap();
    addresses.look_again(later(9), |address| panic!("{address} is looked at too soon"));
    addresses.look_again(later(11), |_| false);
    assert_eq!(first(&addresses), "1.0.0.2:1");
    addresses.look_again(later(20), |address| panic!("{address} is looked at too soon"));
    addresses.look_again(later(22), |address| address.is_ipv6());
    assert_eq!(first(&addresses), "[a::1]:1");
    addresses.look_again(later(90), |address| panic!("{address} is not passed over"));
}

#[test]
fn the_family_that_was_turned_to_is_left_when_it_fails() {
    let addresses = of(&["[a::1]:1", "1.0.0.1:1"]);
    turns(&addresses);
    turns(&addresses);
    assert_eq!(first(&addresses), "[a::1]:1");
}
