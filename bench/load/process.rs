//! Child processes and what the kernel knows about any process: CPU time to the nanosecond and in which mode, memory, open files.
//!
//! A child is killed when its handle is dropped, and by the kernel when the bench dies first.

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{children, common::Result};

#[path = "../../tests/support/ports.rs"]
#[expect(clippy::expect_used, reason = "a bench that finds no port cannot go on")]
mod ports;

/// How a child is asked to end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// At once.
    Kill,
    /// By SIGTERM, so that it can end children of its own.
    Terminate,
}

/// A child process, alive for as long as this value.
pub(crate) struct Process {
    name: String,
    child: Child,
    ending: Ending,
    log: PathBuf,
    family: Vec<u32>,
}

impl Process {
    /// Starts `command` on `cores` (anywhere when empty), its output in `<dir>/<name>.log`.
    pub(crate) fn start(name: &str, mut command: Command, cores: &[usize], ending: Ending, dir: &Path) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let output = fs::File::create(&log).map_err(|e| format!("cannot write {}: {e}", log.display()))?;
        let errors = output
            .try_clone()
            .map_err(|e| format!("cannot write {}: {e}", log.display()))?;
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let set = cpu_set(cores);
        let signal = if ending == Ending::Kill {
            libc::SIGKILL
        } else {
            libc::SIGTERM
        };
        // SAFETY: between fork and exec only three system calls are made; they allocate nothing and take no lock.
        unsafe {
            command.pre_exec(move || {
                if libc::prctl(libc::PR_SET_PDEATHSIG, signal) != 0 {
                    return Err(io::Error::last_os_error());
                }
                // strace is no parent of it, and may need to be let. A kernel without that rule knows no such call.
                libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY);
                set.as_ref().map_or(Ok(()), pin)
            });
        }
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().map_err(|e| format!("cannot start {program}: {e}"))?;
        let family = vec![child.id()];
        Ok(Self {
            name: name.to_owned(),
            child,
            ending,
            log,
            family,
        })
    }

    /// Waits until the child accepts connections at `address`. Errors with the end of its output when it ended, or when
    /// it took too long.
    pub(crate) fn wait_listening(&mut self, address: SocketAddr) -> Result<()> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Err(format!("{} ended at once ({status}){}", self.name, self.last_words()).into());
            }
            if TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok() {
                let own = self.child.id();
                self.family = [vec![own], children::of(own)].concat();
                return Ok(());
            }
            if begun.elapsed() > START_TIMEOUT {
                return Err(format!("{} does not listen on {address}{}", self.name, self.last_words()).into());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The process and the children it had when it was ready, as nginx has them.
    pub(crate) fn family(&self) -> &[u32] {
        &self.family
    }

    /// Ends it at once, and waits until it has.
    pub(crate) fn kill(&mut self) {
        // Errors mean that it has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }

    /// Lets it end by itself, as an operator would stop it.
    pub(crate) fn terminate(mut self) {
        self.ending = Ending::Terminate;
    }

    fn last_words(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: Vec<&str> = text.trim().lines().rev().take(3).collect();
        if lines.is_empty() {
            String::new()
        } else {
            format!(": {}", lines.into_iter().rev().collect::<Vec<_>>().join(" | "))
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ending == Ending::Terminate {
            // SAFETY: the child has not been waited for, so its id is still its own.
            unsafe { libc::kill(self.child.id().cast_signed(), libc::SIGTERM) };
            let begun = Instant::now();
            while begun.elapsed() < STOP_TIMEOUT {
                if matches!(self.child.try_wait(), Ok(Some(_))) {
                    return;
                }
                thread::sleep(Duration::from_millis(10));
            }
        }
        self.kill();
    }
}

/// Runs `command` to its end and returns what it wrote. Errors with its own words when it fails or takes too long.
pub(crate) fn run(command: Command) -> Result<String> {
    run_within(START_TIMEOUT, command)
}

/// The same for a command that may take longer.
pub(crate) fn run_within(most: Duration, mut command: Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let shown = command
        .get_args()
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("cannot start {program}: {e}"))?;
    let begun = Instant::now();
    // What these commands print fits a pipe's buffer, so waiting before reading cannot block them.
    while child.try_wait()?.is_none() {
        if begun.elapsed() > most {
            child.kill().ok();
            child.wait().ok();
            return Err(format!("`{program} {shown}` did not end within {most:?}").into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{program} {shown}` failed: {}", errors.trim()).into())
}

/// An address that nothing listens on, for a subject. A subject listens there seconds later, and again after each kill of the soak: no
/// connection, of which the load makes thousands, is given its port meanwhile, nor is a test.
pub(crate) fn free_address() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free_port()))
}

/// CPU time of a process since its start in nanoseconds, threads that ended included. None when it is gone.
pub(crate) fn cpu_ns(pid: u32) -> Option<u64> {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both calls only write to the two locals.
    let read = unsafe {
        libc::clock_getcpuclockid(pid.cast_signed(), &mut clock) == 0 && libc::clock_gettime(clock, &mut time) == 0
    };
    if read { nanoseconds(time) } else { schedstat_ns(pid) }
}

/// The same from /proc, without threads that ended.
fn schedstat_ns(pid: u32) -> Option<u64> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    tasks
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("schedstat")).ok())
        .map(|text| first_number(&text))
        .sum()
}

/// CPU time of a process since its start, by the mode the processor was in, in clock ticks, threads that ended included. None when it is
/// gone.
///
/// Where the kernel looks at the mode only when its timer ticks (`CONFIG_TICK_CPU_ACCOUNTING`), so often a second as it is built for, the
/// split is a sample: it tells shares of seconds, and nothing of a millisecond.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Ticks {
    pub(crate) user: u64,
    pub(crate) kernel: u64,
}

impl Ticks {
    /// Of a process.
    pub(crate) fn read(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?, ITSELF)
    }

    /// Of the children of a process that have ended and were waited for, such as those by which Redis writes its file anew.
    pub(crate) fn read_of_children(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?, CHILDREN)
    }

    /// Of a text as `/proc/PID/stat` has it (proc_pid_stat(5)): the 14th field and the 15th, or those of the children.
    pub(crate) fn parse(stat: &str, first: usize) -> Option<Self> {
        let mut fields = after_name(stat)?.split_whitespace().skip(first - FIELDS_BEFORE);
        let mut next = || fields.next()?.parse().ok();
        Some(Self {
            user: next()?,
            kernel: next()?,
        })
    }

    /// Of several together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            user: self.user + other.user,
            kernel: self.kernel + other.kernel,
        }
    }

    /// Both together.
    pub(crate) fn ns(self) -> u64 {
        (self.user + self.kernel) * tick_ns()
    }

    /// The kernel's share of what was spent since `before`. None when nothing was.
    pub(crate) fn kernel_share_since(self, before: Self) -> Option<f64> {
        let user = self.user.saturating_sub(before.user);
        let kernel = self.kernel.saturating_sub(before.kernel);
        let all = user + kernel;
        (all > 0).then(|| kernel as f64 / all as f64)
    }
}

/// How often the threads of a process stopped running: because they waited, or because the kernel gave their core to others.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Switches {
    pub(crate) voluntary: u64,
    pub(crate) forced: u64,
}

impl Switches {
    /// Of the threads that a process has. None when it is gone.
    pub(crate) fn read(pid: u32) -> Option<Self> {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        let of_task =
            |task: io::Result<fs::DirEntry>| Self::parse(&fs::read_to_string(task.ok()?.path().join("status")).ok()?);
        Some(tasks.filter_map(of_task).fold(Self::default(), Self::and))
    }

    /// Of a text as `/proc/PID/status` has it.
    pub(crate) fn parse(status: &str) -> Option<Self> {
        let of = |name: &str| first_number(status.lines().find_map(|line| line.strip_prefix(name))?);
        Some(Self {
            voluntary: of("voluntary_ctxt_switches:")?,
            forced: of("nonvoluntary_ctxt_switches:")?,
        })
    }

    /// Of several together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            voluntary: self.voluntary + other.voluntary,
            forced: self.forced + other.forced,
        }
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            voluntary: self.voluntary.saturating_sub(before.voluntary),
            forced: self.forced.saturating_sub(before.forced),
        }
    }
}

/// Nanoseconds of a clock tick.
pub(crate) fn tick_ns() -> u64 {
    // SAFETY: the call reads one number.
    let a_second = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) });
    1_000_000_000 / a_second.unwrap_or(100).max(1)
}

/// CPU time of several processes together.
pub(crate) fn cpu_ns_of(pids: &[u32]) -> u64 {
    pids.iter().filter_map(|pid| cpu_ns(*pid)).sum()
}

/// CPU time of several processes together, by mode.
pub(crate) fn cpu_ticks_of(pids: &[u32]) -> Ticks {
    let ticks = pids.iter().filter_map(|pid| Ticks::read(*pid));
    ticks.fold(Ticks::default(), Ticks::and)
}

/// Resident memory of a process in KiB. None when it is gone.
pub(crate) fn resident_kib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    first_number(status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?)
}

/// Open files of a process. None when it is gone.
pub(crate) fn open_files(pid: u32) -> Option<u64> {
    u64::try_from(fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count()).ok()
}

/// Nanoseconds of a clock that all processes of the machine share.
pub(crate) fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call only writes to the local.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    nanoseconds(time).unwrap_or_default()
}

/// Puts the calling thread, and those it starts, on `cores` (anywhere when empty).
pub(crate) fn pin_here(cores: &[usize]) -> Result<()> {
    cpu_set(cores)
        .as_ref()
        .map_or(Ok(()), pin)
        .map_err(|e| format!("cannot pin to cores {cores:?}: {e}").into())
}

fn pin(set: &libc::cpu_set_t) -> io::Result<()> {
    // SAFETY: the set is initialised and its size is given.
    let done = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn cpu_set(cores: &[usize]) -> Option<libc::cpu_set_t> {
    if cores.is_empty() {
        return None;
    }
    // SAFETY: all zeroes is the empty set; CPU_SET checks its bound.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for core in cores {
            libc::CPU_SET(*core, &mut set);
        }
        Some(set)
    }
}

/// The fields of a `/proc/PID/stat` from the third on: the name, the second, stands in parentheses and may hold anything.
pub(crate) fn after_name(stat: &str) -> Option<&str> {
    Some(stat.rsplit_once(')')?.1)
}

fn nanoseconds(time: libc::timespec) -> Option<u64> {
    u64::try_from(time.tv_sec)
        .ok()?
        .checked_mul(1_000_000_000)?
        .checked_add(u64::try_from(time.tv_nsec).ok()?)
}

fn first_number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

/// Where a process' own times stand in its `stat`, and those of its children.
pub(crate) const ITSELF: usize = 14;
pub(crate) const CHILDREN: usize = 16;
/// The number, the name and what [`after_name`] begins with, which is counted from 1.
const FIELDS_BEFORE: usize = 3;
const START_TIMEOUT: Duration = Duration::from_secs(30);
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
