//! One message over HTTP. The addresses are looked up here, and those that were allowed are the ones that are connected to. Redirections are not
//! followed: their answers are failures.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::header;
use pingora::ErrorType;
use pingora::connectors::http::Connector;
use pingora::http::RequestHeader;
use pingora::protocols::http::client::HttpSession;
use pingora::upstreams::peer::HttpPeer;

use super::message::Message;
use crate::config::Webhook;
use crate::net::error_text::ErrorText;
use crate::net::final_head::final_head;
use crate::pure::families::by_turns;
use crate::pure::time::Timestamp;
use crate::pure::webhook::is_public;

/// Why a message was not taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unsent {
    /// The receiver wants no more of it.
    Gone,
    /// All else.
    Failed(String),
}

/// What messages of one webhook are sent by.
pub(super) struct Sender(Connector);

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

impl Sender {
    pub(super) fn new() -> Sender {
        Sender(Connector::new(None))
    }

    /// Sends a message, signed at `now`. The answer's status says all that matters, whatever becomes of its body.
    pub(super) async fn send(&self, webhook: &Webhook, message: &Message, now: Timestamp) -> Result<(), Unsent> {
        let sent = tokio::time::timeout(ATTEMPT_MAX, self.exchange(webhook, message, now)).await;
        let status = match sent {
            Ok(Ok((status, session))) => {
                end(session).await;
                status
            }
            Ok(Err(why)) => return Err(Unsent::Failed(why)),
            Err(_) => return Err(Unsent::Failed(format!("no answer within {ATTEMPT_MAX:?}"))),
        };
        match status {
            200..=299 => Ok(()),
            410 => Err(Unsent::Gone),
            status => Err(Unsent::Failed(format!("it answers {status}"))),
        }
    }

    /// A connection to the first of the addresses that takes one.
    async fn connected(&self, webhook: &Webhook, addresses: &[SocketAddr]) -> pingora::Result<HttpSession<()>> {
        let mut failed = None;
        for address in addresses {
            let sni = if webhook.tls {
                webhook.host.clone()
            } else {
                String::new()
            };
            let mut peer = HttpPeer::new(address, webhook.tls, sni);
            peer.options.connection_timeout = Some(CONNECT_MAX);
            peer.options.total_connection_timeout = Some(CONNECT_MAX);
            match self.0.get_http_session(&peer).await {
                Ok((session, _)) => return Ok(session),
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or_else(|| pingora::Error::explain(ErrorType::ConnectNoRoute, "no address")))
    }

    /// The status of the answer, whose body is still to come.
    async fn exchange(
        &self,
        webhook: &Webhook,
        message: &Message,
        now: Timestamp,
    ) -> Result<(u16, HttpSession<()>), String> {
        let addresses = resolved(webhook).await?;
        let said = |error: Box<pingora::Error>| ErrorText(&error).to_string();
        let mut session = self.connected(webhook, &addresses).await.map_err(said)?;
        let head = head(webhook, message, now)?;
        session.write_request_header(Box::new(head)).await.map_err(said)?;
        let body = Bytes::from(message.body.clone());
        session.write_request_body(body, true).await.map_err(said)?;
        session.finish_request_body().await.map_err(said)?;
        final_head(&mut session).await.map_err(said)?;
        let status = session.response_header().map(|header| header.status.as_u16());
        let status = status.ok_or("its answer has no head")?;
        Ok((status, session))
    }
}

/// Reads the body as far as it is short and comes at once, so that the receiver does not see a broken connection.
async fn end(mut session: HttpSession<()>) {
    let read = async {
        let mut read = 0_usize;
        while read <= ANSWER_BYTES_MAX {
            match session.read_response_body().await {
                Ok(Some(piece)) => read = read.saturating_add(piece.len()),
                Ok(None) | Err(_) => break,
            }
        }
        session.shutdown().await;
    };
    if tokio::time::timeout(BODY_MAX, read).await.is_err() {
        log::debug!("a webhook's answer did not end within {BODY_MAX:?}");
    }
}

fn head(webhook: &Webhook, message: &Message, now: Timestamp) -> Result<RequestHeader, String> {
    let seconds = now.0.div_euclid(1000);
    let signatures = webhook
        .secrets
        .iter()
        .map(|secret| secret.signature(&message.id, seconds, &message.body));
    let signatures: Vec<String> = signatures.collect();
    let request = http::Request::post(&webhook.path)
        .header(header::HOST, &webhook.authority)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONTENT_LENGTH, message.body.len())
        .header(header::USER_AGENT, concat!("tollgate/", env!("CARGO_PKG_VERSION")))
        .header("webhook-id", &message.id)
        .header("webhook-timestamp", seconds)
        .header("webhook-signature", signatures.join(" "))
        .body(());
    let (parts, ()) = request.map_err(|error| error.to_string())?.into_parts();
    Ok(RequestHeader::from(parts))
}

