//! Wakes at given times to a few microseconds. Tokio's timers step in milliseconds, which is longer than an exchange.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    ptr,
};

use tokio::io::{Interest, unix::AsyncFd};

use crate::process::monotonic_ns;

/// A timer of the kernel that the runtime's poll waits for.
pub(crate) struct Pacer {
    timer: AsyncFd<OwnedFd>,
}

impl Pacer {
    /// Must be called within a runtime.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: the descriptor is checked, and owned by nothing else.
        let timer = unsafe {
            let fd = libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        // SAFETY: the descriptor belongs to the AsyncFd, which does not hand it out and closes it.
        let timer = unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE)? };
        Ok(Self { timer })
    }

    /// Waits until the monotonic clock shows `at_ns`; returns at once when it is past.
    pub(crate) async fn until(&self, at_ns: u64) -> io::Result<()> {
        if monotonic_ns() >= at_ns {
            return Ok(());
        }
        let fd = self.timer.get_ref().as_raw_fd();
        let at = libc::timespec {
            tv_sec: i64::try_from(at_ns / 1_000_000_000).map_err(io::Error::other)?,
            tv_nsec: i64::try_from(at_ns % 1_000_000_000).map_err(io::Error::other)?,
        };
        let once = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: at,
        };
        // SAFETY: the descriptor is a timer, and the old value is not asked for.
        if unsafe { libc::timerfd_settime(fd, libc::TFD_TIMER_ABSTIME, &once, ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        loop {
            let mut ready = self.timer.readable().await?;
            let mut expirations = [0_u8; 8];
            // SAFETY: the buffer has the eight bytes that a timer gives.
            let read = ready.try_io(|timer| {
                match unsafe { libc::read(timer.as_raw_fd(), expirations.as_mut_ptr().cast(), expirations.len()) } {
                    8 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            });
            if let Ok(result) = read {
                return result;
            }
        }
    }
}
