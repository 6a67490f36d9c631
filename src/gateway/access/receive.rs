//! Reads a request's whole body, within its limits of size, time and memory, before it is looked at.

use bytes::Bytes;
use http::header;
use pingora::ErrorType;
use pingora::protocols::http::ServerSession;

use super::body_memory::{BodyPermit, SMALL_BYTES_MAX};
use super::head_check::MISFRAMED;
use super::precheck::Precheck;
use super::received::{PIECE_BYTES, Pieces, Received};
use crate::config::Config;
use crate::gateway::api::endpoints::Failed;
use crate::gateway::api::responses::clients;
use crate::net::request_body::{awaits_continue, content_length, send_continue};
use crate::pure::error::ApiError;

/// The request's body, as long as the configuration allows. A long one is checked before it is taken, by what is known without it.
///
/// # Errors
/// 413 when it is too long, 408 when it takes too long, 400 for an encoding that is not read, 429 and 503 when there is no room for it,
/// and what `precheck` says; a failed read ends the connection.
pub(in crate::gateway) async fn body(
    session: &mut ServerSession,
    config: &Config,
    room: BodyPermit,
    precheck: &mut Precheck<'_>,
) -> Result<Received, Failed> {
    let headers = &session.req_header().headers;
    if let Some(encoding) = headers.get(header::CONTENT_ENCODING)
        && !encoding.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        return Err(ApiError::BadRequest("Send the body without a content-encoding.".to_owned()).into());
    }
    let length = content_length(headers);
    let max = config.body_bytes_max;
    if length.is_some_and(|length| length > max) {
        return Err(ApiError::BodyTooLarge { max }.into());
    }
    if let Some(length) = length.filter(|length| *length > SMALL_BYTES_MAX) {
        precheck.check()?;
        room.look(length, &config.body_memory).map_err(ApiError::from)?;
    }
    if awaits_continue(session.req_header()) {
        clients(send_continue(session).await)?;
    }
    let body = Incoming {
        full: None,
        bytes: Vec::new(),
        length,
        is_checked: length.is_some_and(|length| length > SMALL_BYTES_MAX),
        room,
        config,
    };
    match tokio::time::timeout(config.timeouts.body, body.read(session, precheck)).await {
        Ok(Err(Failed::Wire(error))) => Err(unreadable(session, error)),
        Ok(read) => read,
        Err(_) => Err(ApiError::BodyTimeout.into()),
    }
}

/// Whether a body of so many bytes is taken without being checked before.
pub(in crate::gateway) fn is_small(bytes: usize) -> bool {
    count(bytes) <= SMALL_BYTES_MAX
}

/// A body on its way.
struct Incoming<'a> {
    /// What came before `bytes` of one that is long. In a box, since few are.
    full: Option<Box<Pieces>>,
    bytes: Vec<u8>,
    /// What its sender announced.
    length: Option<u64>,
    /// It was checked as a long one.
    is_checked: bool,
    room: BodyPermit,
    config: &'a Config,
}

