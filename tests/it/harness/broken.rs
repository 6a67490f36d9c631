//! Places that no HTTP server listens on: one that takes no connection, and one that takes and resets each.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::reply::Reply;
use super::upstream::Upstream;

/// A place whose queue of connections is full: who connects hears nothing.
pub struct BlackHole {
    address: SocketAddr,
    listener: TcpListener,
    queue: Vec<TcpStream>,
}

impl BlackHole {
    /// A new one.
    pub async fn new() -> BlackHole {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        let mut queue = Vec::new();
        // On loopback a connection that has a place is made at once; a queue of no length has one place.
        loop {
            match tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(address)).await {
                Ok(made) => queue.push(made.unwrap()),
                Err(_) if queue.is_empty() => {}
                Err(_) => break,
            }
            assert!(queue.len() < 100, "the queue does not fill");
        }
        BlackHole {
            address,
            listener,
            queue,
        }
    }

    /// What a provider's `base_url` says.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// From now on someone listens there, who always gives this answer. Holds after it: the next who connects is taken.
    pub async fn returns(self, reply: Reply) -> Upstream {
        for _ in &self.queue {
            self.listener.accept().await.unwrap();
        }
        Upstream::on(self.listener, move |_, _| reply.clone(), None)
    }
}

/// The `base_url` of a place that resets each connection before anything is read.
pub async fn resetting() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            socket.set_zero_linger().unwrap();
        }
    });
    format!("http://{address}/v1")
}
