//! What a request sees of configuration and catalogue: one consistent state, made when a file changes, not per request.

mod openai_model;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

use self::openai_model::OpenAiModel;
use super::api::document::Document;
use super::api::openapi;
use super::api::pages::Pages;
use super::upstream::circuit_breaker::Admitted;
use super::upstream::providers::{Upstream, Upstreams};
use super::upstream::targets::{Candidate, Candidates};
use crate::clock::Clock;
use crate::config::stamps::{Stamp, stamps};
use crate::config::{Config, ConfigError, Credential, TextDigest, Traces, secrets};
use crate::net::certificates::{Certificate, HTTP_1, HTTP_1_AND_2};
use crate::pure::catalogue::{Catalogue, Model, Purpose};
use crate::pure::hash_map::FastMap;
use crate::pure::ids::Tier;
use crate::pure::prices::PriceTable;
use crate::pure::time::Timestamp;

/// Configuration, the live part of the catalogue, and the listings, rendered.
#[derive(Debug)]
pub struct Snapshot {
    /// The configuration.
    pub config: Config,
    /// The models that have a provider which is switched on.
    pub catalogue: Catalogue,
    pub(crate) upstreams: BTreeMap<String, Arc<Upstream>>,
    /// The targets of each model, by its id.
    pub(crate) candidates: FastMap<Arc<str>, Candidates>,
    pub(crate) listings: Listings,
    /// The pages for browsers, rendered.
    pub(crate) pages: Pages,
    /// When the catalogue's file was changed last.
    pub(crate) catalogue_modified: Option<Timestamp>,
    /// That of the catalogue's text.
    catalogue_digest: TextDigest,
    /// What was seen of the configuration's files before any but that of the configuration itself was read.
    pub(crate) stamps: Vec<(PathBuf, Stamp)>,
    /// What the listener greets with over TLS.
    pub(crate) certificate: Option<Arc<Certificate>>,
    /// What the listener of operators greets with over TLS.
    pub(crate) operator_certificate: Option<Arc<Certificate>>,
    /// What an operator should know: providers that are off, purposes without a model, certificates that clients refuse or soon will.
    pub warnings: Vec<String>,
}

/// The listings' parts.
#[derive(Debug)]
pub(crate) struct Listings {
    /// Every model, rendered as the served OpenAPI description shows it (`Model`).
    pub(crate) models: Vec<Listed>,
    /// `GET /llm/models` without a filter, by [`Tier::index`].
    pub(crate) by_tier: [Document; 4],
    /// `GET {base}/models` in OpenAI's shape, by [`Tier::index`].
    pub(crate) openai: [Document; 4],
    /// `GET /llm/models/purposes`.
    pub(crate) purposes: Document,
    /// `GET {base}/openapi.json`.
    pub(crate) description: Document,
}

/// A rendered model.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) model: Arc<Model>,
    /// JSON object.
    pub(crate) json: String,
    /// JSON object in OpenAI's shape.
    pub(crate) openai: String,
    /// Lower-case id and name, for a search by name.
    pub(crate) name_key: String,
    /// Lower-case provider, for a search by name or provider.
    pub(crate) provider_key: String,
}

impl Snapshot {
    /// Reads the catalogue that `config` names and renders the listings. `upstreams` keeps the connections' state over reloads.
    ///
    /// # Errors
    /// As [`Config::load_catalogue`], when a secret is missing that a gateway needs, and when a provider or the listener's TLS cannot be set
    /// up (a certificate file that cannot be read).
    pub fn load(config: Config, upstreams: &Upstreams) -> Result<Snapshot, ConfigError> {
        let stamps = stamps(&config);
        let (whole, catalogue_digest) = config.load_catalogue_and_digest()?;
        if let Some(problem) = secrets::problems(&config).into_iter().next() {
            return Err(config.mistake(problem));
        }
        let mut warnings: Vec<String> = Vec::new();
        for (provider, variable) in variables_missing(&config) {
            warnings.push(format!("provider {provider} is off: {variable} is not set"));
        }
        if let Traces::Missing(variable) = &config.traces {
            warnings.push(format!("traces are off: {variable} is not set"));
        }
        let is_on = |name: &str| config.providers.get(name).is_some_and(|provider| provider.is_on());
        let catalogue = whole.restricted_to(|target| is_on(&target.provider));
        warnings.extend(whole.unserved_warning());
        for purpose in Purpose::ALL {
            match (catalogue.default_for(purpose), whole.default_for(purpose)) {
                (None, Some(_)) => warnings.push(format!(
                    "purpose {} has no model: its providers are off",
                    purpose.name()
                )),
                (Some(now), Some(meant)) if now.id != meant.id => {
                    warnings.push(format!(
                        "purpose {} uses {} in place of {}",
                        purpose.name(),
                        now.id,
                        meant.id
                    ));
                }
                _ => {}
            }
        }
        let certificate = certificate(&config).map_err(|problem| config.mistake(problem))?;
        let operator_certificate = operator_certificate(&config).map_err(|problem| config.mistake(problem))?;
        let certificates = [&certificate, &operator_certificate].into_iter().flatten();
        warnings.extend(certificates.filter_map(|certificate| certificate.doubt(Clock::System.now())));
        let upstreams = upstreams.for_config(&config)?;
        let listings = Listings::render(&catalogue, &config.base_path);
        let pages = Pages::render(&config);
        let catalogue_modified = config.catalogue_modified();
        let with_targets = |model: &Arc<Model>| (Arc::clone(&model.id), Candidates::of(&upstreams, model));
        let candidates = catalogue.models().iter().map(with_targets).collect();
        Ok(Snapshot {
            config,
            catalogue,
            upstreams,
            candidates,
            listings,
            pages,
            catalogue_modified,
            catalogue_digest,
            stamps,
            certificate: certificate.map(Arc::new),
            operator_certificate: operator_certificate.map(Arc::new),
            warnings,
        })
    }
}

