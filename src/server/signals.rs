//! What a running process does on a signal, and how it stops so that nothing is lost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use pingora::server::{ShutdownSignal, ShutdownSignalWatch};
use tokio::sync::Notify;

use super::handover::{FIRST_PROCESS, Listening, is_first_process};
use super::systemd::Systemd;
use super::upgrade::Successor;
use crate::failpoints;
use crate::gateway::Tollgate;
use crate::gateway::shutdown::Lifecycle;

/// SIGTERM, SIGINT and SIGQUIT stop, SIGUSR2 starts a new process, which takes over by [`super::handover`], SIGHUP re-reads the files.
pub(super) struct Signals {
    /// Told once the handlers of all signals are in place.
    pub(super) heeded: Arc<Notify>,
    pub(super) stop: Mutex<Option<Stop>>,
    pub(super) reload_requested: Arc<AtomicBool>,
    pub(super) successor: Option<Successor>,
    pub(super) supervisor: Systemd,
    pub(super) listening: Listening,
    pub(super) succeeded: Arc<Notify>,
    /// Told once no connection of a client is accepted any more.
    pub(super) accept_ended: Arc<Notify>,
}

impl Signals {
    fn start_successor(&self) {
        match &self.successor {
            Some(_) if is_first_process() => {
                log::error!("SIGUSR2: no other process can take over from this one: {FIRST_PROCESS}")
            }
            Some(successor) => successor.start(),
            None => log::warn!("SIGUSR2: only `tollgate serve` can start another process in its place"),
        }
    }
}

#[async_trait]
impl ShutdownSignalWatch for Signals {
    async fn recv(&self) -> ShutdownSignal {
        use tokio::signal::unix::{SignalKind, signal};
        let open = |kind: SignalKind| signal(kind).inspect_err(|error| log::error!("cannot wait for signals: {error}"));
        failpoints::stall("signals");
        let opened = (
            open(SignalKind::terminate()),
            open(SignalKind::quit()),
            open(SignalKind::interrupt()),
            open(SignalKind::hangup()),
            open(SignalKind::user_defined2()),
        );
        self.heeded.notify_one();
        let (Ok(mut term), Ok(mut quit), Ok(mut int), Ok(mut hup), Ok(mut usr2)) = opened else {
            return std::future::pending().await;
        };
        let keeps_for = loop {
            tokio::select! {
                _ = term.recv() => break Duration::ZERO,
                _ = int.recv() => break Duration::ZERO,
                _ = quit.recv() => break Duration::ZERO,
                () = self.succeeded.notified() => break KEPT_CONNECTIONS,
                _ = hup.recv() => self.reload_requested.store(true, Ordering::Relaxed),
                _ = usr2.recv() => self.start_successor(),
            }
        };
        let stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(stop) = stop
            && stop.tollgate.lifecycle().begin_stop()
        {
            let life = Arc::clone(stop.tollgate.lifecycle());
            if keeps_for.is_zero() {
                self.supervisor.stopping();
                if let Some(successor) = &self.successor {
                    successor.end();
                }
                // `/readyz` says 503 from now on; whoever balances load gets the time to read it.
                tokio::time::sleep(stop.unready).await;
            } else {
                hand_over(&life, &self.listening, &self.accept_ended).await;
            }
            log::info!("stopping: waiting up to {:?} for running requests", stop.drain);
            if let Err(error) = std::thread::Builder::new()
                .name("stop".to_owned())
                .spawn(move || stop.run(keeps_for))
            {
                log::error!("cannot start the thread that stops: {error}");
            }
            // Clients that are about to send on a connection that they keep get their answer, and are told to come anew.
            tokio::time::sleep(keeps_for).await;
            life.accept_none();
        }
        self.listening.close();
        ShutdownSignal::GracefulTerminate
    }
}

/// Leaves what this process listens on to the one that takes over. What waits in clients' listening socket, which that process has too, is for
/// that one: its calls have the ledger there. The other listeners follow once no connection of a client comes to this process any more, so
/// that nobody who finds the new process at one of them is still served here.
async fn hand_over(life: &Lifecycle, listening: &Listening, accept_ended: &Notify) {
    life.accept_none();
    listening.close();
    if tokio::time::timeout(ACCEPTS_MAX, accept_ended.notified())
        .await
        .is_err()
    {
        log::warn!("connections may come to this process for longer than {ACCEPTS_MAX:?}");
    }
    life.hand_over();
}

/// What a stop does beside Pingora, which would sleep its whole grace period even with nothing to wait for.
pub(super) struct Stop {
    pub(super) tollgate: Tollgate,
    pub(super) drain: Duration,
    pub(super) unready: Duration,
}

impl Stop {
    /// Waits for running requests, cuts those that outlive the limit, and ends the process once nothing is left to bill. When
    /// something is, it returns, and Pingora's own shutdown drops what is left.
    fn run(self, keeps_for: Duration) {
        // A connection that was accepted a moment ago has a request that is not counted yet.
        std::thread::sleep(keeps_for.saturating_add(ACCEPTED_MAX));
        let lifecycle = self.tollgate.lifecycle();
        if !lifecycle.wait_idle(self.drain) {
            log::warn!("cutting the requests that outlived {:?}", self.drain);
            lifecycle.cut_now();
            if !lifecycle.wait_idle(CUT_MAX) {
                return;
            }
        }
        // Who has asked is answered: that an act comes too late.
        lifecycle.end_operators(ANSWERED_MAX);
        failpoints::stall("close");
        self.tollgate.close();
        log::info!("stopped");
        #[expect(clippy::disallowed_methods, reason = "everything is closed and written")]
        std::process::exit(0);
    }
}

/// How long connections without a request are kept once a successor accepts the new ones, at least: a client that has one for its next
/// request, or has connected a moment ago, is answered on it.
const KEPT_CONNECTIONS: Duration = Duration::from_secs(5);
/// How long the accept loop, which hears on another thread that it is to end, may take for that. The other listeners are served here meanwhile.
const ACCEPTS_MAX: Duration = Duration::from_millis(500);
/// How long an accepted connection may take until its request counts.
const ACCEPTED_MAX: Duration = Duration::from_millis(100);
/// How long operators' requests may take to be answered when this process ends.
const ANSWERED_MAX: Duration = Duration::from_millis(200);
/// How long requests that were cut may take to say so to their clients.
pub(super) const CUT_MAX: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::os::fd::OwnedFd;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    /// Whoever finds the new process at one of the other listeners is sure to find it for clients as well.
    #[tokio::test]
    async fn the_other_listeners_are_left_once_no_connection_of_a_client_is_accepted() {
        let (life, accept_ended) = (Lifecycle::new(), Notify::new());
        let folder = tempfile::tempdir().unwrap();
        let socket = OwnedFd::from(std::fs::File::open(folder.path()).unwrap());
        let listening = Listening::new("127.0.0.1:1".parse().unwrap(), socket);
        let is_left = || (*life.accepts_none().borrow(), *life.handed_over().borrow());
        let mut leaves = pin!(hand_over(&life, &listening, &accept_ended));
        let waits = poll_fn(|context| Poll::Ready(leaves.as_mut().poll(context).is_pending())).await;
        assert!(waits);
        assert_eq!(is_left(), (true, false));
        accept_ended.notify_one();
        leaves.await;
        assert_eq!(is_left(), (true, true));
    }
}
