//! Ports for programs that cannot be given port 0.
//!
//! It uses nothing of the crate: unit tests, the integration binary and the benches have it.

use std::collections::{BTreeSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Mutex, PoisonError};

/// The ports that this process has drawn, and what stands for the last of them.
struct Drawn {
    ports: BTreeSet<u16>,
    claims: VecDeque<UnixListener>,
}

static DRAWN: Mutex<Drawn> = Mutex::new(Drawn {
    ports: BTreeSet::new(),
    claims: VecDeque::new(),
});

/// A port that nobody has now, for a program that cannot be given port 0. It is below those that the kernel gives to connections, of which
/// the tests make thousands. This process draws it once, and no other test gets it meanwhile, though nothing may listen on it for a while:
/// a name in the abstract namespace, which goes with its process, stands for it.
pub(crate) fn free_port() -> u16 {
    let drawn = || RandomState::new().hash_one(0) % 20_000 + 12_000;
    let ports = std::iter::repeat_with(drawn).map(|port| u16::try_from(port).expect("a port"));
    let mut ports = ports.take(10_000);
    ports.find(|&port| is_taken_here(port)).expect("a free port")
}

/// Whether the port is free, and was drawn by nobody else: then it is this process's.
fn is_taken_here(port: u16) -> bool {
    let mut drawn = DRAWN.lock().unwrap_or_else(PoisonError::into_inner);
    if drawn.ports.contains(&port) {
        return false;
    }
    let name = SocketAddr::from_abstract_name(format!("tollgate-tests-port-{port}")).expect("an abstract name");
    let Some(claim) = unless_in_use(UnixListener::bind_addr(&name)) else {
        return false;
    };
    if unless_in_use(TcpListener::bind(("127.0.0.1", port))).is_none() {
        return false;
    }
    drawn.ports.insert(port);
    drawn.claims.push_back(claim);
    // All tests in one process draw hundreds, of which none is drawn twice: its open files are not for those of long ago.
    if drawn.claims.len() > CLAIMS_MAX {
        drawn.claims.pop_front();
    }
    true
}

fn unless_in_use<T>(bound: std::io::Result<T>) -> Option<T> {
    match bound {
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => None,
        bound => Some(bound.expect("a port is looked at")),
    }
}

const CLAIMS_MAX: usize = 64;
