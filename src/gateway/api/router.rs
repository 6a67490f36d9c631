//! From a path and method to what is asked for, and from a model's targets to the one that is tried next.

use crate::clock::Clock;
use crate::gateway::snapshot::Snapshot;
use crate::gateway::upstream::circuit_breaker::Breaker;
use crate::gateway::upstream::providers::Upstream;
use crate::pure::catalogue::{Model, Target};
use crate::pure::error::ApiError;
use crate::pure::request_body::Endpoint;
use crate::pure::time::Timestamp;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a request asks for (see the served OpenAPI description, and the paths that OpenAI's clients add to a base address).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// A call that goes to an upstream.
    Model(Endpoint),
    /// `GET /llm/balance`.
    Balance,
    /// `GET /llm/usage`.
    Usage,
    /// `GET /llm/models`.
    Models,
    /// `GET /llm/models/purposes`.
    Purposes,
    /// `GET /llm/public/models`.
    PublicModels,
    /// `GET /llm/health`.
    Health,
    /// `GET {base}/openapi.json`.
    Description,
    /// `GET {base}/models`, OpenAI's shape.
    OpenAiModels,
    /// `GET {base}/models/{id}`, OpenAI's shape.
    OpenAiModel(String),
}

impl Route {
    /// The methods of the path, for `Allow`.
    pub(crate) fn allow(&self) -> &'static str {
        match self {
            Route::Model(_) => "POST, OPTIONS",
            _ => "GET, HEAD, OPTIONS",
        }
    }

    /// Whether the path is open to everyone.
    pub(crate) fn is_public(&self) -> bool {
        matches!(self, Route::PublicModels | Route::Health | Route::Description)
    }

    /// What lies at `path`.
    ///
    /// # Errors
    /// 404 for everything outside the interface.
    pub(crate) fn at(base_path: &str, path: &str) -> Result<Route, ApiError> {
        let unknown = || ApiError::NotFound(format!("There is no such path: {}", printable(path)));
        let below = path.strip_prefix(base_path).ok_or_else(unknown)?;
        Ok(match below {
            "/llm/chat" | "/chat/completions" => Route::Model(Endpoint::Chat),
            "/llm/chat/stream" => Route::Model(Endpoint::ChatStream),
            "/llm/embeddings" | "/embeddings" => Route::Model(Endpoint::Embeddings),
            "/llm/balance" => Route::Balance,
            "/llm/usage" => Route::Usage,
            "/llm/models" => Route::Models,
            "/llm/models/purposes" => Route::Purposes,
            "/llm/public/models" => Route::PublicModels,
            "/llm/health" => Route::Health,
            "/openapi.json" => Route::Description,
            "/models" => Route::OpenAiModels,
            other => {
                let id = other
                    .strip_prefix("/models/")
                    .filter(|id| !id.is_empty())
                    .ok_or_else(unknown)?;
                let decoded = percent_encoding::percent_decode_str(id)
                    .decode_utf8()
                    .map_err(|_| unknown())?;
                Route::OpenAiModel(decoded.into_owned())
            }
        })
    }

    /// The route for a method.
    ///
    /// # Errors
    /// 405 with what is allowed.
    pub(crate) fn with_method(self, method: &http::Method) -> Result<Route, ApiError> {
        let fits = match &self {
            Route::Model(_) => *method == http::Method::POST,
            _ => *method == http::Method::GET || *method == http::Method::HEAD,
        };
        if fits {
            Ok(self)
        } else {
            Err(ApiError::MethodNotAllowed { allow: self.allow() })
        }
    }
}

/// The methods of all paths, for a page that asks for one that is unknown.
pub(crate) const EVERY_METHOD: &str = "GET, HEAD, POST, OPTIONS";

/// A target that can be tried.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// Position among the model's targets.
    pub(crate) index: usize,
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) breaker: Arc<Breaker>,
    /// The upstream's name of the model.
    pub(crate) model: Arc<str>,
    /// 0 for a target without one.
    weight: u64,
}

/// A model's targets, each with its upstream and breaker.
#[derive(Debug)]
pub(crate) struct Candidates {
    all: Vec<Candidate>,
    /// Calls so far, for the targets that share them by weight.
    turn: AtomicU64,
}

impl Candidates {
    /// All of them, in the catalogue's order.
    pub(crate) fn all(&self) -> &[Candidate] {
        &self.all
    }

