//! What the upstream does, one row each.

mod http1;
mod http2;

pub use self::http1::http1;
pub use self::http2::http2;
use super::upstream::Script;
use crate::harness::frames::FrameReply;
use crate::harness::reply::Cue;

/// One behaviour of the upstream.
pub struct Behaviour {
    name: &'static str,
    pub does: Does,
    /// Whether the connection has served a request before.
    pub is_pooled: bool,
    /// Bytes of the request's body.
    pub body: usize,
}

pub enum Does {
    Http1(Script),
    /// The cue is given once the client has the first bytes of the body.
    Http2(Box<dyn Fn(&Cue) -> FrameReply>),
}

impl Behaviour {
    /// Its name, with what makes it one of its kind.
    pub fn name(&self) -> String {
        let (name, is_http2) = self.kind();
        let protocol = if is_http2 { "h2" } else { "h1" };
        let connection = if self.is_pooled { "pooled" } else { "fresh" };
        format!("{protocol}, {connection}: {name}")
    }

    /// What it does, over HTTP/2 or not.
    pub fn kind(&self) -> (&'static str, bool) {
        (self.name, matches!(self.does, Does::Http2(_)))
    }
}
