//! The end of a stream: what is said there when it was whole, when it died, and when the upstream said that it failed.

use bytes::{BufMut, Bytes, BytesMut};

use super::{StreamTap, Terminal, Verdict};
use crate::pure::bill::Tariff;
use crate::pure::error::provider_words::ProviderWords;
use crate::pure::error::{ApiError, StreamError};
use crate::pure::sse::MARK;
use crate::pure::tap::accumulator::Identity;
use crate::pure::tap::error_event;
use crate::pure::tap::error_event::DONE_EVENT;

/// How the end of an upstream's stream is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// By a length, a last chunk or a flag: a stream that breaks off is noticed.
    Framed,
    /// By the end of its connection, which is all that is seen of one that breaks off.
    UntilClosed,
}

/// An upstream's error event.
#[derive(Clone, Copy, Debug)]
pub(super) struct ErrorEvent {
    /// Its code, or what its words stand for.
    pub(super) code: Option<u16>,
    /// By which words it speaks of the operator's key or account.
    pub(super) about_operator: Option<&'static str>,
    /// It refuses what the request says.
    pub(super) flags_content: bool,
    /// It came behind `[DONE]`: it is left out, and makes no failure of the answer.
    pub(super) is_behind_end: bool,
}

impl StreamTap {
    /// The upstream ended its stream cleanly: what is to be sent before the end. That is what was held, the end of an
    /// event that was left open, and `[DONE]` if the upstream sent none. Nothing passes afterwards.
    pub fn end(&mut self) -> Bytes {
        if std::mem::replace(&mut self.closed, true) {
            return Bytes::new();
        }
        let mut out = BytesMut::new();
        if self.end_open(&mut out, None) && !self.done {
            out.put_slice(DONE_EVENT);
        }
        out.freeze()
    }

    /// The same, when the end may be that of an upstream which died: what is to be sent is that of [`StreamTap::end`]
    /// or that of [`StreamTap::fail`]. It died when nothing said that the answer is complete, and it was cut off as far
    /// as its framing tells or within an event, or nothing had been delivered or reported. What there is of an event
    /// that was cut off is left out.
    pub fn end_or_fail(&mut self, framing: Framing, message: &str, error_type: &str, code: u16) -> Bytes {
        self.billed_end(framing, (message, error_type, code), None)
    }

    /// The same of an answer whose client is told what it costs; `failure` is message, type and code of an error.
    pub fn billed_end(&mut self, framing: Framing, failure: (&str, &str, u16), tariff: Option<&Tariff<'_>>) -> Bytes {
        let (message, error_type, code) = failure;
        if self.closed {
            return Bytes::new();
        }
        let mut out = BytesMut::new();
        let cut = self.is_cut(framing);
        if cut && !self.finished() {
            self.died = true;
            return self.billed_fail(failure, tariff);
        }
        self.closed = true;
        if cut {
            self.close_released(&mut out);
        } else if !self.end_open(&mut out, tariff) {
            return out.freeze();
        }
        let said_nothing = self.delivered().0 == 0 && self.reported().is_none();
        if !self.finished() && (framing == Framing::UntilClosed || said_nothing) {
            self.died = true;
            out.put_slice(&self.told_anew(tariff));
            error_event::write(&mut out, &self.reading.identity, message, error_type, code);
        } else if !self.done {
            out.put_slice(&self.last_usage(tariff));
            out.put_slice(DONE_EVENT);
        }
        out.freeze()
    }

    /// The upstream died mid-stream: what is to be sent before the end. That is the end of an event that has partly
    /// passed, one error event, and `[DONE]`; only the first if `[DONE]` was seen. Nothing, if [`StreamTap::end`] was
    /// called.
    pub fn fail(&mut self, message: &str, error_type: &str, code: u16) -> Bytes {
        self.billed_fail((message, error_type, code), None)
    }

    /// The same of an answer whose client is told what it costs: one that was told a cost is told before the error what it owes now, where
    /// that is another.
    pub fn billed_fail(&mut self, failure: (&str, &str, u16), tariff: Option<&Tariff<'_>>) -> Bytes {
        let (message, error_type, code) = failure;
        if std::mem::replace(&mut self.closed, true) {
            return Bytes::new();
        }
        let mut out = BytesMut::new();
        self.close_released(&mut out);
        if !self.done {
            out.put_slice(&self.told_anew(tariff));
            error_event::write(&mut out, &self.reading.identity, message, error_type, code);
        }
        out.freeze()
    }

    /// The answer has passed its client's own maximum: what is to be sent as its end. That is the end of an event that has partly
    /// passed, one event that ends each of its `choices` for the reason `length`, and `[DONE]`. Nothing passes afterwards, and the answer
    /// is complete.
    pub fn end_as_length(&mut self, choices: u64, tariff: Option<&Tariff<'_>>) -> Bytes {
        if std::mem::replace(&mut self.closed, true) {
            return Bytes::new();
        }
        let mut out = BytesMut::new();
        self.close_released(&mut out);
        (self.has_finish, self.finished) = (true, true);
        if !self.done {
            error_event::write_length(&mut out, &self.reading.identity, choices);
            out.put_slice(&self.last_usage(tariff));
            out.put_slice(DONE_EVENT);
        }
        out.freeze()
    }

