//! The real binary with a configuration of its own.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate::ledger::Ledger;
use tollgate::ledger::admin::{AccountView, AdminError, AdminOp, AdminReply, AuditReport, RECEIPTS_MAX, ReceiptQuery};
use tollgate::ledger::control::LedgerAccess;
use tollgate::ledger::key_settings::KeySettings;
use tollgate::ledger::redis::{Options, RedisLedger};
use tollgate::pure::ids::{AccountId, ApiKey, Tier};
use tollgate::pure::limits::LimitOverrides;
use tollgate::pure::money::Credits;
use tollgate::pure::receipt::Receipt;
use tollgate::pure::spend::{Reset, SpendLimit};

use super::upstream::Provider;
use crate::harness::catalogue;
use crate::harness::redis_group::RedisUnderSentinels;
use crate::harness::redis_server::{RedisServer, free_port};

/// Where the ledger is.
pub enum Ground {
    Sqlite,
    Redis(RedisServer),
    Sentinels(RedisUnderSentinels),
}

/// Configuration, ledger and folder of a gateway that may be started and killed again and again.
pub struct Site {
    folder: TempDir,
    pub ground: Ground,
    pub port: u16,
    pub admin_port: u16,
    /// The embedded ledger's file, as the tests reach it.
    ledger_file: PathBuf,
    process: Option<Child>,
}

impl Site {
    /// A site in front of the provider; the configuration may be changed.
    pub fn new(ground: Ground, provider: &Provider, change: impl FnOnce(&mut Value)) -> Site {
        let folder = TempDir::new().unwrap();
        let site = Site {
            ledger_file: folder.path().join("ledger.db"),
            folder,
            ground,
            port: free_port(),
            admin_port: free_port(),
            process: None,
        };
        let tier = json!({ "rpm": 1_000_000, "tpm": 1_000_000_000, "concurrency": 10_000, "monthly_quota": "1000000" });
        let mut conf = json!({
            "listen": format!("127.0.0.1:{}", site.port),
            "admin_listen": format!("127.0.0.1:{}", site.admin_port),
            "data_dir": site.path("data"),
            "store": site.store_text(),
            "catalogue": site.path("catalogue.yaml"),
            "providers": { "main": { "base_url": provider.base_url() }, "spare": { "base_url": provider.base_url() } },
            "tiers": { "pro": tier },
        });
        conf["receipts"]["files"] = site.path("receipts").to_str().into();
        change(&mut conf);
        let catalogue = catalogue::catalogue();
        std::fs::write(site.path("tollgate.yaml"), conf.to_string()).unwrap();
        std::fs::write(site.path("catalogue.yaml"), catalogue.to_string()).unwrap();
        site
    }

    fn store_text(&self) -> String {
        match &self.ground {
            Ground::Sqlite => format!("sqlite://{}", self.ledger_file.display()),
            Ground::Redis(server) => server.url(),
            Ground::Sentinels(servers) => servers.url(),
        }
    }

    /// Keeps the ledger in another file. Only before the first start.
    pub fn keep_ledger_at(&mut self, file: PathBuf) {
        self.ledger_file = file;
        let store = self.store_text();
        self.change(|conf| conf["store"] = store.into());
    }

    /// Changes the configuration's file.
    pub fn change(&self, change: impl FnOnce(&mut Value)) {
        let text = std::fs::read_to_string(self.path("tollgate.yaml")).unwrap();
        let mut conf: Value = serde_json::from_str(&text).unwrap();
        change(&mut conf);
        std::fs::write(self.path("tollgate.yaml"), conf.to_string()).unwrap();
    }

    /// The same file under the name by which it is reached from outside the gateway.
    pub fn reach_ledger_at(&mut self, file: PathBuf) {
        self.ledger_file = file;
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn data_dir(&self) -> PathBuf {
        self.path("data")
    }

    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/api/v1", self.port)
    }

