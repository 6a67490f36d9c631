//! In which order a process that starts is found, and what it says when it accepts no more.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use super::*;
use crate::server::upgrade::{is_running, socket_path};

fn tollgate(folder: &Path) -> Tollgate {
    let catalogue = folder.join("catalogue.yaml");
    std::fs::write(&catalogue, CATALOGUE).unwrap();
    let conf = serde_json::json!({ "catalogue": catalogue, "data_dir": folder, "listen": "127.0.0.1:0",
            "providers": { "main": { "base_url": "http://127.0.0.1:1/v1" } } });
    let config = Config::parse(Path::new("t.yaml"), &conf.to_string(), &|_| None).unwrap();
    Tollgate::of(config, |_| None).unwrap()
}

/// A process that cannot listen: what it has is no socket.
fn serving(folder: &Path, predecessor: Option<Predecessor>) -> Serving {
    let no_socket = || OwnedFd::from(std::fs::File::open(folder).unwrap());
    let handover = Handover {
        tollgate: tollgate(folder),
        listening: Listening::new("127.0.0.1:1".parse().unwrap(), no_socket()),
        supervisor: Systemd::default(),
        successor: None,
        succeeded: Arc::default(),
    };
    Serving {
        predecessor,
        socket: no_socket(),
        handover,
    }
}

/// Whoever sees that the port answers may start a process in its place at once.
#[test]
fn a_process_is_found_by_one_that_is_to_take_over_before_it_listens() {
    let folder = tempfile::tempdir().unwrap();
    let failure = serving(folder.path(), None).begin().unwrap_err().to_string();
    assert!(failure.starts_with("it cannot listen: "), "{failure}");
    assert!(is_running(folder.path()));
}

/// The process before is found until it goes, and where it goes on.
#[test]
fn in_an_upgrade_the_process_before_is_found_until_it_lets_this_one_serve() {
    for (says, serves) in [("it stops", false), ("serves", true)] {
        let folder = tempfile::tempdir().unwrap();
        let path = socket_path(folder.path());
        let before = UnixListener::bind(&path).unwrap();
        let found = || std::fs::metadata(&path).unwrap().ino();
        let own = found();
        let serving = serving(folder.path(), Some(Predecessor::find(folder.path()).unwrap()));
        std::thread::scope(|scope| {
            let begins = scope.spawn(|| serving.begin());
            let (mut line, (stream, _)) = (String::new(), before.accept().unwrap());
            BufReader::new(&stream).read_line(&mut line).unwrap();
            assert_eq!((line.as_str(), found()), ("serves\n", own));
            writeln!(&stream, "{says}").unwrap();
            assert_eq!(begins.join().unwrap().is_ok(), serves, "{says}");
        });
        assert_eq!(found() != own, serves, "{says}");
    }
}

#[tokio::test]
async fn it_is_told_when_the_last_connection_was_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let tollgate = tollgate(folder.path());
    let config = tollgate.snapshot().config.clone();
    let listener = Listener::new(tollgate.clone(), &Arc::default());
    let mut service = listening::Service::new("gateway".to_owned(), listener);
    service.add_listener(listener_config(&config));
    let (heeded, accept_ended) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    heeded.notify_one();
    let mut bound = Bound {
        service,
        address: config.listen.to_string(),
        socket: None,
        serving: None,
        accepts_none: tollgate.lifecycle().accepts_none(),
        accept_ended: Arc::clone(&accept_ended),
        heeded,
    };
    let (_stop, stops) = tokio::sync::watch::channel(false);
    tollgate.lifecycle().accept_none();
    bound.start_service(None, stops, 1).await;
    let told = tokio::time::timeout(Duration::from_secs(10), accept_ended.notified());
    told.await.unwrap();
}

const CATALOGUE: &str = r#"
models:
  - id: a/m
    name: M
    provider: A
    modality: text->text
    tier: free
    context_length: 1000
    max_completion_tokens: 100
    pricing: { prompt: "0.000001", completion: "0.000002" }
    purposes: [chat]
    targets: [{ provider: main, model: m }]
"#;
