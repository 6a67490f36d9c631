//! What an endpoint is given: the request, who asks, and the way to the ledger, on which every command is theirs.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, oneshot};

use super::answer::wrong_reply;
use super::auth::Known;
use super::query::{QUOTED_MAX, Query};
use super::rights::{self, Way};
use super::state::OperatorApi;
use super::under_way::UnderWay;
use crate::config::explain;
use crate::failpoints;
use crate::gateway::snapshot::Snapshot;
use crate::ledger::admin::Acted;
use crate::ledger::admin::operators::Actor;
use crate::ledger::admin::unseen::Maker;
use crate::ledger::admin::{AdminError, AdminOp, AdminReply};
use crate::ledger::control::UNKNOWN_COMMAND;
use crate::pure::error::operator::OperatorError;
use crate::pure::error::{ApiError, KeyFault};
use crate::pure::ids::AccountId;

/// One request, read and allowed.
pub(in crate::server) struct Call<'r> {
    pub(super) api: &'r OperatorApi,
    pub(super) snapshot: Arc<Snapshot>,
    /// None where the path is open.
    pub(super) known: Option<Known>,
    pub(super) address: IpAddr,
    pub(super) is_tls: bool,
    pub(super) headers: &'r HeaderMap,
    /// What stands in the places of the path's names, in their order.
    pub(super) names: Vec<String>,
    pub(super) query: &'r str,
    pub(super) body: Bytes,
    pub(super) under_way: &'r UnderWay,
}

impl Call<'_> {
    /// The body, as what it has to be.
    ///
    /// # Errors
    /// 400 with what is wrong with it; an unknown field with the nearest known one.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, OperatorError> {
        // A list would be read as an object's fields in their order.
        if self.body.trim_ascii_start().first() != Some(&b'{') {
            return Err(OperatorError::bad("The body cannot be read: it is not a JSON object."));
        }
        serde_json::from_slice(&self.body).map_err(|error| {
            let problem = told(&error.to_string());
            OperatorError::bad(format!("The body cannot be read: {problem}."))
        })
    }

    /// The parameters of the query.
    ///
    /// # Errors
    /// 400 for one that is not among `known`.
    pub(super) fn query(&self, known: &[&str]) -> Result<Query, OperatorError> {
        Query::read(self.query, known)
    }

    /// What stands in the path in the place of the first name.
    pub(super) fn name(&self) -> &str {
        self.names.first().map(String::as_str).unwrap_or_default()
    }

    /// The account that the path names.
    ///
    /// # Errors
    /// 404 when no account can have that name.
    pub(super) fn account(&self) -> Result<AccountId, OperatorError> {
        self.name()
            .parse()
            .map_err(|_| OperatorError::not_found("There is no account of that name."))
    }

    /// Runs a command of the ledger in the operator's name: it is in the log when it writes.
    ///
    /// # Errors
    /// 403 when their role may not, and what the ledger refuses.
    pub(super) async fn run(&self, op: AdminOp) -> Result<AdminReply, OperatorError> {
        self.command(op).await?.map_err(|error| refused(&error))
    }

    /// The same with the ledger's own answer.
    ///
    /// # Errors
    /// 403 when their role may not.
    pub(super) async fn command(&self, op: AdminOp) -> Result<Result<AdminReply, AdminError>, OperatorError> {
        let actor = self.allowed(&op)?;
        let places = self.api.running.of(&op);
        self.run_in(places, actor, op).await
    }

    /// The same in another's name, where the path is open and a signature has said whose it is: what it reads waits for no operator's reads.
    ///
    /// # Errors
    /// When the command was not seen to its end.
    pub(super) async fn run_as(
        &self,
        actor: Actor,
        op: AdminOp,
    ) -> Result<Result<AdminReply, AdminError>, OperatorError> {
        self.run_in(self.api.running.of_acts(), actor, op).await
    }

    /// Runs a command once one of these places is free.
    async fn run_in(
        &self,
        places: Arc<Semaphore>,
        actor: Actor,
        op: AdminOp,
    ) -> Result<Result<AdminReply, AdminError>, OperatorError> {
        let is_act = op.is_act();
        let op = match is_act {
            true => AdminOp::By(Box::new(Acted { actor, op })),
            false => op,
        };
        let (maker, unseen) = (Maker::of(&op), self.under_way.unseen());
        let (answer, ledger) = (self.api.run(op), self.api.ledger().clone());
        if is_act {
            self.under_way.begin(&self.api.admin.life)?;
        }
        let place = places.acquire_owned().await.map_err(|_| internal())?;
        // Until what nobody heard of is undone.
        let under_way = is_act.then(|| self.api.admin.life.enter_act());
        let (told, heard) = oneshot::channel();
        #[expect(
            clippy::disallowed_methods,
            reason = "a command that was begun comes to its end, and into the log, whatever becomes of its connection"
        )]
        tokio::spawn(async move {
            failpoints::stall("act");
            let answer = answer.await;
            if let (Some(maker), Ok(reply)) = (maker, &answer)
                && let Some(revoke) = maker.revoke(reply)
            {
                // First: who hears of it may find that it cannot be told.
                unseen.made(revoke);
            }
            if told.send(answer).is_err() {
                unseen.take_back(&ledger, "did not wait for it").await;
            }
            drop((place, under_way));
        });
        heard.await.map_err(|_| internal())
    }

    /// Checks that the operator may give a command: it can be done before the first of several.
    ///
    /// # Errors
    /// 403 when their role may not.
    pub(super) fn allowed(&self, op: &AdminOp) -> Result<Actor, OperatorError> {
        let operator = &self.known()?.operator;
        match rights::needed(op) {
            Way::Closed => Err(OperatorError::bad("This command is the gateway's own.")),
            Way::With(right) if !operator.role.may(right) => Err(OperatorError::RoleLacks {
                role: operator.role,
                needs: vec![right],
            }),
            Way::With(_) => Ok(Actor {
                id: operator.id.clone(),
                name: operator.name.clone(),
                role: operator.role,
                address: Some(self.address.to_string()),
            }),
        }
    }

    /// Who asks.
    ///
    /// # Errors
    /// 401 where the path is open and nobody was asked for.
    pub(super) fn known(&self) -> Result<&Known, OperatorError> {
        let known = self.known.as_ref();
        known.ok_or(OperatorError::Unauthenticated(KeyFault::Missing))
    }
}

