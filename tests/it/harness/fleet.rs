//! Gateways as operators run them: the real binary, a process each, all on one ledger; and its commands.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use reqwest::Method;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::answer::number;
use super::catalogue;
use super::client::Client;
use super::metrics::Metrics;
use super::redis_server::free_port;
use super::upstream::Upstream;
use super::{eventually, within};

/// Some gateways on one ledger.
pub struct Fleet {
    nodes: Vec<Node>,
    conf: Value,
    dir: TempDir,
}

/// One of them; it is killed with this.
struct Node {
    address: SocketAddr,
    admin: SocketAddr,
    _process: Child,
}

/// A command's end.
pub struct Ended {
    pub succeeded: bool,
    pub stdout: String,
    pub stderr: String,
}

impl Fleet {
    /// Starts so many gateways over this upstream, with this `store` (`{dir}` in it is a folder of the test's own) and these tiers.
    pub async fn start(count: usize, store: &str, tiers: Value, upstream: &Upstream) -> Fleet {
        Fleet::selling(&catalogue::catalogue(), count, store, tiers, upstream).await
    }

    /// The same with a catalogue of the test's own.
    pub async fn selling(catalogue: &Value, count: usize, store: &str, tiers: Value, upstream: &Upstream) -> Fleet {
        let mut fleet = Fleet::prepared(store, tiers, upstream);
        std::fs::write(fleet.dir.path().join("catalogue.yaml"), catalogue.to_string()).unwrap();
        fleet.grow(count).await;
        fleet
    }

    /// Changes what gateways that are started from now on are configured with.
    pub fn configure(&mut self, change: impl FnOnce(&mut Value)) {
        change(&mut self.conf);
        self.write_conf("commands.yaml", free_port());
    }

    /// Sells what this catalogue has at gateways that are started from now on.
    pub fn sells(&self, catalogue: &Value) {
        std::fs::write(self.dir.path().join("catalogue.yaml"), catalogue.to_string()).unwrap();
    }

    /// Starts so many more gateways.
    pub async fn grow(&mut self, count: usize) {
        for n in self.nodes.len()..self.nodes.len() + count {
            let node = self.node(n).await;
            self.nodes.push(node);
        }
    }

