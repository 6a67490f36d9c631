//! What a connection tells while nothing is taken of it, and for how long it is read at a time.

use std::sync::atomic::AtomicUsize;
use std::task::Wake;

use super::*;

#[tokio::test]
async fn while_a_client_takes_nothing_its_connection_is_not_between_requests() {
    let limit = HeadLimit::new();
    let mut stall = Stall {
        at_most: Some(Duration::from_secs(60)),
        timer: None,
        told: Some(Arc::clone(&limit)),
    };
    let context = &mut Context::from_waker(Waker::noop());
    let taken = || Poll::Ready(Ok(()));
    assert!(stall.limit(taken(), context).is_ready() && limit.is_between_requests());
    for _ in 0..2 {
        assert!(stall.limit::<()>(Poll::Pending, context).is_pending());
        assert!(!limit.is_between_requests());
    }
    assert!(stall.limit(taken(), context).is_ready() && limit.is_between_requests());
}

/// How often a task was woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reads what a client sends that is never behind, and checks that all of it comes: the bytes of each turn.
fn turns(head: &str, body: &[u8]) -> Vec<usize> {
    let limit = HeadLimit::new();
    limit.begin();
    let sent = [head.as_bytes(), body].concat();
    let client = tokio::io::join(sent.as_slice(), tokio::io::sink());
    let mut stream = BoundedStream::of_client(client, Arc::clone(&limit), Duration::from_secs(60));
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let context = &mut Context::from_waker(&waker);
    let (mut came, mut turns) = (Vec::new(), vec![0_usize]);
    loop {
        // The head, and then as much as Pingora asks for at a time.
        let length = if came.is_empty() { head.len() } else { READ_BYTES };
        let mut bytes = vec![0; length];
        let mut buffer = ReadBuf::new(&mut bytes);
        let polled = Pin::new(&mut stream).poll_read(context, &mut buffer);
        let read = buffer.filled();
        if polled.is_pending() {
            assert!(read.is_empty(), "what was read is not told");
            turns.push(0);
            assert_eq!(
                wakes.0.load(Ordering::Relaxed),
                turns.len() - 1,
                "who waits is not woken"
            );
            continue;
        }
        assert!(matches!(polled, Poll::Ready(Ok(()))), "{polled:?}");
        if read.is_empty() {
            break;
        }
        if came.is_empty() {
            limit.head_came(head.contains("chunked")).unwrap();
        }
        came.extend_from_slice(read);
        *turns.last_mut().unwrap() += read.len();
    }
    assert!(came == sent, "{} bytes of {}", came.len(), sent.len());
    turns
}

#[test]
fn a_client_that_is_never_behind_is_read_for_so_long_at_a_time() {
    for (head, body, turn_max) in [
        // Each read brings ten thousand chunks.
        (CHUNKED, b"1\r\na\r\n".repeat(200_000), CHUNKED.len() + READ_BYTES),
        (CHUNKED, b"1;a\r\na\r\n".repeat(200_000), CHUNKED.len() + READ_BYTES),
        (PLAIN, vec![b'a'; 2 << 20], TURN_BYTES + READ_BYTES),
    ] {
        let turns = turns(head, &body);
        assert!(turns.iter().all(|bytes| *bytes <= turn_max), "{turns:?}");
    }
}

#[test]
fn an_ordinary_upload_is_one_turn() {
    let chunk = [b"4000\r\n".as_slice(), &[b'a'; 0x4000], b"\r\n"].concat();
    for (head, body) in [
        (PLAIN, vec![b'a'; 200_000]),
        (CHUNKED, [chunk.repeat(12), b"0\r\n\r\n".to_vec()].concat()),
        (CHUNKED, b"5\r\nhello\r\n".repeat(900)),
    ] {
        assert_eq!(turns(head, &body), [head.len() + body.len()]);
    }
}

const CHUNKED: &str = "POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
const PLAIN: &str = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2097152\r\n\r\n";
/// As much as Pingora reads of a body at a time.
const READ_BYTES: usize = 64 << 10;
/// The most that a turn is about to have before its last read.
const TURN_BYTES: usize = 256 << 10;
