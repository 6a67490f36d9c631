//! Tollgate itself, as an operator would run it: the configuration written, accounts and keys made by its commands, the
//! real binary started. With the embedded ledger, or with a redis-server that is started for it.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::{
    Result,
    cli::Variant,
    fleet::{Fleet, Refused, Subject},
    process::{self, Ending, Process},
};

/// Starts the gateway on the store that `variant` names.
pub(crate) fn launch(fleet: &Fleet, variant: Variant) -> Result<Subject> {
    let name = variant.name();
    let directory = fleet.directory(&name)?;
    let mut processes = Vec::new();
    let store = match variant {
        Variant::Redis => {
            let (redis, address) = redis(fleet, &directory)?;
            processes.push(redis);
            format!("redis://{address}/0")
        }
        _ => format!("sqlite://{}", directory.join("ledger.db").display()),
    };
    let store_pids = processes.iter().flat_map(Process::family).copied().collect();
    let address = process::free_address()?;
    let conf = directory.join("tollgate.yaml");
    fs::write(directory.join("catalogue.yaml"), catalogue(fleet))?;
    fs::write(&conf, configuration(fleet, address, &store, &directory)?)?;
    let binary = fleet.options.binary.clone().unwrap_or_else(|| BINARY.into());
    let cli = Cli {
        binary,
        conf,
        directory,
    };
    let (key, refused) = accounts(&cli)?;

    let mut process = Process::start(
        &name,
        fleet.subject_command(cli.command(&["serve"])),
        &fleet.cores.subject,
        Ending::Kill,
        fleet.path(),
    )?;
    process.wait_listening(address)?;
    wait_healthy(address)?;
    let pids = process.family().to_vec();
    processes.insert(0, process);
    let shared = fleet.pass_through(&name, address, processes);
    Ok(Subject {
        key,
        refused,
        pids,
        store_pids,
        audit: Some(Box::new(move || Ok(cli.run(&["ledger", "audit"])?.trim().to_owned()))),
        ..shared
    })
}

/// A redis-server that writes nothing to disk, on the cores of the load.
fn redis(fleet: &Fleet, directory: &Path) -> Result<(Process, SocketAddr)> {
    let address = process::free_address()?;
    let mut command = Command::new("redis-server");
    command.args([
        "--bind",
        "127.0.0.1",
        "--port",
        &address.port().to_string(),
        "--save",
        "",
        "--appendonly",
        "no",
    ]);
    command.arg("--dir").arg(directory);
    let mut process = Process::start(
        "redis-server",
        command,
        &fleet.cores.load,
        Ending::Terminate,
        fleet.path(),
    )?;
    process.wait_listening(address)?;
    Ok((process, address))
}

/// The gateway's command line with one configuration.
struct Cli {
    binary: PathBuf,
    conf: PathBuf,
    directory: PathBuf,
}

impl Cli {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .args(arguments)
            .arg("--conf")
            .arg(&self.conf)
            .current_dir(&self.directory);
        command
    }

    fn run(&self, arguments: &[&str]) -> Result<String> {
        process::run(self.command(arguments))
    }

    /// Makes a key and returns it.
    fn key(&self, arguments: &[&str]) -> Result<String> {
        let printed = self.run(&[&["key", "create", "--json"], arguments].concat())?;
        let value: serde_json::Value =
            serde_json::from_str(&printed).map_err(|e| format!("`key create` printed {printed:?}: {e}"))?;
        Ok(value["key"]
            .as_str()
            .ok_or_else(|| format!("`key create` printed no key: {printed}"))?
            .to_owned())
    }
}

/// Creates the accounts: one that may do everything, one without credit, one whose key may call once a minute.
fn accounts(cli: &Cli) -> Result<(String, Vec<Refused>)> {
    for name in ["bench", "broke"] {
        cli.run(&["account", "create", name, "--tier", "enterprise"])?;
    }
    cli.run(&["credits", "add", "bench", "1000000", "--reference", "bench"])?;
    let revoked = cli.key(&["--account", "bench"])?;
    cli.run(&["key", "revoke", &revoked])?;
    let refused = vec![
        // Failed authentication is limited by client address, so a flood of it turns into 429.
        Refused {
            name: "garbage",
            key: "tg_garbage".to_owned(),
            statuses: &[401, 429],
        },
        Refused {
            name: "revoked",
            key: revoked,
            statuses: &[401, 429],
        },
        Refused {
            name: "broke",
            key: cli.key(&["--account", "broke"])?,
            statuses: &[402],
        },
        Refused {
            name: "limited",
            key: cli.key(&["--account", "bench", "--rpm", "1"])?,
            statuses: &[429, 200],
        },
    ];
    Ok((cli.key(&["--account", "bench"])?, refused))
}

fn wait_healthy(address: SocketAddr) -> Result<()> {
    use std::io::{Read, Write};
    let begun = Instant::now();
    let mut seen = String::new();
    while begun.elapsed() < Duration::from_secs(10) {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(b"GET /api/v1/llm/health HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n")?;
        let mut answer = [0; 64];
        let length = stream.read(&mut answer)?;
        seen = String::from_utf8_lossy(&answer[..length]).into_owned();
        if seen.starts_with("HTTP/1.1 200") {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(50));
    }
    Err(format!(
        "the gateway is not healthy: {}",
        seen.lines().next().unwrap_or("no answer")
    )
    .into())
}

fn configuration(fleet: &Fleet, address: SocketAddr, store: &str, directory: &Path) -> Result<String> {
    let (admin, at) = (process::free_address()?, directory.display());
    let (threads, upstream) = (fleet.options.threads, fleet.upstream);
    let receipts = match fleet.options.without_receipts {
        true => "receipts: { keep_days: 0, per_account_max: 0 }\n",
        false => "",
    };
    Ok(format!(
        r#"listen: {address}
admin_listen: {admin}
base_path: /api/v1
threads: {threads}
data_dir: "{at}/data"
store: "{store}"
catalogue: "{at}/catalogue.yaml"
markup: "1.15"
currency: USD
connections_max: 1000000
connections_per_address_max: 1000000
providers:
  sim: {{ base_url: "http://{upstream}/v1", on_disconnect: cancel }}
tiers:
  enterprise: {{ rpm: 1000000000, tpm: 1000000000000, concurrency: 1000000, monthly_quota: "1000000" }}
{receipts}"#
    ))
}

fn catalogue(fleet: &Fleet) -> String {
    let (chat, embed) = (&fleet.options.model, &fleet.options.embedding_model);
    let names = "chat, vision, code, fast, router, planner, executor, free, slide, slot_extract";
    let purposes: String = names
        .split(", ")
        .map(|purpose| format!("  {purpose}: {chat}\n"))
        .collect();
    format!(
        r#"models:
  - id: {chat}
    name: Bench chat
    provider: Bench
    description: Answered by the simulated upstream
    context_length: 1000000
    max_completion_tokens: 16384
    modality: text->text
    pricing: {{ prompt: "0.00000015", completion: "0.0000006" }}
    tier: free
    purposes: [{names}]
    targets: [ {{ provider: sim, model: sim-chat }} ]
  - id: {embed}
    name: Bench embeddings
    provider: Bench
    description: 1536 numbers from the simulated upstream
    context_length: 8192
    max_completion_tokens: 0
    modality: text->embedding
    pricing: {{ prompt: "0.00000002", completion: "0" }}
    tier: free
    purposes: [embedding]
    targets: [ {{ provider: sim, model: sim-embed }} ]
purposes:
{purposes}  embedding: {embed}
"#
    )
}

/// The gateway built with this bench.
const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");
