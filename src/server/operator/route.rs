//! What a line of the table of routes says: path, method, who may, what the body is, what answers.

use futures::future::BoxFuture;
use http::Method;

use super::answer::Answer;
use super::call::Call;
use crate::pure::error::operator::OperatorError;
use crate::pure::operator::Right;

/// A path and a method, and what becomes of them.
pub(super) struct Route {
    pub(super) method: Method,
    /// With names in braces, each for one part of a path.
    pub(super) path: &'static str,
    pub(super) needs: Needs,
    pub(super) takes: Takes,
    pub(super) run: Run,
}

/// Who may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    /// Everybody: what answers sees to it.
    Nobody,
    /// Every operator.
    Operator,
    /// An operator whose role has one of these rights. Which one is needed may depend on the request: each command is checked too.
    OneOf(&'static [Right]),
}

/// What the body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// There is none.
    Nothing,
    /// JSON. An endpoint is given its bytes as they came.
    Json,
    /// The same of a few KiB, from whoever asks.
    ShortJson,
}

/// What answers.
pub(super) type Run = for<'c> fn(&'c Call<'c>) -> BoxFuture<'c, Result<Answer, OperatorError>>;

pub(super) const fn route(method: Method, path: &'static str, needs: Needs, takes: Takes, run: Run) -> Route {
    Route {
        method,
        path,
        needs,
        takes,
        run,
    }
}

pub(super) const fn get(path: &'static str, run: Run) -> Route {
    route(Method::GET, path, Needs::Operator, Takes::Nothing, run)
}

/// Open to everybody: it says nothing of anybody.
pub(super) const fn page(path: &'static str, run: Run) -> Route {
    route(Method::GET, path, Needs::Nobody, Takes::Nothing, run)
}

pub(super) const fn post(path: &'static str, needs: Needs, run: Run) -> Route {
    route(Method::POST, path, needs, Takes::Json, run)
}

pub(super) const fn patch(path: &'static str, needs: Needs, run: Run) -> Route {
    route(Method::PATCH, path, needs, Takes::Json, run)
}

pub(super) const fn delete(path: &'static str, needs: Needs, run: Run) -> Route {
    route(Method::DELETE, path, needs, Takes::Nothing, run)
}