impl Incoming<'_> {
    async fn read(mut self, session: &mut ServerSession, precheck: &mut Precheck<'_>) -> Result<Received, Failed> {
        while let Some(piece) = session.read_request_body().await? {
            let came = self.came();
            let bytes = came.saturating_add(piece.len());
            self.check(count(bytes), precheck)?;
            if came == 0 && self.length == Some(count(bytes)) {
                self.room
                    .grow(count(bytes), &self.config.body_memory)
                    .map_err(ApiError::from)?;
                return Ok(Received::Whole(self.room.keep(piece))); // The usual case: one read, no copy.
            }
            self.add(&piece)?;
            if bytes / PIECE_BYTES > came / PIECE_BYTES {
                // Who sends as fast as it is read does not keep the thread: others have their turn after each piece.
                drop(piece);
                tokio::task::yield_now().await;
            }
        }
        Ok(self.end())
    }

    /// The body, of which nothing more comes.
    fn end(mut self) -> Received {
        if let Some(mut pieces) = self.full {
            pieces.push(self.bytes);
            return Received::in_pieces(*pieces, self.room);
        }
        if self.bytes.is_empty() {
            return Received::Whole(Bytes::new());
        }
        self.bytes.shrink_to_fit();
        self.room.shrink(count(self.bytes.capacity()));
        Received::Whole(self.room.keep(self.bytes))
    }

    /// Bytes of the pieces that are full.
    fn before(&self) -> usize {
        self.full.as_deref().map_or(0, Pieces::length)
    }

    /// Bytes that have come.
    fn came(&self) -> usize {
        self.before().saturating_add(self.bytes.len())
    }

    /// Takes in what has come. A long body is kept in pieces: to let one buffer grow would copy megabytes, and the streams of this thread
    /// would wait.
    fn add(&mut self, mut came: &[u8]) -> Result<(), ApiError> {
        while !came.is_empty() {
            if self.bytes.len() >= PIECE_BYTES {
                let full = std::mem::take(&mut self.bytes);
                self.full.get_or_insert_default().push(full);
            }
            let length = PIECE_BYTES.saturating_sub(self.bytes.len()).min(came.len());
            let (fits, rest) = came.split_at(length);
            self.make_room(self.bytes.len().saturating_add(length))?;
            self.bytes.extend_from_slice(fits);
            came = rest;
        }
        Ok(())
    }

    /// Looks at a body that has come to so many bytes.
    fn check(&mut self, bytes: u64, precheck: &mut Precheck<'_>) -> Result<(), ApiError> {
        let max = self.config.body_bytes_max;
        if bytes > max {
            return Err(ApiError::BodyTooLarge { max });
        }
        if bytes > SMALL_BYTES_MAX && !self.is_checked {
            precheck.check()?;
            self.is_checked = true;
        }
        Ok(())
    }

    /// Allocates for a piece of `bytes`, and what counts is what is allocated: at most twice of what has come, or a piece more, and no more
    /// than was announced or may come.
    fn make_room(&mut self, bytes: usize) -> Result<(), ApiError> {
        if bytes <= self.bytes.capacity() {
            return Ok(());
        }
        let before = self.before();
        let most = self.length.unwrap_or(self.config.body_bytes_max);
        let most = usize::try_from(most).unwrap_or(usize::MAX).saturating_sub(before);
        let wanted = match before {
            0 => bytes.saturating_mul(2).max(ALLOCATED_AT_FIRST),
            _ => PIECE_BYTES,
        };
        let capacity = wanted.min(PIECE_BYTES).min(most).max(bytes);
        let limits = &self.config.body_memory;
        let all = |piece: usize| count(before.saturating_add(piece));
        let capacity = match self.room.grow(all(capacity), limits) {
            Ok(()) => capacity,
            // It may be near its end.
            Err(_) => self.room.grow(all(bytes), limits).map(|()| bytes)?,
        };
        self.bytes.reserve_exact(capacity.saturating_sub(self.bytes.len()));
        Ok(())
    }
}

fn count(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// A body that cannot be read is its sender's fault: slow, gone, or not framed as HTTP wants it.
fn unreadable(session: &mut ServerSession, error: Box<pingora::Error>) -> Failed {
    match error.etype() {
        ErrorType::ReadTimedout => ApiError::BodyTimeout.into(),
        ErrorType::ReadError if is_misframed(&error) => misframed(session),
        ErrorType::ConnectionClosed | ErrorType::ReadError | ErrorType::H2Error => Failed::Wire(error.into_down()),
        _ => misframed(session),
    }
}

fn misframed(session: &mut ServerSession) -> Failed {
    session.set_keepalive(None);
    ApiError::BadRequest(MISFRAMED.to_owned()).into()
}

/// Whether the connection refused to pass on what it read, for the chunks' framing.
fn is_misframed(error: &pingora::Error) -> bool {
    let cause = error.root_cause().downcast_ref::<std::io::Error>();
    cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::InvalidData)
}

/// What is allocated for a body that comes in pieces, in bytes.
const ALLOCATED_AT_FIRST: usize = 4 << 10;

#[cfg(test)]
mod tests;
