//! Streams over HTTP/2 in clear text, many on one connection: for more of them than a subject may have open files.

use std::net::SocketAddr;

use bytes::Bytes;
use h2::client::SendRequest;
use tokio::net::TcpStream;

use crate::{
    client::{Arrived, Failure, Listener, Shot},
    events::Events,
    process,
};

/// A connection that carries up to [`STREAMS_MAX`] streams.
#[derive(Clone)]
pub(crate) struct Http2(SendRequest<Bytes>);

impl Http2 {
    pub(crate) async fn open(address: SocketAddr) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address).await.map_err(Failure::Connect)?;
        stream.set_nodelay(true)?;
        let (requests, connection) = h2::client::handshake(stream).await.map_err(broken)?;
        // Its end is seen by each of its streams.
        tokio::spawn(connection);
        Ok(Self(requests))
    }

    /// Sends a request, and tells the listener of the events of its stream, to its end.
    pub(crate) async fn stream(self, shot: &Shot, listener: &mut impl Listener) -> Result<(), Failure> {
        let (request, body) = request(&shot.bytes)?;
        let mut requests = self.0.ready().await.map_err(broken)?;
        let (answer, mut sent) = requests.send_request(request, body.is_empty()).map_err(broken)?;
        sent.send_data(body, true).map_err(broken)?;
        let answer = answer.await.map_err(broken)?;
        let status = answer.status().as_u16();
        if status != 200 {
            return Err(Failure::Status(status, String::new()));
        }
        let (mut body, mut events) = (answer.into_body(), Events::tagged(shot.tag));
        while let Some(piece) = body.data().await {
            let piece = piece.map_err(broken)?;
            body.flow_control().release_capacity(piece.len()).map_err(broken)?;
            let before = events.count;
            events.feed(&piece, |_| {});
            if events.foreign {
                return Err(Failure::Foreign);
            }
            let arrived = Arrived {
                at_ns: process::monotonic_ns(),
                events: events.count - before,
                delays_ns: &[],
            };
            if arrived.events > 0 && listener.events(&arrived).is_break() {
                return Err(Failure::Stopped);
            }
        }
        Ok(())
    }
}

/// A request that was rendered for HTTP/1.
fn request(rendered: &Bytes) -> Result<(http::Request<()>, Bytes), Failure> {
    let mut headers = [httparse::EMPTY_HEADER; 16];
    let mut parsed = httparse::Request::new(&mut headers);
    let not_one = Failure::Body("a request that cannot be sent over HTTP/2");
    let Ok(httparse::Status::Complete(head)) = parsed.parse(rendered) else {
        return Err(not_one);
    };
    let mut builder = http::Request::builder().method(parsed.method.unwrap_or_default());
    let mut host = "";
    for header in parsed.headers.iter() {
        if header.name.eq_ignore_ascii_case("host") {
            host = std::str::from_utf8(header.value).unwrap_or_default();
        } else {
            builder = builder.header(header.name, header.value);
        }
    }
    let uri = format!("http://{host}{}", parsed.path.unwrap_or_default());
    let request = builder.uri(uri).body(()).map_err(|_| not_one)?;
    Ok((request, rendered.slice(head..)))
}

fn broken(error: h2::Error) -> Failure {
    Failure::Broken(std::io::Error::other(error))
}

/// Streams on one connection: what RFC 9113 section 6.5.2 has every server allow at least.
pub(crate) const STREAMS_MAX: usize = 100;
