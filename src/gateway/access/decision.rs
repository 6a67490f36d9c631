//! The decision on a request: what it asks for, who asks, and whether it may have it.

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use http::{Version, header};
use pingora::protocols::http::ServerSession;

use super::admit;
use super::authenticate::{self, AuthContext};
use super::body_memory::BodyOwner;
use super::head_check;
use super::idempotency::{self, Keyed};
use super::parse::{self, Parsed};
use super::precheck::Precheck;
use super::receive;
use super::surcharges;
use crate::gateway::Tollgate;
use crate::gateway::api::endpoints;
use crate::gateway::api::endpoints::Failed;
use crate::gateway::api::responses;
use crate::gateway::api::router;
use crate::gateway::api::router::Route;
use crate::gateway::context::{Answer, Call, Ctx, Stage};
use crate::gateway::recorder;
use crate::gateway::snapshot::Snapshot;
use crate::gateway::state::Books;
use crate::gateway::trace;
use crate::ledger::Caller;
use crate::net::bounded_stream::head_limit_of;
use crate::net::{client_ip, request_body};
use crate::pure::error::{ApiError, Unavailable};
use crate::pure::idempotency::{Fingerprint, KeyName};
use crate::pure::ids::KeyDigest;
use crate::pure::policy::{Permit, Provenance};
use crate::pure::request_body::{Endpoint, RequestBody};
use crate::telemetry::record::RouteName;

/// What becomes of a request.
pub(in crate::gateway) enum Decision {
    /// It has its answer.
    Answered,
    /// It is admitted and goes to an upstream.
    Carry,
}

/// What the connection is to keep to for this request, whose head is there.
pub(in crate::gateway) fn begin(tollgate: &Tollgate, session: &mut ServerSession, ctx: &mut Ctx) {
    let is_chunked = session.req_header().headers.contains_key(header::TRANSFER_ENCODING);
    let mut is_followed = false;
    if let Some(limit) = session.stream().and_then(head_limit_of) {
        is_followed = request_body::is_followed(session, limit);
        ctx.is_misframed = limit.head_came(is_chunked).is_err();
    }
    let timeouts = ctx.snapshot.config.timeouts;
    let peer = session
        .client_addr()
        .and_then(|peer| peer.as_inet())
        .map(SocketAddr::ip);
    let trusted = &ctx.snapshot.config.trusted_proxies;
    ctx.client = peer.map(|peer| client_ip::client(peer, &session.req_header().headers, trusted));
    if session.req_header().version < Version::HTTP_11 || tollgate.lifecycle().is_stopping() || is_followed {
        session.set_keepalive(None);
    } else if session.get_keepalive().is_some() {
        session.set_keepalive(Some(timeouts.keepalive.as_secs().max(1)));
    }
    // The whole body has its own time-out; this one only ends what that does not see.
    session.set_read_timeout(Some(timeouts.body.saturating_mul(2)));
    session.set_write_timeout(Some(timeouts.write));
    session.set_total_drain_timeout(Some(SHORT_BODY_MAX));
    ctx.origin = session.req_header().headers.get(header::ORIGIN).cloned();
    trace::begin(session.req_header(), ctx);
}

/// Decides on a request: answers it, refuses it, or leaves it admitted and ready to be carried.
///
/// # Errors
/// When the client has left.
pub(in crate::gateway) async fn decide(
    tollgate: &Tollgate,
    session: &mut ServerSession,
    ctx: &mut Ctx,
) -> pingora::Result<Decision> {
    match steps(tollgate, session, ctx).await {
        Ok(decision) => Ok(decision),
        Err(Failed::Api(error)) => {
            // In a box, here and below, for what is seldom done would else be room that every call keeps.
            Box::pin(refuse(session, ctx, error)).await?;
            Ok(Decision::Answered)
        }
        Err(Failed::Wire(error)) => Err(error),
    }
}

/// Tells a client why its request is refused. What is still on its way of a short body is taken first, so that the connection can be used
/// again, but where the body's time is over.
async fn refuse(session: &mut ServerSession, ctx: &mut Ctx, error: ApiError) -> pingora::Result<()> {
    ctx.recorder().failed(&error);
    let sends_body = responses::sends_body(session);
    if matches!(error, ApiError::BodyTimeout) {
        session.set_keepalive(None);
    } else {
        let ((), wait) = waited(pin!(responses::take_short_body(session))).await;
        ctx.recorder().waited_for_body(wait.unwrap_or_default());
    }
    responses::error_at_once(session, ctx, &error.to_wire()).await?;
    if sends_body {
        let began = crate::clock::monotonic();
        responses::linger(session, ctx).await;
        ctx.recorder().waited_for_body(began.elapsed());
    }
    Ok(())
}

