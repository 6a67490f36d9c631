//! The way to an OTLP collector: HTTP by Pingora's own connector, so that traces bring no second HTTP client, nor a second TLS.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::{HeaderName, HeaderValue, StatusCode, header};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use pingora::connectors::http::Connector;
use pingora::http::RequestHeader;
use pingora::protocols::http::client::HttpSession;
use pingora::upstreams::peer::HttpPeer;
use prost::Message;

use crate::config::{BaseUrl, Collector};
use crate::pure::families::by_turns;

/// Sends what the exporter has encoded. A clone is the same wire.
#[derive(Clone)]
pub(super) struct Wire(Arc<Inner>);

struct Inner {
    connector: Connector,
    endpoint: BaseUrl,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The status of the last answer; 0 when there was none.
    status: AtomicU16,
    /// Spans that it did not take of a batch that it took.
    rejected: AtomicUsize,
    /// What went wrong last.
    error: Mutex<String>,
    /// The address that took the last connection: it is tried first, for another may take as long as it may to take none.
    taker: Mutex<Option<SocketAddr>>,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The collector has it.
    Taken,
    /// The collector will never take it.
    Refused,
    /// It may take it later: it was not there, or said so.
    Later,
}

impl Wire {
    /// A way to this collector. Nothing is connected yet.
    pub(super) fn to(collector: &Collector) -> Wire {
        Wire(Arc::new(Inner {
            connector: Connector::new(None),
            endpoint: collector.endpoint.clone(),
            headers: collector.headers.clone(),
            status: AtomicU16::new(0),
            rejected: AtomicUsize::new(0),
            error: Mutex::default(),
            taker: Mutex::default(),
        }))
    }

    /// What became of the batch that was sent last.
    pub(super) fn fate(&self) -> Fate {
        match self.0.status.load(Ordering::Relaxed) {
            200..300 => Fate::Taken,
            // What the protocol names as worth another try, and no answer at all.
            0 | 429 | 502 | 503 | 504 => Fate::Later,
            _ => Fate::Refused,
        }
    }

    /// How many of its spans the collector did not take, though it took the batch.
    pub(super) fn rejected(&self) -> usize {
        self.0.rejected.load(Ordering::Relaxed)
    }

    /// What went wrong with it.
    pub(super) fn error(&self) -> String {
        match self.0.status.load(Ordering::Relaxed) {
            0 => self.0.error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            status => format!("it answered {status}"),
        }
    }

    /// Forgets the last batch: what is not answered counts as unanswered.
    pub(super) fn begin(&self) {
        self.0.status.store(0, Ordering::Relaxed);
        self.0.rejected.store(0, Ordering::Relaxed);
        self.0.fail("no answer in time");
    }
}

impl Inner {
    fn fail(&self, error: &str) {
        let mut kept = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        error.clone_into(&mut kept);
    }

    /// A connection to the first address of its name that takes one: `localhost` has one of each family, of which a collector may listen on one.
    async fn connected(&self) -> Result<(HttpSession<()>, HttpPeer), HttpError> {
        let BaseUrl { host, port, .. } = &self.endpoint;
        // Asked for each time: a collector may move, and this is no path of a request's.
        let found = tokio::net::lookup_host((host.as_str(), *port)).await?;
        self.connected_to(by_turns(found)).await
    }

    async fn connected_to(&self, mut addresses: Vec<SocketAddr>) -> Result<(HttpSession<()>, HttpPeer), HttpError> {
        let taker = *self.taker.lock().unwrap_or_else(PoisonError::into_inner);
        addresses.sort_by_key(|address| Some(*address) != taker);
        let mut failed = HttpError::from(format!("{} has no address", self.endpoint.host));
        for address in addresses {
            let peer = self.peer(address);
            match self.connector.get_http_session(&peer).await {
                Ok((session, _)) => {
                    *self.taker.lock().unwrap_or_else(PoisonError::into_inner) = Some(address);
                    return Ok((session, peer));
                }
                Err(error) => failed = HttpError::from(error),
            }
        }
        Err(failed)
    }

    fn peer(&self, address: SocketAddr) -> HttpPeer {
        let BaseUrl { tls, host, .. } = &self.endpoint;
        let mut peer = HttpPeer::new(address, *tls, if *tls { host.clone() } else { String::new() });
        let options = &mut peer.options;
        options.connection_timeout = Some(CONNECT_MAX);
        options.total_connection_timeout = Some(CONNECT_MAX);
        options.read_timeout = Some(ANSWER_MAX);
        options.write_timeout = Some(ANSWER_MAX);
        options.idle_timeout = Some(IDLE_MAX);
        peer
    }

