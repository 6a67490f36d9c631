//! The tables of the report: Markdown that also reads well in a terminal.

use crate::{
    figures::{Beside, Series, Summary},
    measured::{Instructions, Listed, LongRun, Misses, OpenStreams, SystemCalls},
    statistics::{Estimate, Percentiles},
};

/// CPU of all subjects under one kind of load.
pub(crate) fn cpu(all: &[Series]) -> String {
    let unit = all.first().map_or("request", |series| series.unit.name());
    let base = |at: usize| {
        let of_one = |series: &Series| Some(series.summary.as_ref()?.beside.get(at)?.baseline.clone());
        all.iter().find_map(of_one).unwrap_or_else(none)
    };
    let head = [
        "subject".to_owned(),
        format!("{unit}s/s"),
        "its cores".to_owned(),
        format!("its CPU us/{unit}"),
        "store us".to_owned(),
        "both us".to_owned(),
        format!("both x {}", base(0)),
        format!("both x {}", base(1)),
        format!("it alone x {}", base(0)),
        format!("it alone x {}", base(1)),
        "user us".to_owned(),
        "kernel us".to_owned(),
        "MiB at start".to_owned(),
        "MiB".to_owned(),
        "errors".to_owned(),
        "others' cores".to_owned(),
    ];
    let row = |series: &Series| {
        let s = series.summary.as_ref()?;
        // A share of the CPU beside it.
        let mode = |of: fn(f64) -> f64| {
            let (cpu, share) = s.cpu_us.zip(s.kernel_share)?;
            Some(format!("{:.2}", cpu.median * of(share)))
        };
        let ratio = |at: usize, of: fn(&Beside) -> Option<Estimate>| {
            s.beside
                .get(at)
                .and_then(of)
                .map_or_else(none, |ratio| estimate(ratio, |x| format!("{x:.2}")))
        };
        let time = |of: Option<Estimate>| of.map_or_else(none, |us| estimate(us, |x| format!("{x:.2}")));
        Some([
            series.subject.clone(),
            format!("{:.0}", s.per_second),
            s.cores.map_or_else(none, |cores| format!("{cores:.2}")),
            time(s.cpu_us),
            time(s.store_us),
            time(s.both_us),
            ratio(0, |b| b.both),
            ratio(1, |b| b.both),
            ratio(0, |b| b.alone),
            ratio(1, |b| b.alone),
            mode(|kernel| 1.0 - kernel).unwrap_or_else(none),
            mode(|kernel| kernel).unwrap_or_else(none),
            s.memory_at_start_kib.map_or_else(none, mib),
            s.memory_kib.map_or_else(none, mib),
            s.errors.to_string(),
            s.others_cores.map_or_else(none, |cores| format!("{cores:.2}")),
        ])
    };
    table(&head, &all.iter().filter_map(row).collect::<Vec<_>>())
}

/// What callers wait for under one kind of load. None where nothing of it is known.
pub(crate) fn delays(all: &[Series]) -> Option<String> {
    let head = [
        "subject",
        "p50 us",
        "p90",
        "p99",
        "p99.9",
        "added p50",
        "added p99",
        "first p50",
        "first p99",
        "first added p50",
        "first added p99",
        "event p50",
        "event p99",
        "event added p50",
        "event added p99",
        "lag p50",
        "lag p99",
        "no connection %",
    ]
    .map(str::to_owned);
    let row = |series: &Series| {
        let s = series.summary.as_ref()?;
        let at = |of: &Option<Percentiles>, point: fn(&Percentiles) -> f64| {
            of.as_ref().map_or_else(none, |p| format!("{:.0}", point(p)))
        };
        let added = |at: usize, of: fn(&Beside) -> Option<[Estimate; 2]>| {
            let added = s.beside.first().and_then(of).and_then(|added| added.get(at).copied());
            added.map_or_else(none, |us| estimate(us, |x| format!("{x:+.0}")))
        };
        let Summary {
            latency_us: latency,
            first_event_us: first,
            event_delay_us: event,
            lag_us: lag,
            ..
        } = s;
        Some([
            series.subject.clone(),
            at(latency, |p| p.p50),
            at(latency, |p| p.p90),
            at(latency, |p| p.p99),
            at(latency, |p| p.p999),
            added(0, |b| b.latency_us),
            added(1, |b| b.latency_us),
            at(first, |p| p.p50),
            at(first, |p| p.p99),
            added(0, |b| b.first_event_us),
            added(1, |b| b.first_event_us),
            at(event, |p| p.p50),
            at(event, |p| p.p99),
            added(0, |b| b.event_delay_us),
            added(1, |b| b.event_delay_us),
            at(lag, |p| p.p50),
            at(lag, |p| p.p99),
            s.queued_share
                .map_or_else(none, |share| format!("{:.2}", share * 100.0)),
        ])
    };
    let rows: Vec<_> = all.iter().filter_map(row).collect();
    let says = rows.iter().any(|row| row[1..].iter().any(|cell| *cell != none()));
    says.then(|| table(&head, &rows))
}

pub(crate) fn syscalls(syscalls: &[SystemCalls]) -> String {
    let head = ["subject", "load", "system calls", "of which"].map(str::to_owned);
    let row = |s: &SystemCalls| {
        let most = s
            .by_name
            .iter()
            .take(CALLS_SHOWN)
            .map(|(name, calls)| format!("{name} {calls:.2}"));
        [
            s.subject.clone(),
            format!("{}, each {}", s.part, s.unit.name()),
            format!("{:.2}", s.a_unit),
            most.collect::<Vec<_>>().join(", "),
        ]
    };
    table(&head, &syscalls.iter().map(row).collect::<Vec<_>>())
}

