//! Waits for an upstream that was asked a moment before, and what is written when the process stops.

use std::time::Duration;

use async_trait::async_trait;
use pingora::http::ResponseHeader;
use pingora::protocols::l4::stream::Stream;
use pingora::proxy::ProxyHttp;
use pingora::upstreams::peer::HttpPeer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;

use super::super::deadline::has_cut_a_write;
use super::*;

/// Carries as Pingora would.
struct Plain;

#[async_trait]
impl ProxyHttp for Plain {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _: &mut Session, (): &mut ()) -> Result<Box<HttpPeer>> {
        Err(ended())
    }
}

impl Carried for Plain {}

/// A request whose client waits for its answer, and the client.
async fn request() -> (Session, TcpStream) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let client = TcpSocket::new_v4().unwrap();
    client.set_recv_buffer_size(16 << 10).unwrap();
    let mut client = client.connect(listener.local_addr().unwrap()).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let mut session = Session::new_h1(Box::new(Stream::from(stream)));
    assert!(session.read_request().await.unwrap());
    (session, client)
}

/// What comes between the two is heard, whatever used the waker up: that was a stream that stood still until something else woke it.
#[tokio::test]
async fn an_upstream_that_was_asked_is_heard_after_a_wait_for_something_else() {
    let (mut session, _client) = request().await;
    let mut downstream = Downstream::new(&Plain, TimeLimits::default());
    for yields in [true, false] {
        // The client and the clock are looked at once: after that only what they wake is.
        let (first, mut upstream) = oneshot::channel();
        first.send(1).unwrap();
        let begun = downstream.beside(&mut session, &mut (), pin!(&mut upstream)).await;
        assert_eq!(begun.unwrap(), Ok(1));

        let (next, mut upstream) = oneshot::channel();
        assert!(downstream.at_once(pin!(&mut upstream)).await.is_none());
        next.send(2).unwrap();
        if yields {
            downstream.yields().await;
        } else {
            downstream.waits_elsewhere();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let heard = tokio::select! {
            biased;
            () = tokio::time::sleep(Duration::from_secs(10)) => panic!("it stood still"),
            heard = async { downstream.beside(&mut session, &mut (), pin!(&mut upstream)).await } => heard,
        };
        assert_eq!(heard.unwrap(), Ok(2), "{yields}");
    }
}

/// Carries while its process no longer waits.
struct Cut;

#[async_trait]
impl ProxyHttp for Cut {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _: &mut Session, (): &mut ()) -> Result<Box<HttpPeer>> {
        Err(ended())
    }
}

impl Carried for Cut {
    fn is_cut(&self) -> bool {
        true
    }
}

/// What was not taken at once was dropped, and the client told why in the middle of it.
#[tokio::test]
async fn what_is_being_written_when_the_process_stops_is_written_if_the_client_reads_it_soon() {
    for reads in [true, false] {
        let (mut session, mut client) = request().await;
        let mut downstream = Downstream::new(&Cut, TimeLimits::default());
        let mut head = ResponseHeader::build(200, None).unwrap();
        head.insert_header("content-length", LENGTH).unwrap();
        let part = Part {
            head: Some(Box::new(head)),
            bytes: Bytes::from(vec![b'x'; LENGTH]),
            ends: true,
        };
        let written = async {
            let written = downstream.write(&mut session, &mut (), part).await;
            drop(session);
            written
        };
        let read = async {
            let mut answer = Vec::new();
            if reads {
                client.read_to_end(&mut answer).await.unwrap();
            }
            answer.iter().filter(|byte| **byte == b'x').count()
        };
        let (written, read) = tokio::join!(written, read);
        match written {
            Ok(()) => assert!(reads && read == LENGTH),
            Err(error) => assert!(!reads && has_cut_a_write(&error), "{error}"),
        }
    }
}

/// More than the buffers of a connection hold: Linux lets the one of who writes grow to 4 MiB.
const LENGTH: usize = 6 << 20;
