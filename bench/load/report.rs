//! The report: all figures as JSON, and tables for people (Markdown that also reads well in a terminal).

use std::{fmt::Write, fs, path::Path};

use serde::Serialize;

use crate::{
    Result,
    cli::{Options, Variant},
    figures::{Percentiles, Round, Series, Spread, summarise},
    machine::Machine,
    measured::{Instructions, LongRun, Misses, OpenStreams, SystemCalls},
    say,
};

/// Everything that a run found out.
#[derive(Serialize)]
pub(crate) struct Report {
    machine: Machine,
    command: String,
    /// Whether the run was too short to mean much.
    quick: bool,
    threads: usize,
    /// Subjects that could not be started, and why.
    pub(crate) left_out: Vec<String>,
    /// What else a reader must know.
    notes: Vec<String>,
    pub(crate) series: Vec<Series>,
    pub(crate) syscalls: Vec<SystemCalls>,
    pub(crate) instructions: Vec<Instructions>,
    pub(crate) open: Vec<OpenStreams>,
    pub(crate) soak: Vec<LongRun>,
}

impl Report {
    pub(crate) fn new(options: &Options, machine: Machine) -> Self {
        // A key is not written down, and neither is where the report goes.
        let mut arguments: Vec<String> = std::env::args()
            .skip(1)
            .filter(|argument| argument != "--bench" && !argument.starts_with("--out="))
            .collect();
        if let Some(at) = arguments.iter().position(|argument| argument == "--out") {
            arguments.drain(at..arguments.len().min(at + 2));
        }
        if let Some(key) = &options.key {
            arguments
                .iter_mut()
                .for_each(|argument| *argument = argument.replace(key.as_str(), "KEY"));
        }
        Self {
            machine,
            command: format!("cargo bench --bench load -- {}", arguments.join(" "))
                .trim_end_matches(" -- ")
                .to_owned(),
            quick: options.quick,
            threads: options.threads,
            left_out: Vec::new(),
            notes: Vec::new(),
            series: Vec::new(),
            syscalls: Vec::new(),
            instructions: Vec::new(),
            open: Vec::new(),
            soak: Vec::new(),
        }
    }

    /// Wrong answers in all of the run.
    pub(crate) fn errors(&self) -> u64 {
        let steady: u64 = self.rounds().map(Round::errors).sum();
        let open: u64 = self.open.iter().map(|open| open.errors).sum();
        let soak: u64 = self.soak.iter().flat_map(|soak| soak.errors.values()).sum();
        let audits = self
            .soak
            .iter()
            .filter(|soak| matches!(soak.audit, Some(Err(_))))
            .count();
        steady + open + soak + audits as u64
    }

    /// Says something now and in the report.
    pub(crate) fn note(&mut self, line: String) {
        say(&line);
        self.notes.push(line);
    }

    fn rounds(&self) -> impl Iterator<Item = &Round> {
        self.series.iter().flat_map(|series| &series.rounds)
    }

    /// Writes `load.json` and `load.md` into `out`. Returns the text of the latter.
    pub(crate) fn write(&mut self, out: &Path) -> Result<String> {
        summarise(&mut self.series, &Variant::Baseline.name());
        fs::write(out.join("load.json"), serde_json::to_string_pretty(self)?)?;
        let text = self.text()?;
        fs::write(out.join("load.md"), &text)?;
        Ok(text)
    }

    fn text(&self) -> Result<String> {
        let mut text = String::new();
        let threads = self.threads;
        writeln!(
            text,
            "`{}`\n\n{}; {threads} worker threads each",
            self.command,
            self.machine.text()
        )?;
        if self.quick {
            writeln!(
                text,
                "A quick run: it shows that everything works; the figures mean little."
            )?;
        }
        for line in self.left_out.iter().chain(&self.notes) {
            writeln!(text, "{line}")?;
        }
        let others = self.rounds().map(|round| round.others_busy).fold(0.0, f64::max);
        if others > OTHERS_MAX {
            writeln!(
                text,
                "The machine was busy: other processes kept up to {others:.1} cores; figures are too high and uneven."
            )?;
        }
        let mut rest = &self.series[..];
        while let Some(first) = rest.first() {
            let is_other = |series: &Series| !series.is_of(&first.scenario, &first.part);
            let (table, others) = rest.split_at(rest.iter().position(is_other).unwrap_or(rest.len()));
            writeln!(text, "\n## {}, {}\n", first.scenario, first.part)?;
            text.push_str(&steady_table(table));
            rest = others;
        }
        if !self.syscalls.is_empty() {
            text.push_str("\n## syscalls\n\n");
            text.push_str(&syscalls_table(&self.syscalls));
        }
        if !self.instructions.is_empty() {
            text.push_str("\n## instructions\n\n");
            text.push_str(&instructions_table(&self.instructions));
            for counted in self.instructions.iter().filter(|i| !i.misses_by_part.is_empty()) {
                let Instructions {
                    subject, part, unit, ..
                } = counted;
                writeln!(text, "\n## misses, {part} of {subject}, each {}\n", unit.name())?;
                text.push_str(&misses_table(counted));
            }
        }
        if !self.open.is_empty() {
            text.push_str("\n## open\n\n");
            text.push_str(&open_table(&self.open));
        }
        if !self.soak.is_empty() {
            text.push_str("\n## soak\n\n");
            text.push_str(&soak_table(&self.soak));
        }
        Ok(text)
    }
}

