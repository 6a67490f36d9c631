//! What else the machine did while a round was measured, and whether that disturbed it.
//!
//! The kernel counts for the whole machine (proc_stat(5)); what is left when the bench's own processes are taken away is others'. Pressure
//! (Documentation/accounting/psi.rst) is kept for the reader: the bench's own processes wait for each other too, so it judges nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use serde::Serialize;

use crate::{
    children::Spent,
    process::{self, Switches},
};

/// What is counted at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Time that all cores were busy since boot, in steps of a clock tick.
    pub(crate) busy_ns: u64,
    /// Time that the host gave to other machines.
    pub(crate) steal_ns: u64,
    pub(crate) switches: u64,
    /// Time in which some task waited for a core. None where the kernel does not count it.
    pub(crate) waited_us: Option<u64>,
    /// Of the bench's own processes, and of children that they start.
    pub(crate) own_ns: u64,
    pub(crate) own_switches: Switches,
    /// Of such children alone: fewer at the end than at the beginning where one has ended.
    pub(crate) children_switches: Switches,
}

impl Counted {
    /// Reads the kernel's counts. `own` are the processes of the bench, `children` what those used that they started. None where the kernel
    /// shows none.
    pub(crate) fn read(own: &[u32], children: Spent) -> Option<Self> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let pressure = fs::read_to_string("/proc/pressure/cpu").ok();
        let counted = Self::parse(&stat, pressure.as_deref(), process::tick_ns())?;
        let switches = own.iter().filter_map(|pid| Switches::read(*pid));
        Some(Self {
            own_ns: process::cpu_ns_of(own) + children.ns,
            own_switches: switches.fold(Switches::default(), Switches::and),
            children_switches: children.switches,
            ..counted
        })
    }

    /// Of texts as `/proc/stat` and `/proc/pressure/cpu` have them.
    pub(crate) fn parse(stat: &str, pressure: Option<&str>, tick_ns: u64) -> Option<Self> {
        let ticks: Vec<u64> = numbers(stat.lines().next()?.strip_prefix("cpu ")?)?;
        // user nice system idle iowait irq softirq steal; guest time is in user already.
        let [user, nice, system, _, _, irq, softirq, steal] = *ticks.first_chunk()?;
        Some(Self {
            busy_ns: (user + nice + system + irq + softirq) * tick_ns,
            steal_ns: steal * tick_ns,
            switches: *numbers(line(stat, "ctxt ")?)?.first()?,
            waited_us: pressure.and_then(|text| {
                let some = line(text, "some ")?;
                some.split(' ')
                    .find_map(|field| field.strip_prefix("total="))?
                    .parse()
                    .ok()
            }),
            ..Self::default()
        })
    }

    /// What others did from here to `end`.
    pub(crate) fn until(self, end: Self, seconds: f64, runnable: &[u64]) -> Disturbance {
        let share = |ns: u64| ns as f64 / 1e9 / seconds;
        let own_ns = end.own_ns.saturating_sub(self.own_ns);
        let busy_ns = end.busy_ns.saturating_sub(self.busy_ns);
        let children = end.children_switches.since(self.children_switches);
        let own = end.own_switches.since(self.own_switches).and(children);
        // A process that waits is left for nothing or for another process, and come back to.
        let own = 2 * own.voluntary + 2 * own.forced;
        let switches = end.switches.saturating_sub(self.switches).saturating_sub(own);
        let waited = end.waited_us.zip(self.waited_us);
        Disturbance {
            others_cores: share(busy_ns.saturating_sub(own_ns)),
            steal_cores: share(end.steal_ns.saturating_sub(self.steal_ns)),
            others_switches: switches as f64 / seconds,
            runnable: (!runnable.is_empty()).then(|| runnable.iter().sum::<u64>() as f64 / runnable.len() as f64),
            waited_share: waited.map(|(end, begin)| end.saturating_sub(begin) as f64 / 1e6 / seconds),
        }
    }
}

/// What others did during a round.
#[derive(Serialize, Clone, Copy, Debug)]
pub(crate) struct Disturbance {
    /// Cores kept busy by processes that are not the bench's.
    pub(crate) others_cores: f64,
    /// Cores that the host gave to others.
    pub(crate) steal_cores: f64,
    /// Context switches of others in a second, at least.
    pub(crate) others_switches: f64,
    /// How many tasks could run, on average, the bench's own included.
    pub(crate) runnable: Option<f64>,
    /// Share of the time in which some task waited for a core, the bench's own included.
    pub(crate) waited_share: Option<f64>,
}

