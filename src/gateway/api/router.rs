//! From a path and method to what is asked for.
//!
//! What metrics call a route is `telemetry::labels::RouteName`, which says why it is another list.

use super::pages::Page;
use crate::pure::error::ApiError;
use crate::pure::request_body::Endpoint;

/// What a request asks for (see the served OpenAPI description, and the paths that OpenAI's clients add to a base address).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// A call that goes to an upstream.
    Model(Endpoint),
    /// `GET /llm/balance`.
    Balance,
    /// `GET {base}/key`.
    Key,
    /// `GET /llm/usage`.
    Usage,
    /// `GET /llm/generation`: what one call cost.
    Generation,
    /// `GET /llm/generations`: what the newest calls cost.
    Generations,
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
    /// `GET {base}/wallet`, `GET {base}/prices`, and their files.
    Page(Page),
    /// `GET {base}/wallet/`, `GET {base}/prices/`: the page is at this path, relative to the one that was asked for.
    Moved(&'static str),
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
        matches!(
            self,
            Route::PublicModels | Route::Health | Route::Description | Route::Page(_) | Route::Moved(_)
        )
    }

    /// What lies at `path`.
    ///
    /// # Errors
    /// 404 for everything outside the interface.
    pub(crate) fn at(base_path: &str, path: &str) -> Result<Route, ApiError> {
        let unknown = || ApiError::NotFound(unknown_path(base_path, path));
        let below = path.strip_prefix(base_path).ok_or_else(unknown)?;
        Ok(match below {
            "/llm/chat" | "/chat/completions" => Route::Model(Endpoint::Chat),
            "/llm/chat/stream" => Route::Model(Endpoint::ChatStream),
            "/llm/embeddings" | "/embeddings" => Route::Model(Endpoint::Embeddings),
            "/llm/balance" => Route::Balance,
            "/llm/usage" => Route::Usage,
            "/llm/generation" | "/generation" => Route::Generation,
            "/llm/generations" => Route::Generations,
            "/llm/models" => Route::Models,
            "/llm/models/purposes" => Route::Purposes,
            "/llm/public/models" => Route::PublicModels,
            "/llm/health" => Route::Health,
            "/openapi.json" => Route::Description,
            "/key" => Route::Key,
            "/models" => Route::OpenAiModels,
            "/wallet" => Route::Page(Page::Wallet),
            "/prices" => Route::Page(Page::Prices),
            "/wallet/" => Route::Moved("../wallet"),
            "/prices/" => Route::Moved("../prices"),
            "/responses" | "/completions" | "/messages" => {
                return Err(ApiError::NotFound(other_interface(base_path, below)));
            }
            other => {
                if let Some(name) = other.strip_prefix("/wallet/") {
                    return Page::file(name).map(Route::Page).ok_or_else(unknown);
                }
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

/// What is told of a path outside the interface. Most often a client's base URL is wrong: it is told where the interface is.
fn unknown_path(base_path: &str, path: &str) -> String {
    let path = printable(path);
    match base_path {
        "" => format!("There is no such path: {path}"),
        _ => format!("There is no such path: {path}. The interface begins with {base_path}."),
    }
}

/// What is told of a path of an interface that this is not.
fn other_interface(base_path: &str, below: &str) -> String {
    format!("There is no {below} here. Use chat completions: POST {base_path}/chat/completions.")
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
        assert_eq!(at("/api/v1/wallet").unwrap(), Route::Page(Page::Wallet));
        assert!(matches!(at("/api/v1/wallet/page.css"), Ok(Route::Page(Page::File(_)))));
        assert_eq!(at("/api/v1/wallet/").unwrap(), Route::Moved("../wallet"));
        assert_eq!(at("/api/v1/prices/").unwrap(), Route::Moved("../prices"));
        for unknown in [
            "/api/v1/wallet//",
            "/api/v1/wallet/wallet.html",
            "/api/v1/prices/prices.js",
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
    fn an_unknown_path_is_told_where_the_interface_is() {
        let told = |base_path: &str, path: &str| match Route::at(base_path, path) {
            Err(ApiError::NotFound(message)) => message,
            found => panic!("{path}: {found:?}"),
        };
        for path in [
            "/v1/chat/completions",
            "/chat/completions",
            "/api/v1/llm/chat/completions",
        ] {
            let expected = format!("There is no such path: {path}. The interface begins with /api/v1.");
            assert_eq!(told("/api/v1", path), expected);
        }
        assert_eq!(told("", "/nope"), "There is no such path: /nope");
        for below in ["/responses", "/completions", "/messages"] {
            let rest = "here. Use chat completions: POST /api/v1/chat/completions.";
            assert_eq!(
                told("/api/v1", &format!("/api/v1{below}")),
                format!("There is no {below} {rest}")
            );
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
