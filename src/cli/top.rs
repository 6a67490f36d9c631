//! `tollgate top`: what the gateway does now, drawn anew every few seconds, from the admin listener's figures.

mod figures;

use std::collections::HashMap;
use std::io::{IsTerminal, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;

use self::figures::{credit_rate, cut, rate, shown, span};
use super::arguments;
use super::failure::Failure;
use super::output::{Answer, Format};
use crate::pure::credit_sum::CreditSum;
use crate::server::socket::reachable;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tollgate top\n  tollgate top --once\n  tollgate top --json --admin 127.0.0.1:9090\n\n\
    Ctrl-C ends it. LIVE are calls under way; rates and FIRST ms are of the last interval, P95 ms is\n\
    since the start: to the next bucket, 10000 for all above."
)]
pub(super) struct TopArgs {
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Look twice, print once, and end
    #[arg(long)]
    once: bool,
    /// Ask the gateway whose admin_listen this is, and read no configuration
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = arguments::address)]
    admin: Option<SocketAddr>,
}

impl TopArgs {
    /// Whether it says itself which gateway it is about.
    pub(super) fn names_its_gateway(&self) -> bool {
        self.admin.is_some()
    }
}

/// The gateway's state, as far as it is shown.
#[derive(Debug, Deserialize)]
struct Status {
    version: String,
    at_ms: i64,
    uptime_ms: i64,
    listen: String,
    currency: String,
    ready: bool,
    maintenance: bool,
    in_flight: u64,
    totals: Totals,
    targets: Vec<Target>,
    providers: Vec<Provider>,
    ledger: Ledger,
    alarms: Vec<String>,
}

impl Status {
    /// When the process started; another one started at another time.
    fn started_ms(&self) -> i64 {
        self.at_ms.saturating_sub(self.uptime_ms)
    }
}

#[derive(Debug, Deserialize)]
struct Totals {
    requests: u64,
    denials: u64,
    errors: u64,
    cost: Box<RawValue>,
}

#[derive(Debug, Deserialize)]
struct Target {
    model: String,
    provider: String,
    live: i64,
    requests: u64,
    prompt_tokens: u64,
    completion_tokens: u64,
    cost: Box<RawValue>,
    first_events: u64,
    first_event_sum_ms: u64,
}

#[derive(Debug, Deserialize)]
struct Provider {
    provider: String,
    live: i64,
    requests: u64,
    faults: u64,
    breakers: u64,
    breakers_open: u64,
    first_events: u64,
    first_event_sum_ms: u64,
    first_event_p95_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Ledger {
    kind: String,
    /// Not there in the answer of an earlier version.
    #[serde(default)]
    away: bool,
    holds_open: u64,
    held: Box<RawValue>,
    unsettled: u64,
    lag_ms: u64,
}

/// `configured` reads `admin_listen` in the configuration: not where the gateway is named, for that serves on while the file has a mistake.
pub(super) fn run(
    args: &TopArgs,
    configured: impl FnOnce() -> Result<SocketAddr, Failure>,
    format: Format,
) -> Result<Answer, Failure> {
    let address = reachable(args.admin.map_or_else(configured, Ok)?);
    let every = Duration::from_secs(args.interval);
    if format == Format::Json {
        return Ok(Answer {
            text: format!("{}\n", ask(address)?.trim_end()),
            ..Answer::default()
        });
    }
    let before = read(address)?;
    if args.once || !std::io::stdout().is_terminal() {
        std::thread::sleep(every);
        let now = read(address)?;
        return Ok(Answer {
            text: screen(&before, &now, LINES_ONCE),
            ..Answer::default()
        });
    }
    let mut watch = Watch { before: Some(before) };
    loop {
        std::thread::sleep(every);
        draw(&watch.look(read(address), rows()))?;
    }
}

/// What was seen last, while a gateway answers. One that is restarted begins anew.
struct Watch {
    before: Option<Status>,
}

impl Watch {
    /// What is shown after another look.
    fn look(&mut self, seen: Result<Status, Failure>, lines_max: usize) -> String {
        let now = match seen {
            Ok(now) => now,
            Err(failure) => {
                self.before = None;
                return format!("{failure}\nIt is asked again until it answers; Ctrl-C ends this.\n");
            }
        };
        let before = self
            .before
            .take()
            .filter(|before| before.started_ms() == now.started_ms());
        let shown = match &before {
            Some(before) => screen(before, &now, lines_max),
            None => format!(
                "tollgate {} at {} answers, up {}: rates come with the next look\n",
                now.version,
                now.listen,
                span(now.uptime_ms)
            ),
        };
        self.before = Some(now);
        shown
    }
}

/// The state by HTTP.
fn read(address: SocketAddr) -> Result<Status, Failure> {
    Ok(serde_json::from_str(&ask(address)?)?)
}

fn ask(address: SocketAddr) -> Result<String, Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(format!(
            "no gateway answers at admin_listen ({address}): {error}. Does it run?"
        ))
    };
    let mut stream = TcpStream::connect_timeout(&address, WAIT_MAX).map_err(failed)?;
    stream.set_read_timeout(Some(WAIT_MAX)).map_err(failed)?;
    let request = format!("GET /status.json HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    stream
        .take(ANSWER_BYTES_MAX)
        .read_to_string(&mut answer)
        .map_err(failed)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200") => Ok(body.to_owned()),
        _ => {
            let line = answer.lines().next().unwrap_or("nothing");
            Err(Failure::new(format!(
                "{address} does not answer as a gateway does: {line}"
            )))
        }
    }
}

