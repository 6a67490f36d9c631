//! The configuration as a file: what is read as one, and those that are shipped.

use super::*;

/// A start waited for ever for somebody to write into it.
#[test]
fn what_is_no_file_is_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("tollgate.yaml");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let (told, tells) = std::sync::mpsc::channel();
    let link = folder.path().join("link.yaml");
    std::os::unix::fs::symlink(&pipe, &link).unwrap();
    let paths = [pipe, link, "/dev/zero".into()];
    std::thread::spawn(move || paths.map(|path| told.send(Config::load(&path)).unwrap()));
    for _ in 0..3 {
        let loaded = tells.recv_timeout(Duration::from_secs(10)).unwrap();
        let error = loaded.unwrap_err();
        assert!(error.problem.starts_with("it is no regular file"), "{error}");
    }
    // What a shell pipes has no name, and ends.
    let (reader, mut writer) = std::io::pipe().unwrap();
    std::io::Write::write_all(&mut writer, b"base_path: /x\n").unwrap();
    drop(writer);
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
    assert_eq!(Config::load(Path::new(&path)).unwrap().base_path, "/x");
    let is_folder = Config::load(folder.path()).unwrap_err();
    assert!(is_folder.problem.contains("directory"), "{is_folder}");
}

#[test]
fn the_shipped_files_are_good() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut config = Config::load(&root.join("conf/tollgate.yaml")).unwrap();
    config.catalogue = root.join("conf/catalogue.yaml");
    let catalogue = config.load_catalogue().unwrap();
    assert!(catalogue.models().len() >= 25);
    for tier in Tier::ALL {
        assert!(
            catalogue.models().iter().any(|model| model.tier == tier),
            "no model of tier {tier:?}"
        );
    }
}

/// Those whose makers reason unseen unless they are told not to. When a client leaves, their providers charge for it.
#[test]
fn the_shipped_models_that_reason_unseen_say_so() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut config = Config::load(&root.join("conf/tollgate.yaml")).unwrap();
    config.catalogue = root.join("conf/catalogue.yaml");
    let catalogue = config.load_catalogue().unwrap();
    let reasons = |id: &str| {
        ["openai/gpt-5", "openai/gpt-6", "google/gemini-3"]
            .iter()
            .any(|name| id.starts_with(name))
    };
    let models: Vec<_> = catalogue.models().iter().filter(|model| reasons(&model.id)).collect();
    assert!(models.len() >= 11);
    for model in models {
        assert!(model.reasoning && model.tokens_per_second.is_some(), "{}", model.id);
    }
}
