//! Redis servers that belong together, for tests: a cluster, and a master with a replica under Sentinels. Real processes.

use std::process::{Child, Command, Stdio};

use super::redis_server::{RedisServer, answers, ask, free_port, is_process, until};

/// A cluster: some masters with equal parts of the slots, and perhaps a replica of the first of them.
#[derive(Debug)]
pub(crate) struct RedisCluster {
    masters: Vec<RedisServer>,
    replica: Option<RedisServer>,
}

impl RedisCluster {
    /// Three masters, none of which takes another one for failed because a busy machine has stopped it for a while: else all would refuse
    /// calls meanwhile.
    pub(crate) fn start() -> RedisCluster {
        RedisCluster::formed(PATIENT_MS, false)
    }

    /// Three masters, the first of which has a replica that is up to date, and takes over soon after the master has failed.
    pub(crate) fn start_with_replica() -> RedisCluster {
        RedisCluster::formed(BRISK_MS, true)
    }

    /// One whose nodes take a node for failed that is silent for so long.
    fn formed(silence_ms: &str, has_replica: bool) -> RedisCluster {
        let node = || cluster_node(silence_ms);
        let cluster = RedisCluster {
            masters: (0..MASTERS).map(|_| node()).collect(),
            replica: has_replica.then(node),
        };
        let bear_silence_for = |ms: &str| {
            for node in cluster.all() {
                good(node, &format!("CONFIG SET cluster-node-timeout {ms}"));
            }
        };
        // The shorter it is, the oftener they ask each other, and the sooner they know each other.
        bear_silence_for(BRISK_MS);
        for (n, master) in (0..).zip(&cluster.masters) {
            let (first, last) = (SLOTS * n / MASTERS, SLOTS * (n + 1) / MASTERS - 1);
            good(master, &format!("CLUSTER ADDSLOTSRANGE {first} {last}"));
            good(master, &format!("CLUSTER SET-CONFIG-EPOCH {}", n + 1));
        }
        let first = cluster.master(0);
        for node in cluster.all().skip(1) {
            let bus = node.ask("CONFIG GET cluster-port").last().cloned().unwrap_or_default();
            good(first, &format!("CLUSTER MEET 127.0.0.1 {} {bus}", node.port()));
        }
        let count = cluster.all().count();
        let known = format!("cluster_known_nodes:{count}");
        until("all nodes know each other", || {
            cluster.all().all(|node| says(node, "CLUSTER INFO", &known))
        });
        if let Some(replica) = &cluster.replica {
            let id = id(first);
            until("the replica follows", || {
                replica.ask(&format!("CLUSTER REPLICATE {id}")) == ["+OK"]
            });
            until("the replica is up to date", || follows(replica));
            // A master votes only for a replica that it knows as such.
            let line = format!(" slave {id} ");
            let knows = |node: &RedisServer| node.ask("CLUSTER NODES").iter().any(|node| node.contains(&line));
            until("all masters know it", || cluster.masters.iter().all(knows));
        }
        until("the cluster serves", || {
            cluster.all().all(|node| says(node, "CLUSTER INFO", "cluster_state:ok"))
        });
        bear_silence_for(silence_ms);
        cluster
    }

    /// Its address, as the configuration writes it.
    pub(crate) fn url(&self) -> String {
        let nodes: Vec<String> = self.all().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis+cluster://{}", nodes.join(","))
    }

    /// One of its masters.
    pub(crate) fn master(&self, n: usize) -> &RedisServer {
        &self.masters[n]
    }

    /// The replica.
    pub(crate) fn replica(&self) -> &RedisServer {
        self.replica.as_ref().expect("a replica")
    }

    /// Has each master serve its slots whatever becomes of the others.
    pub(crate) fn serve_what_is_left(&self) {
        for master in &self.masters {
            good(master, "CONFIG SET cluster-require-full-coverage no");
        }
    }

    /// The master of an account when the cluster was formed.
    pub(crate) fn master_of(&self, account: &str) -> usize {
        self.first_owner(self.slot(&format!("tg1:{{{account}}}")))
    }

    /// Kills the first master, as `kill -9` does.
    pub(crate) fn kill_first(&mut self) {
        self.masters[0].kill();
    }

    /// Kills the first master and starts it again, with what it has on disk.
    pub(crate) fn restart_first(&mut self) {
        self.masters[0].restart();
    }

    /// Takes the first master out of the cluster, which goes on by itself. It has no keys; the second one gets its slots.
    pub(crate) fn first_leaves(&self) {
        let (first, id) = (self.master(0), id(self.master(0)));
        good(first, "CLUSTER RESET");
        let others = || self.masters.iter().skip(1);
        for node in others() {
            good(node, &format!("CLUSTER FORGET {id}"));
        }
        good(
            self.master(1),
            &format!("CLUSTER ADDSLOTSRANGE 0 {}", SLOTS / MASTERS - 1),
        );
        until("the others have all slots", || {
            others().all(|node| says(node, "CLUSTER INFO", "cluster_slots_assigned:16384"))
        });
    }

