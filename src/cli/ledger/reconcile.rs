//! `tollgate ledger reconcile`: a provider's export held against the receipts.

use std::borrow::Cow;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::export::{ExportError, read};
use super::pages::Pages;
use super::unreadable::{Unreadable, UnreadableOfDay};
use crate::cli::arguments::day;
use crate::cli::failure::Failure;
use crate::cli::output::{Answer, Format, Show, counted, line, plain};
use crate::cli::progress::Progress;
use crate::config::{Config, Store};
use crate::pure::ids::AccountId;
use crate::pure::reconcile::{Finding, ReceiptName, Reconciled, Reconciliation, Scope, Tokens, Window};
use crate::pure::time::{Day, Timestamp};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tollgate ledger reconcile activity.csv\n  \
    tollgate ledger reconcile calls.jsonl --provider openai --from 2026-11-01 --to 2026-11-30\n\n\
    The export has a row a call, as CSV with commas and a header line or as JSON lines,\n\
    with these columns or fields, wherever they stand; others may be there too:\n  \
    id          or request_id, completion_id, generation_id: the id of the provider's\n              \
    answer, or ours of the request\n  \
    prompt      or prompt_tokens, input_tokens, tokens_prompt, native_tokens_prompt\n  \
    completion  or completion_tokens, output_tokens, tokens_completion,\n              \
    native_tokens_completion\n\n\
    Each has the total of its side: where an export names cached input (Anthropic) or\n\
    reasoning (xAI) beside them, add these first.\n\n\
    Listed are calls that are\n  \
    missing    in the export, and no receipt has the id. The call may be under way, or\n             \
    its receipt older than receipts are kept\n  \
    doubled    in the export more than once, or several receipts have the id\n  \
    different  of other tokens than the provider reported with the answer or, where it\n             \
    reported none, than were billed\n  \
    unlisted   receipts of the provider, of calls that began and ended from --from to\n             \
    --to, that the export lacks; looked for when all three are given\n\n\
    The exit status is 0 when all agree, and 1 when anything is listed. A receipt that\n\
    cannot be read is listed with its account and, where it is known, the day on which it\n\
    was billed; it does not count where that is before the day before --from, or more than\n\
    a day after --to. A row that cannot be read is an error. An export has 2,000,000 rows\n\
    at most, which take about 700 MB; hold a larger one against the receipts in parts, such\n\
    as a day each.")]
pub(in crate::cli) struct ReconcileArgs {
    /// The export; - for standard input
    file: PathBuf,
    /// Whose export it is, as the configuration names it
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Look at the receipts of this account only
    #[arg(long, value_name = "ID")]
    account: Option<AccountId>,
    /// The export's first UTC day, such as 2026-11-20: receipts of before are not read
    #[arg(long, value_name = "DATE", value_parser = day)]
    from: Option<Day>,
    /// Its last UTC day
    #[arg(long, value_name = "DATE", value_parser = day)]
    to: Option<Day>,
}

pub(super) fn run(args: &ReconcileArgs, config: &Config, format: Format) -> Result<Answer, Failure> {
    if let (Some(from), Some(to)) = (args.from, args.to)
        && to < from
    {
        return Err(Failure::wrong_usage(format!("--to {to} is before --from {from}")));
    }
    let doubt = args.provider.as_deref().and_then(|provider| doubt(config, provider));
    let mut progress = Progress::new();
    let mut all = Reconciliation::new(args.scope());
    read_export(&args.file, &mut all, &mut progress)?;
    let mut pages = Pages::new(config);
    let accounts = match &args.account {
        Some(account) => vec![account.clone()],
        None => pages.accounts()?,
    };
    let begins = args.begins();
    let mut read = 0u64;
    for account in &accounts {
        pages.receipts(account, None, u64::MAX, |page| {
            page.iter().for_each(|receipt| all.receipt(receipt));
            read = read.saturating_add(u64::try_from(page.len()).unwrap_or(u64::MAX));
            progress.show(read, "receipt");
            // A clock that was set back leaves single receipts that are older than those below them.
            let newest = page.iter().map(|receipt| receipt.resolved).max();
            // A page of which nothing can be read says nothing of those below it.
            newest.is_none_or(|newest| begins.is_none_or(|begins| newest >= begins))
        })?;
    }
    drop(progress);
    Ok(Answer {
        warnings: doubt.into_iter().collect(),
        ..Answer::of(&Shown::of(all.finish(), args.counting(pages.unreadable())), format)?
    })
}

