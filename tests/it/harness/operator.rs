//! The real binary, as an operator runs it: `tollgate serve` with a configuration of its own, and the commands beside it.

use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::client::Client;
use super::redis_server::free_port;
use super::upstream::Upstream;
use super::{catalogue, eventually};

/// A gateway with one account that has credit and a key. It is killed when the test lets go of it.
pub struct Process {
    /// A client with the account's key.
    pub client: Client,
    /// A client of the admin listener.
    pub admin: Client,
    child: Option<Child>,
    dir: TempDir,
}

impl Process {
    /// Starts it over this upstream, with these changes to the configuration.
    pub async fn start(upstream: &Upstream, change: impl FnOnce(&mut Value)) -> Process {
        let mut process = Process::prepare(upstream, change);
        let conf = process.path("tollgate.yaml").to_str().unwrap().to_owned();
        let words = [env!("CARGO_BIN_EXE_tollgate"), "serve", "--conf", &conf].map(str::to_owned);
        process.start_with(&words).await;
        process
    }

    /// Writes the files and makes account and key, but starts nothing yet.
    pub fn prepare(upstream: &Upstream, change: impl FnOnce(&mut Value)) -> Process {
        let dir = TempDir::new().unwrap();
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let mut conf = json!({
            "listen": free_address(), "admin_listen": free_address(),
            "data_dir": path("data"), "catalogue": path("catalogue.yaml"), "access_log": path("access.log"),
            "providers": {
                "main": { "base_url": upstream.base_url() },
                "spare": { "base_url": "http://127.0.0.1:1/v1" },
            },
        });
        change(&mut conf);
        let address = |key: &str| conf[key].as_str().unwrap().parse().unwrap();
        let (listen, admin_listen) = (address("listen"), address("admin_listen"));
        let catalogue = serde_yaml_ng::to_string(&catalogue::catalogue()).unwrap();
        std::fs::write(path("catalogue.yaml"), catalogue).unwrap();
        std::fs::write(path("tollgate.yaml"), conf.to_string()).unwrap();
        let command = |arguments: &[&str]| command(&dir, arguments);
        run(command(&["account", "create", "acme", "--tier", "pro"]));
        run(command(&["credits", "add", "acme", "100", "--reference", "first"]));
        let key = run(command(&["key", "create", "--account", "acme", "--json"]));
        let key: Value = serde_json::from_str(&key).unwrap();
        Process {
            client: Client::http1(listen).with_key(key["key"].as_str().unwrap()),
            admin: Client::http1(admin_listen),
            child: None,
            dir,
        }
    }

    /// Starts it by these words, and waits until it listens.
    pub async fn start_with(&mut self, words: &[String]) {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path("log"))
            .unwrap();
        let mut serve = Command::new(&words[0]);
        serve.args(&words[1..]).stdout(Stdio::null()).stderr(log);
        self.child = Some(serve.spawn().unwrap());
        eventually("the gateway listens", async || {
            self.client.listens().await.then_some(())
        })
        .await;
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Runs a command on its configuration, and gives what it printed.
    pub fn command(&self, arguments: &[&str]) -> String {
        run(command(&self.dir, arguments))
    }

    /// Runs a command that fails, and gives its complaint.
    pub fn refused(&self, arguments: &[&str]) -> String {
        let output = command(&self.dir, arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Sends it a signal, by its name.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// Waits for its end.
    pub async fn ended(&mut self) -> ExitStatus {
        let child = self.child.as_mut().unwrap();
        eventually("the process ends", async || child.try_wait().unwrap()).await
    }

    /// A file of its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended by itself.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

fn command(dir: &TempDir, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command
        .args(arguments)
        .arg("--conf")
        .arg(dir.path().join("tollgate.yaml"));
    command
}

fn run(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// An address that was free a moment ago.
pub fn free_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}
