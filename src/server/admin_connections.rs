//! The connections of the admin listener: at most so many, and for a new one the one that has been quiet for longest makes room. So
//! nobody who holds connections open keeps a probe from its answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::task::AbortHandle;

use crate::clock::monotonic;

/// Those that are open.
#[derive(Debug, Default)]
pub(super) struct Connections(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    next: u64,
    all: Vec<Connection>,
}

#[derive(Debug)]
struct Connection {
    number: u64,
    /// When it was taken in, or answered last.
    active: Instant,
    /// None until its task runs.
    task: Option<AbortHandle>,
}

/// One of them, which is forgotten when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    connections: Arc<Connections>,
    number: u64,
}

impl Connections {
    /// Takes one in. When there are [`OPEN_MAX`], the one that has been quiet for longest ends where it stands.
    pub(super) fn enter(self: &Arc<Connections>) -> Place {
        let mut open = self.lock();
        if open.all.len() >= OPEN_MAX
            && let Some(quiet) = (0..open.all.len()).min_by_key(|at| open.all.get(*at).map(|one| one.active))
        {
            let quiet = open.all.swap_remove(quiet);
            if let Some(task) = quiet.task {
                task.abort();
            }
        }
        let number = open.next;
        open.next = number.wrapping_add(1);
        open.all.push(Connection {
            number,
            active: monotonic(),
            task: None,
        });
        Place {
            connections: Arc::clone(self),
            number,
        }
    }

    /// This task serves the connection of that number.
    pub(super) fn runs(&self, number: u64, task: AbortHandle) {
        let mut open = self.lock();
        match open.all.iter_mut().find(|one| one.number == number) {
            Some(one) => one.task = Some(task),
            // It had to make room before its task was known.
            None => task.abort(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// It has answered.
    pub(super) fn answered(&self) {
        let mut open = self.connections.lock();
        if let Some(one) = open.all.iter_mut().find(|one| one.number == self.number) {
            one.active = monotonic();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.lock().all.retain(|one| one.number != self.number);
    }
}

/// Most connections of the admin listener at once.
pub(super) const OPEN_MAX: usize = 64;
