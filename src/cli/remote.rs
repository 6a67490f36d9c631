//! `--operator URL`: commands go to the operator's API of a gateway elsewhere.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use clap::Args;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Uri};
use pingora::ErrorType;
use pingora::connectors::http::Connector;
use pingora::http::RequestHeader;
use pingora::protocols::http::client::HttpSession;
use pingora::upstreams::peer::HttpPeer;
use serde::de::DeserializeOwned;

use super::arguments::EVERYWHERE;
use super::failure::Failure;
use super::made::{MAY_BE_DONE, UNLESS_SAID, in_doubt};
use crate::config::{BaseUrl, Config, RemoteGateway, environment};
use crate::gateway::upstream::providers::read_ca;
use crate::ledger::admin::{AdminError, AdminOp, AdminReply};
use crate::net::error_text::ErrorText;
use crate::net::final_head::final_head;
use crate::pure::error::ApiError;
use crate::pure::families::by_turns;

/// Where commands go.
#[derive(Clone, Debug, Args)]
pub(super) struct RemoteArgs {
    /// Work on the gateway there, with the token in TOLLGATE_OPERATOR_TOKEN
    #[arg(long, global = true, value_name = "URL", help_heading = EVERYWHERE)]
    operator: Option<String>,
    /// With --operator: trust this certificate authority
    #[arg(long, global = true, value_name = "FILE", help_heading = EVERYWHERE)]
    ca: Option<PathBuf>,
    /// With --operator: allow http:// to other machines
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    insecure: bool,
}

impl RemoteArgs {
    /// Whether commands go elsewhere.
    pub(super) fn is_set(&self) -> bool {
        self.operator.is_some()
    }

    /// What stands in the place of a configuration of this machine; nothing when that is meant.
    ///
    /// # Errors
    /// Where the gateway cannot be asked, and for what goes with `--operator` alone: without it the command would work on this machine.
    pub(super) fn config(&self) -> Result<Option<Config>, Failure> {
        let Some(url) = &self.operator else {
            // Not by clap, which looks for the other option only where this one was typed, before or behind the command.
            return match self.ca.is_some() || self.insecure {
                true => Err(Failure::wrong_usage(
                    "--ca and --insecure go with --operator URL: give it, or leave them out",
                )),
                false => Ok(None),
            };
        };
        let gateway = self.gateway(url)?;
        let settings = exchange(&gateway, Method::GET, "/v1/settings", Bytes::new(), None)?;
        let settings = String::from_utf8(settings.to_vec()).map_err(|_| other_form(&gateway))?;
        Config::of_remote(gateway.clone(), &settings)
            .map(Some)
            .map_err(|_| other_form(&gateway))
    }

    fn gateway(&self, url: &str) -> Result<RemoteGateway, Failure> {
        let url = address(url).map_err(|problem| Failure::wrong_usage(format!("--operator: {problem}")))?;
        let is_loopback = url.host == "localhost" || url.host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        if !url.tls && !is_loopback && !self.insecure {
            return Err(Failure::wrong_usage(
                "--operator: the token would go over plain HTTP to another machine: use https://, or --insecure if that is meant",
            ));
        }
        let token = environment(TOKEN).filter(|token| !token.trim().is_empty());
        let token = token.ok_or_else(|| {
            Failure::new(format!(
                "{TOKEN} is not set: it holds the operator's token, which begins with tgop_"
            ))
        })?;
        Ok(RemoteGateway {
            url,
            token: token.trim().to_owned(),
            ca_file: self.ca.clone(),
        })
    }
}

/// Where a gateway's `operator_listen` is reached. Its paths stand below `/v1`, so that is typed with it: it means the same.
fn address(text: &str) -> Result<BaseUrl, String> {
    let url = BaseUrl::parse_such_as(EXAMPLE, text)?;
    let path = url.path.strip_suffix("/v1").unwrap_or(&url.path);
    let path = path.trim_end_matches('/').to_owned();
    Ok(BaseUrl { path, ..url })
}

/// Asks the ledger of a gateway elsewhere.
pub(super) fn ask(gateway: &RemoteGateway, op: &AdminOp) -> Result<AdminReply, Failure> {
    let body = serde_json::to_vec(op)?;
    let doubt = in_doubt(op, MAY_BE_DONE);
    let doubt = doubt.as_deref();
    let answer = exchange(gateway, Method::POST, "/v1/commands", Bytes::from(body), doubt)?;
    let reply: Result<AdminReply, AdminError> =
        serde_json::from_slice(&answer).map_err(|_| doubted(other_form(gateway), doubt))?;
    reply.map_err(|error| match error {
        // It failed in the middle of it.
        AdminError::Store(_) => doubted(error.into(), in_doubt(op, UNLESS_SAID).as_deref()),
        error => error.into(),
    })
}

