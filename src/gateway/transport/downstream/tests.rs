//! Waits for an upstream that was asked a moment before.

use std::time::Duration;

use async_trait::async_trait;
use pingora::protocols::l4::stream::Stream;
use pingora::proxy::ProxyHttp;
use pingora::upstreams::peer::HttpPeer;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

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
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
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
