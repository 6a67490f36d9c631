//! The path of a request: authenticate -> admit -> route -> forward -> meter -> settle, one file a step.
//!
//! `door` lets a connection in and `serve` takes its requests; this file decides on each. `stage` holds what is known of a request;
//! `receive` reads its body, `carry` takes it to its upstream and the answer back, `native` answers what needs no upstream, `respond`
//! and `cors` write.

mod address;
pub mod admin;
mod admit;
mod authenticate;
mod bounded;
mod breaker;
mod carry;
mod certificates;
mod connections;
mod cors;
pub mod door;
mod drain;
mod forward;
mod judge;
mod life;
mod meter;
pub mod names;
mod native;
mod observe;
mod openapi;
mod output;
mod receive;
mod refresh;
pub mod reload;
mod respond;
mod route;
mod screen;
mod serve;
pub mod server;
mod settle;
pub mod snapshot;
mod stage;
mod strangers;
mod supervisor;
mod trace;
pub mod upgrade;
mod uplinks;
pub mod upstream;
mod watch;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use pingora::protocols::http::ServerSession;

use self::admin::Admin;
use self::life::Life;
use self::native::Failed;
use self::route::Route;
use self::settle::Biller;
use self::snapshot::Snapshot;
use self::stage::{Answer, Call, Ctx, Stage};
use self::strangers::Strangers;
use self::uplinks::Uplinks;
use self::watch::Audited;
use crate::clock::Clock;
use crate::pure::catalogue::Model;
use crate::pure::chat::{Endpoint, RequestBody};
use crate::pure::error::ApiError;
use crate::store::journal::Journal;
use crate::store::{Caller, Ledger};
use crate::telemetry::Telemetry;
use crate::telemetry::record::{MAINTENANCE, RouteName};

/// The gateway: what is called for each request.
pub struct Gateway {
    snapshot: Arc<ArcSwap<Snapshot>>,
    ledger: Ledger,
    journal: Arc<Journal>,
    clock: Clock,
    biller: Arc<Biller>,
    life: Arc<Life>,
    telemetry: Arc<Telemetry>,
    audited: Arc<Audited>,
    strangers: Strangers,
    uplinks: Uplinks,
}

impl Gateway {
    /// A gateway over a ledger and its journal; `snapshot` may be swapped at any time.
    pub fn new(snapshot: Arc<ArcSwap<Snapshot>>, ledger: Ledger, journal: Arc<Journal>, clock: Clock) -> Gateway {
        Gateway {
            snapshot,
            ledger,
            journal,
            biller: Biller::new(clock.clone()),
            clock,
            life: Life::new(),
            strangers: Strangers::new(),
            telemetry: Arc::default(),
            audited: Arc::default(),
            uplinks: Uplinks::new(),
        }
    }

    /// The same, counting in `telemetry`.
    pub fn observed_by(self, telemetry: &Arc<Telemetry>) -> Gateway {
        let telemetry = Arc::clone(telemetry);
        Gateway { telemetry, ..self }
    }

    /// What the admin listener answers from.
    pub fn admin(&self) -> Admin {
        Admin {
            snapshot: Arc::clone(&self.snapshot),
            ledger: self.ledger.clone(),
            clock: self.clock.clone(),
            life: Arc::clone(&self.life),
            telemetry: Arc::clone(&self.telemetry),
            audited: Arc::clone(&self.audited),
            journal: Arc::clone(&self.journal),
            started: self.clock.now(),
            series: Mutex::default(),
        }
    }

    /// Waits for what is still being billed. Blocks; called once, after the last request and before the ledger closes.
    pub fn finisher(&self) -> impl FnOnce() + use<> {
        let biller = Arc::clone(&self.biller);
        move || biller.finish()
    }

    /// Requests under way, for whoever stops the process.
    fn life(&self) -> Arc<Life> {
        Arc::clone(&self.life)
    }

