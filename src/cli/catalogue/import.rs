//! `tollgate catalogue import`: a provider's list of models becomes the catalogue, or the command says what is wrong with it.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use crate::cli::failure::Failure;
use crate::cli::output::{Answer, Format, Show, counted};
use crate::config::import::{Import, Write, import};
use crate::config::{Config, Refresh};
use crate::pure::catalogue::changes::Changes;
use crate::pure::import::Skipped;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    curl -s https://openrouter.ai/api/v1/models > models.json\n  \
    tollgate catalogue import models.json --dry-run\n  \
    tollgate catalogue import models.json\n\n\
    The rules are import.yaml beside the catalogue, else beside the configuration, else\n\
    conf/import.yaml.\n\n\
    The list is taken whole or not at all. A running gateway takes the new catalogue\n\
    over within a second; calls under way keep the prices that they began with.")]
pub(in crate::cli) struct ImportArgs {
    /// The list, in the format of OpenRouter's /models; - for standard input
    file: PathBuf,
    /// Which models are sold, to whom and for what [default: import.yaml, as told below]
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
}

pub(in crate::cli) fn run(args: &ImportArgs, config: &Config, format: Format) -> Result<Answer, Failure> {
    let list = read(&args.file)?;
    let write = if args.dry_run { Write::No } else { Write::Yes };
    let rules = args.rules.clone();
    let rules = rules.unwrap_or_else(|| Refresh::usual_rules(&config.catalogue, &config.path));
    let import = import(config, &rules, &args.file, &list, write)?;
    Answer::of(&Imported::of(import, config, args.dry_run), format)
}

fn read(path: &Path) -> Result<String, Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("cannot read {}: {error}", path.display()));
    if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(failed)?;
        return Ok(text);
    }
    std::fs::read_to_string(path).map_err(failed)
}

/// What an import did, or would do.
#[derive(Debug, Serialize)]
struct Imported {
    catalogue: String,
    written: bool,
    models: usize,
    changes: Changes,
    skipped: Vec<Skipped>,
    notes: Vec<String>,
    #[serde(skip)]
    dry_run: bool,
}

impl Imported {
    fn of(import: Import, config: &Config, dry_run: bool) -> Imported {
        Imported {
            catalogue: config.catalogue.display().to_string(),
            written: import.written,
            models: import.models,
            changes: import.changes,
            skipped: import.skipped,
            notes: import.notes,
            dry_run,
        }
    }
}

impl Show for Imported {
    fn text(&self) -> String {
        let mut text = self.changes.to_string();
        if !self.skipped.is_empty() {
            let skipped = u64::try_from(self.skipped.len()).unwrap_or(u64::MAX);
            text.push_str(&format!("\nnot sold: {}\n", counted(skipped, "model")));
            for skipped in &self.skipped {
                text.push_str(&format!("  {}: {}\n", skipped.model, skipped.reason));
            }
        }
        for note in &self.notes {
            text.push_str(&format!("\nnote: {note}\n"));
        }
        let (catalogue, models, summary) = (&self.catalogue, self.models, self.changes.summary());
        let done = match (self.changes.is_empty(), self.dry_run) {
            (true, _) => format!("{catalogue}: nothing changes, {models} models"),
            (false, true) => format!("{catalogue}: {summary} by this import, to {models} models; nothing is written"),
            (false, false) => format!("{catalogue}: {summary}, {models} models now"),
        };
        text.push_str(&format!("\n{done}\n"));
        text
    }
}