fn steady_table(all: &[Series]) -> String {
    let unit = all.first().map_or("request", |series| series.unit.name());
    let head = [
        "subject".to_owned(),
        format!("{unit}s/s"),
        format!("CPU us/{unit}"),
        "x baseline (quartiles)".to_owned(),
        "user us".to_owned(),
        "kernel us".to_owned(),
        "store us".to_owned(),
        "p50 us".to_owned(),
        "p90".to_owned(),
        "p99".to_owned(),
        "p99.9".to_owned(),
        "added p50 (quartiles)".to_owned(),
        "added p99 (quartiles)".to_owned(),
        "first event p50/p99".to_owned(),
        "event delay p50/p99".to_owned(),
        "MiB".to_owned(),
        "errors".to_owned(),
        "others' cores".to_owned(),
    ];
    let row = |series: &Series| {
        let s = series.summary.as_ref()?;
        let latency =
            |of: fn(&Percentiles) -> f64| s.latency_us.as_ref().map_or_else(none, |l| format!("{:.0}", of(l)));
        let added = |at: usize| s.added_us.as_ref().and_then(|added| added.get(at)).map(spread0);
        // A share of the CPU beside it.
        let mode = |of: fn(f64) -> f64| {
            let (cpu, share) = s.cpu_us.zip(s.kernel_share)?;
            Some(format!("{:.2}", cpu.median * of(share)))
        };
        let pair = |p: &Option<Percentiles>| p.as_ref().map_or_else(none, |p| format!("{:.0} / {:.0}", p.p50, p.p99));
        Some([
            series.subject.clone(),
            format!("{:.0}", s.per_second),
            s.cpu_us.map_or_else(none, |cpu| format!("{:.2}", cpu.median)),
            s.cpu_ratio.map_or_else(none, |r| {
                format!("{:.2} ({:.2}..{:.2})", r.median, r.quartiles[0], r.quartiles[1])
            }),
            mode(|kernel| 1.0 - kernel).unwrap_or_else(none),
            mode(|kernel| kernel).unwrap_or_else(none),
            s.store_cpu_us.map_or_else(none, |us| format!("{us:.2}")),
            latency(|l| l.p50),
            latency(|l| l.p90),
            latency(|l| l.p99),
            latency(|l| l.p999),
            added(0).unwrap_or_else(none),
            added(2).unwrap_or_else(none),
            pair(&s.first_event_us),
            pair(&s.event_delay_us),
            s.memory_kib
                .map_or_else(none, |kib| format!("{:.1}", kib as f64 / 1024.0)),
            s.errors.to_string(),
            format!("{:.2}", s.others_busy),
        ])
    };
    table(&head, &all.iter().filter_map(row).collect::<Vec<_>>())
}

fn syscalls_table(syscalls: &[SystemCalls]) -> String {
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

fn instructions_table(instructions: &[Instructions]) -> String {
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

fn misses_table(counted: &Instructions) -> String {
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

fn open_table(open: &[OpenStreams]) -> String {
    let head = [
        "subject",
        "streams",
        "KiB a stream",
        "MiB in all",
        "MiB before",
        "open files",
        "errors",
    ]
    .map(str::to_owned);
    let mib = |kib: u64| format!("{:.1}", kib as f64 / 1024.0);
    let row = |o: &OpenStreams| {
        [
            o.subject.clone(),
            o.streams.to_string(),
            format!("{:.1}", o.kib_a_stream),
            mib(o.memory_kib),
            mib(o.memory_before_kib),
            o.open_files.map_or_else(none, |files| files.to_string()),
            o.errors.to_string(),
        ]
    };
    table(&head, &open.iter().map(row).collect::<Vec<_>>())
}

fn soak_table(soak: &[LongRun]) -> String {
    let head = [
        "subject",
        "requests",
        "seconds",
        "MiB at the end",
        "growth after a tenth",
        "open files",
        "errors",
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
            last.map_or_else(none, |last| format!("{:.1}", last.memory_kib as f64 / 1024.0)),
            s.memory_growth_percent
                .map_or_else(none, |percent| format!("{percent:+.1} %")),
            last.map_or_else(none, |last| last.open_files.to_string()),
            s.errors.values().sum::<u64>().to_string(),
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

fn spread0(spread: &Spread) -> String {
    format!(
        "{:+.0} ({:+.0}..{:+.0})",
        spread.median, spread.quartiles[0], spread.quartiles[1]
    )
}

fn none() -> String {
    "-".to_owned()
}

/// Cores that other processes may use before the report says so.
const OTHERS_MAX: f64 = 0.15;
const CALLS_SHOWN: usize = 6;
