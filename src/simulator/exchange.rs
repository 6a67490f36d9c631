//! One request and its answer on the wire: the body read within its limit, JSON and SSE written, pauses that notice when the client leaves.
//! It knows nothing of chats. Called by the provider and the two kinds of answer.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, RETRY_AFTER, TRANSFER_ENCODING};
use pingora::http::ResponseHeader;
use pingora::protocols::http::ServerSession;

use super::Observation;
use super::refusal::Refusal;
use super::script::{Script, Terminator, Trouble};

/// Why an exchange does not go on.
#[derive(Debug)]
pub(super) enum Halt {
    /// It is answered with an error. Only before the first byte of an answer.
    Refused(Refusal),
    /// The connection shall be dropped, as the script says.
    Cut,
    /// The stream shall end here, cleanly.
    Over,
    /// The client has gone.
    Gone,
}

impl From<Refusal> for Halt {
    fn from(refusal: Refusal) -> Self {
        Halt::Refused(refusal)
    }
}

impl From<Box<pingora::Error>> for Halt {
    /// On loopback, reads and writes fail because the client went away or broke the protocol.
    fn from(_: Box<pingora::Error>) -> Self {
        Halt::Gone
    }
}

/// A request whose header has been read.
pub(super) struct Exchange {
    session: ServerSession,
    /// Unique among the exchanges of a provider, and practically among restarts.
    pub(super) id: String,
    /// Seconds since the Unix epoch.
    pub(super) created: u64,
    /// SSE events sent so far.
    pub(super) events: usize,
}

impl Exchange {
    pub(super) fn new(session: ServerSession, number: u64, created: u64) -> Self {
        Exchange {
            session,
            id: format!("sim{created:08x}{number:08x}"),
            created,
            events: 0,
        }
    }

    pub(super) fn session(&self) -> &ServerSession {
        &self.session
    }

    pub(super) fn into_session(self) -> ServerSession {
        self.session
    }

    pub(super) fn path(&self) -> String {
        self.session.req_header().uri.path().to_owned()
    }

    pub(super) fn received(&self, body: Bytes) -> Observation {
        let header = self.session.req_header();
        let (method, target) = (header.method.clone(), header.uri.to_string());
        Observation::Received {
            method,
            target,
            headers: header.headers.clone(),
            body,
        }
    }

