//! No files import each other in a circle, but for pairs and for those that are named with a reason.

use std::collections::{BTreeMap, BTreeSet};

use crate::imports::imports;
use crate::tree::{Finding, Tree};

/// A circle that is allowed: its files, and why.
pub(crate) struct Circle {
    pub(crate) files: &'static [&'static str],
    pub(crate) why: &'static str,
}

/// Circles of more than two files that are not within one of the named ones, and names that are not needed any more.
pub(crate) fn check(tree: &Tree, named: &[Circle]) -> Vec<Finding> {
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for import in imports(tree) {
        edges.entry(import.from).or_default().insert(import.to);
    }
    let mut findings = Vec::new();
    let circles = circles(&edges);
    for circle in circles.iter().filter(|circle| circle.len() > 2) {
        let is_named = |named: &Circle| circle.iter().all(|file| named.files.contains(&file.as_str()));
        if !named.iter().any(is_named) {
            findings.push(Finding {
                path: circle[0].clone(),
                line: 1,
                what: format!(
                    "{} files import each other in a circle: {}",
                    circle.len(),
                    circle.join(", ")
                ),
            });
        }
    }
    for named in named {
        assert!(!named.why.is_empty());
        if !circles.iter().any(|circle| {
            circle.len() == named.files.len() && circle.iter().all(|file| named.files.contains(&file.as_str()))
        }) {
            let what = "the list of circles names one that is smaller or gone: mend the list".to_owned();
            findings.push(Finding {
                path: named.files[0].to_owned(),
                line: 1,
                what,
            });
        }
    }
    findings
}

/// The strongly connected parts of more than one file: a file belongs with those that it reaches and that reach it.
fn circles(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> = edges.keys().map(|from| (from, reached(edges, from))).collect();
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for (from, far) in &reached {
        if seen.contains(from) {
            continue;
        }
        let circle: Vec<String> = far
            .iter()
            .filter(|to| reached.get(*to).is_some_and(|back| back.contains(from)))
            .map(|to| (*to).clone())
            .collect();
        if circle.len() > 1 {
            seen.extend(far.iter().copied().filter(|to| circle.contains(to)));
            all.push(circle);
        }
    }
    all
}

fn reached<'a>(edges: &'a BTreeMap<String, BTreeSet<String>>, from: &'a String) -> BTreeSet<&'a String> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(file) = open.pop() {
        for to in edges.get(file).into_iter().flatten() {
            if seen.insert(to) {
                open.push(to);
            }
        }
    }
    seen
}
