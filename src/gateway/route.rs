//! From a path and method to what is asked for, and from a model's targets to the one that is tried next.

use super::snapshot::Snapshot;
use super::upstream::{Breaker, Upstream};
use crate::pure::catalogue::{Model, Target};
use crate::pure::chat::Endpoint;
use crate::pure::error::ApiError;
use crate::pure::time::Timestamp;

use std::collections::BTreeMap;
use std::sync::Arc;

/// What a request asks for (INTERFACE.md section 4, and the paths that OpenAI's clients add to a base address).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
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
    /// `GET {base}/models`, OpenAI's shape.
    OpenAiModels,
    /// `GET {base}/models/{id}`, OpenAI's shape.
    OpenAiModel(String),
}

impl Route {
    /// The methods of the path, for `Allow`.
    pub(super) fn allow(&self) -> &'static str {
        match self {
            Route::Model(_) => "POST, OPTIONS",
            _ => "GET, HEAD, OPTIONS",
        }
    }

    /// Whether the path is open to everyone.
    pub(super) fn is_public(&self) -> bool {
        matches!(self, Route::PublicModels | Route::Health)
    }

    /// What lies at `path`.
    ///
    /// # Errors
    /// 404 for everything outside the interface.
    pub(super) fn at(base_path: &str, path: &str) -> Result<Route, ApiError> {
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
    pub(super) fn with_method(self, method: &http::Method) -> Result<Route, ApiError> {
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

/// A target that can be tried.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// Position among the model's targets.
    pub(super) index: usize,
    pub(super) upstream: Arc<Upstream>,
    pub(super) breaker: Arc<Breaker>,
    /// The upstream's name of the model.
    pub(super) model: Arc<str>,
}

/// The first target that was not tried and whose breaker is closed; when all that are left are open, the one that closes first.
pub(super) fn next_target(snapshot: &Snapshot, model: &str, tried: &[usize], now: Timestamp) -> Option<Candidate> {
    let candidates = snapshot.candidates.get(model)?;
    let untried = || candidates.iter().filter(|candidate| !tried.contains(&candidate.index));
    let closed = untried().find(|candidate| !candidate.breaker.is_open(now));
    closed
        .or_else(|| untried().min_by_key(|candidate| candidate.breaker.open_until()))
        .cloned()
}

/// A model's targets, each with its upstream and breaker.
pub(super) fn candidates(upstreams: &BTreeMap<String, Arc<Upstream>>, model: &Model) -> Arc<[Candidate]> {
    let candidate = |(index, target): (usize, &Target)| {
        let upstream = Arc::clone(upstreams.get(&target.provider)?);
        let breaker = upstream.breaker(&target.model);
        Some(Candidate {
            index,
            upstream,
            breaker,
            model: Arc::from(target.model.as_str()),
        })
    };
    model.targets.iter().enumerate().filter_map(candidate).collect()
}

fn printable(path: &str) -> String {
    path.chars()
        .take(200)
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

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