async fn steps(tollgate: &Tollgate, session: &mut ServerSession, ctx: &mut Ctx) -> Result<Decision, Failed> {
    head_check::check(session, ctx)?;
    if ctx.is_late() {
        return Err(ApiError::STOPPING.into());
    }
    let request = session.req_header();
    let route = Route::at(&ctx.snapshot.config.base_path, request.uri.path());
    let name = match &route {
        _ if request.method == http::Method::OPTIONS => RouteName::Preflight,
        Ok(route) => recorder::name(route),
        Err(_) => RouteName::None,
    };
    recorder::route(ctx, name, request.uri.path());
    if request.method == http::Method::OPTIONS {
        // A page can only read that a path is unknown when its browser was let through to ask for it.
        let asks_for_page = request.headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
        let allow = match &route {
            Err(_) if asks_for_page => router::EVERY_METHOD,
            found => found.as_ref().map_err(Clone::clone)?.allow(),
        };
        Box::pin(responses::preflight(session, ctx, allow)).await?;
        return Ok(Decision::Answered);
    }
    let route = route?.with_method(&request.method)?;
    if route.is_public() {
        Box::pin(endpoints::public(session, ctx, &route)).await?;
        return Ok(Decision::Answered);
    }
    let books = tollgate.books()?;
    let context = auth_context(tollgate, books, &ctx.snapshot, ctx.client);
    let (caller, digest) = authenticate::caller(&request.headers, &context).await?;
    ctx.recorder().caller(&caller.account.id, &caller.key.id);
    let (scope, limits) = admit::limits(&ctx.snapshot, &caller);
    ctx.rate = Some(caller.rate(&scope, limits));
    let Route::Model(endpoint) = route else {
        admit::address_allows(&caller, ctx.client)?;
        let from = authenticate::provenance(&request.headers, &caller);
        if !is_let_in(&caller, from) {
            return Err(ApiError::Forbidden(admit::DOMAIN_REFUSED.to_owned()).into());
        }
        Box::pin(endpoints::for_caller(books, session, ctx, &route, &caller)).await?;
        return Ok(Decision::Answered);
    };
    let Some(call) = admitted(tollgate, books, session, ctx, endpoint, (caller, digest)).await? else {
        return Ok(Decision::Answered);
    };
    ctx.stage = Stage::Admitted(call);
    Ok(Decision::Carry)
}

/// What a key is looked up with.
fn auth_context<'a>(
    tollgate: &'a Tollgate,
    books: &'a Books,
    snapshot: &'a Snapshot,
    address: Option<IpAddr>,
) -> AuthContext<'a> {
    AuthContext {
        key_prefix: &snapshot.config.key_prefix,
        ledger: &books.ledger,
        clock: tollgate.clock(),
        auth_throttle: tollgate.auth_throttle(),
        address,
        failures_max: snapshot.config.auth_failures_per_minute,
    }
}

/// Does `work`, and tells how long it was waited for, if it was: what is done at once needs no clock.
async fn waited<W: Future>(mut work: Pin<&mut W>) -> (W::Output, Option<Duration>) {
    let mut since = None;
    let done = poll_fn(|context| {
        let polled = work.as_mut().poll(context);
        if polled.is_pending() {
            since.get_or_insert_with(crate::clock::monotonic);
        }
        polled
    })
    .await;
    (done, since.map(|since| since.elapsed()))
}

/// Whether calls are taken at all.
///
/// # Errors
/// 503 in maintenance.
fn check_maintenance(books: &Books) -> Result<(), ApiError> {
    if !books.ledger.in_maintenance() {
        return Ok(());
    }
    Err(ApiError::Unavailable {
        what: Unavailable::Maintenance,
        message: "The service is under maintenance.",
        retry_after_secs: 30,
    })
}

