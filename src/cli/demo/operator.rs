//! The demo's operator, who signs in to the console: made at the first start, with the token of the last one while that is good.

use std::path::Path;

use super::files;
use crate::cli::failure::Failure;
use crate::cli::key::random;
use crate::cli::ledger::ask;
use crate::clock::Clock;
use crate::config::Config;
use crate::ledger::admin::operators::OperatorOp;
use crate::ledger::admin::{AdminOp, AdminReply};
use crate::pure::ids::ApiKey;
use crate::pure::operator::{Role, TOKEN_PREFIX, token};

/// The token of an operator with the role admin.
///
/// # Errors
/// When the ledger cannot say, or the token cannot be kept.
pub(super) fn with_token(config: &Config, folder: &Path) -> Result<ApiKey, Failure> {
    if let Some(kept) = files::kept(folder, files::TOKEN, TOKEN_PREFIX)
        && is_good(config, &kept)?
    {
        return Ok(kept);
    }
    let token = token(random()?);
    let create = OperatorOp::Create {
        digest: token.digest().to_hex(),
        name: NAME.to_owned(),
        role: Role::Admin,
        expires_in_ms: None,
    };
    ask(config, AdminOp::Operator(create))?;
    files::keep(folder, files::TOKEN, &token)?;
    Ok(token)
}

fn is_good(config: &Config, token: &ApiKey) -> Result<bool, Failure> {
    let digest = token.digest().to_hex();
    let AdminReply::Operators { operators } = ask(config, AdminOp::Operator(OperatorOp::Find { digest }))? else {
        return Err(Failure::wrong_reply());
    };
    let now = Clock::System.now();
    Ok(operators.iter().any(|one| one.role == Role::Admin && one.is_good(now)))
}

const NAME: &str = "demo";