/// What a path of a gateway elsewhere answers.
pub(super) fn get<T: DeserializeOwned>(gateway: &RemoteGateway, path: &str) -> Result<T, Failure> {
    let answer = exchange(gateway, Method::GET, path, Bytes::new(), None)?;
    serde_json::from_slice(&answer).map_err(|_| other_form(gateway))
}

/// The same with a body, which changes something.
pub(super) fn post<T: DeserializeOwned>(
    gateway: &RemoteGateway,
    path: &str,
    body: &serde_json::Value,
) -> Result<T, Failure> {
    let doubt = Some(MAY_BE_DONE);
    let answer = exchange(gateway, Method::POST, path, Bytes::from(body.to_string()), doubt)?;
    serde_json::from_slice(&answer).map_err(|_| doubted(other_form(gateway), doubt))
}

/// One request, and the body of its answer when that is 200. Blocks. `doubt` is what is said beside the error where the request was sent and
/// may have been done.
fn exchange(
    gateway: &RemoteGateway,
    method: Method,
    path: &str,
    body: Bytes,
    doubt: Option<&str>,
) -> Result<Bytes, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(format!("no request can be made: {error}")))?;
    let sent = Cell::new(false);
    let answered = runtime
        .block_on(async { tokio::time::timeout(ANSWERED_WITHIN, send(gateway, method, path, body, &sent)).await })
        .unwrap_or_else(|_| Err(unreached(gateway, &"it does not answer")));
    let (status, body) = answered.map_err(|failure| doubted(failure, doubt.filter(|_| sent.get())))?;
    match status {
        200 => Ok(body),
        401 => Err(Failure::new(format!(
            "{} does not take the token of {TOKEN}: it is wrong, expired or revoked",
            gateway.url.authority
        ))),
        // A gateway that failed at it, or a proxy before it that had passed it on.
        500.. if !is_unbegun(status, &body) => Err(doubted(refused(gateway, status, &body), doubt)),
        status => Err(refused(gateway, status, &body)),
    }
}

/// `sent` is set once the other side may have the whole request.
async fn send(
    gateway: &RemoteGateway,
    method: Method,
    path: &str,
    body: Bytes,
    sent: &Cell<bool>,
) -> Result<(u16, Bytes), Failure> {
    let said = |error: Box<pingora::Error>| broken(gateway, &error);
    let mut session = connect(gateway).await?;
    let request = head(gateway, method, path, body.len())?;
    session.write_request_header(Box::new(request)).await.map_err(said)?;
    sent.set(true);
    if !body.is_empty() {
        session.write_request_body(body, true).await.map_err(said)?;
    }
    session.finish_request_body().await.map_err(said)?;
    final_head(&mut session).await.map_err(said)?;
    let status = session.response_header().map_or(0, |head| head.status.as_u16());
    let mut answer = BytesMut::new();
    while let Some(piece) = session.read_response_body().await.map_err(said)? {
        if answer.len().saturating_add(piece.len()) > ANSWER_BYTES_MAX {
            return Err(unreached(gateway, &"its answer is too long"));
        }
        answer.extend_from_slice(&piece);
    }
    Ok((status, answer.freeze()))
}

/// Connects to the first address of the gateway's name that takes the connection.
async fn connect(gateway: &RemoteGateway) -> Result<HttpSession<()>, Failure> {
    let BaseUrl { host, port, .. } = &gateway.url;
    let addresses = tokio::net::lookup_host((host.as_str(), *port))
        .await
        .map_err(|error| unreached(gateway, &error))?;
    let connector = Connector::new(None);
    let mut refused = unreached(gateway, &"its name has no address");
    let mut has_answered = false;
    for address in by_turns(addresses) {
        match connector.get_http_session(&peer(gateway, address)?).await {
            Ok((session, _)) => return Ok(session),
            Err(error) => {
                // One that took the connection says more than one that did not.
                let answers = *error.etype() == ErrorType::TLSHandshakeFailure;
                if answers || !has_answered {
                    refused = broken(gateway, &error);
                }
                has_answered |= answers;
            }
        }
    }
    Err(refused)
}

fn peer(gateway: &RemoteGateway, address: SocketAddr) -> Result<HttpPeer, Failure> {
    let BaseUrl { tls, host, .. } = &gateway.url;
    let name = if *tls { host.clone() } else { String::new() };
    let mut peer = HttpPeer::new(address, *tls, name);
    peer.options.connection_timeout = Some(CONNECTED_WITHIN);
    peer.options.total_connection_timeout = Some(CONNECTED_WITHIN.saturating_mul(2));
    if let Some(path) = &gateway.ca_file {
        peer.options.ca = Some(read_ca(path).map_err(|problem| Failure::new(format!("--ca: {problem}")))?);
    }
    Ok(peer)
}

