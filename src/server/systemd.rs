//! What systemd hears of the gateway, through the socket that `$NOTIFY_SOCKET` names: that it serves, that it stops, and which process is
//! the main one. Without that variable nobody hears anything.
//!
//! A unit believes its main process alone (`NotifyAccess=main`). So in an upgrade the old process names the new one before it hands
//! anything over, and what it says afterwards, while its streams finish, is not taken for the service's own end.

use std::net::{SocketAddr, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use super::socket::reachable;
use crate::clock::monotonic;

/// Who started this process and wants to hear of it, if anybody.
#[derive(Clone, Debug, Default)]
pub(crate) struct Systemd(Option<Arc<NotifySocket>>);

/// A socket of our own, and the one that `$NOTIFY_SOCKET` names.
#[derive(Debug)]
struct NotifySocket {
    socket: UnixDatagram,
    to: UnixAddr,
}

impl Systemd {
    /// The one that `$NOTIFY_SOCKET` names.
    pub(crate) fn of(environment: &dyn Fn(&str) -> Option<String>) -> Systemd {
        let Some(name) = environment("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Systemd::default();
        };
        match NotifySocket::to(&name) {
            Ok(socket) => Systemd(Some(Arc::new(socket))),
            Err(error) => {
                log::warn!("NOTIFY_SOCKET {name}: nobody can be told that this process serves: {error}");
                Systemd::default()
            }
        }
    }

    /// The gateway serves as soon as `listen` takes connections, which a thread finds out.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn ready_at(&self, listen: SocketAddr) -> std::io::Result<()> {
        if self.0.is_none() {
            return Ok(());
        }
        let (this, address) = (self.clone(), reachable(listen));
        let look = move || {
            let started = monotonic();
            while TcpStream::connect_timeout(&address, LOOK_MAX).is_err() {
                if started.elapsed() > LISTENS_WITHIN {
                    return log::error!("{address} takes no connections");
                }
                std::thread::sleep(LOOK_PAUSE);
            }
            this.tell("READY=1");
        };
        std::thread::Builder::new().name("ready".to_owned()).spawn(look)?;
        Ok(())
    }

    /// A stop has begun.
    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// This process goes on in another one.
    pub(crate) fn succeeded_by(&self, process: u32) {
        self.tell(&format!("MAINPID={process}"));
    }

    fn tell(&self, what: &str) {
        let Some(notify) = &self.0 else { return };
        if let Err(error) = notify.socket.send_to_addr(what.as_bytes(), &notify.to) {
            log::warn!("{what} cannot be told: {error}");
        }
    }
}

impl NotifySocket {
    /// A path, or after an `@` a name without a file.
    fn to(name: &str) -> std::io::Result<NotifySocket> {
        let to = match name.strip_prefix('@') {
            Some(name) => UnixAddr::from_abstract_name(name)?,
            None => UnixAddr::from_pathname(name)?,
        };
        let socket = UnixDatagram::unbound()?;
        // Whoever does not read what it asked for holds nothing up.
        socket.set_write_timeout(Some(TELL_MAX))?;
        Ok(NotifySocket { socket, to })
    }
}

const TELL_MAX: Duration = Duration::from_secs(1);
const LISTENS_WITHIN: Duration = Duration::from_secs(60);
const LOOK_MAX: Duration = Duration::from_secs(1);
const LOOK_PAUSE: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;

    fn supervisor(name: &str) -> Systemd {
        let name = name.to_owned();
        Systemd::of(&move |asked| (asked == "NOTIFY_SOCKET").then(|| name.clone()))
    }

    fn heard(socket: &UnixDatagram) -> String {
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut buffer = [0; 64];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[test]
    fn a_socket_with_a_path_and_one_without_hear_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        supervisor(path.to_str().unwrap()).stopping();
        assert_eq!(heard(&socket), "STOPPING=1");
        let name = format!("tollgate-test-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&UnixAddr::from_abstract_name(&name).unwrap()).unwrap();
        supervisor(&format!("@{name}")).succeeded_by(7);
        assert_eq!(heard(&socket), "MAINPID=7");
    }

    #[test]
    fn it_is_ready_once_it_listens_and_nobody_has_to_hear_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let listener = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let told = supervisor(path.to_str().unwrap());
        told.ready_at(listener.local_addr().unwrap()).unwrap();
        assert_eq!(heard(&socket), "READY=1");
        drop(socket);
        told.stopping();
        supervisor("/nowhere/notify").stopping();
        supervisor("").ready_at(listener.local_addr().unwrap()).unwrap();
    }
}
