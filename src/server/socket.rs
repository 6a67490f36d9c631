//! The listening socket in two steps: bound, which shows whether the address can be had, and listening, from when on clients are answered.
//! And where such a socket is reached.

use std::io::{Error, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use tokio::net::TcpSocket;

/// Binds without listening: who comes before [`listen`] is refused, as if there were nobody yet.
///
/// # Errors
/// When the address is in use, not of this machine, or not allowed.
pub(crate) fn bind(address: SocketAddr) -> Result<OwnedFd> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    // SAFETY: the socket gives its descriptor away.
    Ok(unsafe { OwnedFd::from_raw_fd(socket.into_raw_fd()) })
}

/// Listens on a socket that is bound; on one that listens already this changes nothing.
///
/// # Errors
/// When another socket, bound in the same moment, listens at its address.
pub(crate) fn listen(socket: &OwnedFd) -> Result<()> {
    // SAFETY: the descriptor is open, and the call takes two numbers.
    match unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

/// Where a socket is bound.
///
/// # Errors
/// When that cannot be read.
pub(crate) fn address_of(socket: &OwnedFd) -> Result<SocketAddr> {
    TcpListener::from(socket.try_clone()?).local_addr()
}

/// Where a listener can be reached from this machine.
pub(crate) fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// What Pingora asks for, when it listens on the same socket; the kernel takes less where `net.core.somaxconn` is less.
const BACKLOG: libc::c_int = 65_535;

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn of_two_that_are_bound_to_one_address_one_listens() {
        // The kernel's choice of a port for one socket is nobody else's while that is open.
        let first = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = address_of(&first).unwrap();
        let second = bind(address).unwrap();
        assert!(TcpStream::connect(address).is_err());
        listen(&first).unwrap();
        listen(&first).unwrap();
        TcpStream::connect(address).unwrap();
        assert_eq!(listen(&second).unwrap_err().kind(), ErrorKind::AddrInUse);
        assert_eq!(bind(address).unwrap_err().kind(), ErrorKind::AddrInUse);
    }

    #[test]
    fn any_address_is_reached_over_loopback() {
        assert_eq!(reachable("0.0.0.0:5".parse().unwrap()).to_string(), "127.0.0.1:5");
        assert_eq!(reachable("[::]:5".parse().unwrap()).to_string(), "[::1]:5");
        assert_eq!(reachable("10.0.0.1:5".parse().unwrap()).to_string(), "10.0.0.1:5");
    }
}