fn head(gateway: &RemoteGateway, method: Method, path: &str, length: usize) -> Result<RequestHeader, Failure> {
    let unusable = |what: &str| Failure::new(format!("{what} cannot stand in a request"));
    let uri: Uri = format!("{}{path}", gateway.url.path)
        .parse()
        .map_err(|_| unusable("the path of --operator"))?;
    let mut token = HeaderValue::from_str(&format!("Bearer {}", gateway.token)).map_err(|_| unusable(TOKEN))?;
    token.set_sensitive(true);
    let host = HeaderValue::from_str(&gateway.url.authority).map_err(|_| unusable("the host of --operator"))?;
    let mut headers = HeaderMap::new();
    headers.insert(header::HOST, host);
    headers.insert(header::AUTHORIZATION, token);
    headers.insert(header::USER_AGENT, USER_AGENT);
    if length > 0 {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    let (mut parts, ()) = http::Request::new(()).into_parts();
    parts.method = method;
    parts.uri = uri;
    parts.headers = headers;
    Ok(RequestHeader::from(parts))
}

fn unreached(gateway: &RemoteGateway, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!(
        "the gateway at {} cannot be asked: {why}",
        gateway.url.authority
    ))
}

/// The connection failed: without what the other side sent.
fn broken(gateway: &RemoteGateway, error: &pingora::Error) -> Failure {
    let text = ErrorText(error).to_string();
    let known = known_cause(error.etype(), &text, gateway.ca_file.is_some());
    unreached(gateway, &known.unwrap_or(text.trim_start()))
}

/// Why no connection is made, in words that say what to do, where that is known.
fn known_cause(kind: &ErrorType, text: &str, has_ca: bool) -> Option<&'static str> {
    match kind {
        // A signature is wrong where another authority has the same name.
        ErrorType::TLSHandshakeFailure
            if has_ca && [UNKNOWN_ISSUER, "BadSignature"].iter().any(|word| text.contains(word)) =>
        {
            Some("its certificate is not signed by the authority of --ca, or it does not send those between the two")
        }
        ErrorType::ConnectRefused => Some("nothing listens there"),
        ErrorType::ConnectTimedout => Some("it does not answer"),
        ErrorType::TLSHandshakeFailure => {
            let known = TLS_CAUSES.iter().find(|(words, _)| text.contains(words));
            known.map(|(_, cause)| *cause)
        }
        _ => None,
    }
}

/// Whether this is what a gateway answers that has not begun what it was asked for.
fn is_unbegun(status: u16, body: &[u8]) -> bool {
    [ApiError::STOPPING, ApiError::LEDGER_UNREACHABLE].iter().any(|error| {
        let told = error.to_wire();
        told.status == status && told.body() == body
    })
}

/// The error of a request that was sent, with what may have come of it.
fn doubted(failure: Failure, doubt: Option<&str>) -> Failure {
    match doubt {
        Some(doubt) => Failure::new(format!("{failure}; {doubt}")),
        None => failure,
    }
}

fn other_form(gateway: &RemoteGateway) -> Failure {
    Failure::new(format!(
        "{} answers in another form: is it operator_listen of a Tollgate of this version?",
        gateway.url.authority
    ))
}

/// An error in the interface's shape is told in its own words.
fn refused(gateway: &RemoteGateway, status: u16, body: &[u8]) -> Failure {
    let told: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let message = told.as_ref().and_then(|told| told.pointer("/error/message")?.as_str());
    match message {
        Some(message) => Failure::new(format!("{} answers {status}: {message}", gateway.url.authority)),
        None => Failure::new(format!(
            "{} answers {status}: is it operator_listen of a Tollgate?",
            gateway.url.authority
        )),
    }
}

/// The variable that holds the token: on a command line everybody on the machine could read it.
const TOKEN: &str = "TOLLGATE_OPERATOR_TOKEN";
/// What `--operator` looks like.
const EXAMPLE: &str = "https://gateway.example.com:9091";
const CONNECTED_WITHIN: Duration = Duration::from_secs(5);
/// As long as the other side gives an answer.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);
/// A list of a million accounts.
const ANSWER_BYTES_MAX: usize = 512 << 20;
const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("tollgate/", env!("CARGO_PKG_VERSION")));
const UNKNOWN_ISSUER: &str = "UnknownIssuer";
/// Words of rustls, and what is told in their place.
const TLS_CAUSES: [(&str, &str); 6] = [
    (
        UNKNOWN_ISSUER,
        "its certificate is of an authority that is not known here: name the authority's file with --ca",
    ),
    (
        "CaUsedAsEndEntity",
        "its certificate is an authority's (CA:TRUE): it needs one of its own that the authority has signed, and --ca the authority's",
    ),
    (
        "certificate not valid for name",
        "its certificate is for other names than this: call it by one of those",
    ),
    ("certificate expired", "its certificate has expired"),
    (
        "certificate not valid yet",
        "its certificate is not valid yet: is the clock right here?",
    ),
    ("InvalidContentType", "it does not speak TLS: is it http:// there?"),
];