    /// A file of its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A gateway's configuration.
    pub fn conf_of(&self, n: usize) -> Value {
        let text = std::fs::read_to_string(self.dir.path().join(format!("node-{n}.yaml"))).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// The same files, and nothing started.
    pub fn prepared(store: &str, tiers: Value, upstream: &Upstream) -> Fleet {
        let dir = TempDir::new().unwrap();
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(path("catalogue.yaml"), catalogue::catalogue().to_string()).unwrap();
        let conf = json!({
            "store": store.replace("{dir}", dir.path().to_str().unwrap()),
            "data_dir": path("data"),
            "catalogue": path("catalogue.yaml"),
            "tiers": tiers,
            "providers": { "main": { "base_url": upstream.base_url() }, "spare": { "base_url": "http://127.0.0.1:1/v1" } },
        });
        let fleet = Fleet {
            nodes: Vec::new(),
            conf,
            dir,
        };
        // The commands' own: what it listens on does not matter to them.
        fleet.write_conf("commands.yaml", free_port());
        fleet
    }

    /// Makes an account with credit and a key; the key's text.
    pub async fn account(&self, name: &str, tier: &str, credit: Decimal) -> String {
        self.command(&["account", "create", name, "--tier", tier]).await;
        if credit > Decimal::ZERO {
            let amount = credit.to_string();
            self.command(&["credits", "add", name, &amount, "--reference", "first"])
                .await;
        }
        let made = self.command(&["key", "create", "--account", name]).await;
        let made: Value = serde_json::from_str(&made).unwrap();
        made["key"].as_str().unwrap().to_owned()
    }

    /// A figure of an account: `balance`, `held`, `monthly_used`, `open_calls`.
    pub async fn figure(&self, name: &str, figure: &str) -> Decimal {
        let shown = self.command(&["account", "show", name]).await;
        number(&shown, figure).parse().unwrap()
    }

    /// The account's balance once nothing is held any more; the books balance then.
    pub async fn settled_balance(&self, name: &str) -> Decimal {
        eventually("every call is closed", async || {
            let shown = self.command(&["account", "show", name]).await;
            (number(&shown, "open_calls") == "0").then_some(())
        })
        .await;
        assert_eq!(self.figure(name, "held").await, Decimal::ZERO);
        let books = self.command(&["ledger", "audit"]).await;
        let books: Value = serde_json::from_str(&books).unwrap();
        assert_eq!(books["balanced"], true, "{books}");
        self.figure(name, "balance").await
    }

    /// Runs a command that must succeed; what it answers in JSON.
    pub async fn command(&self, words: &[&str]) -> String {
        let ended = self.run(words).await;
        assert!(ended.succeeded, "{words:?}: {}", ended.stderr);
        ended.stdout
    }

    /// Runs a command.
    pub async fn run(&self, words: &[&str]) -> Ended {
        let mut command = binary(&self.dir.path().join("commands.yaml"));
        command.arg("--json").args(words);
        let output = within("a command", command.output()).await.unwrap();
        Ended {
            succeeded: output.status.success(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// What a gateway has said in its log.
    pub fn log(&self, n: usize) -> String {
        std::fs::read_to_string(self.log_path(n)).unwrap()
    }

    /// A metric of all gateways together.
    pub async fn sum(&self, metric: &str, labels: &[(&str, &str)]) -> Decimal {
        let mut sum = Decimal::ZERO;
        for node in &self.nodes {
            let page = Client::http1(node.admin).get("//metrics").await;
            sum += Metrics::read(page.text()).sum(metric, labels);
        }
        sum
    }

    /// A client of one of the gateways, with a connection of its own.
    pub fn http1(&self, n: usize, key: &str) -> Client {
        Client::http1(self.nodes[n].address).with_key(key)
    }

    /// As many clients of each gateway, each with one connection that carries many calls.
    pub fn h2c(&self, each: usize, key: &str) -> Vec<Client> {
        let nodes = self.nodes.iter().cycle().take(each * self.nodes.len());
        nodes.map(|node| Client::h2c(node.address).with_key(key)).collect()
    }

    async fn node(&self, n: usize) -> Node {
        // A port that is free now may be taken before the gateway has it.
        for _ in 0..5 {
            let port = free_port();
            let (conf, admin) = self.write_conf(&format!("node-{n}.yaml"), port);
            let log = std::fs::File::create(self.log_path(n)).unwrap();
            let mut process = binary(&conf)
                .arg("serve")
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()
                .unwrap();
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            let client = Client::http1(address);
            let serves = eventually("the gateway serves or ends", async || {
                if process.try_wait().unwrap().is_some() {
                    return Some(false);
                }
                let asked = client.request(Method::GET, "/llm/health").send().await;
                asked.is_ok_and(|answer| answer.status() == 200).then_some(true)
            });
            if serves.await {
                return Node {
                    address,
                    admin,
                    _process: process,
                };
            }
        }
        panic!("the gateway does not start: {}", self.log(n));
    }

    fn write_conf(&self, name: &str, port: u16) -> (PathBuf, SocketAddr) {
        let mut conf = self.conf.clone();
        conf["listen"] = format!("127.0.0.1:{port}").into();
        let admin = SocketAddr::from(([127, 0, 0, 1], free_port()));
        conf["admin_listen"] = admin.to_string().into();
        if conf["operator_listen"].is_string() {
            conf["operator_listen"] = format!("127.0.0.1:{}", free_port()).into();
        }
        let path = self.dir.path().join(name);
        std::fs::write(&path, conf.to_string()).unwrap();
        (path, admin)
    }

    fn log_path(&self, n: usize) -> PathBuf {
        self.dir.path().join(format!("node-{n}.log"))
    }
}

fn binary(conf: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command
        .arg("--conf")
        .arg(conf)
        .env_remove("RUST_LOG")
        .env("FLEET_WEBHOOK_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}
