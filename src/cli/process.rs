//! What the operating system lets this process do: no core dumps, and as many open files as it may have. And what it was started as.

use std::path::PathBuf;

/// Keys and prompts stand in this process's memory, so it leaves no core dump. Each connection is an open file, and the usual soft
/// limit of 1,024 is far below what the gateway is configured for. Whether what it may have is enough, the server's start tells.
pub(super) fn prepare() {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the call reads the struct, which lives until it returns, and changes nothing but this process's limit.
    if unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) } != 0 {
        log::warn!("core dumps cannot be switched off: {}", std::io::Error::last_os_error());
    }
    let mut files = none;
    // SAFETY: the call writes the struct, which lives until it returns.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut files) } != 0 {
        return;
    }
    files.rlim_cur = files.rlim_max;
    // SAFETY: as the first.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const files) } != 0 {
        log::warn!("the limit of open files stays: {}", std::io::Error::last_os_error());
    }
}

/// The file to start for another process of this program: what this one was called by, so that a new binary in the same place is found,
/// also behind a link. A name without a slash was looked up in the path; for it the file that runs is taken.
pub(super) fn program() -> Option<PathBuf> {
    let called = std::env::args_os().next().map(PathBuf::from);
    let called = called.filter(|path| path.components().count() > 1);
    called.or_else(|| std::env::current_exe().ok())
}