impl Snapshot {
    /// Whether the files of the configuration and the catalogue are still what they were when they were read.
    pub(crate) fn is_as_read(&self) -> bool {
        self.config.is_as_read(self.catalogue_digest)
    }

    /// From now on requests see this one: what targets answer is noted of its credentials, and of no others. To be called once it is stored
    /// where requests find it; until then answers to those in flight are noted of the credentials before.
    pub(crate) fn comes_into_force(&self) {
        let candidates = self.candidates.values().flat_map(Candidates::all);
        candidates.for_each(Candidate::comes_into_force);
    }

    /// What an operator has to know where no model is on sale. None where one is.
    pub fn nothing_on_sale(&self) -> Option<String> {
        if !self.catalogue.models().is_empty() {
            return None;
        }
        let off = variables_missing(&self.config);
        let off: String = off
            .map(|(provider, variable)| format!("; provider {provider} is off, for {variable} is not set"))
            .collect();
        Some(format!("no model is on sale: every call is answered with 404{off}"))
    }

    /// Has the listeners speak TLS, or not, as they did with the state before: who reads a new configuration exchanges certificates, and only
    /// a start switches TLS on or off. A certificate that the new configuration does not name any more stays.
    pub(crate) fn keep_tls_of(&mut self, before: &Snapshot) {
        keep_tls(&mut self.certificate, before.certificate.as_ref());
        keep_tls(&mut self.operator_certificate, before.operator_certificate.as_ref());
    }

    /// The listeners that greet over TLS, by their keys of the configuration, each with the seconds from `now` to the end of its certificate;
    /// below 0 once that has expired.
    pub(crate) fn certificates_left(&self, now: Timestamp) -> Vec<(&'static str, i64)> {
        let certificates = [
            ("listen", &self.certificate),
            ("operator_listen", &self.operator_certificate),
        ];
        let left = certificates.into_iter().filter_map(|(listener, certificate)| {
            let until = certificate.as_ref()?.valid_until()?;
            Some((listener, until.since(now).div_euclid(1000)))
        });
        left.collect()
    }

    /// The target of a model that is tried next, after those that were.
    /// `conversation` is asked for where several share the calls. And what the target's breaker wants back with the outcome.
    pub(crate) fn next_target(
        &self,
        model: &str,
        tried: &[usize],
        conversation: impl FnOnce() -> Option<u64>,
        clock: &Clock,
    ) -> Option<(Candidate, Admitted)> {
        let candidates = self.candidates.get(model)?;
        let conversation = candidates.are_shared().then(conversation).flatten();
        let (candidate, admitted) = candidates.next(tried, conversation, clock)?;
        Some((candidate.clone(), admitted))
    }

    /// Whether several targets of a model share its calls: then it counts which conversation a call is of.
    pub(crate) fn are_targets_shared(&self, model: &str) -> bool {
        self.candidates.get(model).is_some_and(Candidates::are_shared)
    }

    /// Whether a model has a target, by its position, that was not tried.
    pub(crate) fn is_target_left(&self, model: &str, is_tried: impl Fn(usize) -> bool) -> bool {
        let candidates = self.candidates.get(model);
        candidates.is_some_and(|candidates| candidates.all().iter().any(|candidate| !is_tried(candidate.index)))
    }

    /// Whether the last answer of each target of a model refused the gateway's own credential: until its operator acts, none answers.
    pub(crate) fn all_refuse_credential(&self, model: &str) -> bool {
        let candidates = self.candidates.get(model);
        candidates.is_some_and(|candidates| candidates.all().iter().all(Candidate::refuses_credential))
    }
}

/// What [`Snapshot::load`] refuses beside the catalogue: all of it, and not only the first.
pub fn problems(config: &Config) -> Vec<ConfigError> {
    let certificates = [certificate(config).err(), operator_certificate(config).err()];
    certificates
        .into_iter()
        .flatten()
        .chain(super::upstream::providers::problems(config))
        .chain(secrets::problems(config))
        .map(|problem| config.mistake(problem))
        .collect()
}

