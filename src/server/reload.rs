//! Re-reads configuration, catalogue and certificate when their files change, or on SIGHUP. A broken file is refused and the old state stays.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;

use crate::clock::monotonic;
use crate::config::stamps::{Stamp, files, stamps};
use crate::config::{Config, ConfigError};
use crate::gateway::snapshot::Snapshot;
use crate::gateway::upstream::providers::Upstreams;
use crate::pure::catalogue::changes::Changes;
use crate::pure::catalogue::doubts;
use crate::telemetry::Telemetry;

/// What a reload did.
#[derive(Debug)]
pub enum Reloaded {
    /// Nothing had changed.
    Unchanged,
    /// The new state is in force.
    Changed,
    /// A file is broken; the old state stays in force.
    Refused(ConfigError),
}

/// Watches the files of a snapshot.
pub struct Reloader {
    snapshot: Weak<ArcSwap<Snapshot>>,
    upstreams: Upstreams,
    environment: fn(&str) -> Option<String>,
    seen: Vec<(PathBuf, Stamp)>,
    /// Why the last reload was refused, and when that was tried last. What was wrong may stand in a file that only the refused configuration names.
    refused: Option<(String, Instant)>,
    /// What the gateway began with: some keys are read only then.
    began: Config,
    telemetry: Arc<Telemetry>,
}

impl Reloader {
    /// A reloader for the snapshot's files as they are now.
    pub fn new(
        snapshot: &Arc<ArcSwap<Snapshot>>,
        upstreams: Upstreams,
        environment: fn(&str) -> Option<String>,
    ) -> Reloader {
        let current = snapshot.load();
        let began = current.config.clone();
        Reloader {
            snapshot: Arc::downgrade(snapshot),
            upstreams,
            environment,
            seen: seen_of(&current),
            refused: None,
            began,
            telemetry: Arc::default(),
        }
    }

    /// The same, telling `telemetry` what it does.
    pub fn observed_by(self, telemetry: &Arc<Telemetry>) -> Reloader {
        let telemetry = Arc::clone(telemetry);
        Reloader { telemetry, ..self }
    }

    /// Looks for changes, and swaps the snapshot when the changed files are good. `force` re-reads them in any case.
    pub fn check(&mut self, force: bool) -> Reloaded {
        let Some(current) = self.snapshot.upgrade() else {
            return Reloaded::Unchanged;
        };
        let old = current.load_full();
        let now = stamps(&old.config);
        let is_changed = force || now != self.seen;
        let refused = self.refused.as_ref();
        if !is_changed && refused.is_none_or(|(_, tried)| tried.elapsed() < RETRY_EVERY) {
            return Reloaded::Unchanged;
        }
        self.seen = now;
        match self.read(&old.config) {
            Ok(mut new) => {
                new.keep_tls_of(&old);
                report(&self.began, &old, &new);
                if self.began.operator.is_some() {
                    new.config.keep_operators_of(&old.config);
                }
                if !files(&new.config).eq(files(&old.config)) {
                    self.seen = seen_of(&new);
                }
                current.store(Arc::new(new));
                current.load().comes_into_force();
                self.refused = None;
                self.telemetry.reloaded(false);
                Reloaded::Changed
            }
            Err(error) => {
                let before = self.refused.replace((error.to_string(), monotonic()));
                if !is_changed && before.is_some_and(|(before, _)| before == error.to_string()) {
                    return Reloaded::Unchanged;
                }
                log::error!("refused a reload, the old state stays: {error}");
                self.telemetry.reloaded(true);
                Reloaded::Refused(error)
            }
        }
    }

    /// Checks every half second, and at once on SIGHUP, on a thread of its own until the snapshot is gone.
    pub fn watch(mut self, reload_requested: Arc<AtomicBool>) -> std::io::Result<()> {
        let work = move || {
            while self.snapshot.strong_count() > 0 {
                std::thread::sleep(CHECK_EVERY);
                self.check(reload_requested.swap(false, Ordering::Relaxed));
            }
        };
        std::thread::Builder::new()
            .name("reload".to_owned())
            .spawn(work)
            .map(|_| ())
    }