/// The addresses that may be connected to, at least one.
async fn resolved(webhook: &Webhook) -> Result<Vec<SocketAddr>, String> {
    let may = |address: &SocketAddr| webhook.allow_private || is_public(address.ip());
    let found: Vec<SocketAddr> = match webhook.host.parse::<IpAddr>() {
        Ok(address) => vec![SocketAddr::new(address, webhook.port)],
        Err(_) => {
            let looked_up = tokio::net::lookup_host((webhook.host.as_str(), webhook.port)).await;
            looked_up
                .map_err(|error| format!("{} cannot be resolved: {error}", webhook.host))?
                .collect()
        }
    };
    // The scheme http is for this machine alone, whatever its name resolves to.
    let may = |address: &SocketAddr| may(address) && (webhook.tls || address.ip().is_loopback());
    let allowed = by_turns(found.iter().copied().filter(may));
    match found.first() {
        _ if !allowed.is_empty() => Ok(allowed),
        None => Err(format!("{} has no address", webhook.host)),
        Some(address) => Err(format!(
            "{} is {}, which is no address of the internet, and allow_private is off",
            webhook.host,
            address.ip()
        )),
    }
}

/// The longest that [`Sender::send`] takes.
pub(super) const SEND_MAX: Duration = ATTEMPT_MAX.saturating_add(BODY_MAX);
/// For one address: two that lead nowhere leave time for the next one.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// The longest that one attempt takes until its answer's head is there.
const ATTEMPT_MAX: Duration = Duration::from_secs(10);
/// The longest that the answer's body is waited for.
const BODY_MAX: Duration = Duration::from_secs(1);
const ANSWER_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::config::Config;
    use crate::ledger::admin::events::{Event, EventKind};

    fn webhook(address: SocketAddr) -> Webhook {
        let text = format!("webhooks: [ {{ url: 'http://{address}/x', secret_env: A, allow_private: true }} ]\n");
        let secret = |_: &str| Some("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned());
        let config = Config::parse(std::path::Path::new("t.yaml"), &text, &secret).unwrap();
        config.webhooks[0].clone()
    }

    /// It was a failure after ten seconds, and what the receiver had taken was sent again.
    #[tokio::test]
    async fn an_answer_whose_body_never_comes_counts_by_its_status() {
        let now = Timestamp(1_795_132_800_000);
        let event = Event::new("evt_x".to_owned(), EventKind::Test, now, None, serde_json::json!({}));
        let message = Message::of(&event);
        for (status, expected) in [
            ("200 OK", Ok(())),
            ("410 Gone", Err(Unsent::Gone)),
            // What is said before it is no answer.
            (
                "100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK",
                Ok(()),
            ),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let answers = tokio::spawn(async move {
                let (mut socket, _) = listener.accept().await.unwrap();
                let mut bytes = [0; 4096];
                assert!(socket.read(&mut bytes).await.unwrap() > 0);
                let head = format!("HTTP/1.1 {status}\r\nContent-Length: 3\r\n\r\n");
                socket.write_all(head.as_bytes()).await.unwrap();
                // Until it is left alone.
                while socket.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
            });
            let told = Sender::new().send(&webhook(address), &message, now).await;
            assert_eq!(told, expected, "{status}");
            answers.await.unwrap();
        }
    }

    #[tokio::test]
    async fn an_address_that_takes_no_connection_is_passed_over() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = listener.local_addr().unwrap();
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
        let (sender, webhook) = (Sender::new(), webhook(there));
        assert!(sender.connected(&webhook, &[nowhere, there]).await.is_ok());
        for (addresses, kind) in [
            (&[nowhere][..], ErrorType::ConnectRefused),
            (&[], ErrorType::ConnectNoRoute),
        ] {
            let error = sender.connected(&webhook, addresses).await.err().unwrap();
            assert_eq!(*error.etype(), kind);
        }
    }
}
