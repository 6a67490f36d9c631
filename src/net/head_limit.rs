//! The limits of a client's connection over HTTP/1: how much of a head may come, and how long it may take. Pingora would take a megabyte
//! of it, and wait without end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::chunk_check::{ChunkCheck, Misframed, split_head};

/// What a connection's reader, its handler and whoever has to end connections tell each other of the head that is waited for.
#[derive(Debug)]
pub(crate) struct HeadLimit {
    head: Mutex<Head>,
    /// Whether no request has begun, and no head has been waited for anew, since somebody asked for that.
    is_unchanged: AtomicBool,
    /// Whether the client takes nothing of what is written to it.
    is_stalled: AtomicBool,
}

#[derive(Debug)]
enum Head {
    /// No request has begun on this connection. The first has the time that began with the connection.
    First,
    /// One is waited for.
    Awaited(Awaited),
    /// It is there, and a chunked body's framing is looked at.
    Chunked(ChunkCheck),
    /// It is there: there is nothing to limit.
    Free,
    /// The connection speaks HTTP/2, and a request has begun: the same.
    Http2,
}

#[derive(Debug)]
struct Awaited {
    /// What has come of it, and perhaps of the body that follows.
    raw: Vec<u8>,
    /// Whether its time runs: from the beginning, or once its first byte has come.
    is_timed: bool,
    /// Whether someone who wants to end the connection has seen that nothing had come.
    is_seen_silent: bool,
}

/// Why what was read is not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excess {
    /// The head is larger than one may be.
    Head,
    /// The body's chunks are not framed as HTTP wants them.
    Framing,
}