impl ReconcileArgs {
    /// From when on receipts are looked at. Nothing is resolved before it began, and the clocks of providers are not so wrong.
    fn begins(&self) -> Option<Timestamp> {
        self.from.map(|from| from.start().plus_millis(-EARLIER_MILLIS))
    }

    /// Those of receipts that cannot be read that may be of a call of the export, and how many others there are.
    fn counting(&self, unreadable: Unreadable) -> (Vec<UnreadableOfDay>, u64) {
        let last = self.to.map(Day::next);
        let is_outside = |day: Day| {
            let is_before = self.begins().is_some_and(|begins| day.next().start() <= begins);
            is_before || last.is_some_and(|last| day > last)
        };
        unreadable.counting(|day| day.is_none_or(|day| !is_outside(day)))
    }

    fn scope(&self) -> Scope {
        let window = self.from.zip(self.to).map(|(from, to)| Window {
            from: from.start(),
            to: to.next().start(),
        });
        Scope {
            provider: self.provider.clone(),
            window,
        }
    }
}

/// A slip has no receipts, and so none that its export could lack. But one that was taken out of the configuration has them still.
fn doubt(config: &Config, provider: &str) -> Option<String> {
    // Those of a gateway elsewhere are not known, nor those of a configuration with a mistake there.
    let is_unknown = matches!(config.store, Store::Remote(_)) || config.providers.is_empty();
    if is_unknown || config.providers.contains_key(provider) {
        return None;
    }
    let names: Vec<&str> = config.providers.keys().map(String::as_str).collect();
    Some(format!(
        "{} names no provider {}: it names {}",
        config.path.display(),
        plain(provider),
        names.join(", ")
    ))
}

fn read_export(path: &Path, all: &mut Reconciliation, progress: &mut Progress) -> Result<(), Failure> {
    let each = |row| {
        all.row(row).map_err(|error| Cow::from(error.to_string()))?;
        progress.show(all.rows(), "row");
        Ok(())
    };
    let (name, done) = match path.as_os_str() == "-" {
        true => ("standard input".to_owned(), read(std::io::stdin().lock(), each)),
        false => {
            let file = File::open(path).map_err(ExportError::from);
            (
                path.display().to_string(),
                file.and_then(|file| read(BufReader::new(file), each)),
            )
        }
    };
    done.map_err(|error| match error {
        ExportError::Read(error) => Failure::new(format!("cannot read {name}: {error}")),
        ExportError::Line { line, mistake } => Failure::new(format!("{name}:{line}: {mistake}")),
    })
}

#[derive(Serialize)]
struct Shown {
    agrees: bool,
    rows: u64,
    receipts: u64,
    /// Those without the answer's own id, whose gateway ended before the call did.
    receipts_without_id: u64,
    /// Receipts that cannot be read, whosever they are, and may be of these days: no call of the export was looked for among them.
    unreadable: u64,
    unreadable_receipts: Vec<UnreadableOfDay>,
    /// Those that were billed on other days.
    unreadable_of_other_days: u64,
    /// When the oldest receipt was resolved that was looked at.
    oldest_receipt: Option<String>,
    matched: u64,
    missing: u64,
    doubled: u64,
    different: u64,
    /// Null when they were not looked for.
    unlisted: Option<u64>,
    findings: Vec<Finding>,
}

impl Shown {
    fn of(result: Reconciled, (unreadable_receipts, unreadable_of_other_days): (Vec<UnreadableOfDay>, u64)) -> Shown {
        let unreadable = UnreadableOfDay::sum(&unreadable_receipts);
        Shown {
            agrees: result.findings.is_empty() && unreadable == 0,
            rows: result.rows,
            receipts: result.receipts,
            receipts_without_id: result.unnamed,
            unreadable,
            unreadable_receipts,
            unreadable_of_other_days,
            oldest_receipt: result.oldest.map(|at: Timestamp| at.to_string()),
            matched: result.matched,
            missing: result.missing,
            doubled: result.doubled,
            different: result.different,
            unlisted: result.unlisted,
            findings: result.findings,
        }
    }

    fn count(&self) -> u64 {
        let certain = [self.missing, self.doubled, self.different];
        certain.into_iter().chain(self.unlisted).fold(0, u64::saturating_add)
    }
}

