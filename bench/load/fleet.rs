//! What is put under load: starts each variant with what it needs, and stops it when its value is dropped.

use std::{
    cell::Cell,
    env, fs,
    net::{SocketAddr, ToSocketAddrs},
    path::PathBuf,
    process::Command,
};

use tempfile::TempDir;

use crate::{
    allocator,
    catalogue::{Catalogue, Model},
    cli::{Options, Role, Variant},
    common::Result,
    machine::Cores,
    operator::Operator,
    process::{self, Ending, Process},
};

/// What a request needs to know of where it goes.
#[derive(Clone)]
pub(crate) struct Path {
    /// Value of the Host header.
    pub(crate) host: String,
    /// What stands before `/chat/completions`.
    pub(crate) base: String,
}

/// One thing under load.
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    pub(crate) path: Path,
    /// Keys, one of each account; at least one.
    pub(crate) callers: Vec<String>,
    /// The accounts' names, where it is a gateway of this run.
    pub(crate) accounts: Vec<String>,
    /// Keys that must be refused; none for a pass-through.
    pub(crate) refused: Vec<Refused>,
    /// Models for chat and for embeddings; at least one of each.
    pub(crate) models: Vec<String>,
    pub(crate) embedding_models: Vec<String>,
    /// Whether the simulated upstream is behind it, so that the events of a stream are known.
    pub(crate) is_simulated: bool,
    /// Processes whose CPU and memory are the subject's.
    pub(crate) pids: Vec<u32>,
    /// Processes of its store.
    pub(crate) store_pids: Vec<u32>,
    /// Resident memory before the first request.
    pub(crate) memory_at_start_kib: Option<u64>,
    /// Where operators work.
    pub(crate) operator: Option<Operator>,
    /// What an operator would run to check the books.
    pub(crate) audit: Option<Audit>,
    /// Starts the first of its processes again, after it was killed.
    pub(crate) restart: Option<Restart>,
    /// Held so that they live for as long as the subject.
    pub(crate) processes: Vec<Process>,
}

impl Subject {
    /// Kills its first process with SIGKILL and starts it again. Nothing where that is not known.
    pub(crate) fn kill_and_restart(&mut self) -> Result<()> {
        let Some(restart) = &self.restart else { return Ok(()) };
        // Its port must be free, so it ends first.
        if let Some(process) = self.processes.first_mut() {
            process.kill();
        }
        let process = restart()?;
        self.pids = process.family().to_vec();
        if let Some(first) = self.processes.first_mut() {
            *first = process;
        }
        Ok(())
    }

    /// Resident memory in KiB.
    pub(crate) fn memory_kib(&self) -> Option<u64> {
        let of_each = self.pids.iter().map(|pid| process::resident_kib(*pid));
        of_each.sum::<Option<u64>>().filter(|kib| *kib > 0)
    }

    pub(crate) fn open_files(&self) -> Option<u64> {
        let of_each = self.pids.iter().map(|pid| process::open_files(*pid));
        of_each.sum::<Option<u64>>().filter(|files| *files > 0)
    }

    /// Whether it is a Tollgate of this run, and no pass-through or deployed gateway.
    pub(crate) fn is_gateway(&self) -> bool {
        self.audit.is_some()
    }
}

/// Checks the books of a gateway while it serves. Errors with what does not add up.
pub(crate) type Audit = Box<dyn Fn() -> Result<String> + Send + Sync>;

/// Starts a process as it was started before.
pub(crate) type Restart = Box<dyn Fn() -> Result<Process>>;

/// A key that must be refused, and what is wrong with it.
pub(crate) struct Refused {
    pub(crate) name: &'static str,
    pub(crate) key: String,
}

/// What all subjects share: the upstream, the cores, a directory.
pub(crate) struct Fleet {
    pub(crate) options: Options,
    pub(crate) cores: Cores,
    pub(crate) upstream: SocketAddr,
    models: Vec<String>,
    embedding_models: Vec<String>,
    directory: TempDir,
    process: Process,
    counts: Cell<bool>,
}

impl Fleet {
    /// Starts the simulated upstream, with a directory for what the subjects write inside `options.out`.
    pub(crate) fn start(options: Options, cores: Cores) -> Result<Self> {
        let out = &options.out;
        fs::create_dir_all(out).map_err(|e| format!("cannot create {}: {e}", out.display()))?;
        let out = fs::canonicalize(out)?;
        let directory = tempfile::Builder::new().prefix("run-").tempdir_in(out)?;
        let upstream = process::free_address();
        let mut command = role(Role::Upstream, upstream, cores.load_threads())?;
        if options.busy_poll {
            command.arg("--busy-poll");
        }
        let mut process = Process::start("upstream", command, &cores.load, Ending::Kill, directory.path())?;
        process.wait_listening(upstream)?;
        let catalogue = Catalogue::read()?;
        let ids = |models: Vec<Model>| models.into_iter().map(|model| model.id).collect();
        Ok(Self {
            options,
            cores,
            upstream,
            models: ids(catalogue.chat),
            embedding_models: ids(catalogue.embedding),
            directory,
            process,
            counts: Cell::new(false),
        })
    }

