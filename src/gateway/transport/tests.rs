//! What is carried when the process no longer waits.

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use pingora::http::ResponseHeader;
use pingora::protocols::l4::stream::Stream;
use pingora::proxy::ProxyHttp;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::deadline::is_stopped;
use super::*;

/// Its process waits no longer once what there is of the answer stands ready.
struct CutWithin {
    upstream: std::net::SocketAddr,
    is_ready: Notify,
    is_cut: AtomicBool,
}

#[async_trait]
impl ProxyHttp for CutWithin {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _: &mut Session, (): &mut ()) -> Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.upstream, false, String::new())))
    }

    async fn response_filter(&self, _: &mut Session, _: &mut ResponseHeader, (): &mut ()) -> Result<()> {
        self.is_ready.notified().await;
        self.is_cut.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl Carried for CutWithin {
    fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }
}

/// It went on for as long as its upstream always had more, and was dropped without a word five seconds later.
#[tokio::test]
async fn an_answer_whose_upstream_always_has_more_is_cut_too() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let plugin = CutWithin {
        upstream: listener.local_addr().unwrap(),
        is_ready: Notify::new(),
        is_cut: AtomicBool::new(false),
    };
    let upstream = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 4096];
        assert!(stream.read(&mut request).await.unwrap() > 0);
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n";
        stream.write_all(head).await.unwrap();
        // What the kernel takes at once: to wait until it takes more would be to wait for a reader that waits for this.
        stream.writable().await.unwrap();
        let ready = stream.try_write(&vec![b'x'; READY_MAX]).unwrap();
        plugin.is_ready.notify_one();
        (stream, ready)
    };

    let clients = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let mut client = TcpStream::connect(clients.local_addr().unwrap()).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let (stream, _) = clients.accept().await.unwrap();
    let mut session = Session::new_h1(Box::new(Stream::from(stream)));
    assert!(session.read_request().await.unwrap());
    let transport = Transport::new();
    let carried = async {
        let carried = transport.carry(&plugin, &mut session, &mut ()).await;
        drop(session);
        carried
    };
    let read = async {
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        answer.iter().filter(|byte| **byte == b'x').count()
    };
    let ((_upstream, ready), carried, read) = tokio::join!(upstream, carried, read);
    assert!(is_stopped(&carried.unwrap_err()));
    assert!(read < ready, "{read} bytes of {ready} have passed");
}

/// The most bytes of the answer that are there, all of them in the buffers of a connection.
const READY_MAX: usize = 512 << 10;
