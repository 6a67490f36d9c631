//! `tollgate demo`: a gateway to play with, set up from nothing: configuration, catalogue, simulated provider, account, credit, key.
//!
//! It writes only into its data directory. The other commands work on it with `--conf`.

mod customers;
mod files;
mod greeting;
mod operator;
mod simulated;
mod traffic;

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;

use self::files::{Layout, Supply};
use self::greeting::Greeting;
use self::simulated::Simulated;
use super::arguments::address;
use super::catalogue::on_sale;
use super::failure::Failure;
use super::key::{create_plain, random};
use super::ledger::{ask, open};
use super::output::{Answer, Format};
use super::serve::{Environment, gateway};
use crate::clock::Clock;
use crate::config::{self, AccessLog, Config};
use crate::ledger::admin::{AdminOp, AdminReply};
use crate::ledger::control::LedgerAccess;
use crate::ledger::{KeyRecord, control_socket};
use crate::pure::catalogue::Purpose;
use crate::pure::ids::{AccountId, ApiKey, KeyId, Tier, hex};
use crate::pure::money::Credits;
use crate::server::listening::is_in_the_way;
use crate::server::open::StartError;
use crate::server::socket::{address_of, bind, reachable};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tollgate demo\n  tollgate demo --with-traffic\n  tollgate demo --listen 127.0.0.1:0 --json\n  \
    OPENAI_API_KEY=sk-… tollgate demo\n\n\
    It needs no configuration: it writes its own into the data directory and prints\n\
    its path, for the other commands' --conf.\n\n\
    With OPENAI_API_KEY or OPENROUTER_API_KEY set the real provider is asked, and you\n\
    pay it. Else, and with --simulated, answers come from a simulated provider on this\n\
    machine: no language model, but it streams, counts tokens, and fails on request.\n\
    Begin a message with one of these words; join several with +, as in\n\
    simulate:no-usage+cut=4:\n\n  \
    simulate:STATUS       any error from 400 to 599; simulate:429=7 says Retry-After: 7\n  \
    simulate:stall        no answer, or no more than K events: simulate:stall=K\n  \
    simulate:cut          the connection is dropped after 3 events, or simulate:cut=K\n  \
    simulate:error-event  an error event after 3 events, or simulate:error-event=K\n  \
    simulate:slow         250 ms before each token, or simulate:slow=MS\n  \
    simulate:no-usage     usage is not reported\n  \
    simulate:bad-usage    impossible numbers are reported\n  \
    simulate:no-done      the stream ends without [DONE]\n  \
    simulate:tokens       an answer of 1000 tokens, or simulate:tokens=N"
)]
pub(super) struct DemoArgs {
    /// Where to listen [default: 127.0.0.1:8080 or a free port]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    listen: Option<SocketAddr>,
    /// Where its configuration and ledger are
    #[arg(long, value_name = "DIR", default_value = DATA_DIR)]
    data_dir: PathBuf,
    /// Never ask a real provider
    #[arg(long)]
    simulated: bool,
    /// Begin with a day of invented traffic; answers are simulated
    #[arg(long)]
    with_traffic: bool,
}

pub(super) fn run(args: &DemoArgs, format: Format) -> Result<Answer, Failure> {
    let demo = Demo::prepare(args, config::environment)?;
    demo.serve(format, |config| gateway(config, demo_environment))?;
    Ok(Answer::default())
}

/// A demo that is set up and only has to be served.
struct Demo {
    config: Config,
    greeting: Greeting,
    /// Asked until the gateway has stopped.
    simulated: Option<Simulated>,
    /// Keep others from the gateway's ports until it has stopped.
    _ports: [OwnedFd; 3],
}

impl Demo {
    fn prepare(args: &DemoArgs, environment: Environment) -> Result<Demo, Failure> {
        let folder = folder(&args.data_dir)?;
        free_ledger(&folder)?;
        let ([listen, admin_listen, operator_listen], ports) = addresses(args.listen)?;
        let layout = Layout {
            folder,
            listen,
            admin_listen,
            operator_listen,
        };
        let real = if args.simulated || args.with_traffic {
            None
        } else {
            real(&layout, environment)?
        };
        let (config, simulated) = match real {
            Some(config) => (config, None),
            None => simulate(&layout).map(|(config, simulated)| (config, Some(simulated)))?,
        };
        let traffic = match args.with_traffic {
            true => with_traffic(&config, &layout.folder)?,
            false => None,
        };
        let key = account_with_key(&config, &layout.folder)?;
        let live = on_sale(&config, &config.load_catalogue()?);
        let model = live
            .default_for(Purpose::Chat)
            .ok_or_else(|| Failure::new("no model of the purpose chat is on sale: try `tollgate demo --simulated`"))?;
        let operator_token = operator::with_token(&config, &layout.folder)?;
        let base_url = format!("http://{}{}", reachable(config.listen), config.base_path);
        let greeting = Greeting {
            wallet: format!("{base_url}/wallet"),
            base_url,
            key: key.reveal().to_owned(),
            account: ACCOUNT,
            conf: config.path.clone(),
            status_page: format!("http://{}/", reachable(config.admin_listen)),
            console: format!("http://{}/", reachable(operator_listen)),
            operator_token: operator_token.reveal().to_owned(),
            model: model.id.to_string(),
            traffic,
            simulated: simulated.is_some(),
            is_asked_for: args.simulated || args.with_traffic,
        };
        Ok(Demo {
            config,
            greeting,
            simulated,
            _ports: ports,
        })
    }

