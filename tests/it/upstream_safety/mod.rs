//! What the gateway's transport must never do: ask a provider twice for work that may have begun, wait without limit for a client or an
//! upstream, and pass on what an upstream says of an answer's length.

mod chunks;
mod early;
mod framing;
mod past_the_end;
mod retries;
mod unread;

use serde_json::json;

use crate::harness::frames::{FrameReply, FrameUpstream};
use crate::harness::tls::Authority;
use crate::harness::{Gateway, Setup, Upstream};

/// A gateway whose provider `main` speaks HTTP/2 and gives these answers, and whose provider `spare` is this one.
async fn over_frames(replies: Vec<FrameReply>, spare: &Upstream) -> (FrameUpstream, Gateway) {
    let authority = Authority::new();
    let upstream = FrameUpstream::tls(&authority.identity("localhost"), replies).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, &authority.pem).unwrap();
    let provider =
        json!({ "base_url": upstream.base_url(), "api_key_env": "SET_MAIN", "ca_file": file.to_str().unwrap() });
    let gateway = Setup::over(spare).spare(spare).provider("main", provider).start().await;
    (upstream, gateway)
}
