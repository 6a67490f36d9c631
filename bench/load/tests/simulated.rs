//! A simulated provider within the test, servers that answer whatever they are told to, and what puts load on them.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use crate::{
    client::Shot,
    drive::{Arrivals, Plan},
    fleet::{Path, Refused, Subject},
    process, upstream,
    waiting::Waiting,
};

/// Where the simulated upstream listens. It serves until the tests end.
pub(super) fn provider() -> SocketAddr {
    let address = process::free_address();
    thread::spawn(move || upstream::serve(address, 1, Waiting::Asleep).unwrap());
    for _ in 0..1000 {
        if TcpStream::connect(address).is_ok() {
            return address;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("the simulated upstream does not listen on {address}");
}

/// Where something listens that answers each request with these bytes, after a while.
pub(super) fn answering(answer: Vec<u8>, after: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, answer) = (stream.unwrap(), answer.clone());
            // A request of these tests is short and comes in one piece.
            let mut request = [0; 8192];
            thread::spawn(move || {
                while stream.read(&mut request).is_ok_and(|length| length > 0) {
                    thread::sleep(after);
                    if stream.write_all(&answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// A subject with so many callers, which passes on what it gets, and knows keys that are refused.
pub(super) fn subject(address: SocketAddr, callers: usize) -> Subject {
    let refused = ["garbage", "revoked", "broke", "limited"].map(|name| Refused {
        name,
        key: format!("key-{name}"),
    });
    Subject {
        name: "direct".to_owned(),
        address,
        path: Path {
            host: address.to_string(),
            base: "/api/v1".to_owned(),
        },
        callers: (0..callers).map(|number| format!("key-{number}")).collect(),
        accounts: Vec::new(),
        refused: refused.into(),
        models: vec!["one/chat".to_owned(), "other/chat".to_owned()],
        embedding_models: vec!["one/embedding".to_owned()],
        is_simulated: true,
        pids: Vec::new(),
        store_pids: Vec::new(),
        memory_at_start_kib: None,
        operator: None,
        audit: None,
        restart: None,
        processes: Vec::new(),
    }
}

/// A closed loop over a few connections, until so many requests have been answered, or for ten seconds.
pub(super) fn plan(address: SocketAddr, shots: Vec<Shot>, requests: u64) -> Plan {
    Plan {
        address,
        shots,
        arrivals: Arrivals::Closed,
        connections: 4,
        workers: 1,
        waiting: Waiting::Asleep,
        spread: Duration::ZERO,
        warm_up: Duration::ZERO,
        length: Duration::from_secs(10),
        requests_max: Some(requests),
    }
}
