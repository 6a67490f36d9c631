//! A process that is to take over from this one: who it is, and its end when it does not get to serve.

use std::io::ErrorKind;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::clock::monotonic;

/// Another process. Its number may be given anew after its end; what is kept of it here means this one alone.
#[derive(Debug)]
pub(super) struct Peer {
    process: u32,
    descriptor: OwnedFd,
}

impl Peer {
    /// The process that made this connection. None when it has ended.
    ///
    /// # Errors
    /// When it cannot be seen from here, is not to be ended, or the kernel is too old to watch it.
    pub(super) fn of(stream: &UnixStream) -> std::io::Result<Option<Peer>> {
        let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or_default();
        // SAFETY: the call writes `credentials` and `length`, which live until it returns.
        let got = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut credentials).cast(),
                &raw mut length,
            )
        };
        if got != 0 {
            return Err(std::io::Error::last_os_error());
        }
        Peer::numbered(credentials.pid)
    }

    /// A child that nobody has waited for yet, so that the number is still its own.
    ///
    /// # Errors
    /// As [`Peer::of`].
    pub(super) fn of_child(process: u32) -> std::io::Result<Peer> {
        let number = libc::pid_t::try_from(process).map_err(|_| ErrorKind::InvalidInput)?;
        Peer::numbered(number)?.ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn numbered(number: libc::pid_t) -> std::io::Result<Option<Peer>> {
        let number = one_process(number)?;
        let process = u32::try_from(number).map_err(|_| ErrorKind::PermissionDenied)?;
        // SAFETY: the call takes two numbers and makes a descriptor.
        let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, number, 0) };
        match i32::try_from(opened) {
            Ok(number) if number >= 0 => {
                // SAFETY: the kernel has just made it, and nobody else has it.
                let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
                Ok(Some(Peer { process, descriptor }))
            }
            _ => match std::io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
                error => Err(error),
            },
        }
    }

    /// Its number.
    pub(super) fn process(&self) -> u32 {
        self.process
    }

    /// Waits a moment for its end, which it was about, and else brings it about: it serves nobody. What it had open is closed then.
    pub(super) fn end(&self) {
        if self.has_ended_within(ENDS_ITSELF_WITHIN) {
            return;
        }
        log::error!(
            "process {} was to take over and does not end: it is killed",
            self.process
        );
        self.kill();
        if !self.has_ended_within(KILLED_WITHIN) {
            log::error!("process {} does not end", self.process);
        }
    }

    /// Ends it as `kill -9` does.
    pub(super) fn kill(&self) {
        // SAFETY: the call takes numbers and a pointer that may be null.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.descriptor.as_raw_fd(),
                libc::SIGKILL,
                std::ptr::null::<libc::siginfo_t>(),
                0,
            )
        };
        if sent != 0 {
            let error = std::io::Error::last_os_error();
            log::error!("process {} cannot be killed: {error}", self.process);
        }
    }

    /// Waits for its end, so long at most; says whether it has ended.
    pub(super) fn has_ended_within(&self, limit: Duration) -> bool {
        let until = monotonic().checked_add(limit).unwrap_or_else(monotonic);
        let mut polled = libc::pollfd {
            fd: self.descriptor.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        loop {
            let left = until.saturating_duration_since(monotonic());
            let left = i32::try_from(left.as_millis()).unwrap_or(i32::MAX);
            // SAFETY: the call reads and writes `polled`, which lives until it returns.
            match unsafe { libc::poll(&raw mut polled, 1, left) } {
                ready if ready > 0 => return true,
                0 => return false,
                _ if std::io::Error::last_os_error().kind() == ErrorKind::Interrupted => {}
                _ => return false,
            }
        }
    }
}

/// A number that means one process which may be ended: 0 and below mean groups, or a process that cannot be seen from here, and 1 is the
/// machine's own.
fn one_process(number: libc::pid_t) -> std::io::Result<libc::pid_t> {
    if number > 1 {
        Ok(number)
    } else {
        Err(ErrorKind::PermissionDenied.into())
    }
}

/// How long a process that has failed may take to end by itself, and say why: on a machine that is busy with other things as well.
const ENDS_ITSELF_WITHIN: Duration = Duration::from_secs(2);
const KILLED_WITHIN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn a_number_that_means_no_single_process_is_refused() {
        for number in [1, 0, -1, -2, libc::pid_t::MIN] {
            assert_eq!(
                one_process(number).unwrap_err().kind(),
                ErrorKind::PermissionDenied,
                "{number}"
            );
        }
        for number in [2, libc::pid_t::MAX] {
            assert_eq!(one_process(number).unwrap(), number);
        }
    }

    #[test]
    fn the_other_end_of_a_connection_is_a_process_that_can_be_watched() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = Peer::of(&one).unwrap().unwrap();
        assert_eq!(peer.process(), std::process::id());
        assert!(!peer.has_ended_within(Duration::ZERO));
    }

    /// A child that waits for a minute, until it is ended. It is another program: a mere copy of this process would keep open what the tests
    /// beside this one have open, and close.
    #[test]
    fn a_child_that_does_not_end_is_killed() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let peer = Peer::of_child(child.id()).unwrap();
        assert!(!peer.has_ended_within(Duration::ZERO));
        peer.end();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        assert!(peer.has_ended_within(Duration::ZERO));
    }

    /// Such as one that only looked whether a gateway runs: its connection waits to be taken after its end.
    #[test]
    fn a_process_that_has_ended_is_nobody_to_watch() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        // SAFETY: the child allocates nothing, and ends without what runs at the end of a process.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let connected = UnixStream::connect(&path).is_ok();
            // SAFETY: the call does not return.
            unsafe { libc::_exit(i32::from(!connected)) };
        }
        let mut status = -1;
        // SAFETY: the call writes `status`, which lives until it returns.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        let (stream, _) = listener.accept().unwrap();
        assert!(Peer::of(&stream).unwrap().is_none());
    }
}
