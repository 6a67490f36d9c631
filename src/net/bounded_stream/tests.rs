//! What a connection tells while nothing is taken of it, for how long it is read at a time, and what leaves while it is read.

use std::sync::atomic::AtomicUsize;
use std::task::Wake;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

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

/// Both ends of a session over a pipe of so many bytes.
async fn over_tls(pipe_bytes: usize) -> (client::TlsStream<DuplexStream>, server::TlsStream<DuplexStream>) {
    let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let certificate = own.cert.der().clone();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let of_client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let of_server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let (near, far) = duplex(pipe_bytes);
    let name = ServerName::try_from("localhost").unwrap();
    let (near, far) = tokio::join!(
        TlsConnector::from(Arc::new(of_client)).connect(name, near),
        TlsAcceptor::from(Arc::new(of_server)).accept(far)
    );
    (near.unwrap(), far.unwrap())
}

/// TLS takes more than its connection does, and only a write or a flush sends that on.
#[tokio::test]
async fn a_request_leaves_over_tls_while_its_answer_is_waited_for() {
    const HEAD: &[u8] = b"POST /v1 HTTP/1.1\r\n\r\n";
    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";
    let (near, mut far) = over_tls(4 << 10).await;
    let mut stream = BoundedStream::of_upstream(near);
    let Side::Upstream(io) = &stream.side else {
        panic!("it is an upstream's")
    };
    let io = Arc::clone(io);
    // More than the pipe holds, and less than TLS keeps.
    let body = Bytes::from(vec![b'a'; 40_000]);
    io.begin(&body);
    for part in [HEAD, &body[..]] {
        stream.write_all(part).await.unwrap();
        stream.flush().await.unwrap();
    }
    assert!(!io.is_sent());
    let upstream = async {
        let mut came = vec![0; HEAD.len() + body.len()];
        far.read_exact(&mut came).await.unwrap();
        far.write_all(ANSWER).await.unwrap();
        far.flush().await.unwrap();
        came
    };
    let mut answer = vec![0; ANSWER.len()];
    let both = async { tokio::join!(upstream, stream.read_exact(&mut answer)) };
    let (came, read) = tokio::time::timeout(Duration::from_secs(30), both).await.unwrap();
    read.unwrap();
    assert!(came == [HEAD, &body[..]].concat() && answer == ANSWER && io.is_sent());
}