    /// The slot of a key.
    pub(crate) fn slot(&self, key: &str) -> u64 {
        let answer = self.master(0).ask(&format!("CLUSTER KEYSLOT {key}"));
        answer[0].trim_start_matches(':').parse().expect("a slot")
    }

    /// The master of a slot when the cluster was formed.
    pub(crate) fn first_owner(&self, slot: u64) -> usize {
        let ends = (1..=MASTERS).map(|n| SLOTS * n / MASTERS);
        ends.take_while(|end| *end <= slot).count()
    }

    /// Opens a slot's way from one master to another: from here on the keys it lacks are asked for (ASK).
    pub(crate) fn open_slot(&self, slot: u64, from: usize, to: usize) {
        let (source, target) = (self.master(from), self.master(to));
        good(target, &format!("CLUSTER SETSLOT {slot} IMPORTING {}", id(source)));
        good(source, &format!("CLUSTER SETSLOT {slot} MIGRATING {}", id(target)));
    }

    /// Moves a key of the slot, if it is there.
    pub(crate) fn move_key(&self, key: &str, from: usize, to: usize) {
        let port = self.master(to).port();
        let moved = self.master(from).ask(&format!("MIGRATE 127.0.0.1 {port} {key} 0 5000"));
        assert!(moved == ["+OK"] || moved == ["+NOKEY"], "{moved:?}");
    }

    /// Gives the slot to its new master: from here on the old one answers MOVED.
    pub(crate) fn close_slot(&self, slot: u64, to: usize) {
        // A master that has keys of a slot lets go of it only when it has heard of the new one before.
        let from = self.first_owner(slot);
        let keys = self.master(from).ask(&format!("CLUSTER GETKEYSINSLOT {slot} 1000"));
        for key in keys.iter().filter(|line| line.starts_with("tg1:")) {
            self.move_key(key, from, to);
        }
        let owner = id(self.master(to));
        let others = self.masters.iter().enumerate().filter(|(n, _)| *n != to);
        for node in std::iter::once(self.master(to)).chain(others.map(|(_, node)| node)) {
            good(node, &format!("CLUSTER SETSLOT {slot} NODE {owner}"));
        }
    }

    /// How often its masters have answered an error of this kind.
    pub(crate) fn errors(&self, kind: &str) -> u64 {
        let prefix = format!("errorstat_{kind}:count=");
        let count = |line: String| line.strip_prefix(&prefix).and_then(|count| count.parse::<u64>().ok());
        let of_node = |node: &RedisServer| node.ask("INFO errorstats").into_iter().find_map(count).unwrap_or(0);
        self.masters.iter().map(of_node).sum()
    }

    fn all(&self) -> impl Iterator<Item = &RedisServer> {
        self.masters.iter().chain(&self.replica)
    }
}

/// A master and its replica, watched by three Sentinels.
#[derive(Debug)]
pub(crate) struct RedisUnderSentinels {
    master: RedisServer,
    replica: RedisServer,
    sentinels: Vec<Sentinel>,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Sentinel {
    port: u16,
    process: Child,
    _folder: tempfile::TempDir,
}

impl RedisUnderSentinels {
    /// A master, a replica that is up to date, and three Sentinels that know both and each other.
    pub(crate) fn start() -> RedisUnderSentinels {
        let master = RedisServer::start_with(&MEMORY_ONLY);
        let replica = RedisServer::start_with(&MEMORY_ONLY);
        good(&replica, &format!("REPLICAOF 127.0.0.1 {}", master.port()));
        until("the replica is up to date", || follows(&replica));
        let sentinels: Vec<Sentinel> = (0..3).map(|_| Sentinel::start(master.port(), "")).collect();
        until("the Sentinels know each other and the replica", || {
            sentinels.iter().all(|sentinel| {
                let facts = ask(sentinel.port, "SENTINEL MASTER mymaster");
                let fact = |name: &str| facts.iter().skip_while(|line| *line != name).nth(2).cloned();
                fact("num-slaves").as_deref() == Some("1") && fact("num-other-sentinels").as_deref() == Some("2")
            })
        });
        RedisUnderSentinels {
            master,
            replica,
            sentinels,
        }
    }

    /// Their address, as the configuration writes it.
    pub(crate) fn url(&self) -> String {
        let nodes: Vec<String> = self.sentinels.iter().map(|s| format!("127.0.0.1:{}", s.port)).collect();
        format!("redis+sentinel://{}/mymaster", nodes.join(","))
    }

