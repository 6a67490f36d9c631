//! Buffered writes: what waits, and what leaves in one system call.

use std::future::poll_fn;
use std::task::Waker;

use tokio::io::{AsyncReadExt, duplex};

use super::*;

/// A connection that takes so many bytes at a time and notes how many each write brought.
#[derive(Default)]
struct Narrow {
    takes: usize,
    writes: Vec<Vec<u8>>,
}

impl AsyncWrite for Narrow {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let takes = self.takes.min(bytes.len());
        self.writes.push(bytes[..takes].to_vec());
        Poll::Ready(Ok(takes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn written(poll: Poll<io::Result<usize>>) -> usize {
    match poll {
        Poll::Ready(Ok(bytes)) => bytes,
        other => panic!("{other:?}"),
    }
}

fn wide() -> Narrow {
    Narrow {
        takes: usize::MAX,
        ..Narrow::default()
    }
}

#[test]
fn a_head_leaves_with_what_follows_it_and_the_next_piece_at_once() {
    let mut to = wide();
    let mut context = Context::from_waker(Waker::noop());
    let mut output = WriteBuffer::new(Heads::OfAnswers);
    assert_eq!(
        written(output.poll_write(&mut to, &mut context, b"HTTP/1.1 200 OK ")),
        16
    );
    assert_eq!(to.writes.len(), 0);
    assert_eq!(written(output.poll_write(&mut to, &mut context, b"half")), 4);
    assert_eq!(to.writes, [b"HTTP/1.1 200 OK half".to_vec()]);
    assert_eq!(output.bytes.capacity(), 0, "nothing waits, and no room is kept");
    assert_eq!(written(output.poll_write(&mut to, &mut context, b"rest")), 4);
    assert_eq!(to.writes[1], b"rest");
}

#[test]
fn a_requests_head_leaves_with_its_body_or_at_the_second_flush() {
    const REQUEST: &[u8] = b"POST /v1 HTTP/1.1\r\n\r\n";
    let mut to = wide();
    let mut context = Context::from_waker(Waker::noop());
    let mut output = WriteBuffer::new(Heads::OfRequests);
    for body in [b"{}".as_slice(), b"POST /{}"] {
        assert_eq!(
            written(output.poll_write(&mut to, &mut context, REQUEST)),
            REQUEST.len()
        );
        assert!(output.poll_flush(&mut to, &mut context).is_ready());
        assert_eq!(to.writes.len(), 0);
        assert_eq!(written(output.poll_write(&mut to, &mut context, body)), body.len());
        assert!(output.poll_flush(&mut to, &mut context).is_ready());
        assert_eq!(std::mem::take(&mut to.writes), [[REQUEST, body].concat()]);
    }
    assert!(output.poll_write(&mut to, &mut context, REQUEST).is_ready());
    assert!(output.poll_flush(&mut to, &mut context).is_ready() && to.writes.is_empty());
    assert!(output.poll_flush(&mut to, &mut context).is_ready());
    assert_eq!(to.writes, [REQUEST.to_vec()]);
    assert_eq!(output.bytes.capacity(), 0, "nothing waits, and no room is kept");
}

#[test]
fn an_answer_that_looks_like_a_request_leaves_at_its_flush() {
    let mut to = wide();
    let mut context = Context::from_waker(Waker::noop());
    let mut output = WriteBuffer::new(Heads::OfAnswers);
    for text in [b"HTTP/1.\r\n\r\n".as_slice(), b"POST /\r\n\r\n"] {
        assert!(output.poll_write(&mut to, &mut context, text).is_ready());
        assert!(output.poll_flush(&mut to, &mut context).is_ready());
        assert_eq!(std::mem::take(&mut to.writes), [text.to_vec()]);
    }
}

#[test]
fn a_head_and_the_pieces_of_a_chunk_leave_in_one_write_at_the_flush() {
    let mut to = wide();
    let mut context = Context::from_waker(Waker::noop());
    let mut output = WriteBuffer::new(Heads::OfAnswers);
    assert_eq!(written(output.poll_write(&mut to, &mut context, b"HTTP/1.1 ")), 9);
    let pieces = [IoSlice::new(b"a"), IoSlice::new(b""), IoSlice::new(b"bc")];
    assert_eq!(written(output.poll_write_vectored(&mut to, &mut context, &pieces)), 3);
    assert_eq!(to.writes.len(), 0);
    assert!(output.poll_empty(&mut to, &mut context).is_ready());
    assert_eq!(to.writes, [b"HTTP/1.1 abc".to_vec()]);
    assert_eq!(output.bytes.capacity(), 0, "an idle connection keeps no room");
}

#[test]
fn every_byte_leaves_once_and_in_order_however_few_are_taken() {
    let sizes = [
        1,
        GATHERED_MAX - 1,
        1,
        7,
        GATHERED_MAX,
        GATHERED_MAX + 1,
        3,
        3 * GATHERED_MAX,
        5,
    ];
    for takes in [1, 1000, GATHERED_MAX, usize::MAX] {
        let mut to = Narrow {
            takes,
            ..Narrow::default()
        };
        let mut context = Context::from_waker(Waker::noop());
        let mut output = WriteBuffer::new(Heads::OfAnswers);
        let mut expected = Vec::new();
        for (index, size) in sizes.into_iter().enumerate() {
            let mut bytes: Vec<u8> = (0..size).map(|at| (at * 31 + index) as u8).collect();
            if index % 3 == 0 && size > ANSWER.len() {
                bytes[..ANSWER.len()].copy_from_slice(ANSWER);
            }
            let mut left = bytes.as_slice();
            while !left.is_empty() {
                let took = if index % 2 == 0 {
                    output.poll_write(&mut to, &mut context, left)
                } else {
                    let (first, second) = left.split_at(left.len() / 2);
                    let pieces = [IoSlice::new(first), IoSlice::new(second)];
                    output.poll_write_vectored(&mut to, &mut context, &pieces)
                };
                left = &left[written(took)..];
                assert!(output.bytes.len() <= GATHERED_MAX);
            }
            expected.extend(bytes);
        }
        assert!(matches!(output.poll_empty(&mut to, &mut context), Poll::Ready(Ok(()))));
        assert!(to.writes.concat() == expected, "{takes} at a time");
    }
}

#[tokio::test]
async fn what_a_slow_reader_has_not_taken_waits_and_follows() {
    let (mut to, mut reader) = duplex(10);
    let mut output = WriteBuffer::new(Heads::OfAnswers);
    let bytes = [ANSWER, &[7; 249]].concat();
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(written(output.poll_write(&mut to, &mut context, &bytes)), 256);
    assert!(output.poll_empty(&mut to, &mut context).is_pending());
    let mut read = vec![0; 256];
    let (emptied, came) = tokio::join!(
        poll_fn(|context| output.poll_empty(&mut to, context)),
        reader.read_exact(&mut read)
    );
    emptied.unwrap();
    came.unwrap();
    assert_eq!(read, bytes);
}

#[test]
fn a_connection_that_takes_nothing_is_an_error() {
    let mut to = Narrow::default();
    let mut context = Context::from_waker(Waker::noop());
    let mut output = WriteBuffer::new(Heads::OfAnswers);
    assert_eq!(written(output.poll_write(&mut to, &mut context, ANSWER)), ANSWER.len());
    let Poll::Ready(Err(error)) = output.poll_empty(&mut to, &mut context) else {
        panic!("no error")
    };
    assert_eq!(error.kind(), io::ErrorKind::WriteZero);
}

/// A connection that takes all that is written, or nothing yet, and lets none of it leave before its flush, as TLS may.
#[derive(Default)]
struct Busy {
    /// How many more writes find no room.
    writes: usize,
    /// How many more flushes do not end.
    flushes: usize,
    taken: Vec<u8>,
    left: Vec<u8>,
}

fn counts_down(pending: &mut usize) -> bool {
    let is_pending = *pending > 0;
    *pending = pending.saturating_sub(1);
    is_pending
}

impl AsyncWrite for Busy {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if counts_down(&mut self.writes) {
            return Poll::Pending;
        }
        self.taken.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if counts_down(&mut self.flushes) {
            return Poll::Pending;
        }
        let taken = std::mem::take(&mut self.taken);
        self.left.extend_from_slice(&taken);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

const HEAD: &[u8] = b"POST /v1 HTTP/1.1\r\n\r\n";

/// Sends a head and a body as Pingora does.
fn send(output: &mut WriteBuffer, to: &mut Busy, io: &UpstreamIo, body: &Bytes) {
    let mut context = Context::from_waker(Waker::noop());
    io.begin(body);
    for part in [HEAD, &body[..]] {
        assert_eq!(written(output.poll_send(to, &mut context, part, io)), part.len());
        assert!(matches!(
            output.poll_flush_sending(to, &mut context, io),
            Poll::Ready(Ok(()))
        ));
    }
}

#[test]
fn what_the_connection_has_taken_leaves_while_the_answer_is_waited_for() {
    let mut to = Busy {
        flushes: 2,
        ..Busy::default()
    };
    let mut context = Context::from_waker(Waker::noop());
    let (mut output, io) = (WriteBuffer::new(Heads::OfRequests), UpstreamIo::default());
    send(&mut output, &mut to, &io, &Bytes::from_static(b"{}"));
    for _ in 0..2 {
        assert!(output.has_to_leave() && !io.is_sent() && to.left.is_empty());
        output.send_on(&mut to, &mut context, &io).unwrap();
    }
    assert!(!output.has_to_leave() && io.is_sent());
    assert_eq!(to.left, [HEAD, b"{}"].concat());
}

#[test]
fn what_had_to_wait_and_leaves_with_its_flush_waits_no_more() {
    let mut to = Busy {
        writes: 1,
        ..Busy::default()
    };
    let (mut output, io) = (WriteBuffer::new(Heads::OfRequests), UpstreamIo::default());
    // More than is gathered.
    let body = Bytes::from(vec![b' '; GATHERED_MAX]);
    send(&mut output, &mut to, &io, &body);
    assert!(!output.has_to_leave());
    assert_eq!((io.is_sent(), io.waits()), (true, None));
    assert_eq!(to.left, [HEAD, &body[..]].concat());
}
