//! The memory of bodies: what a key, an address and all together may hold.

use super::*;

const KIB: u64 = 1 << 10;
const LIMITS: BodyMemoryLimits = BodyMemoryLimits {
    total: 1_024 * KIB,
    per_key: 300 * KIB,
    per_address: 512 * KIB,
};

fn key(n: u32) -> KeyId {
    format!("key_{n:016x}").into()
}

fn address(text: &str) -> Option<IpAddr> {
    text.parse().ok()
}

fn room(memory: &Arc<BodyMemory>, n: u32, from: &str) -> BodyPermit {
    memory.owner(&key(n), address(from)).room()
}

fn entries(memory: &BodyMemory) -> usize {
    let of = |shares: &Shares| shares.0.iter().map(|shard| shard.lock().unwrap().len()).sum::<usize>();
    of(&memory.keys) + of(&memory.addresses)
}

#[test]
fn a_key_holds_no_more_than_its_share_and_another_takes_its_own() {
    let memory = Arc::new(BodyMemory::default());
    let mut first = room(&memory, 1, "192.0.2.1");
    let mut second = room(&memory, 1, "192.0.2.2");
    first.grow(200 * KIB, &LIMITS).unwrap();
    assert_eq!(memory.bytes(), 256 * KIB, "in steps of 64 KiB");
    second.grow(40 * KIB, &LIMITS).unwrap();
    assert_eq!(second.grow(50 * KIB, &LIMITS), Err(Full::Key(300 * KIB)));
    assert_eq!(
        second.grow(44 * KIB, &LIMITS),
        Ok(()),
        "what is left is given to the byte"
    );
    assert_eq!(memory.bytes(), 300 * KIB);
    let mut other = room(&memory, 2, "192.0.2.1");
    other.grow(200 * KIB, &LIMITS).unwrap();
    drop(first);
    second.grow(300 * KIB, &LIMITS).unwrap();
    drop((second, other));
    assert_eq!((memory.bytes(), entries(&memory)), (0, 0));
}

#[test]
fn an_address_is_counted_over_its_keys_and_a_network_of_ipv6_is_one() {
    let memory = Arc::new(BodyMemory::default());
    let mut rooms = [room(&memory, 1, "2001:db8::1"), room(&memory, 2, "2001:db8::2")];
    for room in &mut rooms {
        room.grow(250 * KIB, &LIMITS).unwrap();
    }
    let mut third = room(&memory, 3, "2001:db8::3");
    assert_eq!(third.grow(1, &LIMITS), Err(Full::Address(512 * KIB)));
    assert_eq!(
        memory.keys.held(third.owner.key),
        0,
        "what was taken on the way is given back"
    );
    room(&memory, 3, "2001:db8:0:1::3").grow(100 * KIB, &LIMITS).unwrap();
    memory.owner(&key(3), None).room().grow(100 * KIB, &LIMITS).unwrap();
}

#[test]
fn all_bodies_together_have_a_limit() {
    let memory = Arc::new(BodyMemory::default());
    let mut rooms = Vec::new();
    for n in 0..4 {
        let mut one = room(&memory, n, &format!("192.0.2.{n}"));
        one.grow(250 * KIB, &LIMITS).unwrap();
        rooms.push(one);
    }
    assert_eq!(memory.bytes(), 1_024 * KIB);
    let mut last = room(&memory, 9, "192.0.2.9");
    assert_eq!(last.grow(1, &LIMITS), Err(Full::Process));
    assert_eq!(last.look(1, &LIMITS), Err(Full::Process));
    assert_eq!(memory.bytes(), 1_024 * KIB);
    drop(rooms);
    assert_eq!((memory.bytes(), entries(&memory)), (0, 0));
}

#[test]
fn an_announced_body_that_cannot_fit_takes_nothing() {
    let memory = Arc::new(BodyMemory::default());
    let one = room(&memory, 1, "192.0.2.1");
    assert_eq!(one.look(300 * KIB, &LIMITS), Ok(()));
    assert_eq!(one.look(300 * KIB + 1, &LIMITS), Err(Full::Key(300 * KIB)));
    assert_eq!((memory.bytes(), entries(&memory)), (0, 0));
}

#[test]
fn the_room_goes_with_the_last_reference_to_the_body() {
    let memory = Arc::new(BodyMemory::default());
    let mut one = room(&memory, 1, "192.0.2.1");
    one.grow(5, &LIMITS).unwrap();
    let body = one.keep(Bytes::from_static(b"hello"));
    let part = body.slice(1..3);
    drop(body);
    assert_eq!((&part[..], memory.bytes()), (&b"el"[..], 4 * KIB));
    drop(part);
    assert_eq!(memory.bytes(), 0);
}

#[test]
fn a_copy_of_an_admitted_body_is_counted_and_never_refused() {
    let memory = Arc::new(BodyMemory::default());
    let owner = memory.owner(&key(1), address("192.0.2.1"));
    let copies: Vec<Bytes> = (0..3).map(|_| owner.keep_copy(vec![0; 200 << 10].into())).collect();
    assert_eq!(memory.bytes(), 600 * KIB);
    assert_eq!(owner.room().grow(1, &LIMITS), Err(Full::Key(300 * KIB)));
    drop(copies);
    assert_eq!((memory.bytes(), entries(&memory)), (0, 0));
}
