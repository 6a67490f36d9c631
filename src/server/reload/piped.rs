//! A gateway whose configuration came through a pipe, which has none left for a reload.

use std::path::Path;

use super::*;

const CATALOGUE: &str = "models: [ { id: a/b, name: B, provider: A, modality: text->text, purposes: [chat], context_length: 1000, \
    max_completion_tokens: 10, tier: free, pricing: { prompt: \"0.000001\", completion: \"0.000001\" }, \
    targets: [ { provider: p, model: b } ] } ]\n";

/// The empty text was taken for the defaults, by the first look half a second after the start.
#[test]
fn a_configuration_from_a_pipe_stays_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let catalogue = folder.path().join("catalogue.yaml");
    std::fs::write(&catalogue, CATALOGUE).unwrap();
    let providers = "providers: { p: { base_url: 'http://127.0.0.1:1' } }\n";
    let text = format!("{providers}catalogue: {}\n", catalogue.display());
    let (reader, mut writer) = std::io::pipe().unwrap();
    std::io::Write::write_all(&mut writer, text.as_bytes()).unwrap();
    drop(writer);
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
    let upstreams = Upstreams::default();
    let snapshot = Snapshot::load(Config::load(Path::new(&path)).unwrap(), &upstreams).unwrap();
    let current = Arc::new(ArcSwap::from_pointee(snapshot));
    let mut reloader = Reloader::new(&current, upstreams, |_| None);
    assert!(matches!(reloader.check(false), Reloaded::Unchanged));
    let Reloaded::Refused(error) = reloader.check(true) else {
        panic!("there is nothing to read");
    };
    assert!(error.problem.starts_with("it is a pipe with nothing in it"), "{error}");
    assert_eq!(current.load().config.catalogue, catalogue);
}