pub(crate) fn instructions(instructions: &[Instructions]) -> String {
    let head = ["subject", "load", "instructions", "of which"].map(str::to_owned);
    let row = |i: &Instructions| {
        let parts = i.by_part.iter().map(|(part, count)| format!("{part} {count:.0}"));
        [
            i.subject.clone(),
            format!("{}, each {}", i.part, i.unit.name()),
            format!("{:.0}", i.a_unit),
            parts.collect::<Vec<_>>().join(", "),
        ]
    };
    table(&head, &instructions.iter().map(row).collect::<Vec<_>>())
}

pub(crate) fn misses(counted: &Instructions) -> String {
    let head = [
        "part",
        "instructions",
        "code misses",
        "data misses",
        "of the last level",
    ]
    .map(str::to_owned);
    let parts = counted.by_part.iter().zip(&counted.misses_by_part);
    let row = |((part, instructions), (_, misses)): (&(String, f64), &(String, Misses))| {
        [
            part.clone(),
            format!("{instructions:.0}"),
            format!("{:.0}", misses.code),
            format!("{:.0}", misses.data),
            format!("{:.1}", misses.last),
        ]
    };
    table(&head, &parts.map(row).collect::<Vec<_>>())
}

pub(crate) fn open(open: &[OpenStreams]) -> String {
    let head = [
        "subject",
        "streams",
        "KiB a stream",
        "MiB in all",
        "MiB at start",
        "MiB before",
        "open files",
        "errors",
    ]
    .map(str::to_owned);
    let row = |o: &OpenStreams| {
        [
            o.subject.clone(),
            o.streams.to_string(),
            format!("{:.1}", o.kib_a_stream),
            mib(o.memory_kib),
            o.memory_at_start_kib.map_or_else(none, mib),
            mib(o.memory_before_kib),
            o.open_files.map_or_else(none, |files| files.to_string()),
            o.errors.to_string(),
        ]
    };
    table(&head, &open.iter().map(row).collect::<Vec<_>>())
}

/// What operators wait for.
pub(crate) fn listed(listed: &[Listed]) -> String {
    let head = ["subject", "what", "requests", "p50 ms", "p99 ms", "longest ms"].map(str::to_owned);
    let row = |l: &Listed| {
        let ms = |ms: f64| format!("{ms:.1}");
        [
            l.subject.clone(),
            l.what.clone(),
            l.requests.to_string(),
            ms(l.p50_ms),
            ms(l.p99_ms),
            ms(l.max_ms),
        ]
    };
    table(&head, &listed.iter().map(row).collect::<Vec<_>>())
}

/// The long runs: what was counted, and what the books say.
pub(crate) fn soak(soak: &[LongRun]) -> String {
    let head = [
        "subject",
        "requests",
        "seconds",
        "kills",
        "accounts",
        "debits computed",
        "debits seen",
        "wrong accounts",
        "calls that a kill left open",
        "errors",
        "MiB at the end",
        "growth in the last half",
        "open files",
        "audit",
    ];
    let row = |s: &LongRun| {
        let last = s.samples.last();
        let audit = match &s.audit {
            None => none(),
            Some(Ok(_)) => "clean".to_owned(),
            Some(Err(error)) => error.clone(),
        };
        [
            s.subject.clone(),
            s.requests.to_string(),
            format!("{:.1}", s.seconds),
            s.kills.to_string(),
            s.accounts.to_string(),
            s.computed.clone(),
            s.seen.clone(),
            s.differences.len().to_string(),
            s.open_calls.to_string(),
            s.errors.values().sum::<u64>().to_string(),
            last.map_or_else(none, |last| mib(last.memory_kib)),
            s.memory_growth_percent
                .map_or_else(none, |percent| format!("{percent:+.1} %")),
            last.map_or_else(none, |last| last.open_files.to_string()),
            audit,
        ]
    };
    table(&head.map(str::to_owned), &soak.iter().map(row).collect::<Vec<_>>())
}

/// A Markdown table, padded so that it reads well as text; columns without any value are left out.
fn table<const N: usize>(head: &[String; N], rows: &[[String; N]]) -> String {
    let is_used = |column: &usize| rows.iter().any(|row| row[*column] != none());
    let columns: Vec<usize> = (0..N).filter(is_used).collect();
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].len())
            .chain([head[column].len()])
            .max()
            .unwrap_or(0)
    };
    let line = |cells: &[String; N]| {
        let cells = columns.iter().map(|column| {
            let (cell, width) = (&cells[*column], width(*column));
            if *column == 0 {
                format!(" {cell:<width$} ")
            } else {
                format!(" {cell:>width$} ")
            }
        });
        format!("|{}|\n", cells.collect::<Vec<_>>().join("|"))
    };
    let rule = columns.iter().map(|column| {
        let dashes = "-".repeat(width(*column) + 1);
        if *column == 0 {
            format!("{dashes}-")
        } else {
            format!("{dashes}:")
        }
    });
    let rule = format!("|{}|\n", rule.collect::<Vec<_>>().join("|"));
    rows.iter().map(line).fold(line(head) + &rule, |text, row| text + &row)
}

/// A median and its interval: `1.03 (0.98..1.05)`.
fn estimate(estimate: Estimate, shown: impl Fn(f64) -> String) -> String {
    let median = shown(estimate.median);
    match estimate.interval {
        None => median,
        Some([low, high]) => format!("{median} ({}..{})", shown(low), shown(high)),
    }
}

fn mib(kib: u64) -> String {
    format!("{:.1}", kib as f64 / 1024.0)
}

fn none() -> String {
    "-".to_owned()
}

const CALLS_SHOWN: usize = 6;
