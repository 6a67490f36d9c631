//! The command line: what the operator types becomes a call, and what the call answers becomes text or JSON.
//!
//! Nothing here decides about money or access: commands go to the ledger as [`AdminOp`](crate::ledger::admin::AdminOp) values. `main` calls
//! [`execute`] and writes the [`Outcome`]; a new command is a variant of `Command`, a file, and a line in `run`.

mod account;
mod account_set;
mod arguments;
mod catalogue;
mod check;
mod credits;
mod demo;
mod failure;
mod key;
mod key_rotate;
mod key_settings;
mod ledger;
mod logging;
mod made;
mod maintenance;
mod operator;
mod outcome;
mod output;
mod process;
mod progress;
mod remote;
mod serve;
mod shell;
mod statement;
mod top;
mod usage;
mod user;
mod webhook;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue};
use clap::{Parser, Subcommand};

use self::arguments::EVERYWHERE;
use self::failure::{Failure, without_keys};
pub use self::outcome::Outcome;
use self::output::{Answer, Format, error_line, warning_line};
use self::remote::RemoteArgs;
use crate::config::{Config, environment, mistakes, nearest};

/// A gateway for language models on prepaid credit.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, after_help = EXAMPLES, disable_help_subcommand = true)]
struct Cli {
    /// The configuration [default: conf/tollgate.yaml] [env: TOLLGATE_CONF]
    #[arg(long, global = true, value_name = "FILE", help_heading = EVERYWHERE)]
    conf: Option<PathBuf>,
    /// Answer in JSON, with exact amounts
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    json: bool,
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway until it is told to stop (SIGTERM, SIGINT)
    Serve(serve::ServeArgs),
    /// Run a gateway to play with: account, credit, key, and lines to paste
    Demo(demo::DemoArgs),
    /// Check the configuration, the catalogue and the credentials
    #[command(after_help = CHECK)]
    Check,
    /// Make, change, suspend and show accounts: who pays
    #[command(subcommand, after_help = "Example:\n  tollgate account create acme --tier pro")]
    Account(account::AccountCommand),
    /// Add, correct and list the credit of accounts
    #[command(
        subcommand,
        after_help = "Example:\n  tollgate credits add acme 10.50 --reference INVOICE-7"
    )]
    Credits(credits::CreditsCommand),
    /// Make, list and revoke keys: what callers present
    #[command(subcommand, after_help = "Example:\n  tollgate key create --account acme")]
    Key(key::KeyCommand),
    /// Make, list and revoke operators; show who did what
    #[command(subcommand, after_help = "Example:\n  tollgate operator create anna --role admin")]
    Operator(operator::OperatorCommand),
    /// Show what an account has used, by model and day, or what all have
    Usage(usage::UsageArgs),
    /// Show receipts: what calls cost, and why
    Generations(ledger::receipts::ReceiptsArgs),
    /// Check the books, and what was left by processes that died
    #[command(subcommand, after_help = "Example:\n  tollgate ledger audit")]
    Ledger(ledger::LedgerCommand),
    /// Check the list of models and prices
    #[command(subcommand, after_help = "Example:\n  tollgate catalogue check")]
    Catalogue(catalogue::CatalogueCommand),
    /// Refuse calls with 503 while you work on something, or take them again
    Maintenance(maintenance::MaintenanceArgs),
    /// Show webhooks and try them: who is told of events
    #[command(subcommand, after_help = "Example:\n  tollgate webhook list")]
    Webhook(webhook::WebhookCommand),
    /// Watch what the gateway does now: calls, spend, the slowest providers
    Top(top::TopArgs),
    /// Write the completions of a shell to standard output
    Completions(shell::CompletionsArgs),
    /// Write the man page to standard output
    #[command(after_help = "Example:\n  tollgate man | man -l -")]
    Man,
}