    /// Starts the gateway and waits until it listens.
    pub fn start(&mut self, environment: &[(&str, &str)]) {
        self.start_by(Command::new(BINARY), environment);
    }

    /// The same by another program, which gets the binary's arguments.
    pub fn start_by(&mut self, mut command: Command, environment: &[(&str, &str)]) {
        assert!(self.process.is_none());
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path("log"))
            .unwrap();
        command
            .args(["serve", "--conf"])
            .arg(self.path("tollgate.yaml"))
            .envs(environment.iter().copied())
            .stdout(Stdio::null())
            .stderr(log);
        self.process = Some(command.spawn().unwrap());
        let started = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(
                started.elapsed() < WAIT_MAX,
                "the gateway does not listen: {}",
                self.log()
            );
            let ended = self.process.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "the gateway ended: {ended:?}: {}", self.log());
            // Sleeps: between two looks.
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    pub fn process_id(&self) -> u32 {
        self.process.as_ref().unwrap().id()
    }

    /// Starts another process in the place of the one that runs, which is given back.
    pub fn upgrade(&mut self) -> Child {
        let new = self.successor(&[]);
        self.process.replace(new).unwrap()
    }

    /// Starts a process that is to take over. The one that runs stays the site's.
    pub fn successor(&self, environment: &[(&str, &str)]) -> Child {
        let log = std::fs::OpenOptions::new().append(true).open(self.path("log")).unwrap();
        let new = Command::new(BINARY)
            .args(["serve", "--upgrade", "--conf"])
            .arg(self.path("tollgate.yaml"))
            .envs(environment.iter().copied())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        new.unwrap()
    }

    /// Starts the gateway with arguments with which it does not start; what it says.
    pub fn serve_and_fail(&self, arguments: &[&str]) -> String {
        let output = Command::new(BINARY)
            .arg("serve")
            .args(arguments)
            .arg("--conf")
            .arg(self.path("tollgate.yaml"))
            .output()
            .unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .args([signal, &self.process_id().to_string()])
            .status();
        assert!(sent.unwrap().success());
    }

    /// Waits until the process has ended by itself; how long that took.
    pub fn wait_end(&mut self) -> Duration {
        let started = Instant::now();
        let mut process = self.process.take().unwrap();
        while process.try_wait().unwrap().is_none() {
            if started.elapsed() > WAIT_MAX {
                process.kill().unwrap();
                panic!("the gateway does not end: {}", self.log());
            }
            // Sleeps: between two looks.
            std::thread::sleep(Duration::from_millis(1));
        }
        started.elapsed()
    }

    pub fn has_ended(&mut self) -> bool {
        self.process
            .as_mut()
            .is_none_or(|process| process.try_wait().unwrap().is_some())
    }

    /// The ledger, through the gateway that runs on it.
    pub fn ledger(&self) -> Books {
        let open = || match &self.ground {
            Ground::Sqlite => LedgerAccess::to_embedded(&self.ledger_file).unwrap(),
            Ground::Redis(_) | Ground::Sentinels(_) => {
                let patient = Options {
                    timeout: Duration::from_secs(10),
                    ..Options::default()
                };
                LedgerAccess::Own(Ledger::Redis(
                    RedisLedger::connect(&self.store_text(), patient).unwrap(),
                ))
            }
        };
        let access = tokio::task::block_in_place(|| Some(open()));
        Books {
            access,
            receipts: self.path("receipts"),
        }
    }

    /// Runs the binary with these arguments and its `--json`; what it printed.
    pub fn command(&self, arguments: &[&str]) -> Value {
        let output = Command::new(BINARY)
            .args(arguments)
            .args(["--json", "--conf"])
            .arg(self.path("tollgate.yaml"))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{arguments:?}: {text} {output:?}"))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            println!("--- the gateway's log\n{}", self.log());
        }
    }
}

/// The way to a ledger. It blocks, which the tests' runtime is told.
pub struct Books {
    access: Option<LedgerAccess>,
    receipts: PathBuf,
}

