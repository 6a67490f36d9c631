//! Starts that cannot succeed, as an operator meets them: each ends within a second with status 1 and one line that names the cause, the
//! file and the line, and leaves nothing behind. `tollgate check` says the same words.

mod cases;
mod newer;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use self::cases::{WRONG_CATALOGUE, WRONG_FILES, WRONG_SURROUNDINGS, WRONG_TEXT};
use self::newer::{WRONG_OPERATORS, WRONG_PAGES, WRONG_STRIPE, WRONG_WEBHOOKS};
use crate::harness::redis_server::{RedisServer, free_port};
use crate::harness::tls::Authority;

/// A folder with a configuration that starts, until a case breaks it.
struct Place {
    folder: TempDir,
    conf: String,
    catalogue: String,
    /// What holds a port, a lock or a store for the time of the case.
    held: Vec<Box<dyn std::any::Any>>,
    /// Variables with secrets.
    environment: Vec<(&'static str, &'static str)>,
}

/// Where the mistake is to be seen.
#[derive(Clone, Copy)]
enum At {
    /// In the configuration, on the line with this text.
    Conf(&'static str),
    /// In the catalogue, on the line with this text.
    Catalogue(&'static str),
    /// In a file as a whole.
    File(&'static str),
    /// There is no file.
    Nowhere,
}

struct Case {
    name: &'static str,
    breaks: fn(&mut Place),
    at: At,
    /// Part of what is said.
    says: &'static str,
}

const fn case(name: &'static str, at: At, says: &'static str, breaks: fn(&mut Place)) -> Case {
    Case { name, breaks, at, says }
}

#[test]
fn a_start_with_a_mistake_in_its_configuration_says_which_and_where() {
    fail_all(&WRONG_TEXT);
}

#[test]
fn a_start_with_a_mistake_in_its_catalogue_says_which_and_where() {
    fail_all(&WRONG_CATALOGUE);
}

#[test]
fn a_start_without_its_files_says_which_and_where() {
    fail_all(&WRONG_FILES);
}

#[test]
fn a_start_without_its_port_or_store_says_which_and_where() {
    fail_all(&WRONG_SURROUNDINGS);
}

#[test]
fn a_start_with_a_mistake_about_its_operators_says_which_and_where() {
    fail_all(&WRONG_OPERATORS);
}

#[test]
fn a_start_with_a_mistake_about_webhooks_says_which_and_where() {
    fail_all(&WRONG_WEBHOOKS);
}

#[test]
fn a_start_with_a_mistake_about_payments_says_which_and_where() {
    fail_all(&WRONG_STRIPE);
}

#[test]
fn a_start_with_a_mistake_about_what_else_was_added_says_which_and_where() {
    fail_all(&WRONG_PAGES);
}

/// `check` asked for a folder that the first start makes.
#[test]
fn an_access_log_within_a_data_dir_that_is_not_there_yet_is_no_mistake() {
    let within = case("", At::Nowhere, "", |place| {
        place.set_path("access_log", "data/logs/access.log");
    });
    let place = Place::broken_by(&within);
    let before = place.listing();
    let (status, said) = place.run("check").unwrap();
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(place.listing(), before, "nothing is made");
}

fn fail_all(cases: &[Case]) {
    let mistakes: Vec<String> = cases.iter().filter_map(|case| fail(case).err()).collect();
    assert!(mistakes.is_empty(), "\n{}", mistakes.join("\n"));
}

/// What is not as it should be.
fn fail(case: &Case) -> Result<(), String> {
    let place = Place::broken_by(case);
    let before = place.listing();
    let (serve, served) = place.run("serve")?;
    let (check, checked) = place.run("check")?;
    let expected = [
        ("serve does not exit with 1", serve == Some(1)),
        ("not one line", served.lines().count() == 1),
        ("not at the right place", served.starts_with(&place.prefix(case.at))),
        ("not the cause", served.contains(case.says)),
        ("check does not exit with 1", check == Some(1)),
        (
            "check says something else",
            checked.lines().any(|line| line == served.trim_end()),
        ),
        ("something is left behind", place.listing() == before),
    ];
    match expected.iter().find(|(_, is_so)| !is_so) {
        None => Ok(()),
        Some((what, _)) => Err(format!("{}: {what}\n  {served}  check: {checked}", case.name)),
    }
}

impl Place {
    fn broken_by(case: &Case) -> Place {
        let folder = TempDir::new().unwrap();
        let root = folder.path().display();
        let conf = format!(
            "listen: 127.0.0.1:{}\nadmin_listen: 127.0.0.1:{}\ndata_dir: {root}/data\nstore: sqlite://{root}/ledger.db\n\
             catalogue: {root}/catalogue.yaml\naccess_log: {root}/access.log\n\
             providers:\n  main:\n    base_url: http://127.0.0.1:9/v1\n",
            free_port(),
            free_port(),
        );
        let model = |id: &str| {
            format!(
                "- id: {id}\n  name: A model\n  provider: Acme\n  description: For tests.\n  modality: text->text\n  tier: free\n  context_length: 8000\n  max_completion_tokens: 1000\n  \
                 purposes: [chat]\n  pricing: {{ prompt: \"0.00000015\", completion: \"0.0000006\" }}\n  \
                 targets:\n  - {{ provider: main, model: up }}\n"
            )
        };
        let catalogue = format!("models:\n{}{}", model("acme/small"), model("acme/other"));
        let mut place = Place {
            folder,
            conf,
            catalogue,
            held: Vec::new(),
            environment: Vec::new(),
        };
        (case.breaks)(&mut place);
        for (name, text) in [("tollgate.yaml", &place.conf), ("catalogue.yaml", &place.catalogue)] {
            if !text.is_empty() {
                fs::write(place.path(name), text).unwrap();
            }
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn root(&self) -> String {
        self.folder.path().display().to_string()
    }

    /// Gives a key at the top another value.
    fn set(&mut self, key: &str, value: &str) {
        let start = format!("{key}: ");
        let line = self
            .conf
            .lines()
            .find(|line| line.starts_with(&start))
            .unwrap()
            .to_owned();
        self.conf = self.conf.replace(&format!("{line}\n"), &format!("{start}{value}\n"));
    }

    fn set_path(&mut self, key: &str, name: &str) {
        let path = self.path(name).display().to_string();
        self.set(key, &path);
    }

    /// Adds lines at the end; `OPERATORS` is an address that is free.
    fn add(&mut self, lines: &str) {
        let address = format!("127.0.0.1:{}", free_port());
        self.conf += &lines.replace("OPERATORS", &address).replace("ROOT", &self.root());
    }

    /// A certificate with its key, and another key.
    fn certificates(&self) {
        let authority = Authority::new();
        let ((certificate, key), (_, other)) = (authority.pem_of("localhost"), authority.pem_of("localhost"));
        for (name, text) in [("cert.pem", certificate), ("key.pem", key), ("other.pem", other)] {
            fs::write(self.path(name), text).unwrap();
        }
    }

    fn rename(&mut self, key: &str, to: &str) {
        self.conf = self.conf.replacen(&format!("{key}:"), &format!("{to}:"), 1);
    }

    /// A Redis of its own, which has been told these commands.
    fn redis(&mut self, commands: &[&str]) {
        let server = RedisServer::start();
        for command in commands {
            assert_eq!(server.ask(command), ["+OK"]);
        }
        self.set("store", &server.url());
        self.held.push(Box::new(server));
    }

    /// What the one line begins with.
    fn prefix(&self, at: At) -> String {
        let place = |name: &str, text: &str, part: &str| {
            let line = text.lines().position(|line| line.contains(part)).unwrap() + 1;
            format!("error: {}:{line}: ", self.path(name).display())
        };
        match at {
            At::Conf(part) => place("tollgate.yaml", &self.conf, part),
            At::Catalogue(part) => place("catalogue.yaml", &self.catalogue, part),
            At::File(name) => format!("error: {}: ", self.path(name).display()),
            At::Nowhere => "error: ".to_owned(),
        }
    }

    /// Runs a command to its end, which comes within two seconds, of which some wait for 600 ms: its status, and what it says.
    fn run(&self, command: &str) -> Result<(Option<i32>, String), String> {
        let started = Instant::now();
        let output = Command::new("timeout")
            .args(["5", env!("CARGO_BIN_EXE_tollgate"), command, "--conf"])
            .arg(self.path("tollgate.yaml"))
            .current_dir(self.folder.path())
            .envs(self.environment.iter().copied())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        match started.elapsed() {
            took if took > Duration::from_secs(2) => Err(format!("{command} takes {took:?}: {said}")),
            _ => Ok((output.status.code(), said)),
        }
    }

    /// All files and folders, with the sizes of the files.
    fn listing(&self) -> BTreeSet<(PathBuf, u64)> {
        let mut found = BTreeSet::new();
        list(self.folder.path(), &mut found);
        found
    }
}

fn list(folder: &Path, found: &mut BTreeSet<(PathBuf, u64)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let about = entry.metadata().unwrap();
        found.insert((entry.path(), if about.is_file() { about.len() } else { 0 }));
        if about.is_dir() {
            list(&entry.path(), found);
        }
    }
}