async fn admitted(
    tollgate: &Tollgate,
    books: &Books,
    session: &mut ServerSession,
    ctx: &mut Ctx,
    endpoint: Endpoint,
    (caller, digest): (Caller, KeyDigest),
) -> Result<Option<Box<Call>>, Failed> {
    let snapshot = Arc::clone(&ctx.snapshot);
    let config = &snapshot.config;
    check_maintenance(books)?;
    // Before anything is asked of the request: what else is wrong with it tells nothing to one who may not use the key here.
    admit::address_allows(&caller, ctx.client)?;
    let name = idempotency::name(&session.req_header().headers, &caller)?;
    let owner = owner(tollgate, ctx, &caller);
    let from = authenticate::provenance(&session.req_header().headers, &caller);
    let mut precheck = Precheck {
        snapshot: &snapshot,
        caller: &caller,
        id: ctx.id,
        endpoint,
        is_domain_allowed: is_let_in(&caller, from),
        client: ctx.client,
        is_keyed: name.is_some(),
        rate: None,
    };
    let (received, wait) = waited(pin!(receive::body(session, config, owner.room(), &mut precheck))).await;
    ctx.rate = precheck.rate.or(ctx.rate);
    // Also for one that never came to its end.
    ctx.recorder().waited_for_body(wait.unwrap_or_default());
    let received = received?;
    let is_small = receive::is_small(received.length());
    let has_waited = wait.is_some() || parse::is_long(received.length());
    let parsed = parse::parsed(received, endpoint, name).await;
    let caller = match has_waited {
        // Nothing was waited for since the key was looked up.
        false => caller,
        true => {
            check_maintenance(books)?;
            authenticate::of_digest(&digest, &auth_context(tollgate, books, &snapshot, ctx.client)).await?
        }
    };
    let parsed = admit::address_allows(&caller, ctx.client).and(parsed);
    let from = authenticate::provenance(&session.req_header().headers, &caller);
    let (asked, keyed) = match parsed {
        Ok(Parsed { body, keyed }) => (checked(ctx, &caller, body, endpoint, from), keyed),
        Err(error) => (Err(error), None),
    };
    let (permit, body) = match asked {
        Ok(asked) => asked,
        Err(error) => {
            let keyed = keyed.filter(|_| is_let_in(&caller, from));
            let refused = not_made(session, ctx, &caller, (error, keyed), is_small);
            return Box::pin(refused).await.map(|()| None);
        }
    };
    // Seldom, and large: in boxes, here and below.
    let key = match keyed {
        None => None,
        Some(keyed) => match Box::pin(idempotency::take(ctx, &caller, keyed)).await? {
            Keyed::New(key) => Some(key),
            Keyed::Replayed(answer, original) => {
                Box::pin(responses::replay(session, ctx, answer, original)).await?;
                return Ok(None);
            }
        },
    };
    let access = admit::LedgerAccess {
        journal: &books.journal,
        clock: tollgate.clock(),
        snapshot: &snapshot,
        id: ctx.id,
    };
    let mut admission = match admit::admit(&access, caller, permit, &body).await {
        Ok(admission) => admission,
        Err(refused) => {
            ctx.rate = refused.rate.or(ctx.rate);
            return Err(refused.error.into());
        }
    };
    ctx.rate = Some(admission.hold.rate());
    let mut capture = None;
    if let Some(key) = key {
        (admission, capture) = Box::pin(idempotency::send(admission, key, ctx)).await?;
    }
    admission.recorder = ctx.recorder().take();
    Ok(Some(Box::new(Call {
        admission: Some(admission),
        body,
        body_owner: owner,
        settler: Arc::clone(tollgate.settler()),
        client_has_left: false,
        read_on: None,
        unseen_since: None,
        early_end: None,
        failed_within: false,
        extension: None,
        capture,
        is_drained: false,
        tried: Vec::new(),
        attempt: None,
        failure: None,
        verdict: None,
        answer: Answer::None,
    })))
}

/// A call that may not be made: it has the answer that its idempotency key is known for, whatever became of the catalogue since, or its
/// refusal, which counts for the limit of requests where it was work.
async fn not_made(
    session: &mut ServerSession,
    ctx: &mut Ctx,
    caller: &Caller,
    (error, keyed): (ApiError, Option<(KeyName, Fingerprint)>),
    is_small: bool,
) -> Result<(), Failed> {
    let is_catalogues = matches!(error, ApiError::NotFound(_) | ApiError::BadRequest(_));
    let keyed = keyed.filter(|_| is_catalogues);
    let is_work = keyed.is_some() || !is_small;
    if let Some(keyed) = keyed
        && let Some((answer, original)) = idempotency::known(ctx, caller, keyed).await?
    {
        responses::replay(session, ctx, answer, original).await?;
        return Ok(());
    }
    if is_work {
        let snapshot = Arc::clone(&ctx.snapshot);
        let (scope, limits) = admit::limits(&snapshot, caller);
        let counted = caller.count_refused(ctx.id, scope, limits).await;
        ctx.rate = counted.or(ctx.rate);
    }
    Err(error.into())
}

/// Whose memory the request's body takes. A proxy in front is nobody's address.
fn owner(tollgate: &Tollgate, ctx: &Ctx, caller: &Caller) -> BodyOwner {
    let trusted = &ctx.snapshot.config.trusted_proxies;
    let is_proxy = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
    let address = ctx.client.filter(|address| !is_proxy(*address));
    tollgate.body_memory().owner(&caller.key.id, address)
}

/// Whether the key's domain lock lets a request in.
fn is_let_in(caller: &Caller, from: Provenance<'_>) -> bool {
    crate::pure::policy::domain_allowed(&caller.key.domains, from)
}

/// What the body asks for, which the caller may have.
fn checked(
    ctx: &mut Ctx,
    caller: &Caller,
    body: RequestBody,
    endpoint: Endpoint,
    from: Provenance<'_>,
) -> Result<(Permit, Arc<RequestBody>), ApiError> {
    let snapshot = Arc::clone(&ctx.snapshot);
    let body = Arc::new(body);
    let permit = admit::permit(&snapshot, caller, &body, endpoint, from);
    recorder::model(ctx, permit.as_ref().ok(), &body);
    trace::request_params(ctx, &body);
    let permit = permit?;
    surcharges::check(&snapshot, permit.model(), &body)?;
    Ok((permit, body))
}

/// How long a short body of a refused request is waited for.
const SHORT_BODY_MAX: Duration = Duration::from_secs(5);
