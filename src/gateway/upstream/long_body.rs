//! A long body on its way to an upstream: what reads or copies all of it is done on a thread of its own, for the streams of this one do not
//! wait for it.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Semaphore;

use crate::gateway::access::parse::elsewhere;
use crate::pure::error::ApiError;
use crate::pure::request_body::{Edit, RequestBody};

/// [`RequestBody::conversation`] of a long body.
///
/// # Errors
/// 500 where it could not be told.
pub(super) async fn conversation(
    body: &Arc<RequestBody>,
    account: &str,
    header: Option<&str>,
) -> Result<Option<u64>, ApiError> {
    let (body, account, header) = (Arc::clone(body), account.to_owned(), header.map(str::to_owned));
    elsewhere(&SENDING, move || body.conversation(&account, header.as_deref())).await
}

/// [`RequestBody::edit`] of a long body.
///
/// # Errors
/// 500 where it could not be made.
pub(super) async fn edited(body: &Arc<RequestBody>, edit: &Edit<'_>) -> Result<Bytes, ApiError> {
    let (body, model) = (Arc::clone(body), edit.model.to_owned());
    let (maximum, cap, rules, stream_usage) = (edit.maximum, edit.cap, edit.rules, edit.stream_usage);
    let make = move || {
        body.edit(&Edit {
            model: &model,
            maximum,
            cap,
            rules,
            stream_usage,
        })
    };
    elsewhere(&SENDING, make).await
}

/// How many long bodies are made ready at once, beside those that are parsed: a call that is admitted does not wait for others to be.
static SENDING: Semaphore = Semaphore::const_new(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::access::parse::tests::{least, working};
    use crate::pure::request_body::{Endpoint, FieldRules, MaximumField, StreamUsage};

    /// 16 MB of messages of users.
    fn body() -> Arc<RequestBody> {
        let message = r#"{"role":"user","content":"word word word word word"}"#;
        let messages = vec![message; (16 << 20) / message.len()].join(",");
        let text = format!(r#"{{"model":"a/m","messages":[{messages}]}}"#);
        Arc::new(RequestBody::parse(text.into(), Endpoint::Chat).unwrap())
    }

    #[test]
    fn a_long_body_is_read_and_copied_on_another_thread() {
        let body = body();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();

        let (expected, there) = working(|| body.conversation("acme", None));
        let (told, here) = least(|| working(|| runtime.block_on(conversation(&body, "acme", None))));
        assert_eq!(told.unwrap(), expected);
        assert!(here < there / 2, "{here:?} here, where it takes {there:?}");

        let edit = Edit {
            model: "m",
            maximum: MaximumField::MaxTokens,
            cap: None,
            rules: FieldRules::default(),
            stream_usage: StreamUsage::Ask,
        };
        let (expected, there) = least(|| working(|| body.edit(&edit)));
        let (made, here) = least(|| working(|| runtime.block_on(edited(&body, &edit))));
        assert_eq!(made.unwrap(), expected);
        assert!(here < there / 2, "{here:?} here, where it takes {there:?}");
    }
}
