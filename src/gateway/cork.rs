//! Holds the head of a request back until its body follows, so that both leave in one segment.
//!
//! Pingora writes the two one after the other and flushes each: two system calls that send, two segments, and two times that the
//! provider wakes up. Linux' `TCP_CORK` (tcp(7)) holds a segment back that is not full, for 200 ms at most, so that nothing waits for
//! ever for an uncorking that never comes. Elsewhere nothing is held back.

use std::os::fd::RawFd;
use std::task::Context;

/// The cork of one attempt's connection.
#[derive(Debug, Default)]
pub(super) enum Cork {
    /// Nothing is held back.
    #[default]
    Out,
    /// The head is held back; the body is given out in this turn of the proxy loop.
    In(RawFd),
    /// The body was written when the loop turns next.
    Loose(RawFd),
}

impl Cork {
    /// Holds back what is written to the connection from now on; whether that was done. It is over HTTP/1, and stays open until the
    /// attempt ends.
    pub(super) fn put_in(connection: RawFd) -> bool {
        set(connection, true)
    }

    /// The proxy loop turns; it has given the body out already. Lets everything go in the turn after the one that writes it, and sees to
    /// it that there is one.
    pub(super) fn turn(&mut self, context: &Context<'_>) {
        *self = match *self {
            Cork::Out => return,
            Cork::In(connection) => {
                context.waker().wake_by_ref();
                Cork::Loose(connection)
            }
            Cork::Loose(connection) => {
                set(connection, false);
                Cork::Out
            }
        };
    }
}

/// Whether it was done: not where there is no such option, nor on a connection that is none of TCP.
#[cfg(target_os = "linux")]
fn set(connection: RawFd, corked: bool) -> bool {
    let value = libc::c_int::from(corked);
    // SAFETY: the option's value is an int that lives for the call and is not kept; a descriptor that is none is an error.
    let result = unsafe {
        libc::setsockopt(
            connection,
            libc::IPPROTO_TCP,
            libc::TCP_CORK,
            (&raw const value).cast(),
            libc::socklen_t::try_from(size_of_val(&value)).unwrap_or(0),
        )
    };
    result == 0
}

#[cfg(not(target_os = "linux"))]
fn set(_connection: RawFd, _corked: bool) -> bool {
    false
}