    /// Runs the gateway, and greets once it answers.
    fn serve(self, format: Format, gateway: impl FnOnce(Config) -> Result<(), StartError>) -> Result<(), Failure> {
        let Demo {
            mut config,
            greeting,
            simulated,
            _ports,
        } = self;
        if format == Format::Json {
            // Programs read one line from it; what follows they would not expect.
            config.access_log = AccessLog::Off;
        }
        let stopped = AtomicBool::new(false);
        let health = format!("{}/llm/health", config.base_path);
        let address = reachable(config.listen);
        let ended = std::thread::scope(|scope| {
            let greeter = std::thread::Builder::new().name("greeting".to_owned());
            greeter
                .spawn_scoped(scope, || greeting.when_healthy(address, &health, &stopped, format))
                .map_err(|error| Failure::new(format!("cannot start a thread: {error}")))?;
            let ended = gateway(config).map_err(|error| Failure::new(error.to_string()));
            stopped.store(true, Ordering::Relaxed);
            ended
        });
        drop(simulated);
        ended
    }
}

/// The data directory, made if it is missing; absolute, so that what is written there works from everywhere.
fn folder(wanted: &Path) -> Result<PathBuf, Failure> {
    std::fs::create_dir_all(wanted)
        .and_then(|()| wanted.canonicalize())
        .map_err(|error| Failure::new(format!("cannot make the directory {}: {error}", wanted.display())))
}

/// Refuses to touch the files of a demo that runs.
fn free_ledger(folder: &Path) -> Result<(), Failure> {
    match open(&folder.join(files::LEDGER))? {
        LedgerAccess::Own(_) => Ok(()),
        LedgerAccess::Socket(_) => Err(Failure::new(format!(
            "a gateway runs already on {}: stop it, or choose another directory with --data-dir",
            folder.display()
        ))),
    }
}

/// Where the gateway is to listen: at the public address, for admins, and for operators. Its server cannot say which port it got, so free
/// ones are looked for here. The sockets that are returned with them do not listen: while they are open nobody else gets such a port as any
/// that is free, for a listener or for a connection of its own.
fn addresses(wanted: Option<SocketAddr>) -> Result<([SocketAddr; 3], [OwnedFd; 3]), Failure> {
    let failed = |address: SocketAddr, error: std::io::Error| {
        Failure::new(format!(
            "cannot listen on {address}: {error}; choose another with --listen ADDRESS:PORT"
        ))
    };
    let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let usual = |port| match bind(loopback(port)) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => bind(loopback(0)),
        bound => bound,
    };
    // Who takes any port starts several at once: two that find the usual ones free would both take them. One that is to be the public port
    // would be bound twice.
    let beside = |port| match wanted {
        Some(address) if address.port() == 0 || is_in_the_way(address, loopback(port)) => bind(loopback(0)),
        _ => usual(port),
    };
    let (listen, bound) = match wanted {
        Some(address) => (address, bind(address)),
        None => (loopback(LISTEN_PORT), usual(LISTEN_PORT)),
    };
    let (admin, operator) = (loopback(ADMIN_PORT), loopback(OPERATOR_PORT));
    let sockets = [
        bound.map_err(|error| failed(listen, error))?,
        beside(ADMIN_PORT).map_err(|error| failed(admin, error))?,
        beside(OPERATOR_PORT).map_err(|error| failed(operator, error))?,
    ];
    let mut addresses = [listen, admin, operator];
    for (address, socket) in addresses.iter_mut().zip(&sockets) {
        *address = address_of(socket).map_err(|error| failed(*address, error))?;
    }
    Ok((addresses, sockets))
}

/// The shipped configuration, when this environment has a credential that it can show something with.
fn real(layout: &Layout, environment: Environment) -> Result<Option<Config>, Failure> {
    let shown = |variable: &&str| environment(variable).is_some_and(|value| !value.trim().is_empty());
    if !REAL.iter().any(shown) {
        return Ok(None);
    }
    let text = layout.write(&Supply::Real)?;
    Ok(Some(Config::parse(&layout.conf(), &text, &environment)?))
}

/// The simulated provider and the configuration that asks it.
fn simulate(layout: &Layout) -> Result<(Config, Simulated), Failure> {
    let fresh = format!("simulated-{}", hex(&random()?));
    let credential = CREDENTIAL.get_or_init(|| fresh);
    let simulated = Simulated::start(credential.clone())?;
    let text = layout.write(&Supply::Simulated(simulated.address()))?;
    Ok((Config::parse(&layout.conf(), &text, &demo_environment)?, simulated))
}

