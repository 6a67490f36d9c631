//! Tollgate itself, as an operator would run it: the configuration written, accounts and keys made by its commands, the
//! real binary started. With the embedded ledger, or with a redis-server that is started for it.

use std::{
    fs,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::{
    catalogue::{self, Catalogue},
    cli::Variant,
    common::Result,
    fleet::{Fleet, Refused, Subject},
    operator::{Account, Operator},
    process::{self, Ending, Process},
    store,
};

/// What a gateway has that another of the same run has not.
pub(crate) struct Setup {
    /// What tables call it.
    pub(crate) name: String,
    pub(crate) accounts: usize,
    /// So many of them have a key and credit.
    pub(crate) callers: usize,
    /// Who is told of events.
    pub(crate) webhook: Option<SocketAddr>,
    /// Wrong keys that an address may present in a minute, where that is not the usual number.
    pub(crate) wrong_keys_max: Option<u32>,
}

impl Setup {
    /// The usual one: all accounts call, and nobody is told of events.
    pub(crate) fn usual(fleet: &Fleet, variant: Variant) -> Self {
        let accounts = fleet.options.accounts();
        Self {
            name: variant.name(),
            accounts,
            callers: accounts,
            webhook: None,
            wrong_keys_max: None,
        }
    }
}

/// Starts a gateway on the store that `variant` names, with its accounts.
pub(crate) fn launch(fleet: &Fleet, variant: Variant, setup: &Setup) -> Result<Subject> {
    let name = setup.name.clone();
    let directory = fleet.directory(&variant.name())?;
    let mut processes = Vec::new();
    let store = match variant {
        Variant::Redis => {
            let (redis, address) = store::redis(fleet, &directory)?;
            processes.push(redis);
            format!("redis://{address}/0")
        }
        _ => format!("sqlite://{}", directory.join("ledger.db").display()),
    };
    let store_pids = processes.iter().flat_map(Process::family).copied().collect();
    let places = Places {
        listen: process::free_address(),
        admin: process::free_address(),
        operator: process::free_address(),
    };
    let catalogue = Catalogue::read()?;
    let conf = directory.join("tollgate.yaml");
    fs::write(directory.join("catalogue.yaml"), catalogue::sold())?;
    fs::write(
        &conf,
        configuration(fleet, setup, &places, &store, &directory, &catalogue)?,
    )?;
    let binary = fleet.options.binary.clone().unwrap_or_else(|| BINARY.into());
    let cli = Cli {
        binary,
        conf,
        directory: directory.clone(),
    };
    let refused = refused(&cli)?;
    let serve = Serve {
        name: variant.name(),
        cores: fleet.cores.subject.clone(),
        logs: fleet.path().to_owned(),
        listen: places.listen,
    };
    let (operator, accounts) = accounts(setup, &cli, &serve, &places)?;

    let process = serve.start(fleet.subject_command(cli.command(&["serve"])))?;
    let pids = process.family().to_vec();
    processes.insert(0, process);
    let shared = fleet.pass_through(&name, places.listen, processes);
    let again = cli.clone();
    Ok(Subject {
        callers: accounts.iter().map(|account| account.key.clone()).collect(),
        accounts: accounts.into_iter().map(|account| account.name).collect(),
        operator,
        refused,
        memory_at_start_kib: pids.iter().map(|pid| process::resident_kib(*pid)).sum(),
        pids,
        store_pids,
        audit: Some(Box::new(move || {
            let said = process::run_within(AUDIT_MAX, cli.command(&["ledger", "audit"]))?;
            Ok(said.trim().to_owned())
        })),
        restart: Some(Box::new(move || serve.start(again.command(&["serve"])))),
        ..shared
    })
}

/// It looks at every receipt: some four million after ten minutes of `soak`.
const AUDIT_MAX: Duration = Duration::from_secs(300);
/// A start beside other work may take a while.
const HEALTHY_MAX: Duration = Duration::from_secs(30);

/// Where a gateway listens.
struct Places {
    listen: SocketAddr,
    admin: SocketAddr,
    operator: SocketAddr,
}

/// How its process is started, for the first time and again.
struct Serve {
    name: String,
    cores: Vec<usize>,
    logs: PathBuf,
    listen: SocketAddr,
}

impl Serve {
    fn start(&self, command: Command) -> Result<Process> {
        let mut process = Process::start(&self.name, command, &self.cores, Ending::Kill, &self.logs)?;
        process.wait_listening(self.listen)?;
        wait_healthy(self.listen)?;
        Ok(process)
    }
}

/// The accounts that call, with their keys: one by the command line, or many by the operators' interface of a process that serves for that
/// alone, so that the one that is measured has had no request yet.
fn accounts(setup: &Setup, cli: &Cli, serve: &Serve, places: &Places) -> Result<(Option<Operator>, Vec<Account>)> {
    if setup.accounts == 1 {
        let key = cli.made(&["key", "create", "--account", "bench"], "key")?;
        let name = "bench".to_owned();
        return Ok((None, vec![Account { name, key }]));
    }
    let token = cli.made(&["operator", "create", "bench", "--role", "admin"], "token")?;
    let operator = Operator {
        address: places.operator,
        token,
    };
    let process = serve.start(cli.command(&["serve"]))?;
    let accounts = operator.make_accounts(setup.accounts, setup.callers)?;
    process.terminate();
    Ok((Some(operator), accounts))
}

/// The gateway's command line with one configuration.
#[derive(Clone)]
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
            .env(WEBHOOK_SECRET, WEBHOOK_SECRET_VALUE)
            .current_dir(&self.directory);
        command
    }

    fn run(&self, arguments: &[&str]) -> Result<String> {
        process::run(self.command(arguments))
    }

    /// Makes something and returns what is told of it once.
    fn made(&self, arguments: &[&str], secret: &str) -> Result<String> {
        let printed = self.run(&[arguments, &["--json"]].concat())?;
        let value: serde_json::Value = serde_json::from_str(&printed)
            .map_err(|e| format!("`{}` printed {printed:?}: {e}", arguments.join(" ")))?;
        let secret = value[secret].as_str();
        Ok(secret
            .ok_or_else(|| format!("`{}` printed none: {printed}", arguments.join(" ")))?
            .to_owned())
    }
}