impl Show for Shown {
    fn text(&self) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            line(&mut text, format_args!("{}", said(finding)));
        }
        let listed = u64::try_from(self.findings.len()).unwrap_or(u64::MAX);
        if listed < self.count() {
            let more = self.count().saturating_sub(listed);
            line(
                &mut text,
                format_args!("unlisted   and {} more", counted(more, "receipt")),
            );
        }
        for of_day in &self.unreadable_receipts {
            line(&mut text, format_args!("unreadable {}", of_day.said()));
        }
        if !text.is_empty() {
            text.push('\n');
        }
        let (rows, receipts) = (counted(self.rows, "row"), counted(self.receipts, "receipt"));
        let oldest = self.oldest_receipt.as_ref().map(|at| format!(" from {at} on"));
        line(
            &mut text,
            format_args!("{rows} held against {receipts}{}", oldest.unwrap_or_default()),
        );
        let unlisted = match self.unlisted {
            Some(unlisted) => format!("{unlisted} unlisted"),
            None => "unlisted ones not looked for".to_owned(),
        };
        let Shown {
            matched,
            missing,
            doubled,
            different,
            ..
        } = self;
        line(
            &mut text,
            format_args!("{matched} matched, {missing} missing, {doubled} doubled, {different} different, {unlisted}"),
        );
        if self.missing > 0 && self.receipts_without_id > 0 {
            let without = counted(self.receipts_without_id, "receipt");
            line(
                &mut text,
                format_args!(
                    "{without} without the answer's own id, since their gateway ended, or handed over, before the call did: what is missing may be among them"
                ),
            );
        }
        if self.unreadable > 0 {
            let unreadable = counted(self.unreadable, "receipt");
            line(
                &mut text,
                format_args!("{unreadable} could not be read: what is missing may be among them"),
            );
        }
        if self.unreadable_of_other_days > 0 {
            let others = counted(self.unreadable_of_other_days, "receipt");
            line(
                &mut text,
                format_args!("{others} of other days could not be read, and do not count"),
            );
        }
        text
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !self.findings.is_empty() {
            problems.push(format!(
                "the export and the receipts do not agree: {}",
                counted(self.count(), "finding")
            ));
        }
        if self.unreadable > 0 {
            problems.push(format!(
                "the export was not held against all receipts: {} could not be read",
                counted(self.unreadable, "receipt")
            ));
        }
        problems
    }
}

/// A finding as a line.
fn said(finding: &Finding) -> String {
    match finding {
        Finding::Missing { id, line, export } => {
            format!(
                "missing    line {line}: {} ({}) has no receipt",
                plain(id),
                tokens(export)
            )
        }
        Finding::Doubled {
            ids,
            lines,
            receipts,
            named,
        } => {
            let ids: Vec<String> = ids.iter().map(|id| plain(id)).collect();
            let numbers: Vec<String> = lines.iter().take(NAMED_MAX).map(u64::to_string).collect();
            let left = lines.len().saturating_sub(numbers.len());
            let lines = if lines.len() == 1 { "line" } else { "lines" };
            let more = if left > 0 {
                format!(" and {left} more")
            } else {
                String::new()
            };
            let named: Vec<String> = named.iter().map(receipt).collect();
            let (ids, numbers) = (ids.join(", "), numbers.join(", "));
            match receipts {
                0 => format!("doubled    {lines} {numbers}{more}: {ids} has no receipt"),
                _ => format!(
                    "doubled    {lines} {numbers}{more}: {ids} has {}: {}",
                    counted(*receipts, "receipt"),
                    named.join("; ")
                ),
            }
        }
        Finding::Different {
            id,
            line,
            export,
            receipt: found,
            name,
        } => format!(
            "different  line {line}: {} is {} in the export, {} in the receipt: {}",
            plain(id),
            tokens(export),
            tokens(found),
            receipt(name)
        ),
        Finding::Unlisted {
            id,
            receipt: found,
            name,
        } => {
            let id = id
                .as_deref()
                .map_or_else(|| "an answer without an id".to_owned(), plain);
            format!("unlisted   {id} ({}): {}", tokens(found), receipt(name))
        }
    }
}

/// `10 + 5 tokens`: prompt and completion.
fn tokens(tokens: &Tokens) -> String {
    format!("{} + {} tokens", tokens.prompt, tokens.completion)
}

fn receipt(name: &ReceiptName) -> String {
    format!("{}, request {}", name.account, name.request)
}

/// How long before the export's first day a receipt may have been resolved that belongs to it.
const EARLIER_MILLIS: i64 = 3_600_000;
/// The most lines that are named of those that have one id.
const NAMED_MAX: usize = 10;