    fn read(&self, old: &Config) -> Result<Snapshot, ConfigError> {
        let config = Config::parse(&old.path, &crate::config::read_own(&old.path)?, &self.environment)?;
        let snapshot = Snapshot::load(config, &self.upstreams)?;
        self.upstreams.wait_for_names();
        Ok(snapshot)
    }
}

fn report(began: &Config, old: &Snapshot, new: &Snapshot) {
    let waiting = waiting(began, &new.config);
    if !waiting.is_empty() {
        log::warn!("changed, and in force from the next start on: {}", waiting.join(", "));
    }
    log::info!(
        "reloaded: {} models, {} providers",
        new.catalogue.models().len(),
        new.config.providers.len()
    );
    let changes = Changes::between(&old.catalogue, &new.catalogue);
    if !changes.is_empty() {
        log::info!("the catalogue: {}", changes.summary());
    }
    let text = changes.to_string();
    text.lines()
        .take(CHANGES_LOGGED_MAX)
        .for_each(|line| log::info!("{line}"));
    for warning in relabelled(&old.config, &new.config) {
        log::warn!("{warning}");
    }
    let moves = doubts::moves(&old.catalogue, &new.catalogue);
    let moved = moves.iter().take(CHANGES_LOGGED_MAX);
    moved.for_each(|moved| log::warn!("{moved}"));
    if let Some(more) = moves.len().checked_sub(CHANGES_LOGGED_MAX).filter(|more| *more > 0) {
        log::warn!(
            "{more} more prices or bounds of tokens become ten times what they were or more, or a tenth or less"
        );
    }
    if let Some(problem) = new.nothing_on_sale() {
        log::error!("{problem}");
    }
    for warning in new.warnings.iter().filter(|warning| !old.warnings.contains(warning)) {
        log::warn!("{warning}");
    }
}

/// The keys that were changed since the start, where alone they are read.
fn waiting(old: &Config, new: &Config) -> Vec<&'static str> {
    let keys = [
        ("listen", old.listen != new.listen),
        ("admin_listen", old.admin_listen != new.admin_listen),
        ("operator_listen", old.operator_address() != new.operator_address()),
        ("threads", old.threads != new.threads),
        ("data_dir", old.data_dir != new.data_dir),
        ("store", old.store != new.store),
        ("access_log", old.access_log != new.access_log),
        ("audit_seconds", old.audit_every != new.audit_every),
        ("receipts", old.receipts != new.receipts),
        ("traces", old.traces != new.traces),
        ("drain_seconds", old.drain != new.drain),
        ("unready_seconds", old.unready != new.unready),
        ("tls (switched on or off)", old.tls.is_some() != new.tls.is_some()),
        (
            "operator_tls (switched on or off)",
            has_operator_tls(old) != has_operator_tls(new) && old.operator_address() == new.operator_address(),
        ),
    ];
    keys.into_iter()
        .filter_map(|(key, has_changed)| has_changed.then_some(key))
        .collect()
}

/// What to know of keys that name what is in the ledger, and change nothing there.
fn relabelled(old: &Config, new: &Config) -> Vec<String> {
    let mut told = Vec::new();
    if old.key_prefix != new.key_prefix {
        let (from, to) = (&old.key_prefix, &new.key_prefix);
        told.push(format!(
            "key_prefix goes from {from} to {to}: keys that were made before are refused with 401 until it is {from} again"
        ));
    }
    if old.currency != new.currency {
        let (from, to) = (&old.currency, &new.currency);
        told.push(format!(
            "currency goes from {from} to {to}: amounts are only called so, and no balance or price is converted"
        ));
    }
    told
}

fn has_operator_tls(config: &Config) -> bool {
    config.operator.as_ref().is_some_and(|operator| operator.tls.is_some())
}

/// What was seen of the files of a snapshot before they were read; nothing where the configuration, which was read before that, has changed,
/// so that the next look reads them.
fn seen_of(snapshot: &Snapshot) -> Vec<(PathBuf, Stamp)> {
    match snapshot.is_as_read() {
        true => snapshot.stamps.clone(),
        false => Vec::new(),
    }
}

