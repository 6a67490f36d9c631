//! `tollgate catalogue`: what is on sale, what is switched off, and why.

mod import;

use std::collections::BTreeSet;

use clap::Subcommand;
use serde::Serialize;

use super::failure::Failure;
use super::output::{Align, Answer, Format, Show, Table, counted};
use crate::config::{Config, Credential, doubts};
use crate::pure::catalogue::{Catalogue, Model, ModelKind, Purpose};
use crate::pure::ids::Tier;

#[derive(Debug, Subcommand)]
pub(super) enum CatalogueCommand {
    /// Check the catalogue: what is on sale, what is switched off and why
    #[command(after_help = "Example:\n  tollgate catalogue check\n\n\
        A running gateway reads the file again when it changes; one with a mistake is\n\
        refused and the old one stays in force.")]
    Check,
    /// Take over a provider's list of models and prices, by rules
    Import(import::ImportArgs),
}

pub(super) fn run(command: &CatalogueCommand, config: &Config, format: Format) -> Result<Answer, Failure> {
    match command {
        CatalogueCommand::Check => Answer::of(&Stock::of(config)?, format),
        CatalogueCommand::Import(args) => import::run(args, config, format),
    }
}

/// The part of the catalogue that can be served: models with a target whose provider has its credential.
pub(super) fn on_sale(config: &Config, catalogue: &Catalogue) -> Catalogue {
    catalogue.restricted_to(|target| {
        config
            .providers
            .get(&target.provider)
            .is_some_and(|provider| provider.is_on())
    })
}

/// The catalogue, seen with the credentials of this environment.
#[derive(Debug, Serialize)]
pub(super) struct Stock {
    catalogue: String,
    pub(super) models: usize,
    pub(super) on_sale: usize,
    embedding: usize,
    tiers: Vec<TierCount>,
    purposes: Vec<PurposeLine>,
    switched_off: Vec<OffLine>,
    pub(super) warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct TierCount {
    tier: Tier,
    /// Models that name this tier as their lowest.
    models: usize,
    /// Models that a caller of this tier may use now.
    usable: usize,
}

#[derive(Debug, Serialize)]
struct PurposeLine {
    purpose: &'static str,
    /// What `purpose/<name>` means now; nothing when no model of the purpose is on sale.
    default: Option<String>,
    /// What the file says; nothing when no model of it lists the purpose.
    configured: Option<String>,
    /// Models on sale that carry it.
    models: usize,
}

#[derive(Debug, Serialize)]
struct OffLine {
    model: String,
    /// Environment variables, any of which switches it on.
    needs: BTreeSet<String>,
}

impl Stock {
    /// Reads the catalogue.
    pub(super) fn of(config: &Config) -> Result<Stock, Failure> {
        let whole = config.load_catalogue()?;
        let live = on_sale(config, &whole);
        let purposes: Vec<PurposeLine> = Purpose::ALL
            .into_iter()
            .map(|p| purpose_line(p, &whole, &live))
            .collect();
        let off = whole.models().iter().filter(|model| live.model(&model.id).is_none());
        let count = |fits: &dyn Fn(&Model) -> bool| live.models().iter().filter(|model| fits(model)).count();
        let tiers = Tier::ALL.map(|tier| TierCount {
            tier,
            models: whole.models().iter().filter(|model| model.tier == tier).count(),
            usable: count(&|model| model.tier <= tier),
        });
        let mut warnings = warnings(&purposes, &whole, &live);
        warnings.extend(doubts::of_catalogue(config, &whole).iter().map(ToString::to_string));
        Ok(Stock {
            catalogue: config.catalogue.display().to_string(),
            models: whole.models().len(),
            on_sale: live.models().len(),
            embedding: count(&|model| model.kind() == ModelKind::Embedding),
            tiers: tiers.into(),
            warnings,
            purposes,
            switched_off: off.map(|model| off_line(model, config)).collect(),
        })
    }
}

fn purpose_line(purpose: Purpose, whole: &Catalogue, live: &Catalogue) -> PurposeLine {
    let id = |catalogue: &Catalogue| catalogue.default_for(purpose).map(|model| model.id.to_string());
    PurposeLine {
        purpose: purpose.name(),
        default: id(live),
        configured: id(whole),
        models: live
            .models()
            .iter()
            .filter(|model| model.purposes.contains(&purpose))
            .count(),
    }
}

fn off_line(model: &Model, config: &Config) -> OffLine {
    let providers = model
        .targets
        .iter()
        .filter_map(|target| config.providers.get(&target.provider));
    let needs = providers.filter_map(|provider| match &provider.credential {
        Credential::Missing(variable) => Some(variable.clone()),
        Credential::None | Credential::Bearer(_) => None,
    });
    OffLine {
        model: model.id.to_string(),
        needs: needs.collect(),
    }
}

fn warnings(purposes: &[PurposeLine], whole: &Catalogue, live: &Catalogue) -> Vec<String> {
    if live.models().is_empty() {
        return vec!["no model is on sale: no provider has its credential".to_owned()];
    }
    let warning = |line: &PurposeLine| match (&line.default, &line.configured) {
        (None, Some(_)) => Some(format!("no model of the purpose {} is on sale", line.purpose)),
        (Some(now), Some(configured)) if now != configured => Some(format!(
            "the purpose {} is served by {now}: its default {configured} is switched off",
            line.purpose
        )),
        (Some(_), _) | (None, None) => None,
    };
    let unserved = whole.unserved_warning().into_iter();
    unserved.chain(purposes.iter().filter_map(warning)).collect()
}

impl Show for Stock {
    fn text(&self) -> String {
        let off = self.models.saturating_sub(self.on_sale);
        let mut text = format!(
            "{}: {}, {} on sale ({} for embeddings), {off} switched off\n\n",
            self.catalogue,
            counted(u64::try_from(self.models).unwrap_or(u64::MAX), "model"),
            self.on_sale,
            self.embedding,
        );
        let mut tiers = Table::new(&[
            ("TIER", Align::Left),
            ("MODELS", Align::Right),
            ("MAY USE NOW", Align::Right),
        ]);
        for line in &self.tiers {
            tiers.row(vec![
                line.tier.name().to_owned(),
                line.models.to_string(),
                line.usable.to_string(),
            ]);
        }
        text.push_str(&tiers.text());
        text.push('\n');
        let mut purposes = Table::new(&[
            ("PURPOSE", Align::Left),
            ("ON SALE", Align::Right),
            ("DEFAULT", Align::Left),
        ]);
        for line in &self.purposes {
            let default = line.default.clone().unwrap_or_else(|| "none".to_owned());
            purposes.row(vec![line.purpose.to_owned(), line.models.to_string(), default]);
        }
        text.push_str(&purposes.text());
        if !self.switched_off.is_empty() {
            let mut off = Table::new(&[
                ("SWITCHED OFF", Align::Left),
                ("UNTIL ONE OF THESE IS SET", Align::Left),
            ]);
            for line in &self.switched_off {
                let needs: Vec<&str> = line.needs.iter().map(String::as_str).collect();
                off.row(vec![line.model.clone(), needs.join(", ")]);
            }
            text.push('\n');
            text.push_str(&off.text());
        }
        if !self.warnings.is_empty() {
            text.push('\n');
        }
        for warning in &self.warnings {
            text.push_str(&format!("warning: {warning}\n"));
        }
        text
    }
}
