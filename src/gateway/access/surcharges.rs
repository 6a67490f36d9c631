//! What of a request one of its model's providers would run or charge otherwise than the model's prices say: refused before anything is held.

use super::parse::sentence;
use crate::gateway::snapshot::Snapshot;
use crate::pure::catalogue::Model;
use crate::pure::error::ApiError;
use crate::pure::request_body::RequestBody;

/// Refuses a field by which one of the model's providers would run or charge something else, and a file that one would parse for a fee.
///
/// # Errors
/// 400.
pub(super) fn check(snapshot: &Snapshot, model: &Model, body: &RequestBody) -> Result<(), ApiError> {
    let mut upstreams = model
        .targets
        .iter()
        .filter_map(|target| snapshot.upstreams.get(&target.provider));
    let has_unread_files = body.files() > 0 && !reads_files(model);
    upstreams.try_for_each(|upstream| {
        let provider = &upstream.provider;
        let is_allowed = provider.allow_fields.iter().any(|field| field == CHOOSES_PARSER);
        if has_unread_files && provider.base_url.is_within(PARSES_FILES) && !is_allowed {
            return Err(ApiError::BadRequest(format!(
                "{} reads no files; its provider would parse them for a fee.",
                model.id
            )));
        }
        body.check_fields(&upstream.parts.rules, Some(&model.prices))
            .map_err(|error| ApiError::BadRequest(sentence(&error)))
    })
}

/// Whether files are among the inputs of the model's modality.
fn reads_files(model: &Model) -> bool {
    let (inputs, _) = model.modality.split_once("->").unwrap_or_default();
    inputs.split('+').any(|input| input == "file")
}

/// OpenRouter has a file parsed, by the page, for a model that does not read it itself.
const PARSES_FILES: &str = "openrouter.ai";
/// The field that chooses how. It is refused, unless the operator allows it and bears what it costs.
const CHOOSES_PARSER: &str = "plugins";
