//! The process that a gateway starts on SIGUSR2 to take its place: what has been heard of it, and its end when it hangs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::peer::Peer;
use crate::clock::monotonic;
use crate::failpoints;

/// How a gateway starts the process that takes its place. Clones are handles to the same.
#[derive(Clone, Debug)]
pub struct Successor {
    program: PathBuf,
    arguments: Vec<OsString>,
    running: Arc<Mutex<Option<Started>>>,
}

/// A process that was started to take over, until it has ended.
#[derive(Debug)]
struct Started {
    process: u32,
    /// To end it by; none where the kernel gives nothing.
    peer: Option<Arc<Peer>>,
    state: State,
}

/// What has been heard of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing since then.
    Silent(Instant),
    /// Somebody asks this process for what a successor needs. Before, nothing was heard since then.
    Talks(Instant),
    /// It has taken over.
    Serves,
}

impl Successor {
    /// One that is started as `program` with these arguments, which make it take over.
    pub fn new(program: PathBuf, arguments: Vec<OsString>) -> Successor {
        Successor {
            program,
            arguments,
            running: Arc::default(),
        }
    }

    /// Starts it, unless one is starting already. When it ends before it has taken over, this process goes on as before.
    pub(crate) fn start(&self) {
        let mut running = self.lock();
        if let Some(started) = &*running {
            return log::warn!("process {} is taking over already", started.process);
        }
        let program = self.program.display();
        #[expect(clippy::disallowed_methods, reason = "this is the one that takes over")]
        let started = Command::new(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .spawn();
        let child = match started {
            Ok(child) => child,
            Err(error) => return log::error!("{program} cannot be started, this process goes on: {error}"),
        };
        let process = child.id();
        log::info!("started {program} as process {process}, to take over");
        let peer = Peer::of_child(process)
            .inspect_err(|error| log::error!("process {process} cannot be ended, should it hang: {error}"));
        let peer = peer.ok().map(Arc::new);
        *running = Some(Started {
            process,
            peer: peer.clone(),
            state: State::Silent(monotonic()),
        });
        let this = self.clone();
        let wait = move || this.wait_for(child, peer.as_deref());
        if let Err(error) = std::thread::Builder::new().name("successor".to_owned()).spawn(wait) {
            log::error!("nobody waits for the process that takes over: {error}");
        }
    }

    /// Waits for the end of the process that was started, and ends it when it hangs before it has come to this one.
    fn wait_for(&self, mut child: Child, peer: Option<&Peer>) {
        let limit = failpoints::limit("connects", CONNECTS_WITHIN);
        if let Some(peer) = peer {
            while self.may_be_silent() && !peer.has_ended_within(LOOK_EVERY) {
                if self.is_silent_for(limit) {
                    log::error!(
                        "process {} was to take over and has not come for {limit:?}: it is killed",
                        child.id()
                    );
                    peer.kill();
                    break;
                }
            }
        }
        let ended = child.wait();
        *self.lock() = None;
        match ended {
            Ok(status) => log::error!("the process that was to take over has ended: {status}"),
            Err(error) => log::error!("the process that was to take over is lost: {error}"),
        }
    }

    /// The process that was started, while it runs.
    pub(crate) fn process(&self) -> Option<u32> {
        self.lock().as_ref().map(|started| started.process)
    }

    /// Somebody comes to this process, to take over or only to look.
    pub(crate) fn talks(&self) {
        self.change(|state| match state {
            State::Silent(since) => State::Talks(since),
            State::Talks(_) | State::Serves => state,
        });
    }

    /// Whoever came only looked: nothing has changed.
    pub(crate) fn was_another(&self) {
        self.change(|state| match state {
            State::Talks(since) => State::Silent(since),
            State::Silent(_) | State::Serves => state,
        });
    }

    /// Whoever came does not take over.
    pub(crate) fn has_failed(&self) {
        self.change(|_| State::Silent(monotonic()));
    }

    /// Whoever came takes over, unless this process stops: then false. Who stops says so before [`Successor::end`].
    pub(crate) fn serves_unless(&self, stops: impl FnOnce() -> bool) -> bool {
        let mut running = self.lock();
        let serves = !stops();
        if serves && let Some(started) = &mut *running {
            started.state = State::Serves;
        }
        serves
    }

    /// Ends the process that was started, unless it has taken over: this one stops.
    pub(crate) fn end(&self) {
        let running = self.lock();
        let Some(started) = running.as_ref().filter(|started| started.state != State::Serves) else {
            return;
        };
        log::warn!(
            "process {} was to take over from this one, which stops: it is killed",
            started.process
        );
        match &started.peer {
            Some(peer) => peer.kill(),
            None => log::error!("process {} cannot be killed", started.process),
        }
    }

    fn may_be_silent(&self) -> bool {
        self.lock()
            .as_ref()
            .is_some_and(|started| started.state != State::Serves)
    }

    fn is_silent_for(&self, limit: Duration) -> bool {
        let running = self.lock();
        let state = running.as_ref().map(|started| started.state);
        matches!(state, Some(State::Silent(since)) if since.elapsed() >= limit)
    }

    fn change(&self, next: impl FnOnce(State) -> State) {
        if let Some(started) = &mut *self.lock() {
            started.state = next(started.state);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Started>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a process that was started may take until it comes to this one: it has read its configuration by then, and opened nothing. The same
/// is its time to end once it has failed.
const CONNECTS_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(250);
