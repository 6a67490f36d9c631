//! Where a listener beside the public one listens, and the thread that it has to itself: the calls' threads know nothing of it.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::clock::monotonic;

/// Where such a listener listens, or will. An address that is in use is tried until it is free: in an upgrade the process before has it for
/// a while.
#[derive(Debug)]
pub(crate) struct PendingListener {
    /// Its key in the configuration.
    key: &'static str,
    address: SocketAddr,
    listener: Option<TcpListener>,
}

impl PendingListener {
    /// # Errors
    /// When the address cannot be had for another reason than that it is in use.
    pub(crate) fn bind(key: &'static str, address: SocketAddr) -> std::io::Result<PendingListener> {
        let listener = match bind(address) {
            Ok(listener) => Some(listener),
            Err(error) if error.kind() == ErrorKind::AddrInUse => None,
            Err(error) => {
                return Err(std::io::Error::new(error.kind(), format!("{key}: {address}: {error}")));
            }
        };
        Ok(PendingListener { key, address, listener })
    }

    /// The key and the address, where another process has that, and this one waits for it.
    pub(crate) fn taken(&self) -> Option<(&'static str, SocketAddr)> {
        self.listener.is_none().then_some((self.key, self.address))
    }

    /// Serves on a thread and a runtime of its own, once the address can be had.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn serve(
        self,
        thread: &str,
        serve: impl AsyncFnOnce(tokio::net::TcpListener) + Send + 'static,
    ) -> std::io::Result<()> {
        let PendingListener { key, address, listener } = self;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let work = move || {
            let listener = listener.unwrap_or_else(|| bind_at_last(key, address));
            runtime.block_on(async move {
                match tokio::net::TcpListener::from_std(listener) {
                    Ok(listener) => serve(listener).await,
                    Err(error) => log::error!("{key}: {address}: {error}"),
                }
            });
        };
        let thread = std::thread::Builder::new().name(thread.to_owned());
        thread.spawn(work).map(|_| ())
    }
}

/// A listener whose connections are taken until it is handed over to another process.
pub(super) struct Accepting {
    /// Its key in the configuration.
    key: &'static str,
    listener: tokio::net::TcpListener,
    handed_over: watch::Receiver<bool>,
    /// Connections that may still be taken once it is handed over: those that had come by then.
    late: usize,
}

impl Accepting {
    pub(super) fn new(
        key: &'static str,
        listener: tokio::net::TcpListener,
        handed_over: watch::Receiver<bool>,
    ) -> Accepting {
        Accepting {
            key,
            listener,
            handed_over,
            late: LATE_MAX,
        }
    }

    /// The next connection; none once the listener is handed over and nobody waits at it: to close it resets who does. A connection that cannot be
    /// taken is logged, and the next one is waited for after a pause.
    pub(super) async fn next(&mut self) -> Option<(TcpStream, SocketAddr)> {
        loop {
            let accepted = tokio::select! {
                biased;
                accepted = self.listener.accept() => Some(accepted),
                _ = self.handed_over.wait_for(|handed| *handed) => None,
            };
            let accepted = match accepted {
                Some(accepted) => accepted,
                // What has come may not be known before tokio looks at its sockets.
                None => tokio::time::timeout(LATE_WITHIN, self.listener.accept()).await.ok()?,
            };
            if *self.handed_over.borrow() {
                self.late = self.late.checked_sub(1)?;
            }
            match accepted {
                Ok((socket, peer)) => {
                    send_at_once(&socket);
                    return Some((socket, peer));
                }
                Err(error) => {
                    log::warn!("{}: a connection cannot be accepted: {error}", self.key);
                    if *self.handed_over.borrow() {
                        return None;
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// Has an answer's last bytes leave at once: they would wait up to 40 ms until the client acknowledges those before.
fn send_at_once(socket: &TcpStream) {
    if let Err(error) = socket.set_nodelay(true) {
        log::debug!("a connection sends with delays: {error}");
    }
}

fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn bind_at_last(key: &str, address: SocketAddr) -> TcpListener {
    let (began, mut told_at) = (monotonic(), None);
    loop {
        std::thread::sleep(BIND_EVERY);
        match bind(address) {
            Ok(listener) => {
                log::info!("{key}: {address} is free now");
                return listener;
            }
            Err(error) => {
                let waited = monotonic().saturating_duration_since(began);
                if is_told(waited, told_at) {
                    told_at = Some(waited);
                    let secs = waited.as_secs();
                    log::error!("{key}: {address} cannot be had for {secs} s, and nobody is served there: {error}");
                }
            }
        }
    }
}

/// Whether it is told that an address is waited for, where that was told last after so long.
fn is_told(waited: Duration, told_at: Option<Duration>) -> bool {
    match told_at {
        None => waited >= TOLD_AFTER,
        Some(before) => waited.saturating_sub(before) >= TOLD_EVERY,
    }
}

/// How long a connection may take to be seen once the listener is handed over, and how many are taken then, so that it ends whoever comes.
const LATE_WITHIN: Duration = Duration::from_millis(1);
const LATE_MAX: usize = 1_024;
/// A pause after a connection that could not be accepted: there may be no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long nobody may be at the address in an upgrade.
const BIND_EVERY: Duration = Duration::from_millis(10);
/// For how long an address is waited for before that is an error, and how often it is told then.
const TOLD_AFTER: Duration = Duration::from_secs(30);
const TOLD_EVERY: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    /// Who had connected was reset when the listener was closed.
    #[tokio::test]
    async fn who_waits_at_a_listener_that_is_handed_over_is_taken() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let waiting = [(); 3].map(|()| std::net::TcpStream::connect(address).unwrap());
        let (hand_over, handed_over) = watch::channel(false);
        let mut accepting = Accepting::new("operator_listen", listener, handed_over);
        hand_over.send_replace(true);
        for _ in &waiting {
            assert!(accepting.next().await.is_some());
        }
        assert!(accepting.next().await.is_none());
        accepting.late = 0;
        drop(std::net::TcpStream::connect(address).unwrap());
        assert!(accepting.next().await.is_none(), "it ends whoever comes");
    }

    /// Another program may have the address for ever: that is told again and again, and not with each try.
    #[test]
    fn an_address_that_is_not_free_is_told_after_half_a_minute_and_then_each_minute() {
        let mut told = Vec::new();
        for tenths in 0..2_000 {
            let waited = Duration::from_millis(tenths * 100);
            if is_told(waited, told.last().copied()) {
                told.push(waited);
            }
        }
        assert_eq!(told, [30, 90, 150].map(Duration::from_secs));
    }
}