impl HeadLimit {
    pub(crate) fn new() -> Arc<HeadLimit> {
        Arc::new(HeadLimit {
            head: Mutex::new(Head::First),
            is_unchanged: AtomicBool::new(true),
            is_stalled: AtomicBool::new(false),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Head> {
        self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request begins over HTTP/2.
    pub(crate) fn lift(&self) {
        *self.lock() = Head::Http2;
        self.is_unchanged.store(false, Ordering::Relaxed);
    }

    /// From now on a head is waited for; the time of a connection's first one runs already.
    pub(crate) fn begin(&self) {
        let mut head = self.lock();
        let is_timed = matches!(*head, Head::First);
        *head = Head::Awaited(Awaited {
            raw: Vec::new(),
            is_timed,
            is_seen_silent: false,
        });
        // The first one is waited for since the connection began.
        if !is_timed {
            self.is_unchanged.store(false, Ordering::Relaxed);
        }
    }

    /// The head is there; `is_chunked`: its body comes in chunks.
    ///
    /// # Errors
    /// [`Misframed`] when what has come of that body already is not framed as HTTP wants it.
    pub(crate) fn head_came(&self, is_chunked: bool) -> Result<(), Misframed> {
        let mut head = self.lock();
        let Head::Awaited(awaited) = std::mem::replace(&mut *head, Head::Free) else {
            return Ok(());
        };
        if !is_chunked {
            return Ok(());
        }
        let mut check = ChunkCheck::new();
        // Pingora has seen its end: a head without one is not what Pingora took.
        let (_, body) = split_head(&awaited.raw).ok_or(Misframed)?;
        check.read(body)?;
        *head = Head::Chunked(check);
        Ok(())
    }

    /// Whether a head is waited for.
    pub(crate) fn waits_for_head(&self) -> bool {
        matches!(*self.lock(), Head::First | Head::Awaited(_))
    }

    /// Whether no request is under way, and nothing that was written waits for the client to take it. How many requests of a connection over
    /// HTTP/2 are under way is not known here.
    pub(crate) fn is_between_requests(&self) -> bool {
        let is_stalled = self.is_stalled.load(Ordering::Acquire);
        // Of a head that has come in part the rest is waited for.
        let waits = match &*self.lock() {
            Head::First | Head::Http2 => true,
            Head::Awaited(awaited) => awaited.raw.is_empty(),
            Head::Chunked(_) | Head::Free => false,
        };
        !is_stalled && waits
    }

    /// Whether no request has begun, and no head has been waited for anew, since this was asked before, or since the connection began.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.is_unchanged.swap(true, Ordering::Relaxed)
    }

    /// The client takes nothing of what is written to it, or has taken all of it.
    pub(crate) fn stalls(&self, is_stalled: bool) {
        self.is_stalled.store(is_stalled, Ordering::Release);
    }

    /// Asked each time that a head's time is over: whether it has run since the last time. What has begun to come meanwhile has the
    /// next one to end, so that an idle connection needs no clock of its own.
    pub(crate) fn is_late(&self) -> bool {
        match &mut *self.lock() {
            Head::First => true,
            Head::Awaited(awaited) => {
                let was_timed = awaited.is_timed;
                awaited.is_timed |= !awaited.raw.is_empty();
                was_timed
            }
            Head::Chunked(_) | Head::Free | Head::Http2 => false,
        }
    }

    /// Asked from time to time by who wants to end the connection: whether nothing has come of the head that is waited for, now and when
    /// this was asked before. A client that was answered a moment ago has until the next time to send its next request.
    pub(crate) fn stays_silent(&self) -> bool {
        match &mut *self.lock() {
            Head::Awaited(awaited) => {
                let is_silent = awaited.raw.is_empty();
                std::mem::replace(&mut awaited.is_seen_silent, is_silent) && is_silent
            }
            Head::First | Head::Chunked(_) | Head::Free | Head::Http2 => false,
        }
    }

    /// Whether more has come than these bytes, which are a request's: to be asked before [`HeadLimit::head_came`].
    pub(crate) fn has_come_beyond(&self, bytes: usize) -> bool {
        matches!(&*self.lock(), Head::Awaited(awaited) if awaited.raw.len() > bytes)
    }

    /// Looks at what was read: how many chunks' lines came.
    ///
    /// # Errors
    /// When it is not to be passed on, see [`Excess`].
    pub(crate) fn read(&self, bytes: &[u8]) -> Result<usize, Excess> {
        match &mut *self.lock() {
            Head::First | Head::Free | Head::Http2 => Ok(0),
            Head::Chunked(check) => match check.read(bytes) {
                Ok(()) => Ok(check.take_lines()),
                Err(Misframed) => Err(Excess::Framing),
            },
            Head::Awaited(awaited) => {
                if awaited.raw.len() >= HEAD_BYTES_MAX {
                    return Err(Excess::Head);
                }
                awaited.raw.extend_from_slice(bytes);
                Ok(0)
            }
        }
    }
}

/// Somewhat more than a head may have, so that one that is a little too large gets an answer. The last read may go beyond it.
const HEAD_BYTES_MAX: usize = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connections_first_head_has_the_time_that_began_with_the_connection() {
        let limit = HeadLimit::new();
        assert!(limit.waits_for_head() && limit.is_late());
        limit.begin();
        assert!(limit.is_late());
        assert_eq!(limit.head_came(false), Ok(()));
        assert!(!limit.waits_for_head() && !limit.is_late());
    }

    #[test]
    fn between_requests_a_heads_time_begins_with_its_first_byte() {
        let limit = HeadLimit::new();
        limit.lift();
        limit.begin();
        assert!(!limit.is_late() && !limit.is_late(), "it may idle");
        limit.read(b"P").unwrap();
        assert!(!limit.is_late(), "its time begins");
        assert!(limit.is_late());
    }

    #[test]
    fn a_connection_stays_silent_when_nothing_has_come_of_the_same_head_twice() {
        let limit = HeadLimit::new();
        limit.begin();
        assert!(!limit.stays_silent());
        limit.head_came(false).unwrap();
        assert!(!limit.stays_silent(), "a request runs");
        limit.begin();
        assert!(!limit.stays_silent(), "it was answered since");
        assert!(limit.stays_silent());
        limit.read(b"P").unwrap();
        assert!(!limit.stays_silent() && !limit.stays_silent());
    }

    #[test]
    fn between_requests_a_connection_is_unchanged_until_the_next_one_is_waited_for() {
        let limit = HeadLimit::new();
        limit.begin();
        assert!(
            limit.is_between_requests() && limit.is_unchanged(),
            "it waits since it began"
        );
        limit.head_came(false).unwrap();
        assert!(!limit.is_between_requests());
        limit.begin();
        assert!(limit.is_between_requests() && !limit.is_unchanged(), "it waits anew");
        assert!(limit.is_unchanged());
        limit.lift();
        assert!(
            limit.is_between_requests() && !limit.is_unchanged(),
            "a request of HTTP/2 came"
        );
        limit.stalls(true);
        assert!(!limit.is_between_requests(), "an answer is not taken");
        limit.stalls(false);
        assert!(limit.is_between_requests() && limit.is_unchanged());
    }

    #[test]
    fn a_head_has_only_so_much_room_and_a_body_is_not_limited() {
        let limit = HeadLimit::new();
        limit.begin();
        limit.read(&vec![b'a'; HEAD_BYTES_MAX]).unwrap();
        assert_eq!(limit.read(b"a"), Err(Excess::Head));
        limit.head_came(false).unwrap();
        limit.read(&vec![b'a'; HEAD_BYTES_MAX]).unwrap();
        limit.read(b"a").unwrap();
    }

    #[test]
    fn what_came_beyond_a_request_is_known_until_its_head_is_taken() {
        let limit = HeadLimit::new();
        limit.begin();
        limit.read(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        limit.read(b"G").unwrap();
        assert!(!limit.has_come_beyond(19) && limit.has_come_beyond(18));
        limit.head_came(false).unwrap();
        assert!(!limit.has_come_beyond(0));
    }

    /// Heads that Pingora takes: also with lines that end in LF, and behind empty lines.
    const HEADS: [&str; 5] = [
        "POST / HTTP/1.1\r\nhost: x\r\n\r\n",
        "POST / HTTP/1.1\nhost: x\n\n",
        "POST / HTTP/1.1\r\nhost: x\n\r\n",
        "\r\n\r\nPOST / HTTP/1.1\r\nhost: x\r\n\r\n",
        "\n\r\nPOST / HTTP/1.1\nhost: x\n\n",
    ];

    /// Whether a request is refused whose head, and this much more, comes before what follows.
    fn is_refused(head: &str, chunks: &str, cut: usize) -> bool {
        let (first, second) = chunks.split_at(cut);
        let limit = HeadLimit::new();
        limit.begin();
        limit.read(head.as_bytes()).unwrap();
        limit.read(first.as_bytes()).unwrap();
        limit.head_came(true).is_err() || limit.read(second.as_bytes()).is_err()
    }

    #[test]
    fn chunks_are_looked_at_wherever_they_are_cut_and_however_their_head_ends() {
        const BARE: &str = "5;a\nhello\r\n0\r\n\r\n";
        const RIGHT: &str = "5;a\r\nhello\r\n0\r\n\r\n";
        for head in HEADS {
            for cut in 0..BARE.len() {
                assert!(is_refused(head, BARE, cut), "{head:?}, cut at {cut}");
            }
            for cut in 0..RIGHT.len() {
                assert!(!is_refused(head, RIGHT, cut), "{head:?}, cut at {cut}");
            }
        }
    }
}
