//! One message over HTTP. The address is looked up here, and the one that was allowed is the one that is connected to. Redirections are not
//! followed: their answers are failures.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::header;
use pingora::connectors::http::Connector;
use pingora::http::RequestHeader;
use pingora::upstreams::peer::HttpPeer;

use super::message::Message;
use crate::config::Webhook;
use crate::net::error_text::ErrorText;
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

    /// Sends a message, signed at `now`.
    pub(super) async fn send(&self, webhook: &Webhook, message: &Message, now: Timestamp) -> Result<(), Unsent> {
        let sent = tokio::time::timeout(ATTEMPT_MAX, self.exchange(webhook, message, now)).await;
        match sent {
            Ok(Ok(200..=299)) => Ok(()),
            Ok(Ok(410)) => Err(Unsent::Gone),
            Ok(Ok(status)) => Err(Unsent::Failed(format!("it answers {status}"))),
            Ok(Err(why)) => Err(Unsent::Failed(why)),
            Err(_) => Err(Unsent::Failed(format!("no answer within {ATTEMPT_MAX:?}"))),
        }
    }

    /// The status of the answer.
    async fn exchange(&self, webhook: &Webhook, message: &Message, now: Timestamp) -> Result<u16, String> {
        let address = resolved(webhook).await?;
        let sni = if webhook.tls {
            webhook.host.clone()
        } else {
            String::new()
        };
        let mut peer = HttpPeer::new(address, webhook.tls, sni);
        peer.options.connection_timeout = Some(CONNECT_MAX);
        peer.options.total_connection_timeout = Some(CONNECT_MAX);
        let said = |error: Box<pingora::Error>| ErrorText(&error).to_string();
        let (mut session, _) = self.0.get_http_session(&peer).await.map_err(said)?;
        let head = head(webhook, message, now)?;
        session.write_request_header(Box::new(head)).await.map_err(said)?;
        let body = Bytes::from(message.body.clone());
        session.write_request_body(body, true).await.map_err(said)?;
        session.finish_request_body().await.map_err(said)?;
        session.read_response_header().await.map_err(said)?;
        let status = session.response_header().map(|header| header.status.as_u16());
        let status = status.ok_or("its answer has no head")?;
        // Read as far as it is short, so that the receiver does not see a broken connection.
        let mut read = 0;
        while read <= ANSWER_BYTES_MAX {
            match session.read_response_body().await {
                Ok(Some(piece)) => read = read.saturating_add(piece.len()),
                // The status says all that matters.
                Ok(None) | Err(_) => break,
            }
        }
        session.shutdown().await;
        Ok(status)
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

/// An address that may be connected to.
async fn resolved(webhook: &Webhook) -> Result<SocketAddr, String> {
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
    let allowed = found.iter().copied().find(may);
    let refused = || match found.first() {
        None => format!("{} has no address", webhook.host),
        Some(address) => format!(
            "{} is {}, which is no address of the internet, and allow_private is off",
            webhook.host,
            address.ip()
        ),
    };
    // The scheme http is for this machine alone, whatever its name resolves to.
    let allowed = allowed.filter(|address| webhook.tls || address.ip().is_loopback());
    allowed.ok_or_else(refused)
}

const CONNECT_MAX: Duration = Duration::from_secs(5);
/// The longest that one attempt takes.
const ATTEMPT_MAX: Duration = Duration::from_secs(10);
const ANSWER_BYTES_MAX: usize = 64 << 10;
