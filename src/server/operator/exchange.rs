//! One request, from its head to its answer.

use std::net::IpAddr;
use std::time::Instant;

use http::{Method, Response};
use pingora::protocols::http::ServerSession;

use super::answer::Answer;
use super::auth::{self, Asking};
use super::body;
use super::call::Call;
use super::route::{Needs, Route, Takes};
use super::routes;
use super::state::OperatorApi;
use super::under_way::UnderWay;
use crate::clock::monotonic;
use crate::gateway::access::head_check;
use crate::net::client_ip;
use crate::pure::error::ApiError;
use crate::pure::error::operator::OperatorError;
use crate::server::admin_connections::AdminConnectionPermit;
use crate::server::admin_host::is_ours;

/// How a request came.
#[derive(Clone, Copy)]
pub(super) struct Came<'c> {
    pub(super) peer: IpAddr,
    pub(super) is_tls: bool,
    /// Whether what has come of its body is not framed as HTTP wants it.
    pub(super) is_misframed: bool,
    pub(super) permit: &'c AdminConnectionPermit,
    pub(super) under_way: &'c UnderWay,
}

/// Answers a request.
pub(super) async fn respond(api: &OperatorApi, session: &mut ServerSession, came: Came<'_>) -> Response<Vec<u8>> {
    let (id, started) = (api.clock().request_id().to_string(), monotonic());
    let address = {
        let trusted = &api.snapshot().config.trusted_proxies;
        client_ip::client(came.peer, &session.req_header().headers, trusted)
    };
    let mut actor = None;
    let answer = match answer(api, session, address, came, &mut actor).await {
        Ok(answer) => answer,
        Err(error) => {
            // What was refused unread is still on its way.
            session.set_keepalive(None);
            Answer::refusal(&error)
        }
    };
    let request = session.req_header();
    tell(
        &id,
        &request.method,
        &routes::told(request.uri.path()),
        &answer,
        actor.as_deref(),
        address,
        started,
    );
    let is_head = request.method == Method::HEAD;
    answer.finished(&id, is_head)
}

async fn answer(
    api: &OperatorApi,
    session: &mut ServerSession,
    address: IpAddr,
    came: Came<'_>,
    actor: &mut Option<String>,
) -> Result<Answer, OperatorError> {
    let snapshot = api.snapshot();
    check_head(session)?;
    head_check::checked(session)?;
    if came.is_misframed {
        return Err(OperatorError::bad(head_check::MISFRAMED));
    }
    let trusted = &snapshot.config.trusted_proxies;
    let is_tls = came.is_tls || client_ip::is_over_tls(came.peer, &session.req_header().headers, trusted);
    let head = session.req_header().as_owned_parts();
    let hosts = snapshot
        .config
        .operator
        .as_ref()
        .map(|operator| operator.hosts.as_slice());
    if !is_ours(session.req_header(), hosts.unwrap_or_default()) {
        return Err(OperatorError::Misdirected);
    }
    let found = routes::at(head.uri.path()).ok_or_else(|| OperatorError::not_found("There is no such path."))?;
    if head.method == Method::OPTIONS {
        return Ok(Answer::nothing().with(http::header::ALLOW, &found.allow()));
    }
    let (route, names) = found.with_method(&head.method)?;
    let asking = Asking { address, is_tls };
    let mut known = match route.needs {
        Needs::Nobody => None,
        Needs::Operator | Needs::OneOf(_) => {
            let known = auth::operator(api, &head.headers, asking).await?;
            *actor = Some(known.operator.id.clone());
            came.permit.works();
            check_role(route, &known)?;
            Some(known)
        }
    };
    let body = body::read(session, route.takes).await?;
    if known.is_some() && route.takes != Takes::Nothing {
        // It may have taken its time: who is no operator any more does not act.
        let again = auth::operator(api, &head.headers, asking).await?;
        check_role(route, &again)?;
        known = Some(again);
    }
    let call = Call {
        api,
        snapshot,
        known,
        address,
        is_tls,
        headers: &head.headers,
        names,
        query: head.uri.query().unwrap_or_default(),
        body,
        under_way: came.under_way,
    };
    (route.run)(&call).await
}

/// Whether the operator's role has any of the rights that the path is for; what each command needs is checked with it.
fn check_role(route: &Route, known: &auth::Known) -> Result<(), OperatorError> {
    let role = known.operator.role;
    match route.needs {
        Needs::OneOf(rights) if !rights.iter().any(|right| role.may(*right)) => Err(OperatorError::RoleLacks {
            role,
            needs: rights.to_vec(),
        }),
        _ => Ok(()),
    }
}

fn check_head(session: &ServerSession) -> Result<(), OperatorError> {
    let request = session.req_header();
    let fields = request.headers.iter();
    let bytes = fields.fold(request.raw_path().len(), |sum, (name, value)| {
        sum.saturating_add(name.as_str().len()).saturating_add(value.len())
    });
    match bytes > HEAD_BYTES_MAX {
        true => Err(OperatorError::Api(ApiError::HeadTooLarge { max: HEAD_BYTES_MAX })),
        false => Ok(()),
    }
}

/// A line for each request: what changes something, or fails, for everybody to read.
fn tell(
    id: &str,
    method: &Method,
    path: &str,
    answer: &Answer,
    actor: Option<&str>,
    address: IpAddr,
    started: Instant,
) {
    let is_safe = [Method::GET, Method::HEAD, Method::OPTIONS].contains(method);
    let level = match (answer.status.is_server_error(), is_safe) {
        (true, _) => log::Level::Warn,
        (false, false) => log::Level::Info,
        (false, true) => log::Level::Debug,
    };
    let (status, millis) = (answer.status.as_u16(), started.elapsed().as_millis());
    let actor = actor.unwrap_or("-");
    log::log!(
        level,
        "operator: {method} {path} {status} by {actor} from {address}, {millis} ms, request {id}"
    );
}

/// The longest head, in bytes.
const HEAD_BYTES_MAX: usize = 32 << 10;