    /// The status of the answer is kept once its head is there, and what it rejected once its body is: that a body breaks off, stalls or is too
    /// long makes no other answer of it.
    async fn post(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, HttpError> {
        let (parts, body) = request.into_parts();
        let (mut session, peer) = self.connected().await?;
        let mut head = RequestHeader::build("POST", self.endpoint.path.as_bytes(), Some(8))?;
        head.insert_header(header::HOST, self.endpoint.authority.as_str())?;
        for (name, value) in parts.headers.iter() {
            head.insert_header(name, value)?;
        }
        for (name, value) in &self.headers {
            head.insert_header(name, value)?;
        }
        head.insert_header(header::CONTENT_LENGTH, HeaderValue::from(body.len()))?;
        session.write_request_header(Box::new(head)).await?;
        session.write_request_body(body, true).await?;
        session.finish_request_body().await?;
        session.read_response_header().await?;
        // Heads before the answer's own (RFC 9110, 15.2).
        while session
            .response_header()
            .is_some_and(|head| is_passed_over(head.status))
        {
            session.read_response_header().await?;
        }
        let head = session.response_header().ok_or("no answer")?;
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            return Err("an upgrade that was not asked for".into());
        }
        self.status.store(head.status.as_u16(), Ordering::Relaxed);
        let mut response = http::Response::builder().status(head.status);
        for (name, value) in head.headers.iter() {
            response = response.header(name, value);
        }
        let mut said = BytesMut::new();
        while let Some(chunk) = session.read_response_body().await? {
            if said.len().saturating_add(chunk.len()) > ANSWER_BYTES_MAX {
                return Err(format!("its answer is longer than {ANSWER_BYTES_MAX} bytes").into());
            }
            said.extend_from_slice(&chunk);
        }
        self.connector
            .release_http_session(session, &peer, Some(IDLE_MAX))
            .await;
        self.rejected.store(rejected(&said), Ordering::Relaxed);
        Ok(response.body(said.freeze())?)
    }
}

#[async_trait]
impl HttpClient for Wire {
    async fn send_bytes(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, HttpError> {
        let answer = self.0.post(request).await;
        if let Err(error) = &answer {
            self.0.fail(&told(error));
        }
        answer
    }
}

impl fmt::Display for Wire {
    /// Where it leads to, for the log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.endpoint.authority)
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wire({})", self.0.endpoint.authority)
    }
}

/// Whether another head follows.
fn is_passed_over(status: StatusCode) -> bool {
    status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS
}

/// What the collector says that it left out of a batch (OTLP, "Partial Success").
fn rejected(answer: &[u8]) -> usize {
    let Ok(answer) = ExportTraceServiceResponse::decode(answer) else {
        return 0;
    };
    let Some(partly) = answer.partial_success else { return 0 };
    let spans = usize::try_from(partly.rejected_spans).unwrap_or(0);
    if spans > 0 {
        let said: String = partly.error_message.chars().take(SAID_CHARS_MAX).collect();
        log::warn!("the collector rejected {spans} spans: {}", said.escape_debug());
    }
    spans
}

/// What an error says in a log: of a head that cannot be read the kind alone, for Pingora puts what the collector sent beside that.
fn told(error: &HttpError) -> String {
    match error.downcast_ref::<Box<pingora::Error>>() {
        Some(error) if *error.etype() == pingora::ErrorType::InvalidHTTPHeader => error.etype().as_str().to_owned(),
        Some(_) | None => error.to_string(),
    }
}