    /// The whole body; 413 as soon as it is known to be longer than `bytes_max`.
    pub(super) async fn read_body(&mut self, bytes_max: usize) -> Result<Bytes, Halt> {
        let announced = self
            .session
            .get_header(CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok()?.parse().ok());
        if announced.is_some_and(|bytes: u64| bytes > u64::try_from(bytes_max).unwrap_or(u64::MAX)) {
            return Err(Refusal::too_large(bytes_max).into());
        }
        if !self.session.is_http2()
            && self
                .session
                .get_header_bytes(EXPECT)
                .eq_ignore_ascii_case(b"100-continue")
        {
            // Pingora switches keep-alive off for any header that is written before the body is read.
            let keepalive = self.session.get_keepalive();
            self.session.write_continue_response().await?;
            self.session.set_keepalive(keepalive);
        }
        let mut body = BytesMut::new();
        while let Some(chunk) = self.session.read_request_body().await? {
            if body.len() + chunk.len() > bytes_max {
                return Err(Refusal::too_large(bytes_max).into());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    }

    /// Stalls or cuts an exchange of which nothing may be sent.
    pub(super) async fn check_trouble(&mut self, script: &Script) -> Result<(), Halt> {
        match script.trouble {
            Some(Trouble::Stall { after: 0 }) => Err(self.stall().await),
            Some(Trouble::Cut { after: 0 }) => Err(Halt::Cut),
            _ => Ok(()),
        }
    }

    pub(super) async fn refuse(&mut self, refusal: &Refusal) -> Result<(), Halt> {
        let body = Bytes::from(refusal.body().to_string());
        let mut header = self.header(refusal.status, JSON)?;
        header.insert_header(CONTENT_LENGTH, body.len())?;
        if let Some(seconds) = refusal.retry_after_seconds {
            header.insert_header(RETRY_AFTER, seconds)?;
        }
        if let Some(method) = &refusal.allow {
            header.insert_header(ALLOW, method.as_str())?;
        }
        self.session.write_response_header(Box::new(header)).await?;
        Ok(self.session.write_response_body(body, true).await?)
    }

    /// A whole answer of 200, or what the script makes of it.
    pub(super) async fn whole(&mut self, script: &Script, answer: impl serde::Serialize) -> Result<(), Halt> {
        let json = |answer: Result<String, _>| answer.map(Bytes::from).map_err(|_| Refusal::simulated(500, None));
        let body = match script.trouble {
            Some(Trouble::Stall { .. }) => return Err(self.stall().await),
            Some(Trouble::ErrorEvent { .. }) => json(serde_json::to_string(&Refusal::mid_stream().body()))?,
            Some(Trouble::Cut { .. }) | None => json(serde_json::to_string(&answer))?,
        };
        let mut header = self.header(200, JSON)?;
        header.insert_header(CONTENT_LENGTH, body.len())?;
        self.session.write_response_header(Box::new(header)).await?;
        if matches!(script.trouble, Some(Trouble::Cut { .. })) {
            self.session
                .write_response_body(body.slice(..body.len() / 2), false)
                .await?;
            return Err(Halt::Cut);
        }
        Ok(self.session.write_response_body(body, true).await?)
    }

    /// Begins a stream of events.
    pub(super) async fn begin_events(&mut self) -> Result<(), Halt> {
        let mut header = self.header(200, "text/event-stream; charset=utf-8")?;
        header.insert_header(CACHE_CONTROL, "no-cache")?;
        // Left out by Pingora where the connection is HTTP/2.
        header.insert_header(TRANSFER_ENCODING, "chunked")?;
        Ok(self.session.write_response_header(Box::new(header)).await?)
    }

    /// Sends one event, unless the script has something else happen now.
    pub(super) async fn event(&mut self, script: &Script, event: &impl serde::Serialize) -> Result<(), Halt> {
        let sent = self.events;
        self.trouble(script, |after| sent >= after).await?;
        self.send(event).await
    }

    /// Sends the terminator. A script's trouble that has not happened yet happens here.
    pub(super) async fn terminate(&mut self, script: &Script) -> Result<(), Halt> {
        self.trouble(script, |_| true).await?;
        if script.terminator == Terminator::Done {
            self.session
                .write_response_body(Bytes::from_static(b"data: [DONE]\n\n"), false)
                .await?;
            self.events += 1;
        }
        Ok(())
    }

    /// Ends the body of a stream cleanly.
    pub(super) async fn end_events(&mut self) -> Result<(), Halt> {
        Ok(self.session.write_response_body(Bytes::new(), true).await?)
    }

    /// Waits, unless the client leaves first.
    pub(super) async fn pause(&mut self, pause: Duration) -> Result<(), Halt> {
        if pause.is_zero() {
            return Ok(());
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => Ok(()),
            halt = self.stall() => Err(halt),
        }
    }

    /// Says nothing until the client leaves.
    pub(super) async fn stall(&mut self) -> Halt {
        // After the body this only returns when the client closes the stream, or sends what it may not.
        let _ = self.session.read_body_or_idle(true).await;
        Halt::Gone
    }

    async fn trouble(&mut self, script: &Script, due: impl Fn(usize) -> bool) -> Result<(), Halt> {
        match script.trouble {
            Some(Trouble::Stall { after }) if due(after) => Err(self.stall().await),
            Some(Trouble::Cut { after }) if due(after) => Err(Halt::Cut),
            Some(Trouble::ErrorEvent { after }) if due(after) => {
                self.send(&Refusal::mid_stream().body()).await?;
                Err(Halt::Over)
            }
            Some(_) | None => Ok(()),
        }
    }

    async fn send(&mut self, event: &impl serde::Serialize) -> Result<(), Halt> {
        let mut bytes = b"data: ".to_vec();
        serde_json::to_writer(&mut bytes, event).map_err(|_| Halt::Cut)?;
        bytes.extend_from_slice(b"\n\n");
        self.session.write_response_body(Bytes::from(bytes), false).await?;
        self.events += 1;
        Ok(())
    }

    /// With the headers that real providers send beside the answer, none of which concerns a gateway's clients.
    fn header(&self, status: u16, content_type: &'static str) -> pingora::Result<ResponseHeader> {
        let mut header = ResponseHeader::build(status, Some(12))?;
        header.insert_header(CONTENT_TYPE, content_type)?;
        header.insert_header("x-simulated", "true")?;
        header.insert_header("x-request-id", format!("req_{}", self.id))?;
        header.insert_header("openai-organization", "org-simulated")?;
        header.insert_header("openai-processing-ms", "1")?;
        header.insert_header("x-ratelimit-limit-requests", "10000")?;
        header.insert_header("x-ratelimit-remaining-requests", "9999")?;
        header.insert_header("x-ratelimit-reset-requests", "6ms")?;
        Ok(header)
    }
}

const JSON: &str = "application/json";
