//! `tollgate generations`, and `tollgate ledger receipts`, its older name: what calls cost, and why.

use clap::Args;
use serde::Serialize;

use super::pages::Pages;
use crate::cli::failure::Failure;
use crate::cli::output::{Align, Answer, Format, Show, Table, facts, plain};
use crate::config::Config;
use crate::ledger::admin::{AdminOp, AdminReply, ReceiptQuery};
use crate::ledger::query::is_place;
use crate::pure::ids::{AccountId, RequestId};
use crate::pure::money::ListPrice;
use crate::pure::receipt::{BilledKinds, CallEnding, CallFacts, EndpointName, Receipt};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tollgate generations acme\n  \
    tollgate generations acme --model openai/gpt-4o-mini --limit 1000 --json\n  \
    tollgate generations acme --id 019a2b4e-7d1c-7000-8000-0123456789ab\n\n\
    Times are UTC. JSON has times in milliseconds since 1970 and leaves out what is not\n\
    known; so does --id. `tollgate ledger receipts` is the same.")]
pub(in crate::cli) struct ReceiptsArgs {
    /// The account's name
    account: AccountId,
    /// How many, the newest first
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// Only those of this model
    #[arg(long, value_name = "ID")]
    model: Option<String>,
    /// Only those before: what the answer before ended with
    #[arg(long, value_name = "PLACE")]
    before: Option<String>,
    /// Only that of this request (x-request-id), with all that is known of the call
    #[arg(long, value_name = "REQUEST", conflicts_with_all = ["limit", "model", "before"])]
    id: Option<RequestId>,
}

pub(in crate::cli) fn run(args: &ReceiptsArgs, config: &Config, format: Format) -> Result<Answer, Failure> {
    let mut pages = Pages::new(config);
    let account = args.account.clone();
    let Some(id) = args.id else {
        if let Some(before) = args.before.as_deref().filter(|place| !is_place(place)) {
            return Err(Failure::wrong_usage(format!(
                "--before {before:?} is no place that an answer ended with"
            )));
        }
        let mut receipts = Vec::new();
        let from = (args.before.clone(), args.limit);
        let next = pages.receipts_from(&account, args.model.as_deref(), from, |page| {
            receipts.extend(page);
            true
        })?;
        let shown = ReceiptsShown {
            account,
            receipts,
            next,
        };
        return Answer::of(&shown, format);
    };
    let AdminReply::Receipts(page) = pages.ask(AdminOp::Receipts(ReceiptQuery::of(&account, id)))? else {
        return Err(Failure::wrong_reply());
    };
    match page.receipts.into_iter().next() {
        Some(receipt) => Answer::of(
            &ReceiptShown {
                account,
                receipts: [receipt],
            },
            format,
        ),
        None if page.running.is_some() => Err(Failure::new(format!(
            "request {id} of {account} is not billed yet: it holds {}",
            page.running.map(|call| call.held).unwrap_or_default()
        ))),
        None => Err(Failure::new(format!(
            "{account} has no receipt of request {id}; `tollgate ledger receipts {account}` shows the newest"
        ))),
    }
}

#[derive(Serialize)]
struct ReceiptsShown {
    account: AccountId,
    receipts: Vec<Receipt>,
    /// Where those before them begin, where there may be some.
    next: Option<String>,
}

impl Show for ReceiptsShown {
    fn text(&self) -> String {
        if self.receipts.is_empty() {
            return format!("{} has no such receipts\n", self.account);
        }
        let mut table = Table::new(&[
            ("RESOLVED, REQUEST", Align::Left),
            ("MODEL", Align::Left),
            ("PROMPT", Align::Right),
            ("COMPLETION", Align::Right),
            ("COST", Align::Point),
            ("ENDING", Align::Left),
            ("PROVIDER", Align::Left),
        ]);
        for Receipt { resolved, billed } in &self.receipts {
            let call = &billed.call;
            table.row(vec![
                format!("{resolved}  {}", billed.id),
                plain(&billed.model),
                billed.prompt_tokens.to_string(),
                billed.completion_tokens.to_string(),
                billed.cost.to_string(),
                call.ending.map(ending).unwrap_or_default().to_owned(),
                call.provider.as_deref().map(plain).unwrap_or_default(),
            ]);
        }
        let mut text = table.text();
        if let Some(next) = &self.next {
            text.push_str(&format!("older ones: --before {next}\n"));
        }
        text
    }
}

/// One receipt, as programs have it in the list.
#[derive(Serialize)]
struct ReceiptShown {
    account: AccountId,
    receipts: [Receipt; 1],
}

