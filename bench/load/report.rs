//! The report: all figures as JSON, and tables for people.

use std::{fmt::Write, fs, path::Path};

use serde::Serialize;

use crate::{
    cli::Options,
    common::{Result, say},
    disturbance::Repeats,
    figures::{Round, Series, summarise},
    machine::Machine,
    measured::{Instructions, Listed, LongRun, OpenStreams, SystemCalls},
    provenance::Provenance,
    tables,
};

/// Everything that a run found out.
#[derive(Serialize)]
pub(crate) struct Report {
    provenance: Provenance,
    machine: Machine,
    /// Whether the run was too short to mean much.
    quick: bool,
    /// The command without its scenarios.
    #[serde(skip)]
    scenario_command: String,
    threads: usize,
    /// Subjects that could not be started, and why.
    pub(crate) left_out: Vec<String>,
    /// What else a reader must know.
    notes: Vec<String>,
    /// What failed or did not run that was asked for, beside what the figures count as errors.
    failures: Vec<String>,
    pub(crate) series: Vec<Series>,
    /// Scenario, part, and how many of its rounds were disturbed, by what, and in whose turn.
    pub(crate) repeats: Vec<(String, String, Repeats)>,
    pub(crate) syscalls: Vec<SystemCalls>,
    pub(crate) instructions: Vec<Instructions>,
    pub(crate) open: Vec<OpenStreams>,
    pub(crate) listed: Vec<Listed>,
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
        let command = format!("{COMMAND} {}", arguments.join(" "));
        Self {
            provenance: Provenance::look(command.trim_end_matches(" -- ").to_owned()),
            machine,
            scenario_command: scenario_command(options, &arguments),
            quick: options.quick,
            threads: options.threads,
            left_out: Vec::new(),
            notes: Vec::new(),
            failures: Vec::new(),
            series: Vec::new(),
            repeats: Vec::new(),
            syscalls: Vec::new(),
            instructions: Vec::new(),
            open: Vec::new(),
            listed: Vec::new(),
            soak: Vec::new(),
        }
    }

    /// Why the run did not end well; nothing where it did. `names_subjects`: whether all that were named must have been measured.
    pub(crate) fn faults(&self, names_subjects: bool) -> Vec<String> {
        let mut faults = Vec::new();
        if names_subjects && !self.left_out.is_empty() {
            faults.push(format!(
                "not all that was named could be put under load: {}",
                self.left_out.join("; ")
            ));
        }
        if self.errors() > 0 {
            faults.push("there were wrong answers or wrong debits; the figures above count them".to_owned());
        }
        if !self.failures.is_empty() {
            faults.push(format!(
                "not all that was asked for could be measured: {}",
                self.failures.join("; ")
            ));
        }
        faults
    }

    /// How many rows there are for tables so far.
    pub(crate) fn rows(&self) -> usize {
        let counts = [self.syscalls.len(), self.instructions.len(), self.open.len()];
        let others = [self.listed.len(), self.soak.len()];
        self.rounds().count() + counts.iter().chain(&others).sum::<usize>()
    }

    /// Wrong answers in all of the run.
    fn errors(&self) -> u64 {
        let steady: u64 = self.rounds().map(Round::errors).sum();
        let open: u64 = self.open.iter().map(|open| open.errors).sum();
        let soak: u64 = self.soak.iter().flat_map(|soak| soak.errors.values()).sum();
        let audits = self
            .soak
            .iter()
            .filter(|soak| matches!(soak.audit, Some(Err(_))))
            .count();
        let books: usize = self.soak.iter().map(|soak| soak.differences.len()).sum();
        steady + open + soak + (audits + books) as u64
    }

    /// Says something now and in the report.
    pub(crate) fn note(&mut self, line: String) {
        say(&line);
        self.notes.push(line);
    }

    /// The same of what failed, or did not run, and was asked for: the run does not end well then.
    pub(crate) fn fail(&mut self, line: String) {
        let line = format!("FAILED: {line}");
        say(&line);
        self.failures.push(line);
    }

    /// Says that a program is missing without which `what` cannot be counted. A quick run does without.
    pub(crate) fn not_tried(&mut self, quick: bool, what: &str, program: &str) {
        let line = format!("{NOT_TRIED}{what}: {program} is not installed");
        if quick { self.note(line) } else { self.fail(line) }
    }

    fn rounds(&self) -> impl Iterator<Item = &Round> {
        self.series.iter().flat_map(|series| &series.rounds)
    }

    /// Writes `load.json` and `load.md` into `out`. Returns the text of the latter.
    pub(crate) fn write(&mut self, out: &Path) -> Result<String> {
        summarise(&mut self.series);
        fs::write(out.join("load.json"), serde_json::to_string(self)?)?;
        let text = self.text()?;
        fs::write(out.join("load.md"), &text)?;
        Ok(text)
    }

    fn text(&self) -> Result<String> {
        let mut text = String::new();
        let (threads, command) = (self.threads, &self.provenance.command);
        writeln!(
            text,
            "`{command}`\n\n{}\n{}; {threads} worker threads each",
            self.provenance.text(),
            self.machine.text()
        )?;
        if self.quick {
            writeln!(
                text,
                "A quick run: it shows that everything works; the figures mean little."
            )?;
        }
        for line in self.left_out.iter().chain(&self.notes).chain(&self.failures) {
            writeln!(text, "{line}")?;
        }
        if !self.series.is_empty() {
            writeln!(text, "{LEGEND}")?;
        }
        let mut rest = &self.series[..];
        while let Some(first) = rest.first() {
            let is_other = |series: &Series| !series.is_of(&first.scenario, &first.part);
            let (part, others) = rest.split_at(rest.iter().position(is_other).unwrap_or(rest.len()));
            self.part(&mut text, part, first)?;
            rest = others;
        }
        for (scenario, table) in [
            (
                "syscalls",
                (!self.syscalls.is_empty()).then(|| tables::syscalls(&self.syscalls)),
            ),
            (
                "instructions",
                (!self.instructions.is_empty()).then(|| tables::instructions(&self.instructions)),
            ),
            ("open", (!self.open.is_empty()).then(|| tables::open(&self.open))),
            (
                "operators",
                (!self.listed.is_empty()).then(|| tables::listed(&self.listed)),
            ),
            ("soak", (!self.soak.is_empty()).then(|| tables::soak(&self.soak))),
        ] {
            if let Some(table) = table {
                writeln!(
                    text,
                    "\n## {scenario}\n\n`{COMMAND} {scenario}{}`\n\n{table}",
                    self.scenario_command
                )?;
            }
        }
        for counted in self.instructions.iter().filter(|i| !i.misses_by_part.is_empty()) {
            let (subject, part, unit) = (&counted.subject, &counted.part, counted.unit.name());
            writeln!(text, "\n## misses, {part} of {subject}, each {unit}\n")?;
            text.push_str(&tables::misses(counted));
        }
        for soak in &self.soak {
            for line in &soak.differences {
                writeln!(text, "{}: {line}", soak.subject)?;
            }
        }
        Ok(text)
    }

    /// The tables of one kind of load.
    fn part(&self, text: &mut String, series: &[Series], first: &Series) -> Result<()> {
        let Series { scenario, part, .. } = first;
        writeln!(
            text,
            "\n## {scenario}, {part}\n\n`{COMMAND} {scenario}{}`\n",
            self.scenario_command
        )?;
        let repeats = self.repeats.iter().find(|(of, its, _)| of == scenario && its == part);
        if let Some((.., repeats)) = repeats {
            writeln!(text, "{}\n", repeats.text())?;
        }
        text.push_str(&tables::cpu(series));
        if let Some(delays) = tables::delays(series) {
            writeln!(text, "\n{delays}")?;
        }
        Ok(())
    }
}

/// What stood on the command line beside the scenarios, with a space before it.
fn scenario_command(options: &Options, arguments: &[String]) -> String {
    let scenarios: Vec<String> = options.scenarios.iter().map(|scenario| scenario.name()).collect();
    let others = arguments.iter().filter(|argument| !scenarios.contains(argument));
    others.map(|argument| format!(" {argument}")).collect()
}

const LEGEND: &str = "
In parentheses: the interval in which the median over the rounds lies with 95 % confidence. Both: the subject and its store; it alone: the
subject without it, beside the other without its own. Added: to baseline. First: the first event of a stream, from when its request was due.
Event: from the provider's write of each event to its arrival. Lag: how late the generator sent what a free connection could take. No
connection: requests that were due when all connections were busy. What was due within a round counts, though its answer or first event
came after the end. Times in microseconds.";
const COMMAND: &str = "cargo bench --bench load --";
/// `tests/run bench` looks for it.
const NOT_TRIED: &str = "not tried on this machine: ";
