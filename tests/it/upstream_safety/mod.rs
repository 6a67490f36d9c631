//! What the gateway's transport must never do: ask a provider twice for work that may have begun, wait without limit for a client or an
//! upstream, let one call hold up another on the same connection, and pass on what an upstream says of an answer's length.

mod chunks;
mod early;
mod framing;
mod long_over_tls;
mod open_ends;
mod past_the_end;
mod retries;
mod shared_connections;
mod unread;

use serde_json::json;

use crate::harness::frames::{FrameReply, FrameUpstream};
use crate::harness::tls::Authority;
use crate::harness::{Gateway, Setup, Upstream};

/// A gateway whose provider `main` speaks HTTP/2 and gives these answers, and whose provider `spare` is this one.
async fn over_frames(replies: Vec<FrameReply>, spare: &Upstream) -> (FrameUpstream, Gateway) {
    let authority = Authority::new();
    let upstream = FrameUpstream::tls(&authority.identity("localhost"), replies).await;
    let setup = Setup::over(spare).spare(spare);
    let gateway = over_tls(&upstream.base_url(), &authority, setup).await;
    (upstream, gateway)
}

/// A gateway whose provider `main` is at this address, with a certificate of this authority.
async fn over_tls(base_url: &str, authority: &Authority, setup: Setup) -> Gateway {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, &authority.pem).unwrap();
    let provider = json!({ "base_url": base_url, "api_key_env": "SET_MAIN", "ca_file": file.to_str().unwrap() });
    setup.provider("main", provider).start().await
}
