//! `tollgate webhook`: who is told of events, and whether it arrives.

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::failure::Failure;
use super::ledger::ask;
use super::output::{Align, Answer, Format, Show, Table, counted, line};
use super::remote;
use crate::clock::Clock;
use crate::config::{Config, Store, Webhook};
use crate::ledger::admin::events::{EventCount, EventKind, EventOp};
use crate::ledger::admin::{AdminOp, AdminReply};
use crate::ledger::events;

#[derive(Debug, Subcommand)]
pub(super) enum WebhookCommand {
    /// Show webhooks, and how many events wait for them
    #[command(after_help = "Example:\n  tollgate webhook list")]
    List,
    /// Send a webhook.test to all webhooks, or to one
    #[command(
        after_help = "Example:\n  tollgate webhook test https://billing.example.com/tollgate\n\n\
            The event is kept in the ledger, and a running gateway sends it within a second.\n\
            `tollgate webhook list` shows whether it waits."
    )]
    Test(TestArgs),
}

#[derive(Debug, Args)]
pub(super) struct TestArgs {
    /// The webhook's url, as it is configured
    url: Option<String>,
}

pub(super) fn run(command: WebhookCommand, config: &Config, format: Format) -> Result<Answer, Failure> {
    match command {
        WebhookCommand::List => list(config, format),
        WebhookCommand::Test(args) => test(args, config, format),
    }
}

fn list(config: &Config, format: Format) -> Result<Answer, Failure> {
    if let Store::Remote(gateway) = &config.store {
        let shown: WebhooksShown = remote::get(gateway, "/v1/webhooks")?;
        return Answer::of(&shown, format);
    }
    let AdminReply::EventCount(EventCount {
        open,
        oldest,
        dropped,
        is_partial,
    }) = ask(config, AdminOp::Event(EventOp::Count))?
    else {
        return Err(Failure::wrong_reply());
    };
    let shown = WebhooksShown {
        webhooks: config.webhooks.iter().map(WebhookShown::of).collect(),
        events_open: open,
        oldest_event_at: oldest.map(|at| at.to_string()),
        events_dropped: dropped,
        events_partial: is_partial,
    };
    Answer::of(&shown, format)
}

fn test(args: TestArgs, config: &Config, format: Format) -> Result<Answer, Failure> {
    if let Store::Remote(gateway) = &config.store {
        let raised: Raised = remote::post(gateway, "/v1/webhooks/test", &json!({ "url": args.url }))?;
        return Answer::of(&raised, format);
    }
    let known = |url: &String| config.webhooks.iter().any(|webhook| webhook.url == *url);
    match &args.url {
        Some(url) if !known(url) => {
            return Err(Failure::new(format!(
                "no webhook has the url {url}: tollgate webhook list"
            )));
        }
        None if config.webhooks.is_empty() => {
            return Err(Failure::new(
                "no webhooks are configured: see `webhooks:` in conf/tollgate.yaml",
            ));
        }
        Some(_) | None => {}
    }
    let event = events::test(&Clock::System, args.url.as_deref());
    match ask(config, AdminOp::Event(EventOp::Raise(event)))? {
        AdminReply::Events { events, .. } if events.len() == 1 => {
            let ids = events.into_iter().map(|event| event.id);
            Answer::of(&Raised { id: ids.collect() }, format)
        }
        _ => Err(Failure::wrong_reply()),
    }
}

#[derive(Deserialize, Serialize)]
struct WebhooksShown {
    webhooks: Vec<WebhookShown>,
    events_open: u64,
    oldest_event_at: Option<String>,
    events_dropped: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    events_partial: bool,
}

#[derive(Deserialize, Serialize)]
struct WebhookShown {
    url: String,
    events: Vec<String>,
    secrets: usize,
    allow_private: bool,
}

impl WebhookShown {
    fn of(webhook: &Webhook) -> WebhookShown {
        WebhookShown {
            url: webhook.url.clone(),
            events: webhook.events.iter().map(|kind| kind.name().to_owned()).collect(),
            secrets: webhook.secrets.len(),
            allow_private: webhook.allow_private,
        }
    }
}

impl Show for WebhooksShown {
    fn text(&self) -> String {
        let mut text = String::new();
        if self.webhooks.is_empty() {
            text.push_str("no webhooks are configured: see `webhooks:` in conf/tollgate.yaml\n");
        } else {
            let mut table = Table::new(&[("WEBHOOK", Align::Left), ("EVENTS", Align::Left)]);
            for webhook in &self.webhooks {
                let events = match webhook.events.len() == EventKind::ALL.len() {
                    true => "all".to_owned(),
                    false => webhook.events.join(", "),
                };
                table.row(vec![webhook.url.clone(), events]);
            }
            text.push_str(&table.text());
        }
        let oldest = self.oldest_event_at.as_ref();
        let since = oldest.map_or_else(String::new, |at| format!(", the oldest of {at}"));
        line(
            &mut text,
            format_args!("\n{} to be told{since}", counted(self.events_open, "event")),
        );
        if self.events_dropped > 0 {
            let dropped = counted(self.events_dropped, "event");
            line(
                &mut text,
                format_args!("{dropped} dropped before every webhook had them"),
            );
        }
        if self.events_partial {
            line(
                &mut text,
                format_args!("there may be more: a part of the ledger did not answer"),
            );
        }
        text
    }
}

#[derive(Deserialize, Serialize)]
struct Raised {
    id: String,
}

impl Show for Raised {
    fn text(&self) -> String {
        format!("{} is raised: a running gateway sends it within a second\n", self.id)
    }
}
