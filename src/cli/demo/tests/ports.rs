//! Its ports.

use std::net::TcpListener;

use super::*;

#[test]
fn its_ports_are_nobody_elses_until_it_listens() {
    let (addresses, _sockets) = addresses(Some("127.0.0.1:0".parse().unwrap())).unwrap();
    for address in addresses {
        // As the kernel chooses a port for a connection, or for who asks for any.
        let other = tokio::net::TcpSocket::new_v4().unwrap();
        assert_eq!(other.bind(address).unwrap_err().kind(), ErrorKind::AddrInUse);
        // As the gateway listens.
        crate::server::socket::listen(&bind(address).unwrap()).unwrap();
        TcpListener::bind(address).unwrap();
    }
}

#[test]
fn the_public_address_may_have_the_port_that_is_usual_for_another() {
    for port in [ADMIN_PORT, OPERATOR_PORT] {
        let wanted = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        // Where somebody listens there, nothing can be tried.
        if bind(wanted).is_err() {
            continue;
        }
        let (found, _sockets) = addresses(Some(wanted)).unwrap();
        let [listen, admin, operator] = found.map(|address| address.port());
        assert!(listen == port && admin != listen && operator != listen, "{found:?}");
    }
}

/// They need other ones only where those are taken.
#[test]
fn a_usual_port_at_another_address_takes_it_from_nobody() {
    for port in [ADMIN_PORT, OPERATOR_PORT] {
        let wanted = SocketAddr::from(([127, 0, 0, 2], port));
        let usual = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if bind(wanted).is_err() || bind(usual).is_err() {
            continue;
        }
        let (found, _sockets) = addresses(Some(wanted)).unwrap();
        assert!(found[1..].contains(&usual), "{found:?}");
    }
}