    /// The answer has passed what is held for it, and no more credit is there: what is to be sent as its end. That is the end of an event
    /// that has partly passed, one error event, and `[DONE]`. Nothing passes afterwards.
    pub fn end_without_credit(&mut self, tariff: Option<&Tariff<'_>>) -> Bytes {
        self.billed_fail((NO_CREDIT_MESSAGE, NO_CREDIT_TYPE, NO_CREDIT_CODE), tariff)
    }

    fn told_anew(&mut self, tariff: Option<&Tariff<'_>>) -> Vec<u8> {
        match self.told {
            Some(_) => self.last_usage(tariff),
            None => Vec::new(),
        }
    }

    /// Whether the stream stopped within an event, and not only before its blank line or in a line after those that
    /// decided what becomes of it.
    fn is_cut(&self, framing: Framing) -> bool {
        let open = !self.framer.closing().is_empty() && self.terminal != Terminal::Yes && !self.settled;
        open && match framing {
            Framing::Framed => self.scanner.is_cut(),
            Framing::UntilClosed => !self.scanner.is_complete(),
        }
    }

    /// Ends the event that was left open, if there is one. False when it was an error, and the stream has its end.
    fn end_open(&mut self, out: &mut BytesMut, tariff: Option<&Tariff<'_>>) -> bool {
        let closing = self.framer.closing();
        if closing.is_empty() {
            return true;
        }
        self.done |= self.terminal == Terminal::Yes;
        let verdict = self.end_event(tariff);
        let event = || [&self.held, closing].concat();
        match verdict {
            Verdict::Pass => out.put_slice(&event()),
            Verdict::PassLast => {
                let event = event();
                out.put_slice(&self.last_usage(tariff));
                out.put_slice(&event);
            }
            Verdict::Retell(usage) => {
                let event = event();
                let retold = self.retell(&event, &usage, tariff);
                out.put_slice(&retold.unwrap_or(event));
            }
            Verdict::LeaveOut => {}
            Verdict::Mask => {
                let event = event();
                let masked = self.mask(&event, tariff);
                out.put_slice(&masked);
                return false;
            }
        }
        true
    }

    /// Ends the stream with our error event in place of the upstream's, which is the event at hand: these bytes, or none where it is too
    /// long for its words to be read.
    pub(super) fn mask(&mut self, event: &[u8], tariff: Option<&Tariff<'_>>) -> Bytes {
        let words = ProviderWords::read(&data_of(event));
        let code = words.code(self.reading.seen.error_code());
        self.error = Some(ErrorEvent {
            code,
            about_operator: words.about_operator,
            flags_content: words.flags_content,
            is_behind_end: self.done,
        });
        self.closed = true;
        let mut out = BytesMut::new();
        self.close_released(&mut out);
        if !self.done {
            out.put_slice(&self.told_anew(tariff));
            write_masked(&mut out, &self.reading.identity, code);
        }
        out.freeze()
    }

    /// Nothing more is read: of an event that passes as it comes, what has come was delivered.
    pub fn stop(&mut self) {
        if self.released && !self.closed {
            self.reading.counter.end_cut();
            self.reading.counter.commit();
        }
    }

    /// Ends the event at hand if some of it has passed; forgets it if not.
    fn close_released(&mut self, out: &mut BytesMut) {
        self.held.clear();
        if self.released {
            // Its text may have no end yet.
            self.reading.counter.end_cut();
            self.deliver();
            // When the framer has seen the event's end, that end has not passed.
            let (closing, ended) = (self.framer.closing(), self.framer.closing().is_empty());
            if let Some(json) = self.scanner.closing().filter(|json| !json.is_empty() && !ended) {
                out.put_slice(self.framer.before_data());
                out.put_slice(&json);
                out.put_slice(b"\n\n");
            } else {
                out.put_slice(if ended { b"\n\n" } else { closing });
            }
        } else {
            self.reading.counter.discard();
        }
    }
}

/// Writes the event that takes the place of an upstream's error event, which had this code, and `[DONE]`.
pub(in crate::pure::tap) fn write_masked(out: &mut BytesMut, identity: &Identity, code: Option<u16>) {
    let told = ApiError::within_stream(code);
    let (message, error_type, code) = told
        .as_ref()
        .map_or(MASKED, |told| (told.message.as_str(), told.kind, told.status));
    error_event::write(out, identity, message, error_type, code);
}

/// The data of an event, which may be the first behind a byte order mark.
fn data_of(event: &[u8]) -> Vec<u8> {
    let event = event.strip_prefix(&MARK).unwrap_or(event);
    let lines = event.split(|byte| matches!(byte, b'\n' | b'\r'));
    let data: Vec<&[u8]> = lines.filter_map(|line| line.strip_prefix(b"data:")).collect();
    data.join(&b'\n')
}

/// What takes the place of an upstream's own words that neither blame the request nor say that it is busy.
const MASKED: StreamError = ("The upstream provider failed while answering.", "upstream_error", 502);

/// What a client is told whose credit ends before its answer does.
const NO_CREDIT_MESSAGE: &str = "The credit of the account does not cover the rest of this answer.";
const NO_CREDIT_TYPE: &str = "insufficient_credits";
const NO_CREDIT_CODE: u16 = 402;