/// Takes a reply apart, or says that it is another command's.
pub(super) fn expect<T>(reply: AdminReply, take: impl FnOnce(AdminReply) -> Option<T>) -> Result<T, OperatorError> {
    take(reply).ok_or_else(wrong_reply)
}

/// What serde says. Of a long text that it quotes only the beginning is sent back, and nothing like it is looked for.
fn told(text: &str) -> String {
    let quoted = text.find(['`', '"']).and_then(|begin| {
        let quote = text.get(begin..)?.chars().next()?;
        let end = text.rfind(&format!("{quote}, expected")).or_else(|| text.rfind(quote));
        let quoted = text.get(begin.saturating_add(1)..end?)?;
        Some((text.get(..=begin)?, quoted, text.get(end?..)?))
    });
    match quoted {
        Some((before, quoted, after)) if quoted.len() > QUOTED_MAX && text.len() > SAID_MAX => {
            format!("{before}{}…{after}", brief(quoted))
        }
        _ => explain(text),
    }
}

/// The beginning of a text, of at most [`QUOTED_MAX`] bytes.
fn brief(text: &str) -> &str {
    text.get(..text.floor_char_boundary(QUOTED_MAX)).unwrap_or_default()
}

/// Problems of at most so many bytes are told as they are: names of fields that are known stand in them.
const SAID_MAX: usize = 200;

fn internal() -> OperatorError {
    OperatorError::Api(ApiError::Internal)
}

/// How the ledger's refusals are told.
pub(super) fn refused(error: &AdminError) -> OperatorError {
    let text = error.to_string();
    match error {
        AdminError::NoAccount(_) | AdminError::NoKey | AdminError::NoOperator(_) => OperatorError::not_found(text),
        AdminError::AccountExists(_) | AdminError::ReferenceConflict(_) | AdminError::Conflict(_) => {
            OperatorError::Conflict(text)
        }
        // Of a gateway of an earlier version that has taken over the ledger.
        AdminError::Invalid(why) if why.starts_with(UNKNOWN_COMMAND) => OperatorError::Ledger(text),
        AdminError::Invalid(_) => OperatorError::bad(text),
        AdminError::NotConfirmed(_) => OperatorError::Ledger(text),
        AdminError::Busy(_) => OperatorError::Api(ApiError::REPORTS_AT_ONCE),
        AdminError::Store(_) => {
            log::warn!("an operator's command: {error}");
            OperatorError::Ledger(text)
        }
    }
}