    /// Leaves the replica behind: what the master takes from now on does not reach it.
    pub(crate) fn starve_replica(&self) {
        self.replica.freeze();
        let cut = self.master.ask("CLIENT KILL TYPE replica");
        assert_eq!(cut, [":1"], "the master had one replica");
    }

    /// Lets the replica go on where it was left.
    pub(crate) fn thaw_replica(&self) {
        self.replica.thaw();
    }

    /// Makes the first Sentinel hang.
    pub(crate) fn freeze_first_sentinel(&self) {
        let id = self.sentinels[0].process.id().to_string();
        let sent = Command::new("kill").args(["-STOP", &id]).status();
        assert!(sent.is_ok_and(|status| status.success()));
    }

    /// Ends the connections of the master's clients.
    pub(crate) fn disconnect_clients(&self) {
        let ended = self.master.ask("CLIENT KILL TYPE normal SKIPME yes");
        assert_ne!(ended, [":0"], "the master had clients");
    }

    /// Kills the master, as `kill -9` does.
    pub(crate) fn kill_master(&mut self) {
        self.master.kill();
    }

    /// Whether the replica has become the master.
    pub(crate) fn replica_leads(&self) -> bool {
        says(&self.replica, "INFO replication", "role:master")
    }
}

impl Sentinel {
    /// One that watches the master at this port, with these lines in its configuration beside the usual ones.
    pub(crate) fn start(master: u16, more: &str) -> Sentinel {
        for _ in 0..20 {
            let (port, folder) = (free_port(), tempfile::tempdir().expect("a folder for a Sentinel"));
            let conf = folder.path().join("sentinel.conf");
            let text = format!(
                "{more}port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor mymaster 127.0.0.1 {master} 2\n\
                 sentinel down-after-milliseconds mymaster 3000\nsentinel failover-timeout mymaster 2000\n",
                folder.path().display()
            );
            std::fs::write(&conf, text).expect("the Sentinel's configuration");
            let process = Command::new("redis-server")
                .arg(&conf)
                .arg("--sentinel")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            let mut sentinel = Sentinel {
                port,
                process: process.expect("redis-server can be started"),
                _folder: folder,
            };
            let mut ended = false;
            until("the Sentinel answers or ends", || {
                ended = !matches!(sentinel.process.try_wait(), Ok(None));
                ended || answers(port)
            });
            // Another test's server may have the same port.
            if !ended && is_process(port, sentinel.process.id()) {
                return sentinel;
            }
        }
        panic!("no Sentinel starts");
    }
}

impl Sentinel {
    /// Its address, as the configuration writes it.
    pub(crate) fn url(&self) -> String {
        format!("redis+sentinel://127.0.0.1:{}/mymaster", self.port)
    }

    /// Has it name the server at this port from now on. The master before knows nothing of that, as one that was cut off.
    pub(crate) fn names(&self, master: u16) {
        for command in ["REMOVE mymaster", &format!("MONITOR mymaster 127.0.0.1 {master} 2")] {
            assert_eq!(ask(self.port, &format!("SENTINEL {command}")), ["+OK"], "{command}");
        }
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.process.kill().expect("a Sentinel can be killed");
        self.process.wait().expect("a Sentinel has ended");
    }
}

fn cluster_node(silence_ms: &str) -> RedisServer {
    let bus = free_port().to_string();
    let cluster = [
        "--cluster-enabled",
        "yes",
        "--cluster-node-timeout",
        silence_ms,
        "--cluster-port",
        &bus,
    ];
    RedisServer::start_with(&[&MEMORY_ONLY[..], &cluster[..]].concat())
}

fn id(node: &RedisServer) -> String {
    node.ask("CLUSTER MYID").remove(1)
}

fn says(node: &RedisServer, command: &str, line: &str) -> bool {
    node.ask(command).iter().any(|said| said == line)
}

/// Whether a replica has all that its master has.
fn follows(replica: &RedisServer) -> bool {
    says(replica, "INFO replication", "master_link_status:up")
}

fn good(node: &RedisServer, command: &str) {
    let answer = node.ask(command);
    assert_eq!(answer, ["+OK"], "{command}");
}

/// Nothing on disk, and a replica that is fed at once.
const MEMORY_ONLY: [&str; 8] = [
    "--save",
    "",
    "--appendonly",
    "no",
    "--repl-diskless-sync-delay",
    "0",
    "--repl-ping-replica-period",
    "1",
];

/// How long a node of a cluster is silent until others take it for failed, in milliseconds: where a fail-over is waited for, and elsewhere.
const BRISK_MS: &str = "1500";
const PATIENT_MS: &str = "15000";
const MASTERS: u64 = 3;
const SLOTS: u64 = 16_384;
