//! The console's page and its files.

use http::HeaderValue;

use crate::gateway::api::pages::{PageFile, guard};
use crate::pure::error::operator::OperatorError;
use crate::server::console;
use crate::server::operator::answer::Answer;
use crate::server::operator::call::Call;

pub(in crate::server::operator) async fn console() -> Result<Answer, OperatorError> {
    Ok(shown(&console::PAGE))
}

pub(in crate::server::operator) async fn file(call: &Call<'_>) -> Result<Answer, OperatorError> {
    let file = console::file(call.name()).ok_or_else(|| OperatorError::not_found("There is no such path."))?;
    Ok(shown(file))
}

fn shown(file: &'static PageFile) -> Answer {
    let mut answer = Answer::body(HeaderValue::from_static(file.media_type), file.text);
    guard(&mut answer.headers);
    answer
}
