//! The machine that is measured on: its cores and who gets which, its limits and versions.

use std::{
    fs, io,
    process::{Command, Stdio},
};

use serde::Serialize;

use crate::common::Result;

/// Which cores the measured process has, which the load and the upstream share, and which the store. All empty: not pinned.
#[derive(Serialize, Clone, Default, Debug, PartialEq, Eq)]
pub(crate) struct Cores {
    pub(crate) subject: Vec<usize>,
    pub(crate) load: Vec<usize>,
    /// One that nobody else has, where there are three; else those of the load.
    pub(crate) store: Vec<usize>,
}

impl Cores {
    /// Of all cores that this process may use.
    pub(crate) fn split(threads: usize) -> Self {
        Self::of(allowed(), threads)
    }

    /// The last `threads` cores for the subject, the one before for the store, and the others for the rest, where there are as many.
    pub(crate) fn of(mut cores: Vec<usize>, threads: usize) -> Self {
        if threads >= cores.len() {
            return Self::default();
        }
        let subject = cores.split_off(cores.len() - threads);
        let store = if cores.len() > 1 {
            cores.split_off(cores.len() - 1)
        } else {
            cores.clone()
        };
        Self {
            subject,
            load: cores,
            store,
        }
    }

    /// One line for the report.
    pub(crate) fn text(&self) -> String {
        let Self { subject, load, store } = self;
        if subject.is_empty() {
            return "not pinned: load, upstream, store and subject share all cores".to_owned();
        }
        let (subject, others) = (list(subject), list(load));
        if store == load {
            format!("subject alone on core {subject}; load, upstream and store share core {others}")
        } else {
            format!(
                "subject alone on core {subject}; store alone on core {}; load and upstream share core {others}",
                list(store)
            )
        }
    }

    /// Threads of the load generator and of the upstream.
    pub(crate) fn load_threads(&self) -> usize {
        self.load.len().clamp(1, LOAD_THREADS_MAX)
    }
}

/// What a reader needs to know to compare figures.
#[derive(Serialize)]
pub(crate) struct Machine {
    cores: usize,
    cpu: String,
    memory_mib: u64,
    kernel: String,
    load_average: String,
    versions: Vec<String>,
    pinning: String,
    nice: i32,
}

impl Machine {
    /// Looks at the machine, and asks the programs that may take part for their versions.
    pub(crate) fn look(cores: &Cores) -> Self {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu = cpu
            .lines()
            .find(|line| line.starts_with("model name"))
            .and_then(|line| line.split_once(": "));
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let memory = memory.lines().find_map(|line| {
            line.strip_prefix("MemTotal:")?
                .split_whitespace()
                .next()?
                .parse::<u64>()
                .ok()
        });
        let mut versions = vec![
            format!("tollgate {}", env!("CARGO_PKG_VERSION")),
            format!("build {PROFILE}"),
        ];
        versions.extend(version("redis-server", "--version"));
        versions.extend(version("nginx", "-v"));
        versions.extend(version("haproxy", "-v"));
        // SAFETY: the call reads one number.
        let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        Self {
            cores: allowed().len(),
            cpu: cpu.map_or_else(|| "unknown".to_owned(), |(_, name)| name.to_owned()),
            memory_mib: memory.unwrap_or_default() / 1024,
            kernel: kernel.trim().to_owned(),
            load_average: fs::read_to_string("/proc/loadavg")
                .unwrap_or_default()
                .trim()
                .to_owned(),
            versions,
            pinning: cores.text(),
            nice,
        }
    }

    /// A few lines for the report.
    pub(crate) fn text(&self) -> String {
        let Self {
            cores,
            cpu,
            memory_mib,
            kernel,
            load_average,
            versions,
            pinning,
            nice,
        } = self;
        let versions = versions.join("; ");
        format!(
            "{cores} cores ({cpu}), {memory_mib} MiB, Linux {kernel}; {versions}\n\
             {pinning}; nice {nice}; load average at the start {load_average}"
        )
    }
}

/// Raises the limit of open files as far as it goes, for this process and those it starts. Returns the limit.
pub(crate) fn raise_open_files(wanted: u64) -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the calls read and write the local; a refusal leaves the limit as it was.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        let hard = limit.rlim_max;
        limit = libc::rlimit {
            rlim_cur: wanted.max(hard),
            rlim_max: wanted.max(hard),
        };
        if libc::setrlimit(libc::RLIMIT_NOFILE, &limit) != 0 {
            limit = libc::rlimit {
                rlim_cur: hard,
                rlim_max: hard,
            };
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
    }
    limit.rlim_cur
}

/// A nice value for this process and those it starts, for as long as this is held.
pub(crate) struct Nice {
    /// What the session's group had before; None where the kernel does not group sessions.
    group: Option<String>,
}

impl Nice {
    /// Sets it. Errors when the privilege is missing.
    pub(crate) fn set(nice: i32) -> Result<Self> {
        // SAFETY: the call takes numbers only.
        if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) } != 0 {
            return Err(format!("cannot set nice {nice}: {}", io::Error::last_os_error()).into());
        }
        // Where sessions are grouped, a nice value weighs within its session only: the group has one of its own.
        let group = fs::read_to_string(AUTOGROUP).ok();
        let group = group.and_then(|text| Some(text.trim().rsplit_once(" nice ")?.1.to_owned()));
        if group.is_some() {
            fs::write(AUTOGROUP, nice.to_string())
                .map_err(|e| format!("cannot set nice {nice} of the session: {e}"))?;
        }
        Ok(Self { group })
    }
}

impl Drop for Nice {
    fn drop(&mut self) {
        if let Some(nice) = &self.group {
            // The kernel limits how often this may be written: a refusal leaves the session as the bench had it.
            fs::write(AUTOGROUP, nice).ok();
        }
    }
}

fn allowed() -> Vec<usize> {
    // SAFETY: all zeroes is the empty set; its size is given; CPU_ISSET checks its bound.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
        (0..usize::try_from(libc::CPU_SETSIZE).unwrap_or(0))
            .filter(|core| libc::CPU_ISSET(*core, &set))
            .collect()
    }
}

/// Whether a program is there to be started.
pub(crate) fn is_installed(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null());
    command.output().is_ok()
}

/// The first line of what a program says about its version. None when it is not installed.
fn version(program: &str, flag: &str) -> Option<String> {
    let output = Command::new(program).arg(flag).output().ok()?;
    // nginx writes it to stderr.
    let text = if output.stdout.is_empty() {
        output.stderr
    } else {
        output.stdout
    };
    String::from_utf8_lossy(&text).lines().next().map(str::to_owned)
}

fn list(cores: &[usize]) -> String {
    cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

const AUTOGROUP: &str = "/proc/self/autogroup";
const LOAD_THREADS_MAX: usize = 4;
const PROFILE: &str = if cfg!(debug_assertions) {
    "without optimisation: figures mean nothing"
} else {
    "optimised"
};