impl Show for ReceiptShown {
    fn text(&self) -> String {
        let [Receipt { resolved, billed }] = &self.receipts;
        let call = &billed.call;
        let known = [
            ("request", Some(billed.id.to_string())),
            ("account", Some(billed.account.to_string())),
            ("key", Some(billed.key.to_string())),
            ("end user", call.end_user.as_deref().map(plain)),
            ("model", Some(plain(&billed.model))),
            ("endpoint", call.endpoint.map(|endpoint| name(endpoint).to_owned())),
            ("provider", call.provider.as_deref().map(plain)),
            ("upstream model", call.upstream_model.as_deref().map(plain)),
            ("upstream id", call.upstream_id.as_deref().map(plain)),
            ("created", call.created.map(|at| at.to_string())),
            ("first byte", call.first_byte.map(|at| at.to_string())),
            ("ended", call.ended.map(|at| at.to_string())),
            ("resolved", Some(resolved.to_string())),
            (
                "streamed",
                call.streamed.map(|is| if is { "yes" } else { "no" }.to_owned()),
            ),
            ("ending", call.ending.map(|how| ending(how).to_owned())),
            ("client left before", call.client_left.then(|| "yes".to_owned())),
            ("prompt tokens", Some(billed.prompt_tokens.to_string())),
            ("  reported", call.reported_prompt_tokens.map(|n| n.to_string())),
            (
                "  cache reads",
                call.kinds.map(|kinds| kinds.cache_read_tokens.to_string()),
            ),
            (
                "  cache writes",
                call.kinds.map(|kinds| kinds.cache_write_tokens.to_string()),
            ),
            (
                "  written for 1 h",
                some_of(call.kinds.map(|kinds| kinds.cache_write_1h_tokens)),
            ),
            ("  sound", some_of(call.kinds.map(|kinds| kinds.audio_tokens))),
            ("  images", some_of(call.kinds.map(|kinds| kinds.image_tokens))),
            ("completion tokens", Some(billed.completion_tokens.to_string())),
            ("  reported", call.reported_completion_tokens.map(|n| n.to_string())),
            ("  counted", call.counted_completion_tokens.map(|n| n.to_string())),
            (
                "  reasoning",
                call.kinds.map(|kinds| kinds.reasoning_tokens.to_string()),
            ),
            ("  sound", some_of(call.kinds.map(|kinds| kinds.audio_output_tokens))),
            ("  images", some_of(call.kinds.map(|kinds| kinds.image_output_tokens))),
            ("service tier", call.service_tier.as_deref().map(plain)),
            ("provider's cost", call.provider_cost.map(|cost| cost.to_string())),
            ("prompt price", call.prompt_price.map(|price| price.to_string())),
            ("completion price", call.completion_price.map(|price| price.to_string())),
            ("cache read price", of_kind(call, |kinds| kinds.cache_read_price)),
            ("cache write price", of_kind(call, |kinds| kinds.cache_write_price)),
            ("  for 1 h", of_kind(call, |kinds| kinds.cache_write_1h_price)),
            ("sound price", of_kind(call, |kinds| kinds.audio_price)),
            ("image price", of_kind(call, |kinds| kinds.image_price)),
            ("reasoning price", of_kind(call, |kinds| kinds.reasoning_price)),
            ("sound made price", of_kind(call, |kinds| kinds.audio_output_price)),
            ("image made price", of_kind(call, |kinds| kinds.image_output_price)),
            ("request price", of_kind(call, |kinds| kinds.request_price)),
            ("held", billed.held.map(|held| held.to_string())),
            ("cost", Some(billed.cost.to_string())),
            ("producer", Some(format!("{:016x}", billed.producer.0))),
            ("number", Some(billed.number.to_string())),
        ];
        let known: Vec<(&str, String)> = known
            .into_iter()
            .filter_map(|(name, value)| value.map(|value| (name, value)))
            .collect();
        facts(&known)
    }
}

/// Tokens of a kind that few calls have.
fn some_of(tokens: Option<u64>) -> Option<String> {
    tokens.filter(|tokens| *tokens > 0).map(|tokens| tokens.to_string())
}

/// A price of its own of a kind of tokens.
fn of_kind(call: &CallFacts, price: fn(&BilledKinds) -> Option<ListPrice>) -> Option<String> {
    call.kinds.as_ref().and_then(price).map(|price| price.to_string())
}

fn ending(ending: CallEnding) -> &'static str {
    match ending {
        CallEnding::Complete => "complete",
        CallEnding::ClientGone => "client gone",
        CallEnding::UpstreamFailed => "upstream failed",
        CallEnding::DrainEnded => "drain ended",
        CallEnding::Dropped => "dropped",
    }
}

fn name(endpoint: EndpointName) -> &'static str {
    match endpoint {
        EndpointName::Chat => "chat",
        EndpointName::ChatStream => "chat stream",
        EndpointName::Embeddings => "embeddings",
    }
}
