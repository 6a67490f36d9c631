//! Named points at which a test kills its process as `kill -9` would, or makes it fail or wait. A release build has none,
//! unless it has the feature `failpoints`, which is for tests alone.
//!
//! `TOLLGATE_CRASH_AT=debit:after:3` kills the process when it passes the point `debit`, side `after`, for the third time.
//! `TOLLGATE_FAIL_AT=upgrade-ledger` makes what is done at that point an error. `TOLLGATE_STALL_AT=raise` holds the thread up there for half
//! a second, `TOLLGATE_HANG_AT=start-ledger` for two minutes. `TOLLGATE_LIMIT_MS=connects:500` makes the limit of that name so long.
#![expect(clippy::disallowed_methods, reason = "a test steers its child by the environment")]

use std::time::Duration;

/// Kills the process when a test asked for it at this point.
#[inline]
pub(crate) fn point(name: &str, side: &str) {
    #[cfg(any(debug_assertions, feature = "failpoints"))]
    armed::pass(name, side);
    #[cfg(not(any(debug_assertions, feature = "failpoints")))]
    let _ = (name, side);
}

/// An error when a test asked for one at this point.
///
/// # Errors
/// Only then.
pub(crate) fn fault(name: &str) -> std::io::Result<()> {
    #[cfg(any(debug_assertions, feature = "failpoints"))]
    if std::env::var("TOLLGATE_FAIL_AT").is_ok_and(|at| at == name) {
        return Err(std::io::Error::other(format!("a test's fault at {name}")));
    }
    #[cfg(test)]
    if FAILS_HERE.get() == Some(name) {
        return Err(std::io::Error::other(format!("a test's fault at {name}")));
    }
    let _ = name;
    Ok(())
}

/// For a test of the library: from now on [`fault`] fails at this point on the test's own thread, or nowhere.
#[cfg(test)]
pub(crate) fn fails_here(name: Option<&'static str>) {
    FAILS_HERE.set(name);
}

#[cfg(test)]
thread_local! {
    static FAILS_HERE: std::cell::Cell<Option<&'static str>> = const { std::cell::Cell::new(None) };
}

/// A limit as it stands, or as a test asked for.
pub(crate) fn limit(name: &str, limit: Duration) -> Duration {
    #[cfg(any(debug_assertions, feature = "failpoints"))]
    if let Some(asked) = std::env::var("TOLLGATE_LIMIT_MS")
        .ok()
        .as_deref()
        .and_then(|text| limit_in(text, name))
    {
        return asked;
    }
    let _ = name;
    limit
}

#[cfg(any(debug_assertions, feature = "failpoints"))]
fn limit_in(text: &str, name: &str) -> Option<Duration> {
    let ms = text.strip_prefix(name)?.strip_prefix(':')?;
    ms.parse().ok().map(Duration::from_millis)
}

/// Holds the thread up for longer than any limit when a test asked for it at this point.
pub(crate) fn hang(name: &str) {
    #[cfg(any(debug_assertions, feature = "failpoints"))]
    if std::env::var("TOLLGATE_HANG_AT").is_ok_and(|at| at == name) {
        std::thread::sleep(Duration::from_secs(120));
    }
    let _ = name;
}

/// Holds the thread up when a test asked for it at this point.
pub(crate) fn stall(name: &str) {
    #[cfg(any(debug_assertions, feature = "failpoints"))]
    if std::env::var("TOLLGATE_STALL_AT").is_ok_and(|at| at == name) {
        std::thread::sleep(Duration::from_millis(500));
    }
    let _ = name;
}

#[cfg(any(debug_assertions, feature = "failpoints"))]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicI64, Ordering};

    struct Failpoint {
        at: String,
        left: AtomicI64,
    }

    pub(super) fn pass(name: &str, side: &str) {
        static FAILPOINT: OnceLock<Option<Failpoint>> = OnceLock::new();
        let Some(failpoint) = FAILPOINT.get_or_init(read) else {
            return;
        };
        if failpoint.at.split_once(':') != Some((name, side)) || failpoint.left.fetch_sub(1, Ordering::SeqCst) != 1 {
            return;
        }
        // SAFETY: raises a signal in this process; nothing of Rust's is touched.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }

    fn read() -> Option<Failpoint> {
        let text = std::env::var("TOLLGATE_CRASH_AT").ok()?;
        let (at, times) = text.rsplit_once(':')?;
        let left = AtomicI64::new(times.parse().ok()?);
        Some(Failpoint {
            at: at.to_owned(),
            left,
        })
    }
}