    /// Decides on a request: answers it, or leaves it admitted and ready to be forwarded.
    async fn decide(&self, session: &mut ServerSession, ctx: &mut Ctx) -> Result<bool, Failed> {
        screen::check(session)?;
        let request = session.req_header();
        let route = Route::at(&ctx.snapshot.config.base_path, request.uri.path());
        let name = match &route {
            _ if request.method == http::Method::OPTIONS => RouteName::Preflight,
            Ok(route) => observe::name(route),
            Err(_) => RouteName::None,
        };
        observe::route(ctx, name, request.uri.path());
        if request.method == http::Method::OPTIONS {
            // A page can only read that a path is unknown when its browser was let through to ask for it.
            let asks_for_page = request
                .headers
                .contains_key(http::header::ACCESS_CONTROL_REQUEST_METHOD);
            let allow = match &route {
                Err(_) if asks_for_page => route::EVERY_METHOD,
                found => found.as_ref().map_err(Clone::clone)?.allow(),
            };
            respond::preflight(session, ctx, allow).await?;
            return Ok(true);
        }
        let route = route?;
        let route = route.with_method(&request.method)?;
        if route.is_public() {
            native::public(session, ctx, &route).await?;
            return Ok(true);
        }
        let guard = authenticate::Guard {
            key_prefix: &ctx.snapshot.config.key_prefix,
            ledger: &self.ledger,
            clock: &self.clock,
            strangers: &self.strangers,
            address: ctx.client,
            failures_max: ctx.snapshot.config.auth_failures_per_minute,
        };
        let caller = authenticate::caller(&request.headers, &guard).await?;
        if let Some(tally) = &mut ctx.tally {
            tally.caller(&caller.account.id, &caller.key.id);
        }
        let (scope, limits) = admit::limits(&ctx.snapshot, &caller);
        ctx.rate = Some(self.ledger.rate(&caller, &scope, limits));
        let Route::Model(endpoint) = route else {
            let from = authenticate::provenance(&request.headers);
            if !crate::pure::policy::domain_allowed(&caller.key.domains, from) {
                return Err(ApiError::Forbidden("This key may not be used from this domain.".to_owned()).into());
            }
            native::for_caller(self, session, ctx, &route, &caller).await?;
            return Ok(true);
        };
        self.admit(session, ctx, endpoint, caller).await?;
        Ok(false)
    }

    async fn admit(
        &self,
        session: &mut ServerSession,
        ctx: &mut Ctx,
        endpoint: Endpoint,
        caller: Caller,
    ) -> Result<(), Failed> {
        let snapshot = Arc::clone(&ctx.snapshot);
        let config = &snapshot.config;
        if self.ledger.in_maintenance() {
            if let Some(tally) = &mut ctx.tally {
                tally.because(MAINTENANCE);
            }
            let message = "The service is under maintenance.";
            return Err(ApiError::Unavailable {
                message,
                retry_after_secs: 30,
            }
            .into());
        }
        let began = crate::clock::monotonic();
        let bytes = receive::body(session, config.body_bytes_max, config.timeouts.body).await?;
        if let Some(tally) = &mut ctx.tally {
            tally.waited_for_body(began.elapsed());
        }
        let body = RequestBody::parse(bytes, endpoint).map_err(|e| ApiError::BadRequest(sentence(&e)))?;
        let from = authenticate::provenance(&session.req_header().headers);
        let permit = admit::permit(&snapshot, &caller, &body, endpoint, from);
        observe::model(ctx, permit.as_ref().ok(), &body);
        trace::wishes(ctx, &body);
        let permit = permit?;
        check_fields(&snapshot, permit.model(), &body)?;
        let door = admit::Door {
            ledger: &self.ledger,
            journal: &self.journal,
            clock: &self.clock,
            snapshot: &snapshot,
            id: ctx.id,
        };
        let mut admission = match admit::admit(&door, caller, permit, &body).await {
            Ok(admission) => admission,
            Err(refused) => {
                ctx.rate = refused.rate.or(ctx.rate);
                return Err(refused.error.into());
            }
        };
        ctx.rate = Some(admission.hold.rate());
        admission.tally = ctx.tally.take();
        ctx.stage = Stage::Admitted(Box::new(Call {
            admission: Some(admission),
            body,
            biller: Arc::clone(&self.biller),
            client_is_gone: false,
            tried: Vec::new(),
            attempt: None,
            stale_retries: 0,
            failure: None,
            answer: Answer::None,
        }));
        Ok(())
    }
}

/// Refuses a field by which one of the model's providers would run or charge something else.
fn check_fields(snapshot: &Snapshot, model: &Model, body: &RequestBody) -> Result<(), ApiError> {
    let mut upstreams = model
        .targets
        .iter()
        .filter_map(|target| snapshot.upstreams.get(&target.provider));
    upstreams
        .try_for_each(|upstream| body.check_fields(&upstream.parts.rules))
        .map_err(|error| ApiError::BadRequest(sentence(&error)))
}

/// An error's text as a sentence of its own.
fn sentence(error: &impl std::fmt::Display) -> String {
    let text = error.to_string();
    let mut chars = text.chars();
    let first: String = chars.next().map(|c| c.to_uppercase().collect()).unwrap_or_default();
    let rest = chars.as_str();
    if rest.ends_with('.') {
        format!("{first}{rest}")
    } else {
        format!("{first}{rest}.")
    }
}

/// How long an upstream is read on for a client that has gone, for its usage report.
const DRAIN_MAX: Duration = Duration::from_secs(120);
