//! What the children of a process used, while they live and when they have ended. Redis writes its file anew by such a child, which may take
//! longer than a round: what it used counts in the round in which it used it.

use std::fs;

use crate::process::{self, Switches, Ticks};

/// What children used since they began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    /// CPU time, of those that ended too.
    pub(crate) ns: u64,
    /// Of those that live: the kernel keeps none of the others.
    pub(crate) switches: Switches,
}

impl Spent {
    /// By the children of these processes that are not among them.
    pub(crate) fn by_children_of(pids: &[u32]) -> Self {
        let of_one = |pid: &u32| {
            settled(
                || Ticks::read_of_children(*pid).unwrap_or_default().ns(),
                || living(*pid, pids),
            )
        };
        pids.iter().map(of_one).fold(Self::default(), Self::and)
    }

    fn and(self, other: Self) -> Self {
        Self {
            ns: self.ns + other.ns,
            switches: self.switches.and(other.switches),
        }
    }
}

/// What those used that `ended`, which their parent is charged with when it waits for them, and those that are `living`. One that ends
/// between the two looks would count twice, or not at all: then both are looked at again.
pub(crate) fn settled(mut ended: impl FnMut() -> u64, mut living: impl FnMut() -> Spent) -> Spent {
    let mut before = ended();
    for _ in 0..LOOKS_MAX {
        let living = living();
        let after = ended();
        if after == before {
            return Spent {
                ns: after + living.ns,
                ..living
            };
        }
        before = after;
    }
    // They end all the time, so none of them has used much yet.
    Spent {
        ns: before,
        ..Spent::default()
    }
}

fn living(pid: u32, known: &[u32]) -> Spent {
    let used = |child: u32| {
        Some(Spent {
            ns: process::cpu_ns(child)?,
            switches: Switches::read(child).unwrap_or_default(),
        })
    };
    let others = of(pid).into_iter().filter(|child| !known.contains(child));
    others.filter_map(used).fold(Spent::default(), Spent::and)
}

/// The processes that `pid` is the parent of.
pub(crate) fn of(pid: u32) -> Vec<u32> {
    let child = |entry: fs::DirEntry| {
        let other: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        (parent(&stat)? == pid).then_some(other)
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(child).collect()
}

/// The parent that a `/proc/PID/stat` names.
fn parent(stat: &str) -> Option<u32> {
    process::after_name(stat)?.split_whitespace().nth(1)?.parse().ok()
}

const LOOKS_MAX: usize = 5;