/// Reads the arguments (the first is the program's name) and does what they say. Only `serve` and `demo` write anything themselves;
/// they return when the gateway has stopped.
pub fn execute(arguments: impl IntoIterator<Item = OsString>) -> Outcome {
    let arguments = asked_for_help(arguments.into_iter().collect());
    let mut cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        // What cannot be read as a whole may still ask for JSON.
        Err(error) if arguments.iter().any(|argument| argument == "--json") => return unparsed(error, Format::Json),
        Err(error) => return unparsed(error, Format::Text),
    };
    let format = if cli.json { Format::Json } else { Format::Text };
    logging::start(&cli.command, format);
    // Not by clap, whose lines of usage show an option that has its value from the environment as one that has to be given.
    let named = || {
        environment(CONF_VARIABLE)
            .filter(|path| !path.is_empty())
            .map(PathBuf::from)
    };
    cli.conf = cli.conf.or_else(named);
    let note = cli
        .conf
        .is_none()
        .then(|| cli.command.note().filter(|_| !cli.remote.is_set()))
        .flatten()
        .filter(|_| format == Format::Text)
        .unwrap_or_default();
    let mut warning = String::new();
    let ran = run(cli, format, &mut warning);
    let note = warning_line(&warning, format) + &note;
    match ran {
        Ok(answer) => Outcome {
            stdout: answer.text,
            stderr: answer
                .problems
                .iter()
                .map(|problem| error_line(problem, format))
                .chain(answer.warnings.iter().map(|warning| warning_line(warning, format)))
                .collect::<String>()
                + &note,
            status: u8::from(!answer.problems.is_empty()),
            format,
            made: answer.made,
        },
        Err(failure) => Outcome {
            stderr: error_line(&failure.to_string(), format) + &note,
            status: failure.status,
            ..Outcome::default()
        },
    }
}

/// `tollgate help key create` is `tollgate key create --help`.
fn asked_for_help(mut arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments.get(1).is_some_and(|word| word == "help") {
        arguments.remove(1);
        arguments.push("--help".into());
    }
    arguments
}

impl Command {
    /// What somebody should know who named no configuration while a demo runs in this folder: which ledger this was about.
    fn note(&self) -> Option<String> {
        let is_about_a_ledger = match self {
            Command::Account(_)
            | Command::Credits(_)
            | Command::Key(_)
            | Command::Operator(_)
            | Command::Usage(_)
            | Command::Generations(_)
            | Command::Ledger(_)
            | Command::Maintenance(_)
            | Command::Webhook(_) => true,
            Command::Top(args) => !args.names_its_gateway(),
            Command::Serve(_)
            | Command::Demo(_)
            | Command::Check
            | Command::Catalogue(_)
            | Command::Completions(_)
            | Command::Man => false,
        };
        let demo = demo::running_here().filter(|_| is_about_a_ledger)?;
        Some(format!(
            "note: this was about the gateway of {CONF}; for the demo that runs here: --conf {}\n",
            demo.display()
        ))
    }
}

impl Command {
    /// Whether it can be given to a gateway elsewhere.
    fn may_be_remote(&self) -> bool {
        match self {
            Command::Account(_)
            | Command::Credits(_)
            | Command::Key(_)
            | Command::Usage(_)
            | Command::Generations(_)
            | Command::Ledger(_)
            | Command::Operator(_)
            | Command::Maintenance(_)
            | Command::Webhook(_) => true,
            Command::Serve(_)
            | Command::Demo(_)
            | Command::Check
            | Command::Catalogue(_)
            | Command::Top(_)
            | Command::Completions(_)
            | Command::Man => false,
        }
    }
}

/// `warning` is what should be known of an answer that comes all the same.
fn run(cli: Cli, format: Format, warning: &mut String) -> Result<Answer, Failure> {
    let conf = cli.conf.unwrap_or_else(|| PathBuf::from(CONF));
    if cli.remote.is_set() && !cli.command.may_be_remote() {
        return Err(Failure::wrong_usage(
            "this command works on the gateway's own machine alone: leave out --operator",
        ));
    }
    let remote = cli.remote.config()?;
    let config = || remote.clone().map_or_else(|| load(&conf), Ok);
    let mut of_ledger = || remote.clone().map_or_else(|| load_for_ledger(&conf, warning), Ok);
    match cli.command {
        Command::Serve(args) => serve::run(&args, config()?),
        Command::Demo(args) => demo::run(&args, format),
        Command::Check => check::run(&conf, format),
        Command::Account(command) => account::run(command, &of_ledger()?, format),
        Command::Credits(command) => credits::run(command, &of_ledger()?, format),
        Command::Key(command) => key::run(command, &of_ledger()?, format),
        Command::Operator(command) => operator::run(command, &of_ledger()?, format),
        Command::Usage(args) => usage::run(args, &of_ledger()?, format),
        Command::Generations(args) => ledger::receipts::run(&args, &of_ledger()?, format),
        Command::Ledger(command) => ledger::run(&command, &of_ledger()?, format),
        Command::Catalogue(command) => catalogue::run(&command, &config()?, format),
        Command::Maintenance(args) => maintenance::run(&args, &of_ledger()?, format),
        Command::Webhook(command) => webhook::run(command, &config()?, format),
        Command::Top(args) => top::run(&args, || Ok(of_ledger()?.admin_listen), format),
        Command::Completions(args) => shell::completions(&args, format),
        Command::Man => shell::man(format),
    }
}

