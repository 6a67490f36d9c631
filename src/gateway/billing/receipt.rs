//! What the gateway knows of a call that is over, for its receipt.

use super::closed_call::{ClosedCall, Ending};
use super::metered::Metered;
use crate::clock::Clock;
use crate::gateway::admission::Admission;
use crate::gateway::upstream::targets::Candidate;
use crate::pure::receipt::{CallDetails, CallEnding};
use crate::pure::request_body::{Endpoint, ResponseMode};
use crate::pure::time::Timestamp;
use crate::pure::usage::Usage;

impl From<Ending> for CallEnding {
    fn from(ending: Ending) -> CallEnding {
        match ending {
            Ending::Complete | Ending::Drained => CallEnding::Complete,
            Ending::ClientGone | Ending::DrainFailed => CallEnding::ClientGone,
            Ending::UpstreamFailed => CallEnding::UpstreamFailed,
            Ending::DrainEnded { .. } => CallEnding::DrainEnded,
            Ending::Stopped | Ending::Dropped => CallEnding::Dropped,
        }
    }
}

/// What a call's receipt says beside the debit: `upstream_id` is the answer's own id, and `metered` None where the meter failed.
pub(in crate::gateway) fn details(
    closed: &ClosedCall,
    upstream_id: Option<String>,
    metered: Option<&Metered>,
    clock: &Clock,
) -> Box<CallDetails> {
    let Admission {
        permit, hold, recorder, ..
    } = &*closed.admission;
    let target: Option<&Candidate> = closed.target.as_ref();
    let arrived = hold.id().time();
    let after = |span: std::time::Duration| arrived.plus_millis(i64::try_from(span.as_millis()).unwrap_or(i64::MAX));
    let (first, whole) = recorder.spans();
    let is_streamed = closed.body.mode() == ResponseMode::Stream;
    let reported = metered.and_then(|metered| metered.reported);
    Box::new(CallDetails {
        provider: target.map(|target| target.upstream.name.clone()),
        upstream_model: target.map(|target| target.model.clone()),
        upstream_id,
        endpoint: Some(closed.body.endpoint()),
        first_byte: first.map(after),
        ended: Some(whole.map_or_else(|| clock.now(), after)).filter(|ended| *ended > Timestamp::default()),
        streamed: Some(is_streamed),
        ending: Some(closed.ending.into()),
        client_left: closed.ending == Ending::Drained,
        reported_prompt: reported
            .map(|Usage { prompt, .. }| prompt)
            .or(metered.and_then(|metered| metered.prompt)),
        reported_completion: metered.and_then(|metered| metered.reported_completion),
        // The text of a whole answer that came to its end is not counted where its use was reported. Vectors have none.
        counted_completion: metered
            .filter(|_| closed.body.endpoint() != Endpoint::Embeddings)
            .filter(|metered| is_streamed || reported.is_none() || !metered.is_complete)
            .map(|metered| metered.counted.unwrap_or(metered.delivered)),
        pricing: Some(permit.model().pricing),
        priced: None,
        end_user: end_user(closed),
    })
}

/// Whose call the request says that it is. Where it does not say it in the one way that is understood, its receipt says nobody: what a
/// provider makes of it is the provider's business.
fn end_user(closed: &ClosedCall) -> Option<Box<str>> {
    let name = closed.body.end_user().ok().flatten()?;
    Some(Box::from(&*name))
}
