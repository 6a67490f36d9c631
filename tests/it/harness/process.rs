//! The real binary with a configuration of its own, for what only a process shows: memory and open files.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::catalogue;
use super::client::Client;
use super::eventually;
use super::redis_server::free_port;
use super::upstream::Upstream;

/// A running `tollgate serve`; it is killed with this.
pub struct Process {
    /// Where it listens.
    pub address: SocketAddr,
    /// A key of an account of the tier Enterprise with credit.
    pub key: String,
    child: Child,
    _dir: TempDir,
}

impl Process {
    /// One whose models are served by this upstream, with these time-outs.
    pub async fn start(upstream: &Upstream, timeouts: &str) -> Process {
        Process::start_with(upstream, json!({}), timeouts).await
    }

    /// The same with further keys of the configuration.
    pub async fn start_with(upstream: &Upstream, more: Value, timeouts: &str) -> Process {
        let dir = TempDir::new().unwrap();
        let conf = dir.path().join("tollgate.yaml");
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let (address, admin) = (free_address(), free_address());
        let provider = json!({ "base_url": upstream.base_url(), "api_key_env": "SET_MAIN" });
        let mut value = json!({
            "listen": address.to_string(), "admin_listen": admin.to_string(), "data_dir": path("data"),
            "store": format!("sqlite://{}", path("data/ledger.db")), "catalogue": path("catalogue.yaml"),
            "providers": { "main": provider, "spare": provider }, "auth_failures_per_minute": 1_000_000,
        });
        for (key, further) in more.as_object().unwrap() {
            value[key] = further.clone();
        }
        let text = value.to_string();
        let text = text.strip_suffix('}').unwrap();
        std::fs::create_dir(path("data")).unwrap();
        std::fs::write(path("catalogue.yaml"), catalogue::catalogue().to_string()).unwrap();
        std::fs::write(&conf, format!("{text}, \"timeouts\": {{ {timeouts} }} }}")).unwrap();

        let log = std::fs::File::create(path("log")).unwrap();
        let child = command(&conf, &["serve"])
            .env("SET_MAIN", "credential-SET_MAIN")
            .stderr(log)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut process = Process {
            address,
            key: String::new(),
            child,
            _dir: dir,
        };
        let http = Client::http1(address);
        eventually("the gateway answers", async || {
            let asked = http.request(reqwest::Method::GET, "/llm/health").send().await;
            asked.ok().filter(|answer| answer.status() == 200)
        })
        .await;
        run(&conf, &["account", "create", "acme", "--tier", "enterprise"]);
        run(&conf, &["credits", "add", "acme", "100", "--reference", "first"]);
        let made = run(&conf, &["key", "create", "--account", "acme"]);
        process.key = made["key"].as_str().unwrap().to_owned();
        process
    }

    /// Resident memory.
    pub fn resident_kb(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// How many files are open, once no client's connection is.
    pub fn settled_files(&self) -> Option<usize> {
        if open_connections(self.address) > 0 {
            return None;
        }
        Some(
            std::fs::read_dir(format!("/proc/{}/fd", self.child.id()))
                .unwrap()
                .count(),
        )
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Connections that the server at this address has and has not closed, or whose last bytes its client has not taken.
pub fn open_connections(server: SocketAddr) -> usize {
    const LISTEN: &str = "0A";
    const TIME_WAIT: &str = "06";
    connections(server)
        .filter(|(state, _)| ![LISTEN, TIME_WAIT].contains(&&**state))
        .count()
}

/// Connections that neither the server at this address nor its client has closed.
pub fn established_connections(server: SocketAddr) -> usize {
    const ESTABLISHED: &str = "01";
    connections(server).filter(|(state, _)| state == ESTABLISHED).count()
}

/// Bytes that the server at this address has sent and its clients have not taken.
pub fn untaken_bytes(server: SocketAddr) -> u64 {
    connections(server).map(|(_, bytes)| bytes).sum()
}

/// The connections of a server: the state of each, and bytes that were not taken.
fn connections(server: SocketAddr) -> impl Iterator<Item = (String, u64)> {
    let port = format!(":{:04X}", server.port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let lines: Vec<_> = table.lines().skip(1).map(str::to_owned).collect();
    lines.into_iter().filter_map(move |line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let queued = fields[4].split(':').next().unwrap();
        let queued = u64::from_str_radix(queued, 16).unwrap();
        fields[1].ends_with(&port).then(|| (fields[3].to_owned(), queued))
    })
}

fn command(conf: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command
        .args(arguments)
        .args(["--json", "--conf"])
        .arg(conf)
        .env_remove("RUST_LOG")
        .stdin(Stdio::null());
    command
}

/// Runs an operator's command; what it printed.
fn run(conf: &Path, arguments: &[&str]) -> Value {
    let done = command(conf, arguments).output().unwrap();
    assert!(
        done.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    serde_json::from_slice(&done.stdout).unwrap_or_default()
}

fn free_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}
