//! The long run: random calls of all accounts, some of which fail, a gateway that is killed now and then, and the debits of each account
//! compared with what was computed from what was sent and seen. Memory and open files over time beside it.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::task::JoinSet;

use crate::{
    books::{self, Debit, Owed},
    catalogue::Catalogue,
    cli::Variant,
    client::{Connection, Failure, Reply, Shot},
    common::{Result, say},
    fleet::{Fleet, Path, Subject},
    measured::{LongRun, Sample},
    operator::{Operator, Standing},
    random::Random,
    report::Report,
    soak_calls::{Counting, Fate, Models, Planned},
    subjects,
    tag::Tag,
    waiting::Waiting,
};

/// Runs on a fresh process of each gateway of those that take part.
pub(crate) fn run(fleet: &Fleet, report: &mut Report) -> Result<()> {
    for variant in fleet.options.variants() {
        if !matches!(variant, Variant::Embedded | Variant::Redis) {
            continue;
        }
        let Some(subject) = subjects::launch(fleet, variant, report) else {
            continue;
        };
        match subject.operator.clone() {
            Some(operator) => report.soak.push(one(fleet, subject, &operator)?),
            None => report.note(format!(
                "soak of {} left out: it takes two accounts or more",
                variant.name()
            )),
        }
    }
    if fleet.options.against.is_some() {
        report.note("soak left out: the accounts of another's gateway cannot be read".to_owned());
    }
    Ok(())
}

/// What callers and the one that watches them share.
struct Shared {
    address: SocketAddr,
    path: Path,
    keys: Vec<String>,
    models: Models,
    stopping: AtomicBool,
    /// Whether the gateway is being killed or started.
    down: AtomicBool,
    /// How often it was killed.
    kills: AtomicU64,
    requests: AtomicU64,
    noted: Mutex<Noted>,
}

struct Noted {
    owed: Vec<Owed>,
    by_kind: BTreeMap<String, u64>,
    errors: BTreeMap<String, u64>,
}

fn one(fleet: &Fleet, mut subject: Subject, operator: &Operator) -> Result<LongRun> {
    let before = settled(operator)?;
    let length = fleet.options.soak_length();
    let shared = Arc::new(Shared {
        address: subject.address,
        path: subject.path.clone(),
        keys: subject.callers.clone(),
        models: Models::of(Catalogue::read()?)?,
        stopping: AtomicBool::new(false),
        down: AtomicBool::new(false),
        kills: AtomicU64::new(0),
        requests: AtomicU64::new(0),
        noted: Mutex::new(Noted {
            owed: vec![Owed::default(); subject.accounts.len()],
            by_kind: BTreeMap::new(),
            errors: BTreeMap::new(),
        }),
    });
    let callers = {
        let (shared, connections) = (Arc::clone(&shared), fleet.options.connections);
        let runtime = Waiting::Asleep.runtime()?;
        thread::spawn(move || runtime.block_on(call_all(shared, connections)))
    };
    let begun = Instant::now();
    let watched = watch(&mut subject, &shared, begun, length);
    shared.stopping.store(true, SeqCst);
    callers.join().map_err(|_| "the callers of soak panicked")?;
    let (samples, seconds) = (watched?, begun.elapsed().as_secs_f64());

    let after = settled(operator)?;
    let mut noted = shared.noted();
    let noted = &mut *noted;
    let differences = differences(&subject.accounts, &noted.owed, &before, &after);
    let all = noted.owed.iter().copied().fold(Owed::default(), Owed::and);
    let sum =
        |standings: &BTreeMap<String, Standing>| standings.values().map(|standing| standing.balance).sum::<i128>();
    let audit = subject.audit.as_ref();
    Ok(LongRun {
        subject: subject.name.clone(),
        requests: shared.requests.load(SeqCst),
        by_kind: std::mem::take(&mut noted.by_kind),
        seconds,
        kills: usize::try_from(shared.kills.load(SeqCst))?,
        accounts: subject.accounts.len(),
        computed: all.text(),
        seen: books::credits((sum(&before) - sum(&after)).unsigned_abs()),
        open_calls: all.open_calls,
        differences,
        errors: std::mem::take(&mut noted.errors),
        memory_growth_percent: growth(&samples, length),
        samples,
        audit: audit.map(|audit| audit().map_err(|error| error.to_string())),
    })
}

fn differences(
    names: &[String],
    owed: &[Owed],
    before: &BTreeMap<String, Standing>,
    after: &BTreeMap<String, Standing>,
) -> Vec<String> {
    let of_one = |(name, owed): (&String, &Owed)| match (before.get(name), after.get(name)) {
        (Some(before), Some(after)) => owed.difference(name, *before, *after),
        _ => Some(format!("{name}: it is not listed")),
    };
    names.iter().zip(owed).filter_map(of_one).collect()
}

/// What all accounts have when nothing is held and nothing changes any more.
fn settled(operator: &Operator) -> Result<BTreeMap<String, Standing>> {
    let begun = Instant::now();
    let mut last = operator.standings()?;
    loop {
        thread::sleep(SETTLE_EVERY);
        let now = operator.standings()?;
        let is_settled = now == last && now.values().all(|standing| standing.held == 0);
        if is_settled || begun.elapsed() > SETTLE_TIMEOUT {
            return Ok(now);
        }
        last = now;
    }
}