    /// Whether subjects that are launched from now on run under callgrind, which does not count before it is told to.
    pub(crate) fn count_instructions(&self, counts: bool) {
        self.counts.set(counts);
    }

    /// The command that starts a subject.
    pub(crate) fn subject_command(&self, command: Command) -> Command {
        if !self.counts.get() {
            return command;
        }
        let mut counted = Command::new("valgrind");
        let out = self.path().join("callgrind.%p");
        counted
            .args(["--tool=callgrind", "--instr-atstart=no"])
            .arg(format!("--callgrind-out-file={}", out.display()))
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            if let Some(value) = value {
                counted.env(name, value);
            }
        }
        if let Some(directory) = command.get_current_dir() {
            counted.current_dir(directory);
        }
        counted
    }

    pub(crate) fn upstream_pids(&self) -> &[u32] {
        self.process.family()
    }

    /// A gateway that runs already.
    pub(crate) fn deployed(&self, url: &str) -> Result<Subject> {
        let rest = url
            .strip_prefix("http://")
            .ok_or("--against takes an http:// URL; TLS is not spoken by the bench")?;
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let with_port = if host.contains(':') {
            host.to_owned()
        } else {
            format!("{host}:80")
        };
        let address = with_port
            .to_socket_addrs()
            .map_err(|e| format!("cannot resolve {host}: {e}"))?
            .next();
        let path = path.trim_end_matches('/');
        Ok(Subject {
            name: "against".to_owned(),
            address: address.ok_or_else(|| format!("{host} has no address"))?,
            path: Path {
                host: host.to_owned(),
                base: if path.is_empty() {
                    String::new()
                } else {
                    format!("/{path}")
                },
            },
            callers: vec![self.options.key.clone().unwrap_or_default()],
            accounts: Vec::new(),
            refused: Vec::new(),
            models: vec![self.options.model.clone()],
            embedding_models: vec![self.options.embedding_model.clone()],
            is_simulated: false,
            memory_at_start_kib: None,
            pids: self.options.pid.into_iter().collect(),
            store_pids: Vec::new(),
            operator: None,
            audit: None,
            restart: None,
            processes: Vec::new(),
        })
    }

    pub(crate) fn baseline(&self, variant: Variant) -> Result<Subject> {
        let (name, address) = (variant.name(), process::free_address());
        let mut command = role(Role::Baseline, address, self.options.threads)?;
        command.arg("--upstream").arg(self.upstream.to_string());
        if variant == Variant::BaselineJemalloc {
            command.env(allocator::JEMALLOC_ENV, "1");
            command.env(
                "_RJEM_MALLOC_CONF",
                tollgate::ALLOCATOR_OPTIONS.to_string_lossy().as_ref(),
            );
        }
        let command = self.subject_command(command);
        let mut process = Process::start(&name, command, &self.cores.subject, Ending::Kill, self.path())?;
        process.wait_listening(address)?;
        Ok(self.pass_through(&name, address, vec![process]))
    }

    /// A subject that passes on what it gets, so the requests are as the upstream takes them: as many keys and models as a gateway's.
    pub(crate) fn pass_through(&self, name: &str, address: SocketAddr, processes: Vec<Process>) -> Subject {
        let pids: Vec<u32> = processes.iter().flat_map(Process::family).copied().collect();
        let key = |number| format!("{number:x<KEY_LENGTH$}");
        Subject {
            name: name.to_owned(),
            address,
            path: Path {
                host: address.to_string(),
                base: "/api/v1".to_owned(),
            },
            callers: (0..self.options.accounts()).map(key).collect(),
            accounts: Vec::new(),
            refused: Vec::new(),
            models: self.models.clone(),
            embedding_models: self.embedding_models.clone(),
            is_simulated: true,
            memory_at_start_kib: pids.iter().map(|pid| process::resident_kib(*pid)).sum(),
            pids,
            store_pids: Vec::new(),
            operator: None,
            audit: None,
            restart: None,
            processes,
        }
    }

    /// The directory of this run; it goes when the fleet does.
    pub(crate) fn path(&self) -> &std::path::Path {
        self.directory.path()
    }

    /// A new directory of its own for a subject.
    pub(crate) fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = tempfile::Builder::new()
            .prefix(&format!("{name}-"))
            .tempdir_in(self.path())?
            .keep();
        Ok(path)
    }
}

/// This program again, in a role.
fn role(role: Role, listen: SocketAddr, threads: usize) -> Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    let name = if role == Role::Upstream { "upstream" } else { "baseline" };
    command.args([
        "--role",
        name,
        "--listen",
        &listen.to_string(),
        "--threads",
        &threads.to_string(),
    ]);
    Ok(command)
}

/// About what a key has, so that requests to a pass-through are as long.
const KEY_LENGTH: usize = 52;
