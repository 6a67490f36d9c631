//! What strace, callgrind and the kernel say of a process.

use crate::{
    instructions,
    machine::Cores,
    process::{self, CHILDREN, ITSELF, Switches, Ticks},
    provenance, syscalls,
};

#[test]
fn the_summary_of_strace_is_read() {
    let summary = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ------------------
 61.06    0.151243          12     12345           sendto
 38.94    0.096458           7     13000      1200 recvfrom
  0.00    0.000000           0         1           restart_syscall
------ ----------- ----------- --------- --------- ------------------
100.00    0.247701           9     25346      1200 total
";
    let calls = [("sendto", 12_345), ("recvfrom", 13_000), ("restart_syscall", 1)];
    assert_eq!(syscalls::parse(summary), calls.map(|(name, n)| (name.to_owned(), n)));
    assert_eq!(syscalls::parse("strace: Process 7 detached\n"), []);
}

#[test]
fn a_dump_of_callgrind_is_read() {
    let dump = "\
version: 1
events: Ir I1mr D1mr D1mw
fn=(1) tollgate::gateway::call
10 100 1 2 3
+1 50
cfn=(2) httparse::Request::parse_with_config
calls=4 20
12 4000 9 9 9
fn=(2)
20 3000
fn=(3) memcpy
* 7 0 1
fn=(1)
cfn=(3)
calls=2 0
-3 14
15 5
totals: 3162
";
    let (requests, parts) = instructions::read(dump);
    assert_eq!(requests, 4);
    let of = |part: &str| parts[part].instructions;
    // What a call costs inclusively is its callee's own and is not counted twice.
    assert_eq!((of("gateway's hooks"), of("heads"), of("copies")), (155, 3000, 7));
    let hooks = parts["gateway's hooks"];
    assert_eq!((hooks.code_misses, hooks.data_misses, hooks.last_misses), (1, 5, 0));
    assert_eq!(parts.len(), 3);
}

#[test]
fn times_of_a_process_and_of_its_children_are_read() {
    let stat = "4711 (redis) (server) S 1 4711 4711 0 -1 4194560 900 80 0 0 250 125 30 12 20 0 5 0 100 0";
    assert_eq!(Ticks::parse(stat, ITSELF), Some(Ticks { user: 250, kernel: 125 }));
    assert_eq!(Ticks::parse(stat, CHILDREN), Some(Ticks { user: 30, kernel: 12 }));
    let later = Ticks { user: 250, kernel: 225 };
    assert_eq!(later.kernel_share_since(Ticks { user: 250, kernel: 125 }), Some(1.0));
    assert_eq!(later.kernel_share_since(later), None);
    assert_eq!(Ticks { user: 2, kernel: 1 }.ns(), 3 * process::tick_ns());
    for bad in [
        "",
        "4711 (x",
        "4711 (x) S 1 2 3",
        "4711 (x) S 1 4711 4711 0 -1 4194560 900 80 0 0 x 125 30 12",
    ] {
        assert_eq!(Ticks::parse(bad, ITSELF), None, "{bad}");
    }
}

#[test]
fn this_process_has_used_its_processor() {
    let own = std::process::id();
    let before = process::cpu_ns(own).unwrap();
    let sum = (0..3_000_000_u64).fold(0, |sum, n| sum ^ std::hint::black_box(n));
    assert!(process::cpu_ns(own).unwrap() > before, "{sum}");
    assert!(process::resident_kib(own).unwrap() > 1000);
    assert!(process::open_files(own).unwrap() > 2);
    assert!(Ticks::read(own).is_some() && Ticks::read_of_children(own).is_some());
    let nobody = u32::MAX - 1;
    assert_eq!(
        (
            Ticks::read(nobody),
            Switches::read(nobody),
            process::resident_kib(nobody)
        ),
        (None, None, None)
    );
}

#[test]
fn context_switches_are_read() {
    let status = "Name:\tredis\nThreads:\t5\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n";
    let switches = Switches {
        voluntary: 150,
        forced: 545,
    };
    assert_eq!(Switches::parse(status), Some(switches));
    assert_eq!(Switches::parse("Name:\tredis\n"), None);
    let twice = switches.and(switches);
    assert_eq!(twice.since(switches), switches);
}

#[test]
fn cores_are_shared_out() {
    let of = |cores: &[usize], threads| {
        let Cores { subject, load, store } = Cores::of(cores.to_vec(), threads);
        (subject, load, store)
    };
    assert_eq!(of(&[0], 1), (vec![], vec![], vec![]));
    assert_eq!(of(&[0, 1], 1), (vec![1], vec![0], vec![0]));
    assert_eq!(of(&[0, 1, 5], 1), (vec![5], vec![0], vec![1]));
    assert_eq!(
        of(&[0, 1, 2, 3, 4, 5, 6, 7], 2),
        (vec![6, 7], vec![0, 1, 2, 3, 4], vec![5])
    );
    assert_eq!(of(&[0, 1], 2), (vec![], vec![], vec![]));
}

#[test]
fn a_date_is_written_for_people() {
    let at = |seconds| provenance::date(time::OffsetDateTime::from_unix_timestamp(seconds).unwrap());
    assert_eq!(at(0), "1970-01-01 00:00 UTC");
    assert_eq!(at(1_795_598_940), "2026-11-25 09:29 UTC");
}