const CONNECT_MAX: Duration = Duration::from_secs(3);
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How long a connection is kept for the next batch.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// A collector says little.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Characters of what it says about spans that it rejects.
const SAID_CHARS_MAX: usize = 500;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::config::{Config, Traces};

    #[test]
    fn what_a_collector_sent_is_not_shown() {
        let sent = "buf: a secret".to_owned();
        let error = pingora::Error::explain(pingora::ErrorType::InvalidHTTPHeader, sent);
        assert_eq!(told(&HttpError::from(error)), "InvalidHTTPHeader");
        let error = pingora::Error::explain(pingora::ErrorType::ConnectError, "no route");
        assert!(told(&HttpError::from(error)).contains("no route"), "its cause stays");
    }

    fn wire(endpoint: &str) -> Wire {
        let text = format!("traces: {{ endpoint: \"{endpoint}\" }}");
        let config = Config::parse(Path::new("t.yaml"), &text, &|_| None).unwrap();
        let Traces::To(collector) = &config.traces else {
            panic!("they are off")
        };
        Wire::to(collector)
    }

    #[tokio::test]
    async fn an_address_that_takes_no_connection_is_passed_over() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = listener.local_addr().unwrap();
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
        let Wire(inner) = wire("http://localhost:4318/otlp");
        let (_, peer) = inner.connected_to(vec![nowhere, there]).await.unwrap();
        assert_eq!(peer.to_string(), inner.peer(there).to_string());
        let other = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addresses = vec![other.local_addr().unwrap(), there];
        let (_, peer) = inner.connected_to(addresses).await.unwrap();
        assert_eq!(peer.to_string(), inner.peer(there).to_string(), "it took the last one");
        for (addresses, said) in [(vec![nowhere], "ConnectRefused"), (vec![], "localhost has no address")] {
            let error = inner.connected_to(addresses).await.err().unwrap();
            assert!(told(&error).contains(said), "{}", told(&error));
        }
    }

    /// It counted as the answer, and the spans as not taken.
    #[tokio::test]
    async fn an_informational_head_is_no_answer() {
        for (before, status) in [
            ("100 Continue", Some(200)),
            ("103 Early Hints", Some(200)),
            ("101 Switching Protocols", None),
        ] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let Wire(inner) = wire(&format!("http://{}", listener.local_addr().unwrap()));
            let answers = tokio::spawn(async move {
                let (mut socket, _) = listener.accept().await.unwrap();
                let mut bytes = [0; 4096];
                assert!(socket.read(&mut bytes).await.unwrap() > 0);
                let heads = format!("HTTP/1.1 {before}\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
                socket.write_all(heads.as_bytes()).await.unwrap();
                while socket.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
            });
            let request = http::Request::new(Bytes::from_static(b"x"));
            let answer = inner.post(request).await.map(|answer| answer.status().as_u16());
            assert_eq!(answer.ok(), status, "{before}");
            // The pool keeps the connection for a minute.
            answers.abort();
        }
    }

    /// The batch was sent again for ever, and none behind it.
    #[tokio::test]
    async fn what_is_wrong_with_an_answers_body_is_no_reason_to_send_the_batch_again() {
        let long = "x".repeat(ANSWER_BYTES_MAX + 1);
        let whole = format!("content-length: {}\r\n\r\n{long}", long.len());
        let cut = "content-length: 10\r\n\r\nhalf".to_owned();
        for (status, fate) in [
            ("200 OK", Fate::Taken),
            ("400 Bad Request", Fate::Refused),
            ("500 Internal Server Error", Fate::Refused),
            ("503 Service Unavailable", Fate::Later),
        ] {
            for (rest, breaks_off) in [(&whole, false), (&cut, true)] {
                let (wire, answers) = answered(format!("HTTP/1.1 {status}\r\n{rest}"), breaks_off).await;
                wire.begin();
                let answer = wire.send_bytes(http::Request::new(Bytes::from_static(b"x"))).await;
                assert!(answer.is_err(), "{status}");
                assert_eq!(wire.fate(), fate, "{status}");
                answers.abort();
            }
        }
    }

    /// The exporter drops what it waits for, after its time.
    #[tokio::test]
    async fn an_answer_whose_body_stalls_is_known_by_its_head() {
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n".to_owned();
        let (wire, answers) = answered(head, false).await;
        wire.begin();
        let mut sent = wire.send_bytes(http::Request::new(Bytes::from_static(b"x")));
        let is_known = async {
            while wire.fate() != Fate::Taken {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            _ = &mut sent => panic!("its body has not come"),
            () = is_known => {}
        }
        drop(sent);
        assert_eq!(wire.fate(), Fate::Taken);
        answers.abort();
    }

    /// A collector that sends this, and then ends its connection or says no more.
    async fn answered(answer: String, breaks_off: bool) -> (Wire, tokio::task::JoinHandle<()>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let wire = wire(&format!("http://{}", listener.local_addr().unwrap()));
        let answers = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut bytes = [0; 4096];
            assert!(socket.read(&mut bytes).await.unwrap() > 0);
            // Who asks may not read all of it.
            let _ = socket.write_all(answer.as_bytes()).await;
            if breaks_off {
                let _ = socket.shutdown().await;
            }
            // Closed with something unread, it would take back what it sent.
            while socket.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
        });
        (wire, answers)
    }

    #[tokio::test]
    async fn the_log_names_a_collector_by_its_address() {
        assert_eq!(wire("http://127.0.0.1:4318/otlp").to_string(), "127.0.0.1:4318");
    }
}