/// Takes samples, and kills the gateway at equal times of the first half.
fn watch(subject: &mut Subject, shared: &Shared, begun: Instant, length: Duration) -> Result<Vec<Sample>> {
    let (mut samples, mut told) = (Vec::new(), 0);
    let kills = u32::try_from(length.as_secs() / KILL_EVERY_MIN.as_secs() / 2)?.clamp(1, KILLS_MAX);
    while begun.elapsed() < length {
        let elapsed = begun.elapsed();
        let killed = u32::try_from(shared.kills.load(SeqCst))?;
        if killed < kills && elapsed >= length / (2 * kills) * (killed + 1) && elapsed < length {
            shared.down.store(true, SeqCst);
            shared.kills.fetch_add(1, SeqCst);
            subject.kill_and_restart()?;
            shared.down.store(false, SeqCst);
        }
        if elapsed >= length / SAMPLES * u32::try_from(samples.len())? {
            samples.push(Sample {
                seconds: elapsed.as_secs_f64(),
                requests: shared.requests.load(SeqCst),
                memory_kib: subject.memory_kib().unwrap_or_default(),
                open_files: subject.open_files().unwrap_or_default(),
            });
        }
        if elapsed >= length / TOLD * told {
            told += 1;
            let (name, requests) = (&subject.name, shared.requests.load(SeqCst));
            say(&format!(
                "soak  {name:<18} {requests} requests, {:.0} of {} s",
                elapsed.as_secs_f64(),
                length.as_secs()
            ));
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(samples)
}

async fn call_all(shared: Arc<Shared>, connections: usize) {
    let mut callers = JoinSet::new();
    for number in 0..connections {
        callers.spawn(call(Arc::clone(&shared), Random::new(number as u64)));
    }
    while callers.join_next().await.is_some() {}
}

/// One caller: a call after the other, each of any account.
async fn call(shared: Arc<Shared>, mut random: Random) {
    let mut connection = None;
    while !shared.stopping.load(SeqCst) {
        // Read first: a kill that comes right behind the look is then seen in the number.
        let kills = shared.kills.load(SeqCst);
        if shared.down.load(SeqCst) {
            connection = None;
            tokio::time::sleep(LOOK_EVERY).await;
            continue;
        }
        let account = usize::try_from(random.below(shared.keys.len() as u64)).unwrap_or_default();
        let planned = Planned::any(&shared.models, &mut random);
        let mut counting = Counting {
            content: 0,
            leaves_after: planned.leaves_after(),
        };
        let result = attempt(&shared, &planned, account, &mut connection, &mut counting).await;
        let was_killed = shared.kills.load(SeqCst) != kills;
        let debit = if was_killed {
            planned.debit_beside_kill(&result, counting.content)
        } else {
            planned.debit(&result, counting.content)
        };
        // Behind a stream that broke the gateway closes.
        if result.is_err() || planned.fate == Fate::Cut {
            connection = None;
        }
        shared.note(account, &planned, debit, counting.content);
    }
}

async fn attempt(
    shared: &Shared,
    planned: &Planned<'_>,
    account: usize,
    connection: &mut Option<Connection>,
    counting: &mut Counting,
) -> std::result::Result<Reply, Failure> {
    let connection = match connection.take().filter(Connection::is_open) {
        Some(open) => connection.insert(open),
        None => connection.insert(Connection::open(shared.address).await?),
    };
    let shot = Shot {
        bytes: planned.call.render(&shared.path, &shared.keys[account]),
        expect: planned.expect(),
        tag: Some(Tag::of(planned.call.script.tag)),
    };
    match tokio::time::timeout(ANSWER_TIMEOUT, connection.exchange(&shot, counting)).await {
        Ok(result) => result,
        Err(_) => Err(Failure::Body("no end of the answer")),
    }
}

impl Shared {
    fn noted(&self) -> std::sync::MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, account: usize, planned: &Planned<'_>, debit: std::result::Result<Debit, String>, content: u64) {
        self.requests.fetch_add(1, SeqCst);
        let mut noted = self.noted();
        *noted.by_kind.entry(planned.fate.name().to_owned()).or_default() += 1;
        let debit = debit.unwrap_or_else(|wrong| {
            let is_new = !noted.errors.contains_key(&wrong);
            let kind = if is_new && noted.errors.len() >= ERROR_KINDS_MAX {
                "other errors".to_owned()
            } else {
                wrong
            };
            *noted.errors.entry(kind).or_default() += 1;
            // It is wrong already; what it costs is not known.
            planned.debit_when_killed(content)
        });
        if let Some(owed) = noted.owed.get_mut(account) {
            owed.add(debit);
        }
    }
}

/// From the half on nothing is killed; a tenth of that is given for warming up.
fn growth(samples: &[Sample], length: Duration) -> Option<f64> {
    let last = samples.last()?;
    let from = length.as_secs_f64() * 0.55;
    let early = samples.iter().find(|sample| sample.seconds >= from)?;
    (early.memory_kib > 0).then(|| (last.memory_kib as f64 / early.memory_kib as f64 - 1.0) * 100.0)
}

const SAMPLES: u32 = 200;
const TOLD: u32 = 20;
const LOOK_EVERY: Duration = Duration::from_millis(10);
const KILLS_MAX: u32 = 4;
const KILL_EVERY_MIN: Duration = Duration::from_secs(2);
const SETTLE_EVERY: Duration = Duration::from_millis(300);
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
const ERROR_KINDS_MAX: usize = 20;