/// Keys that are refused: of nobody, revoked, of an account without credit, one that may call once a minute.
fn refused(cli: &Cli) -> Result<Vec<Refused>> {
    for name in ["bench", "broke"] {
        cli.run(&["account", "create", name, "--tier", "enterprise"])?;
    }
    cli.run(&["credits", "add", "bench", "1000000", "--reference", "bench"])?;
    let key = |arguments: &[&str]| cli.made(&[&["key", "create"], arguments].concat(), "key");
    let revoked = key(&["--account", "bench"])?;
    cli.run(&["key", "revoke", &revoked])?;
    Ok(vec![
        Refused {
            name: "garbage",
            key: "tg_garbage".to_owned(),
        },
        Refused {
            name: "revoked",
            key: revoked,
        },
        Refused {
            name: "broke",
            key: key(&["--account", "broke"])?,
        },
        Refused {
            name: "limited",
            key: key(&["--account", "bench", "--rpm", "1"])?,
        },
    ])
}

fn wait_healthy(address: SocketAddr) -> Result<()> {
    let ask = || -> io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(HEALTHY_MAX))?;
        stream.write_all(b"GET /api/v1/llm/health HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n")?;
        let mut answer = [0; 64];
        let length = stream.read(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
    };
    let begun = Instant::now();
    loop {
        let seen = ask();
        match &seen {
            Ok(answer) if answer.starts_with("HTTP/1.1 200") => return Ok(()),
            _ if begun.elapsed() < HEALTHY_MAX => thread::sleep(Duration::from_millis(50)),
            Ok(answer) => {
                let line = answer.lines().next().unwrap_or("it closed the connection");
                return Err(format!("the gateway is not healthy: {line}").into());
            }
            Err(error) => return Err(format!("the gateway does not say whether it is healthy: {error}").into()),
        }
    }
}

fn configuration(
    fleet: &Fleet,
    setup: &Setup,
    places: &Places,
    store: &str,
    directory: &Path,
    catalogue: &Catalogue,
) -> Result<String> {
    let (listen, admin, at) = (places.listen, places.admin, directory.display());
    let (threads, providers) = (fleet.options.threads, catalogue.providers(fleet.upstream)?);
    let markup = catalogue::MARKUP;
    // An earlier release may know no operators: with one account it can be measured too.
    let operators = match setup.accounts {
        1 => String::new(),
        _ => format!("operator_listen: {}\n", places.operator),
    };
    let webhooks = setup.webhook.map_or_else(String::new, |address| {
        format!(r#"webhooks: [{{ url: "http://{address}/", secret_env: {WEBHOOK_SECRET}, allow_private: true }}]"#)
            + "\n"
    });
    let wrong_keys = wrong_keys(setup.wrong_keys_max);
    let receipts = match fleet.options.without_receipts {
        true => "receipts: { keep_days: 0, per_account_max: 0 }\n",
        false => "",
    };
    Ok(format!(
        r#"listen: {listen}
admin_listen: {admin}
base_path: /api/v1
threads: {threads}
data_dir: "{at}/data"
store: "{store}"
catalogue: "{at}/catalogue.yaml"
markup: "{markup}"
currency: USD
connections_max: 1000000
connections_per_address_max: 1000000
providers:
{providers}tiers:
  enterprise: {{ rpm: 1000000000, tpm: 1000000000000, concurrency: 1000000, monthly_quota: "1000000" }}
{operators}{webhooks}{wrong_keys}{receipts}"#
    ))
}

/// The line of a configuration that says how many wrong keys an address may present in a minute; none for the usual number.
pub(crate) fn wrong_keys(most: Option<u32>) -> String {
    most.map_or_else(String::new, |most| format!("auth_failures_per_minute: {most}\n"))
}

/// More wrong keys than can be sent in a minute.
pub(crate) const ALL_FORGIVEN: u32 = 1_000_000_000;

/// With what messages to the webhook are signed; nobody reads them.
const WEBHOOK_SECRET: &str = "BENCH_WEBHOOK_SECRET";
const WEBHOOK_SECRET_VALUE: &str = "whsec_YmVuY2ggYmVuY2ggYmVuY2ggYmVuY2ggYmVuY2g=";
/// The gateway built with this bench.
const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");