    pub(crate) fn of(upstreams: &BTreeMap<String, Arc<Upstream>>, model: &Model) -> Candidates {
        let candidate = |(index, target): (usize, &Target)| {
            let upstream = Arc::clone(upstreams.get(&target.provider)?);
            let breaker = upstream.breaker(&target.model);
            Some(Candidate {
                index,
                upstream,
                breaker,
                model: Arc::from(target.model.as_str()),
                weight: target.weight.map_or(0, |weight| u64::from(weight.get())),
            })
        };
        Candidates {
            all: model.targets.iter().enumerate().filter_map(candidate).collect(),
            turn: AtomicU64::new(0),
        }
    }

    /// The next target: one of the weighted by its share, else the first, that was not tried and whose breaker admits the call. When
    /// none of those that are left does, the one that closes first. Who asks has to try it: another call may be waiting for what
    /// becomes of it.
    fn next(&self, tried: &[usize], now: impl Fn() -> Timestamp) -> Option<&Candidate> {
        let untried = || self.all.iter().filter(|candidate| !tried.contains(&candidate.index));
        let mut weighted: Vec<&Candidate> = untried().filter(|candidate| candidate.weight > 0).collect();
        while let Some(chosen) = self.share(&weighted) {
            if chosen.breaker.admits(&now) {
                return Some(chosen);
            }
            weighted.retain(|candidate| candidate.index != chosen.index);
        }
        let mut in_order = untried().filter(|candidate| candidate.weight == 0);
        in_order
            .find(|candidate| candidate.breaker.admits(&now))
            .or_else(|| untried().min_by_key(|candidate| candidate.breaker.open_until()))
    }

    /// One of these by its weight: turns are spread evenly, so that no run of calls goes to one of them.
    fn share<'c>(&self, weighted: &[&'c Candidate]) -> Option<&'c Candidate> {
        let total: u64 = weighted.iter().map(|candidate| candidate.weight).sum();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        // The turn's place between 0 and 1, as a fraction of 2^64, times the total.
        let place = u128::from(turn.wrapping_mul(GOLDEN_RATIO));
        let mut point = u64::try_from(place.saturating_mul(u128::from(total)) >> 64).ok()?;
        weighted.iter().copied().find(|candidate| {
            let within = point < candidate.weight;
            point = point.saturating_sub(candidate.weight);
            within
        })
    }
}

/// The target of a model that is tried next, after those that were.
pub(crate) fn next_target(snapshot: &Snapshot, model: &str, tried: &[usize], clock: &Clock) -> Option<Candidate> {
    snapshot.candidates.get(model)?.next(tried, || clock.now()).cloned()
}

/// Whether a target is left that was not tried.
pub(crate) fn is_target_left(snapshot: &Snapshot, model: &str, tried: &[usize]) -> bool {
    let candidates = snapshot.candidates.get(model);
    candidates.is_some_and(|candidates| candidates.all.iter().any(|candidate| !tried.contains(&candidate.index)))
}

fn printable(path: &str) -> String {
    path.chars()
        .take(200)
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

/// 2^64 divided by the golden ratio: its multiples spread over the numbers evenly.
const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let at = |path: &str| Route::at("/api/v1", path);
        assert_eq!(at("/api/v1/llm/chat").unwrap(), Route::Model(Endpoint::Chat));
        assert_eq!(
            at("/api/v1/models/a/b:free").unwrap(),
            Route::OpenAiModel("a/b:free".into())
        );
        assert_eq!(
            at("/api/v1/models/a%2Fb%3Afree").unwrap(),
            Route::OpenAiModel("a/b:free".into())
        );
        for unknown in [
            "/",
            "/api/v1",
            "/api/v1/",
            "/api/v1/models/",
            "/api/v1/llm/chat/",
            "/api/v2/llm/chat",
            "/llm/chat",
            "/api/v1/models/%ff",
        ] {
            assert!(matches!(at(unknown), Err(ApiError::NotFound(_))), "{unknown}");
        }
    }

    #[test]
    fn methods() {
        let chat = Route::Model(Endpoint::Chat);
        assert!(chat.clone().with_method(&http::Method::POST).is_ok());
        assert_eq!(
            chat.with_method(&http::Method::GET),
            Err(ApiError::MethodNotAllowed { allow: "POST, OPTIONS" })
        );
        assert!(Route::Health.with_method(&http::Method::HEAD).is_ok());
        assert!(Route::Health.with_method(&http::Method::DELETE).is_err());
    }
}
