//! What the gateway notes of a request for metrics and the access log: one line at each step, and nothing that a request waits for.

use std::borrow::Cow;
use std::sync::Arc;

use pingora::protocols::http::ServerSession;
use pingora::{Error, ErrorType};

use super::admission::Admission;
use super::api::router::Route;
use super::billing::closed_call::Ending;
use super::context::{Call, Ctx};
use crate::pure::policy::Permit;
use crate::pure::request_body::{Endpoint, RequestBody};
use crate::telemetry::record::{CLIENT_GONE, Outcome, RouteName};

/// The route's name.
pub(super) fn name(route: &Route) -> RouteName {
    match route {
        Route::Model(Endpoint::Chat) => RouteName::Chat,
        Route::Model(Endpoint::ChatStream) => RouteName::ChatStream,
        Route::Model(Endpoint::Embeddings) => RouteName::Embeddings,
        Route::Balance => RouteName::Balance,
        Route::Key => RouteName::Key,
        Route::Usage => RouteName::Usage,
        Route::Generation | Route::Generations => RouteName::Generations,
        Route::Models | Route::OpenAiModels | Route::OpenAiModel(_) => RouteName::Models,
        Route::Purposes => RouteName::Purposes,
        Route::PublicModels => RouteName::PublicModels,
        Route::Health => RouteName::Health,
        Route::Description => RouteName::Description,
        Route::Page(_) | Route::Moved(_) => RouteName::Page,
    }
}

/// What the request asks for. Its path is noted where the interface has it, with a model's id left out: none of it is a caller's making.
pub(super) fn route(ctx: &mut Ctx, name: RouteName, path: &str) {
    ctx.recorder().route(name);
    if [RouteName::None, RouteName::Preflight].contains(&name) || ctx.recorder().trace().is_none() {
        return;
    }
    let base = ctx.snapshot.config.base_path.as_str();
    let is_of_model = path
        .strip_prefix(base)
        .is_some_and(|below| below.starts_with("/models/"));
    let path = match is_of_model {
        true => Cow::Owned(format!("{base}/models/{{id}}")),
        false => Cow::Borrowed(path),
    };
    if let Some(trace) = ctx.recorder().trace() {
        trace.path(&path);
    }
}

/// The model that a call asks for, whether it may have it or not.
pub(super) fn model(ctx: &mut Ctx, permit: Option<&Permit>, body: &RequestBody) {
    let model = match permit {
        Some(permit) => Some(permit.model()),
        None => ctx.snapshot.catalogue.resolve(body.model()),
    };
    if let Some(id) = model.map(|model| Arc::clone(&model.id)) {
        ctx.recorder().model(id);
    }
}

/// An attempt at the call's next target begins.
pub(super) fn attempt(call: &mut Call) {
    let number = call.tried.len().saturating_add(1);
    if let Some(attempt) = &call.attempt {
        let (provider, model) = (&attempt.candidate.upstream.name, &attempt.candidate.model);
        if let Some(Admission { recorder, .. }) = call.admission.as_deref_mut() {
            recorder.attempt(provider, model, number);
            if let Some(trace) = recorder.trace() {
                trace.tries(&attempt.candidate.upstream.server, model);
            }
        }
    }
}

/// The provider of the call's attempt failed in this way.
pub(super) fn fault(ctx: &mut Ctx, kind: &'static str) {
    ctx.recorder().fault(kind);
}

/// What kind of failure an upstream's status is.
pub(super) fn fault_of_status(status: u16) -> &'static str {
    match status {
        200..300 => "no_answer",
        401 | 403 => "status_401_403",
        429 => "status_429",
        500.. => "status_5xx",
        _ => "status_other",
    }
}

/// What kind of failure a broken connection is; `has_answered`: after the head of its answer.
pub(super) fn fault_of(error: &Error, has_answered: bool) -> &'static str {
    match error.etype() {
        ErrorType::ConnectTimedout | ErrorType::TLSHandshakeTimedout => "connect_timeout",
        ErrorType::ReadTimedout if has_answered => "silent",
        ErrorType::ReadTimedout | ErrorType::WriteTimedout => "timeout",
        ErrorType::ConnectRefused
        | ErrorType::ConnectNoRoute
        | ErrorType::ConnectError
        | ErrorType::ConnectProxyFailure
        | ErrorType::SocketError
        | ErrorType::BindError => UNREACHED,
        ErrorType::TLSHandshakeFailure | ErrorType::InvalidCert | ErrorType::HandshakeError => "tls",
        _ => "broken",
    }
}

/// What kind of failure it is that nobody was there to be asked.
pub(super) const UNREACHED: &str = "connect";

/// The request is over for its connection.
pub(super) fn ended(session: &ServerSession, ctx: &mut Ctx, ending: Ending) {
    let status = session
        .response_written()
        .map(|header| header.status.as_u16())
        .filter(|status| *status >= 200);
    let lacks_ledger = ctx.admitted().map(Call::lacks_ledger);
    let recorder = ctx.recorder();
    let outcome = outcome_of(ending, lacks_ledger, recorder.said());
    recorder.ended(status.unwrap_or(CLIENT_GONE), outcome);
}

/// The outcome of a request that ended so. `lacks_ledger`: whether the call ended for want of the ledger; none where no call was admitted.
/// `said`: what an error has said of it before.
fn outcome_of(ending: Ending, lacks_ledger: Option<bool>, said: Option<Outcome>) -> Outcome {
    match ending {
        Ending::ClientGone | Ending::DrainEnded { .. } => Outcome::ClientGone,
        // The provider may have said that it failed.
        Ending::DrainFailed => said.unwrap_or(Outcome::ClientGone),
        Ending::Dropped => Outcome::Dropped,
        Ending::UpstreamFailed | Ending::Stopped if lacks_ledger.is_none() => said.unwrap_or(Outcome::Dropped),
        // Whatever its attempts came to before.
        Ending::Stopped if lacks_ledger == Some(true) => Outcome::LedgerFailed,
        Ending::Stopped => Outcome::Dropped,
        Ending::UpstreamFailed => said.unwrap_or(Outcome::UpstreamFailed),
        Ending::Complete | Ending::Drained => said.unwrap_or(Outcome::Complete),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `dropped` was all of it: an outage of the ledger and a stop that is meant were one.
    #[test]
    fn what_is_ended_for_want_of_the_ledger_has_an_outcome_of_its_own() {
        for (ending, lacks_ledger, said, expected) in [
            (Ending::Stopped, Some(true), None, Outcome::LedgerFailed),
            (
                Ending::Stopped,
                Some(true),
                Some(Outcome::UpstreamFailed),
                Outcome::LedgerFailed,
            ),
            // A stop, no credit, an account that was stopped.
            (Ending::Stopped, Some(false), None, Outcome::Dropped),
            (Ending::Stopped, None, None, Outcome::Dropped),
            (Ending::Stopped, None, Some(Outcome::Denied), Outcome::Denied),
            // Its client has gone, and is told nothing.
            (Ending::DrainFailed, Some(true), None, Outcome::ClientGone),
            (Ending::Complete, Some(true), None, Outcome::Complete),
            (Ending::UpstreamFailed, Some(true), None, Outcome::UpstreamFailed),
        ] {
            let told = outcome_of(ending, lacks_ledger, said);
            assert_eq!(told, expected, "{ending:?}, {lacks_ledger:?}, {said:?}");
        }
    }
}