/// What [`Snapshot::load`] takes, and clients at `now` refuse or soon will: certificates of listeners. None where one cannot be read.
pub fn doubts(config: &Config, now: Timestamp) -> Vec<String> {
    let certificates = [certificate(config), operator_certificate(config)];
    let certificates = certificates.into_iter().flatten().flatten();
    certificates.filter_map(|certificate| certificate.doubt(now)).collect()
}

/// The providers that are off, each with the variable that is not set.
fn variables_missing(config: &Config) -> impl Iterator<Item = (&str, &str)> {
    let providers = config.providers.values();
    providers.filter_map(|provider| match &provider.credential {
        Credential::Missing(variable) => Some((provider.name.as_str(), variable.as_str())),
        Credential::None | Credential::Bearer(_) => None,
    })
}

fn keep_tls(new: &mut Option<Arc<Certificate>>, before: Option<&Arc<Certificate>>) {
    match (&new, before) {
        (None, Some(before)) => *new = Some(Arc::clone(before)),
        (Some(_), None) => *new = None,
        (None, None) | (Some(_), Some(_)) => {}
    }
}

fn certificate(config: &Config) -> Result<Option<Certificate>, String> {
    let load = |tls| Certificate::load("tls", tls, &HTTP_1_AND_2);
    config.tls.as_ref().map(load).transpose()
}

fn operator_certificate(config: &Config) -> Result<Option<Certificate>, String> {
    let load = |tls| Certificate::load("operator_tls", tls, &HTTP_1);
    let tls = config.operator.as_ref().and_then(|operator| operator.tls.as_ref());
    tls.map(load).transpose()
}

#[derive(Serialize)]
struct ModelJson<'a> {
    id: &'a str,
    name: &'a str,
    provider: &'a str,
    context_length: u64,
    pricing: &'a PriceTable,
    description: &'a str,
    architecture: Architecture<'a>,
    max_completion_tokens: u64,
    tier: &'a str,
    purposes: Vec<&'a str>,
}

#[derive(Serialize)]
struct Architecture<'a> {
    modality: &'a str,
}

/// Each purpose with its default model, or null where that is not one of those.
pub(crate) fn purposes_body(catalogue: &Catalogue, is_shown: impl Fn(&str) -> bool) -> String {
    let purposes = Purpose::ALL.iter().map(|purpose| {
        let id = catalogue.default_for(*purpose).map(|model| model.id.as_ref());
        format!(
            "{}:{}",
            to_json(&purpose.name()),
            to_json(&id.filter(|id| is_shown(id)))
        )
    });
    format!("{{{}}}", purposes.collect::<Vec<_>>().join(","))
}

impl Listings {
    fn render(catalogue: &Catalogue, base_path: &str) -> Listings {
        let models: Vec<Listed> = catalogue
            .models()
            .iter()
            .map(|model| Listed::render(model, base_path))
            .collect();
        let for_tier = |tier: Tier| models.iter().filter(move |listed| listed.model.tier <= tier);
        Listings {
            by_tier: Tier::ALL.map(|tier| Document::new(models_body(for_tier(tier)))),
            openai: Tier::ALL.map(|tier| Document::new(openai_models_body(for_tier(tier)))),
            purposes: Document::new(purposes_body(catalogue, |_| true)),
            description: Document::new(openapi::document(base_path)),
            models,
        }
    }
}

impl Listed {
    fn render(model: &Arc<Model>, base_path: &str) -> Listed {
        let json = to_json(&ModelJson {
            id: &model.id,
            name: &model.name,
            provider: &model.provider,
            context_length: model.context_length,
            pricing: &model.prices,
            description: &model.description,
            architecture: Architecture {
                modality: &model.modality,
            },
            max_completion_tokens: model.max_completion_tokens,
            tier: model.tier.title(),
            purposes: model.purposes.iter().map(|purpose| purpose.name()).collect(),
        });
        Listed {
            json,
            openai: to_json(&OpenAiModel::of(model, base_path)),
            name_key: format!("{}\n{}", model.id, model.name).to_lowercase(),
            provider_key: model.provider.to_lowercase(),
            model: Arc::clone(model),
        }
    }
}

/// `{"models":[…],"total":N}` of these models.
pub(crate) fn models_body<'a>(models: impl Iterator<Item = &'a Listed>) -> String {
    let items: Vec<&str> = models.map(|listed| listed.json.as_str()).collect();
    format!("{{\"models\":[{}],\"total\":{}}}", items.join(","), items.len())
}

/// The same in OpenAI's shape, on the one page that OpenRouter's clients are told of.
pub(crate) fn openai_models_body<'a>(models: impl Iterator<Item = &'a Listed>) -> String {
    let items: Vec<&str> = models.map(|listed| listed.openai.as_str()).collect();
    format!(
        "{{\"object\":\"list\",\"data\":[{}],\"links\":{{\"next\":null}},\"total_count\":{}}}",
        items.join(","),
        items.len()
    )
}

/// JSON text of a value whose serialisation cannot fail.
pub(crate) fn to_json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| {
        log::error!("a value could not be written as JSON: {error}");
        "null".to_owned()
    })
}