/// What is shown, in at most so many lines of 80 columns.
fn screen(before: &Status, now: &Status, lines_max: usize) -> String {
    let millis = now.at_ms.saturating_sub(before.at_ms).max(1);
    let per_second = |now: u64, before: u64| rate(i128::from(now.saturating_sub(before)), millis);
    let state = match (now.ready, now.ledger.away, now.maintenance) {
        (false, true, _) => "the ledger changes hands",
        (false, false, _) => "stopping",
        (true, _, true) => "maintenance",
        (true, _, false) => "ready",
    };
    let (totals, old, ledger) = (&now.totals, &before.totals, &now.ledger);
    let spend = pico(&totals.cost).saturating_sub(pico(&old.cost));
    let mut lines = vec![
        format!(
            "tollgate {} at {}, up {}, {state}",
            now.version,
            now.listen,
            span(now.uptime_ms)
        ),
        format!(
            "{} in flight   {} requests/s   {} refused/s   {} errors/s",
            now.in_flight,
            per_second(totals.requests, old.requests),
            per_second(totals.denials, old.denials),
            per_second(totals.errors, old.errors),
        ),
        format!(
            "spend {} {}/s   {} in all",
            credit_rate(spend, millis),
            now.currency,
            totals.cost.get()
        ),
        format!(
            "{} ledger   {} holds of {} {}   {} unsettled, oldest {} ms",
            ledger.kind,
            ledger.holds_open,
            ledger.held.get(),
            now.currency,
            ledger.unsettled,
            ledger.lag_ms
        ),
    ];
    lines.extend(
        now.alarms
            .iter()
            .take(ALARMS_MAX)
            .map(|alarm| cut(&format!("ALARM {alarm}"), COLUMNS)),
    );
    lines.push(String::new());
    lines.extend(slowest(before, now, millis));
    lines.push(String::new());
    let room = lines_max.saturating_sub(lines.len());
    lines.extend(models(before, now, millis, room.max(4)));
    lines.truncate(lines_max.max(8));
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Providers, the slowest of the interval first.
fn slowest(before: &Status, now: &Status, millis: i64) -> Vec<String> {
    let known: HashMap<&str, &Provider> = before
        .providers
        .iter()
        .map(|line| (line.provider.as_str(), line))
        .collect();
    let mut rows: Vec<(Option<u64>, String)> = Vec::new();
    for line in &now.providers {
        let old = known.get(line.provider.as_str());
        let old = |field: fn(&Provider) -> u64| old.map_or(0, |old| field(old));
        let since = |field: fn(&Provider) -> u64| field(line).saturating_sub(old(field));
        let mean = since(|line| line.first_event_sum_ms).checked_div(since(|line| line.first_events));
        let breakers = match line.breakers_open {
            0 => "closed".to_owned(),
            open => format!("{open}/{} open", line.breakers),
        };
        let text = format!(
            "{:<22}{:>6}{:>10}{:>10}{:>9}{:>9}  {breakers}",
            cut(&line.provider, 21),
            line.live,
            rate(i128::from(since(|line| line.requests)), millis),
            rate(i128::from(since(|line| line.faults)), millis),
            shown(mean),
            shown(line.first_event_p95_ms),
        );
        rows.push((mean, text));
    }
    rows.sort_by(|a, b| b.cmp(a));
    let head = format!(
        "{:<22}{:>6}{:>10}{:>10}{:>9}{:>9}  {}",
        "PROVIDER", "LIVE", "CALLS/S", "FAILED/S", "FIRST ms", "P95 ms", "BREAKERS"
    );
    std::iter::once(head)
        .chain(rows.into_iter().take(ROWS_OF_PROVIDERS_MAX).map(|(_, text)| text))
        .collect()
}

/// Models, those that spend most in the interval first.
fn models(before: &Status, now: &Status, millis: i64, rows_max: usize) -> Vec<String> {
    let known: HashMap<(&str, &str), &Target> = before
        .targets
        .iter()
        .map(|line| ((line.model.as_str(), line.provider.as_str()), line))
        .collect();
    let mut rows: Vec<(i128, i64, String)> = Vec::new();
    for line in &now.targets {
        let old = known.get(&(line.model.as_str(), line.provider.as_str()));
        let since = |field: fn(&Target) -> u64| field(line).saturating_sub(old.map_or(0, |old| field(old)));
        let spend = pico(&line.cost).saturating_sub(old.map_or(0, |old| pico(&old.cost)));
        let tokens = since(|line| line.prompt_tokens.saturating_add(line.completion_tokens));
        let mean = since(|line| line.first_event_sum_ms).checked_div(since(|line| line.first_events));
        let text = format!(
            "{:<34}{:>6}{:>9}{:>10}{:>12}{:>9}",
            cut(&line.model, 33),
            line.live,
            rate(i128::from(since(|line| line.requests)), millis),
            rate(i128::from(tokens), millis),
            credit_rate(spend, millis),
            shown(mean),
        );
        rows.push((spend, line.live, text));
    }
    rows.sort_by(|a, b| (b.0, b.1, &a.2).cmp(&(a.0, a.1, &b.2)));
    let head = format!(
        "{:<34}{:>6}{:>9}{:>10}{:>12}{:>9}",
        "MODEL", "LIVE", "CALLS/S", "TOKENS/S", "SPEND/S", "FIRST ms"
    );
    std::iter::once(head)
        .chain(
            rows.into_iter()
                .take(rows_max.saturating_sub(1))
                .map(|(_, _, text)| text),
        )
        .collect()
}

/// Draws over what was there before.
fn draw(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    let drawn = write!(stdout, "\x1b[H\x1b[2J{text}").and_then(|()| stdout.flush());
    drawn.map_err(|error| Failure::new(format!("cannot draw: {error}")))
}

/// The terminal's height, less the line of the cursor.
fn rows() -> usize {
    let size = terminal_size::terminal_size();
    size.map_or(LINES_ONCE, |(_, height)| usize::from(height.0).saturating_sub(1))
}

/// An amount or a sum of the status, which writes it as an exact number, in 10^-12 credit.
fn pico(amount: &RawValue) -> i128 {
    amount.get().parse::<CreditSum>().map_or(0, CreditSum::pico)
}

const WAIT_MAX: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: u64 = 16 << 20;
const COLUMNS: usize = 80;
const LINES_ONCE: usize = 40;
const ALARMS_MAX: usize = 4;
const ROWS_OF_PROVIDERS_MAX: usize = 8;

#[cfg(test)]
mod tests;