fn load(path: &Path) -> Result<Config, Failure> {
    let text = text_at(path)?;
    Ok(Config::parse(path, &text, &environment)?)
}

/// The text of the configuration there, to be read once: a pipe has none left for who reads it again.
fn text_at(path: &Path) -> Result<String, Failure> {
    if !path.exists() {
        let path = path.display();
        return Err(Failure::new(format!(
            "there is no configuration at {path}: name it with --conf FILE or TOLLGATE_CONF"
        )));
    }
    Ok(crate::config::read_own(path)?)
}

/// The same for a command that needs to know only where the ledger is, and how its figures are written: a mistake elsewhere in the file
/// takes nothing away from an operator, who may need it just then. It is told in `warning`.
fn load_for_ledger(path: &Path, warning: &mut String) -> Result<Config, Failure> {
    let text = text_at(path)?;
    match Config::parse(path, &text, &environment) {
        Ok(config) => Ok(config),
        Err(error) => {
            let told = format!("{error}: this command does without; `tollgate check` tells all mistakes");
            let sound = mistakes::sound_for_ledger(path, &text, &environment).ok_or(error)?;
            *warning = told;
            Ok(sound)
        }
    }
}

/// What clap has to say: help and version are answers, everything else is wrong usage.
fn unparsed(mut error: clap::Error, format: Format) -> Outcome {
    without_far_tips(&mut error);
    let styled = |terminal: bool| match terminal {
        true => error.render().ansi().to_string(),
        false => error.render().to_string(),
    };
    if error.use_stderr() {
        let stderr = match format {
            Format::Text => without_keys(&styled(std::io::stderr().is_terminal())),
            Format::Json => error_line(error.to_string().trim_start_matches("error: ").trim_end(), format),
        };
        return Outcome {
            stderr,
            status: 2,
            ..Outcome::default()
        };
    }
    let stdout = styled(std::io::stdout().is_terminal());
    Outcome {
        stdout,
        ..Outcome::default()
    }
}

/// Takes out a similar name that is not similar (`--operator` for `--port`), with the usage that is made of it.
fn without_far_tips(error: &mut clap::Error) {
    let word = |value: Option<&ContextValue>| match value {
        Some(ContextValue::String(word)) => Some(word.clone()),
        _ => None,
    };
    let typed = word(error.get(ContextKind::InvalidArg));
    let meant = word(error.get(ContextKind::SuggestedArg));
    if let (Some(typed), Some(meant)) = (typed, meant)
        && nearest(&typed, std::iter::once(meant.as_str())).is_empty()
    {
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::Usage);
    }
}

/// The configuration, when nothing names another.
const CONF: &str = "conf/tollgate.yaml";
const CONF_VARIABLE: &str = "TOLLGATE_CONF";
const EXAMPLES: &str = "\
Examples:
  tollgate demo                                          see it work
  tollgate check                                         before you start it
  tollgate serve
  tollgate account create acme --tier pro                who pays
  tollgate credits add acme 10.50 --reference INVOICE-7  what they can spend
  tollgate key create --account acme                     what they call with
  tollgate usage acme --period 30d
  tollgate top                                           what happens now

All commands work while the gateway runs and take effect within a second, but for
`ledger recover --unknown-keys` on the embedded ledger. Where the configuration has
a mistake, those that only need the ledger say so and go on. Relative paths in it count
from the current directory. Errors go to standard error, with --json as
{\"error\":{\"message\":…}}, one a line, and warnings as {\"warning\":…}; the exit status
is 1 for an error or a failed check and 2 for wrong usage.

Read on: `tollgate help COMMAND`; conf/README.md, which explains running a gateway;
conf/tollgate.yaml, which describes each key of the configuration in its comments.";
const CHECK: &str = "\
Examples:
  tollgate check
  tollgate check --conf /etc/tollgate/tollgate.yaml --json

It lists every mistake with file and line, warns of what is probably a slip, and tries
what a start needs: ports, folders, the access log, the store. Nothing is made or changed
for good: to Redis a key is written that is deleted at once.
Where a gateway runs with this data_dir, what that has counts as there: `tollgate serve
--upgrade` takes it over. A demo that runs in this folder is only warned of.
The exit status is 1 when `tollgate serve` would not start for another reason.";

#[cfg(test)]
mod tests;