impl Books {
    pub fn run(&self, op: AdminOp) -> Result<AdminReply, AdminError> {
        tokio::task::block_in_place(|| self.access.as_ref().unwrap().run(op))
    }

    /// All receipts that the ledger has of an account.
    pub fn receipts(&self, name: &str) -> Vec<Receipt> {
        let mut query = ReceiptQuery::newest(&name.parse().unwrap(), RECEIPTS_MAX);
        let mut receipts = Vec::new();
        loop {
            let AdminReply::Receipts(page) = self.run(AdminOp::Receipts(query.clone())).unwrap() else {
                panic!("no receipts");
            };
            receipts.extend(page.receipts);
            match page.next {
                Some(next) => query.before = Some(next),
                None => return receipts,
            }
        }
    }

    /// All receipts in the files of accounts whose names begin so, each once.
    pub fn receipts_in_files(&self, accounts: &str) -> Vec<Receipt> {
        let mut seen = HashSet::new();
        let mut receipts = Vec::new();
        for file in std::fs::read_dir(&self.receipts).into_iter().flatten() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            // The last line of a process that was killed may be torn.
            let lines = text
                .lines()
                .filter(|line| line.contains(accounts))
                .filter_map(|line| serde_json::from_str::<Receipt>(line).ok());
            receipts
                .extend(lines.filter(|r| seen.insert((r.billed.producer, r.billed.account.clone(), r.billed.number))));
        }
        receipts
    }
}

impl Drop for Books {
    fn drop(&mut self) {
        tokio::task::block_in_place(|| self.access.take());
    }
}

/// Makes an account with this credit and a key.
pub fn new_account(ledger: &Books, name: &str, credit: &str) -> ApiKey {
    let account: AccountId = name.parse().unwrap();
    let (tier, quota_pico) = (Tier::Pro, None);
    ledger
        .run(AdminOp::AccountCreate {
            account: account.clone(),
            tier,
            quota_pico,
            terms: Default::default(),
        })
        .unwrap();
    ledger
        .run(AdminOp::CreditsAdd {
            account: account.clone(),
            amount: credit.parse().unwrap(),
            reference: "first".to_owned(),
        })
        .unwrap();
    let mut random = [0u8; 32];
    for half in random.chunks_mut(16) {
        half.copy_from_slice(uuid::Uuid::now_v7().as_bytes());
    }
    let key = ApiKey::from_random("tg_", random);
    ledger
        .run(AdminOp::KeyCreate {
            digest: key.digest().to_hex(),
            account,
            tier: None,
            domains: Vec::new(),
            expires_in_ms: None,
            limits: LimitOverrides::default(),
            // Far away: what is spent and held under limits is counted in every run, and audited.
            settings: Box::new(KeySettings {
                limit: far(Reset::Weekly),
                end_user_limit: far(Reset::Daily),
                ..KeySettings::default()
            }),
        })
        .unwrap();
    key
}

fn far(reset: Reset) -> Option<SpendLimit> {
    let amount = Credits::MAX;
    Some(SpendLimit { amount, reset })
}

pub fn view(ledger: &Books, name: &str) -> AccountView {
    let account = name.parse().unwrap();
    match ledger.run(AdminOp::AccountShow { account }).unwrap() {
        AdminReply::Account(view) => view,
        other => panic!("{other:?}"),
    }
}

pub fn audit(ledger: &Books) -> AuditReport {
    match ledger.run(AdminOp::Audit).unwrap() {
        AdminReply::Audit(report) => report,
        other => panic!("{other:?}"),
    }
}

/// Journals of processes in a data folder, dead or alive.
pub fn journals(folder: &Path, extension: &str) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    entries
        .filter(|entry| {
            entry
                .as_ref()
                .unwrap()
                .path()
                .extension()
                .is_some_and(|found| found == extension)
        })
        .count()
}

pub const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");
const WAIT_MAX: Duration = Duration::from_secs(30);
