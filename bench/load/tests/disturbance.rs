//! What others did while a round was measured.

use crate::{
    children::Spent,
    disturbance::{Counted, Repeats, Turn, runnable, told},
    process::Switches,
};

const STAT: &str = "cpu  100 20 30 5000 40 1 2 7 90 0\ncpu0 50 10 15 2500 20 0 1 3 45 0\nintr 5 0\nctxt 98765\nprocs_running 3\nprocs_blocked 0\n";
const PRESSURE: &str =
    "some avg10=0.00 avg60=2.02 avg300=5.34 total=48251307\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";

#[test]
fn the_kernels_counts_are_read() {
    let counted = Counted::parse(STAT, Some(PRESSURE), 10).unwrap();
    // Without idle and waiting for disks, and without the time of guests, which is in the users' already.
    assert_eq!(counted.busy_ns, (100 + 20 + 30 + 1 + 2) * 10);
    assert_eq!((counted.steal_ns, counted.switches), (70, 98_765));
    assert_eq!(counted.waited_us, Some(48_251_307));
    assert_eq!(Counted::parse(STAT, None, 10).unwrap().waited_us, None);
    for bad in [
        "",
        "cpu  1 2 3",
        "cpu  1 2 3 4 5 6 7 x\nctxt 1\n",
        "cpu  1 2 3 4 5 6 7 8\n",
    ] {
        assert_eq!(Counted::parse(bad, None, 10), None, "{bad:?}");
    }
}

#[test]
fn this_machine_is_read() {
    let counted = Counted::read(&[std::process::id()], Spent::default()).unwrap();
    assert!(counted.busy_ns > 0 && counted.switches > 0 && counted.own_ns > 0);
    // What children used is the bench's own too.
    let children = Spent {
        ns: 7,
        switches: Switches {
            voluntary: 1,
            forced: 2,
        },
    };
    let of_children = Counted::read(&[], children).unwrap();
    assert_eq!(
        (of_children.own_ns, of_children.children_switches),
        (7, children.switches)
    );
    assert!(runnable().unwrap() >= 1);
}

fn quiet() -> (Counted, Counted) {
    let begin = Counted::default();
    let end = Counted {
        busy_ns: 1_500_000_000,
        own_ns: 1_480_000_000,
        switches: 9_000,
        own_switches: Switches {
            voluntary: 4_000,
            forced: 100,
        },
        waited_us: Some(400_000),
        ..begin
    };
    (
        Counted {
            waited_us: Some(0),
            ..begin
        },
        end,
    )
}

#[test]
fn a_quiet_round_counts() {
    let (begin, end) = quiet();
    let disturbance = begin.until(end, 1.0, &[2, 3, 4]);
    assert!((disturbance.others_cores - 0.02).abs() < 1e-9);
    assert!((disturbance.others_switches - 800.0).abs() < 1e-9);
    assert_eq!((disturbance.runnable, disturbance.waited_share), (Some(3.0), Some(0.4)));
    assert_eq!(disturbance.reasons(3), Vec::<&str>::new());
}

#[test]
fn switches_of_a_child_are_not_those_of_others_also_where_it_has_ended() {
    let (begin, end) = quiet();
    let child = Switches {
        voluntary: 100,
        forced: 200,
    };
    let with = |counted: Counted| Counted {
        children_switches: child,
        ..counted
    };
    let others = |begin: Counted, end: Counted| begin.until(end, 1.0, &[]).others_switches;
    assert!((others(begin, with(end)) - 200.0).abs() < 1e-9);
    assert!((others(with(begin), end) - 800.0).abs() < 1e-9);
}

#[test]
fn each_kind_of_disturbance_is_named() {
    let (begin, end) = quiet();
    let cases: [(&str, Counted, &[u64]); 4] = [
        (
            "others' CPU",
            Counted {
                busy_ns: 1_700_000_000,
                ..end
            },
            &[],
        ),
        (
            "steal",
            Counted {
                steal_ns: 50_000_000,
                ..end
            },
            &[],
        ),
        (
            "others' context switches",
            Counted {
                switches: 20_000,
                ..end
            },
            &[],
        ),
        ("run queue", end, &[5, 5, 6]),
    ];
    for (reason, end, runnable) in cases {
        assert_eq!(begin.until(end, 1.0, runnable).reasons(3), [reason]);
    }
}

/// A round in which each of two subjects had its turn.
fn turns(baseline: &[&'static str], redis: &[&'static str]) -> [Turn; 2] {
    [("baseline", baseline), ("redis", redis)].map(|(subject, reasons)| Turn {
        subject: subject.to_owned(),
        reasons: reasons.to_vec(),
    })
}

#[test]
fn disturbed_rounds_are_measured_again_but_not_for_ever() {
    let mut repeats = Repeats::default();
    assert!(!repeats.again(&turns(&[], &[]), 1, 2));
    assert_eq!(repeats.text(), "1 rounds; the machine disturbed none.");
    assert!(repeats.again(&turns(&["steal"], &[]), 1, 2));
    let both = turns(&["others' CPU", "steal"], &["steal"]);
    assert_eq!(told(&both), "others' CPU, steal (baseline); steal (redis)");
    assert!(repeats.again(&both, 2, 2));
    // As many as there are rounds.
    assert!(!repeats.again(&turns(&[], &["steal"]), 3, 2));
    assert_eq!(
        repeats.text(),
        "2 rounds; 2 more were disturbed and measured again, 1 of the 2 count although they were (others' CPU 1, steal 3). \
         By the subject whose turn it was: baseline others' CPU 1, steal 2; redis steal 2."
    );
    let mut one = Repeats::default();
    let steal = turns(&["steal"], &[]);
    let attempts = (1..).take_while(|attempt| one.again(&steal, *attempt, 30)).count();
    assert_eq!((attempts, one.rounds, one.kept), (3, 1, 1));
}
