//! How the bench's own processes wait for work: asleep, or polling without a pause. A sender pays for waking a sleeper,
//! dearly on a virtual machine; a peer across a network costs it nothing.

use std::io;

use tokio::runtime::{Builder, Runtime};

/// How a thread waits for its sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    Asleep,
    Polling,
}

impl Waiting {
    /// A runtime for the calling thread that waits so, once [`Waiting::begin`] has been called in it.
    pub(crate) fn runtime(self) -> io::Result<Runtime> {
        let mut builder = Builder::new_current_thread();
        if self == Self::Polling {
            // Sockets are looked at after every turn of the task that never rests.
            builder.event_interval(1);
        }
        builder.enable_all().build()
    }

    /// Keeps the runtime awake, if that is asked for, until it is dropped.
    pub(crate) fn begin(self) {
        if self == Self::Polling {
            tokio::spawn(async {
                loop {
                    // The upstream and the load may share a core.
                    std::thread::yield_now();
                    tokio::task::yield_now().await;
                }
            });
        }
    }
}