impl Disturbance {
    /// Why a round does not count; empty when it does. So many tasks of the bench itself may want to run at once.
    pub(crate) fn reasons(&self, own_tasks: usize) -> Vec<&'static str> {
        let is_above = |value: Option<f64>, most: f64| value.is_some_and(|value| value > most);
        [
            ("others' CPU", is_above(Some(self.others_cores), OTHERS_MAX)),
            ("steal", is_above(Some(self.steal_cores), STEAL_MAX)),
            (
                "others' context switches",
                is_above(Some(self.others_switches), SWITCHES_MAX),
            ),
            ("run queue", is_above(self.runnable, own_tasks as f64 + RUNNABLE_MORE)),
        ]
        .into_iter()
        .filter_map(|(reason, disturbs)| disturbs.then_some(reason))
        .collect()
    }
}

/// What disturbed one subject's turn in a round; nothing when no reason is named.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) subject: String,
    pub(crate) reasons: Vec<&'static str>,
}

/// The rounds of one kind of load: how many count, and how many were measured again.
#[derive(Serialize, Clone, Debug, Default)]
pub(crate) struct Repeats {
    pub(crate) rounds: usize,
    pub(crate) repeated: usize,
    /// Rounds that count although they were disturbed, since too many had been measured again.
    pub(crate) kept: usize,
    /// What disturbed, and how many rounds, those that were kept included.
    pub(crate) reasons: BTreeMap<&'static str, usize>,
    /// The same by the subject whose turn it was: of a round that was measured again, the others were measured again with it.
    pub(crate) by_subject: BTreeMap<String, BTreeMap<&'static str, usize>>,
}

impl Repeats {
    /// Whether a round that was measured `attempts` times, the last time in these turns, is measured again. Counts it.
    pub(crate) fn again(&mut self, turns: &[Turn], attempts: usize, rounds: usize) -> bool {
        let reasons: BTreeSet<&'static str> = turns.iter().flat_map(|turn| turn.reasons.iter().copied()).collect();
        for reason in &reasons {
            *self.reasons.entry(reason).or_default() += 1;
        }
        for Turn { subject, reasons } in turns.iter().filter(|turn| !turn.reasons.is_empty()) {
            let counts = self.by_subject.entry(subject.clone()).or_default();
            for reason in reasons {
                *counts.entry(reason).or_default() += 1;
            }
        }
        let again = !reasons.is_empty() && attempts < ATTEMPTS_MAX && self.repeated < rounds;
        if again {
            self.repeated += 1;
        } else {
            self.rounds += 1;
            self.kept += usize::from(!reasons.is_empty());
        }
        again
    }

    /// A sentence for the report.
    pub(crate) fn text(&self) -> String {
        let Self {
            rounds, repeated, kept, ..
        } = self;
        if *repeated + *kept == 0 {
            return format!("{rounds} rounds; the machine disturbed none.");
        }
        let listed = |counts: &BTreeMap<&'static str, usize>| {
            let counts: Vec<String> = counts.iter().map(|(reason, n)| format!("{reason} {n}")).collect();
            counts.join(", ")
        };
        let turns = self.by_subject.iter();
        let turns: Vec<String> = turns
            .map(|(subject, counts)| format!("{subject} {}", listed(counts)))
            .collect();
        let (reasons, turns) = (listed(&self.reasons), turns.join("; "));
        format!(
            "{rounds} rounds; {repeated} more were disturbed and measured again, {kept} of the {rounds} count although they were ({reasons}). \
             By the subject whose turn it was: {turns}."
        )
    }
}

/// Why a round is measured again: what disturbed, and whose turn.
pub(crate) fn told(turns: &[Turn]) -> String {
    let disturbed = turns.iter().filter(|turn| !turn.reasons.is_empty());
    let told: Vec<String> = disturbed
        .map(|Turn { subject, reasons }| format!("{} ({subject})", reasons.join(", ")))
        .collect();
    told.join("; ")
}

/// Tasks that could run at this moment.
pub(crate) fn runnable() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    numbers(line(&stat, "procs_running ")?)?.first().copied()
}

fn line<'a>(text: &'a str, begins: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(begins))
}

/// All numbers of a line. None when something else is among them.
fn numbers(line: &str) -> Option<Vec<u64>> {
    line.split_whitespace().map(|field| field.parse().ok()).collect()
}

/// Of one core. A tick counts as a whole one, so a short round sees more than there was.
pub(crate) const OTHERS_MAX: f64 = 0.10;
const STEAL_MAX: f64 = 0.03;
/// The kernel's own threads make some hundreds.
const SWITCHES_MAX: f64 = 3_000.0;
const RUNNABLE_MORE: f64 = 1.0;
/// Measurements of one round; and of all of a part at most twice as many as rounds.
const ATTEMPTS_MAX: usize = 4;
