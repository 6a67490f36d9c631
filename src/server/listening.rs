//! Where a process listens, as the system knows it: whether an address that is taken is that of the gateway which runs, or another's.

use std::collections::HashSet;
use std::net::SocketAddr;

use procfs::net::{TcpState, tcp, tcp6};
use procfs::process::{FDTarget, Process};
use procfs::{ProcError, ProcResult};

/// The addresses at which a process listens that has at least one.
///
/// # Errors
/// When that cannot be seen from here: it is another user's, in a namespace or network of its own, or about to end.
pub(super) fn addresses_of(process: u32) -> ProcResult<Vec<SocketAddr>> {
    let number = i32::try_from(process).map_err(|error| ProcError::Other(error.to_string()))?;
    let mut sockets = HashSet::new();
    for open in Process::new(number)?.fd()? {
        if let FDTarget::Socket(socket) = open?.target {
            sockets.insert(socket);
        }
    }
    let over_ipv6 = tcp6().unwrap_or_default(); // A machine may have none.
    let entries = tcp()?.into_iter().chain(over_ipv6);
    let own = entries.filter(|entry| entry.state == TcpState::Listen && sockets.contains(&entry.inode));
    let own: Vec<SocketAddr> = own.map(|entry| entry.local_address).collect();
    // Files that may be listed but not read are left out without an error, and sockets of another network are not among these.
    match own.is_empty() {
        true => Err(ProcError::PermissionDenied(None)),
        false => Ok(own),
    }
}

/// Whether they are one address; the system does not tell the scope of one of a link.
pub(super) fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    (one.ip(), one.port()) == (other.ip(), other.port())
}

/// Whether who listens at one of them keeps others from the other.
pub(crate) fn is_in_the_way(one: SocketAddr, other: SocketAddr) -> bool {
    let is_any = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && (is_any || one.ip().to_canonical() == other.ip().to_canonical())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn where_this_process_listens_is_known() {
        let last = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut listeners = Vec::new();
        for address in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0"] {
            match TcpListener::bind(address) {
                Ok(listener) => listeners.push(listener),
                // A machine without IPv6.
                Err(_) => assert!(address.starts_with('['), "{address}"),
            }
        }
        let known = addresses_of(std::process::id()).unwrap();
        for listener in listeners {
            let address = listener.local_addr().unwrap();
            assert!(known.contains(&address), "{address}: {known:?}");
            drop(listener);
            assert!(
                !addresses_of(std::process::id()).unwrap().contains(&address),
                "{address}"
            );
        }
        drop(last);
    }

    /// It was taken for one that listens nowhere, and its own port for another's.
    #[test]
    fn a_process_whose_sockets_cannot_be_seen_is_not_known() {
        // It reads until its input ends, and listens nowhere.
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let known = addresses_of(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(known.is_err(), "{known:?}");
    }

    #[test]
    fn an_address_of_a_link_is_the_same_without_its_scope() {
        let (scoped, seen) = ("[fe80::1%2]:80", "[fe80::1]:80");
        assert!(is_same(scoped.parse().unwrap(), seen.parse().unwrap()));
        assert!(!is_same("[fe80::2]:80".parse().unwrap(), seen.parse().unwrap()));
    }

    #[test]
    fn any_address_is_in_the_way_of_each_with_its_port() {
        for (one, other, is) in [
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "127.0.0.1:81", false),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("0.0.0.0:80", "127.0.0.2:80", true),
            ("[::1]:80", "[::]:80", true),
            ("127.0.0.1:80", "[::]:80", true),
            ("127.0.0.1:80", "[::ffff:127.0.0.1]:80", true),
        ] {
            assert_eq!(
                is_in_the_way(one.parse().unwrap(), other.parse().unwrap()),
                is,
                "{one} {other}"
            );
        }
    }
}