/// This process's environment, with the simulated provider's credential in it.
fn demo_environment(name: &str) -> Option<String> {
    match name {
        files::SIMULATED_KEY => CREDENTIAL.get().cloned(),
        _ => config::environment(name),
    }
}

/// The configuration of a demo that runs in the data directory that is the default.
pub(super) fn running_here() -> Option<PathBuf> {
    let folder = Path::new(DATA_DIR);
    let socket = control_socket::socket_path(&folder.join(files::LEDGER));
    control_socket::connect(&socket).ok().map(|_| folder.join(files::CONF))
}

/// Whether a demo that runs in this folder listens there.
pub(super) fn has(address: SocketAddr) -> bool {
    let config = running_here().and_then(|conf| Config::load(&conf).ok());
    config.is_some_and(|config| config.listen_addresses().any(|own| own == address))
}

/// The account with its credit, made at the first start, and its key: the one of the last start while that is still there and good.
fn account_with_key(config: &Config, folder: &Path) -> Result<ApiKey, Failure> {
    let account: AccountId = ACCOUNT.parse().map_err(|error| Failure::new(format!("{error}")))?;
    let create = AdminOp::AccountCreate {
        account: account.clone(),
        tier: Tier::Pro,
        quota_pico: None,
        terms: Default::default(),
    };
    let AdminReply::Accounts { accounts } = ask(config, AdminOp::AccountList)? else {
        return Err(Failure::wrong_reply());
    };
    if accounts.iter().all(|known| known.record.id != account) {
        ask(config, create)?;
    }
    let add = AdminOp::CreditsAdd {
        account: account.clone(),
        amount: Credits::from_pico(CREDIT_PICO),
        reference: "demo-start".to_owned(),
    };
    ask(config, add)?;
    if let Some(key) = files::kept(folder, files::KEY, &config.key_prefix)
        && is_good(config, &account, &key)?
    {
        return Ok(key);
    }
    let key = create_plain(config, account)?;
    files::keep(folder, files::KEY, &key)?;
    Ok(key)
}

/// What came of the wish for a day of traffic.
enum Made {
    /// The day, in which the demo's own account called with this key.
    Whole(ApiKey),
    /// The day, without the demo's own account, which was there before.
    OfOthers,
    /// Nothing: the ledger has such a day.
    Nothing,
}

/// The day before the first start, unless the ledger has it: then, and where it is not the whole day, what is told of that.
fn with_traffic(config: &Config, folder: &Path) -> Result<Option<&'static str>, Failure> {
    let demo = ACCOUNT.parse().map_err(|error| Failure::new(format!("{error}")))?;
    let catalogue = config.load_catalogue()?;
    let path = folder.join(files::LEDGER);
    match traffic::make(config, &path, &catalogue, Clock::System.now(), &demo)? {
        Made::Whole(key) => files::keep(folder, files::KEY, &key).map(|()| None),
        Made::OfOthers => Ok(Some(DAY_OF_OTHERS)),
        Made::Nothing => Ok(Some(DAY_IS_THERE)),
    }
}

fn is_good(config: &Config, account: &AccountId, key: &ApiKey) -> Result<bool, Failure> {
    let list = AdminOp::KeyList {
        account: account.clone(),
    };
    let AdminReply::Keys { keys, .. } = ask(config, list)? else {
        return Err(Failure::wrong_reply());
    };
    let id = KeyId::of(&key.digest());
    let now = Clock::System.now();
    let is_good = |known: &KeyRecord| known.revoked.is_none() && known.expires.is_none_or(|at| at > now);
    Ok(keys.iter().any(|known| known.id == id && is_good(known)))
}

/// Known to this process alone: the gateway asks with it, and the simulated provider answers nobody else.
static CREDENTIAL: OnceLock<String> = OnceLock::new();

pub(in crate::cli) use self::files::SIMULATED_KEY;
/// What is said of a port that [`has`] is true of.
pub(super) const HAS_IT: &str = ": the demo that runs here has it; stop that before you start this";
const DATA_DIR: &str = "data/demo";
const ACCOUNT: &str = "demo";
const DAY_IS_THERE: &str =
    "this ledger has its day of calls already, and none is added; for a new one choose another --data-dir";
const DAY_OF_OTHERS: &str =
    "the account demo is older, and has none of the day's calls; for a day with its own choose another --data-dir";
const CREDIT_PICO: i64 = 10_000_000_000_000;
const LISTEN_PORT: u16 = 8080;
const ADMIN_PORT: u16 = 9090;
const OPERATOR_PORT: u16 = 9091;
/// Credentials with which the demo asks the real providers.
const REAL: [&str; 2] = ["OPENAI_API_KEY", "OPENROUTER_API_KEY"];

#[cfg(test)]
mod tests;