/// Lines about models in one log of a reload; `tollgate catalogue import --dry-run` shows all of them before.
const CHANGES_LOGGED_MAX: usize = 100;
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// How often it is looked whether what was refused would be taken by now.
const RETRY_EVERY: Duration = Duration::from_secs(5);

#[cfg(test)]
mod piped;
#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(Path::new("t.yaml"), text, &|_| None).unwrap()
    }

    /// A gateway over these files, and what of them it has read.
    fn read(folder: &Path) -> (Arc<ArcSwap<Snapshot>>, Upstreams) {
        let path = folder.join("t.yaml");
        let providers = "providers: { p: { base_url: 'http://127.0.0.1:1' } }\n";
        let catalogue = folder.join("catalogue.yaml");
        std::fs::write(&path, format!("{providers}catalogue: {}\n", catalogue.display())).unwrap();
        let upstreams = Upstreams::default();
        let snapshot = Snapshot::load(Config::load(&path).unwrap(), &upstreams).unwrap();
        (Arc::new(ArcSwap::from_pointee(snapshot)), upstreams)
    }

    fn catalogue(path: &Path, price: &str) {
        let model = format!(
            "models: [ {{ id: a/b, name: B, provider: A, modality: text->text, purposes: [chat], context_length: 1000, max_completion_tokens: 10, tier: free, \
             pricing: {{ prompt: \"{price}\", completion: \"{price}\" }}, targets: [ {{ provider: p, model: b }} ] }} ]\n"
        );
        std::fs::write(path, model).unwrap();
    }

    /// Between the reading and the first look the gateway may wait for its store, or for the process before it.
    #[test]
    fn what_was_changed_before_the_first_look_is_read_by_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("catalogue.yaml");
        catalogue(&path, "0.000001");
        let (current, upstreams) = read(folder.path());
        let mut same = Reloader::new(&current, upstreams.clone(), |_| None);
        assert!(matches!(same.check(false), Reloaded::Unchanged));
        catalogue(&path, "0.000002");
        let mut late = Reloader::new(&current, upstreams, |_| None);
        assert!(matches!(late.check(false), Reloaded::Changed));
        assert!(matches!(late.check(false), Reloaded::Unchanged));
        let now = current.load();
        assert_eq!(now.catalogue.models()[0].pricing.prompt.to_string(), "0.0000023");
        let target = &now.candidates.get("a/b").unwrap().all()[0];
        assert!(target.note_credential_refused(true), "its credential is in force");
    }

    /// Its certificates were read with the catalogue, and looked at when the gateway had begun.
    #[test]
    fn a_file_of_certificates_that_was_changed_before_the_first_look_is_read_by_it() {
        let folder = tempfile::tempdir().unwrap();
        catalogue(&folder.path().join("catalogue.yaml"), "0.000001");
        let pki = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
        let authority = folder.path().join("ca.pem");
        std::fs::write(&authority, pki.cert.pem()).unwrap();
        let path = folder.path().join("t.yaml");
        let text = format!(
            "providers: {{ p: {{ base_url: 'https://127.0.0.1:1', ca_file: {} }} }}\ncatalogue: {}\n",
            authority.display(),
            folder.path().join("catalogue.yaml").display()
        );
        std::fs::write(&path, text).unwrap();
        let upstreams = Upstreams::default();
        let snapshot = Snapshot::load(Config::load(&path).unwrap(), &upstreams).unwrap();
        let current = Arc::new(ArcSwap::from_pointee(snapshot));
        std::fs::write(&authority, format!("# Renewed.\n{}", pki.cert.pem())).unwrap();
        let mut late = Reloader::new(&current, upstreams, |_| None);
        assert!(matches!(late.check(false), Reloaded::Changed));
    }

    /// Its file is none that the old configuration names.
    #[test]
    fn a_refused_reload_is_tried_again_and_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (folder.path().join("catalogue.yaml"), folder.path().join("next.yaml"));
        catalogue(&first, "0.000001");
        let (current, upstreams) = read(folder.path());
        let mut reloader = Reloader::new(&current, upstreams, |_| None);
        std::fs::write(&second, "models: [").unwrap();
        names_the_next(folder.path());
        assert!(matches!(reloader.check(false), Reloaded::Refused(_)));
        assert!(matches!(reloader.check(false), Reloaded::Unchanged));
        let later = |reloader: &mut Reloader| {
            let (_, tried) = reloader.refused.as_mut().unwrap();
            *tried = tried.checked_sub(RETRY_EVERY).unwrap();
            reloader.check(false)
        };
        assert!(matches!(later(&mut reloader), Reloaded::Unchanged), "it is told");
        catalogue(&second, "0.000002");
        assert!(
            matches!(reloader.check(false), Reloaded::Unchanged),
            "it is not tried at once"
        );
        assert!(matches!(later(&mut reloader), Reloaded::Changed));
        assert!(reloader.refused.is_none());
    }

    /// The configuration names another catalogue.
    fn names_the_next(folder: &Path) {
        let path = folder.join("t.yaml");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("catalogue.yaml", "next.yaml")).unwrap();
    }

    /// The hook answered 404, and names with a dot 421, though the listener went on.
    #[test]
    fn a_listener_of_operators_that_is_taken_out_goes_on_with_its_names_until_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        catalogue(&folder.path().join("catalogue.yaml"), "0.000001");
        drop(read(folder.path()));
        let path = folder.path().join("t.yaml");
        let without = std::fs::read_to_string(&path).unwrap();
        let listener = "operator_listen: 127.0.0.1:1\noperator_hosts: [ops.example.com]\n";
        std::fs::write(&path, format!("{without}{listener}")).unwrap();
        let upstreams = Upstreams::default();
        let snapshot = Snapshot::load(Config::load(&path).unwrap(), &upstreams).unwrap();
        let current = Arc::new(ArcSwap::from_pointee(snapshot));
        let mut reloader = Reloader::new(&current, upstreams, |_| None);
        std::fs::write(&path, without).unwrap();
        assert!(matches!(reloader.check(true), Reloaded::Changed));
        let kept = current.load().config.operator.clone().unwrap();
        assert_eq!(kept.hosts, ["ops.example.com"]);
    }

    #[test]
    fn another_prefix_of_keys_and_another_currency_are_told() {
        let old = config("");
        assert_eq!(relabelled(&old, &config("markup: \"1.2\"")), [""; 0]);
        let [prefix] = relabelled(&old, &config("key_prefix: x_")).try_into().unwrap();
        assert!(prefix.starts_with("key_prefix goes from tg_ to x_: keys that were made before are refused"));
        let [currency] = relabelled(&old, &config("currency: EUR")).try_into().unwrap();
        assert!(currency.starts_with("currency goes from USD to EUR: amounts are only called so"));
    }

    #[test]
    fn what_waits_for_the_next_start_is_named_and_nothing_else() {
        let old = config("");
        assert!(waiting(&old, &config("currency: EUR\nbody_bytes_max: 2048\nconnections_max: 7")).is_empty());
        for (text, key) in [
            ("listen: 127.0.0.1:1", "listen"),
            ("admin_listen: 127.0.0.1:1", "admin_listen"),
            ("operator_listen: 127.0.0.1:1", "operator_listen"),
            ("threads: 7", "threads"),
            ("store: redis://127.0.0.1:1/0", "store"),
            ("access_log: off", "access_log"),
            ("audit_seconds: 7", "audit_seconds"),
            ("receipts: { keep_days: 7 }", "receipts"),
            ("drain_seconds: 7", "drain_seconds"),
            ("unready_seconds: 7", "unready_seconds"),
            ("tls: { cert: a, key: b }", "tls (switched on or off)"),
        ] {
            assert_eq!(waiting(&old, &config(text)), [key], "{text}");
        }
        let operator = "operator_listen: 127.0.0.1:1\n";
        let switched = waiting(
            &config(operator),
            &config(&format!("{operator}operator_tls: {{ cert: a, key: b }}")),
        );
        assert_eq!(switched, ["operator_tls (switched on or off)"]);
        let moved = waiting(&old, &config("data_dir: elsewhere"));
        assert_eq!(moved, ["data_dir", "store"], "the ledger is there by default");
    }
}
