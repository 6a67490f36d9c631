//! Where mutants are written into a file, and what stands there then.

use std::collections::BTreeSet;
use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::Mutant;

/// One place of a file.
#[derive(Clone)]
pub(crate) struct Edit {
    pub(crate) range: Range<usize>,
    pub(crate) kind: Kind,
}

#[derive(Clone)]
pub(crate) enum Kind {
    /// Text that begins before all else that begins there.
    Before(String),
    /// Text that stands behind all else that ends there.
    After(String),
    /// A guard, with the values that stand for it.
    Guard(Vec<(usize, String)>),
    /// An operator between two expressions, with those that stand for it.
    Binary {
        left: Range<usize>,
        operator: Range<usize>,
        right: Range<usize>,
        others: Vec<(usize, String)>,
    },
    /// An operator before an expression, with the mutants that leave it out.
    Unary { operand: Range<usize>, without: Vec<usize> },
}

/// The edits of a file, outer ones before those within, and the numbers of the mutants that they are of.
pub(crate) fn of(text: &str, file: &syn::File, mutants: &[Mutant]) -> (Vec<Edit>, BTreeSet<usize>) {
    let mut finder = Finder {
        mutants,
        edits: Vec::new(),
        numbers: BTreeSet::new(),
    };
    finder.visit_file(file);
    for mutant in mutants.iter().filter(|mutant| mutant.genre == "FnValue") {
        let brace = text[mutant.begins..].starts_with('{');
        let at = mutant.begins + usize::from(brace);
        let value = if mutant.replacement == "()" {
            ""
        } else {
            &mutant.replacement
        };
        let returned = marked(mutant.number, &format!("return {value};"));
        finder.add(
            mutant.number,
            at..at,
            Kind::Before(format!(" if {} {{ {returned} }} ", is_on(mutant.number))),
        );
    }
    let mut edits = finder.edits;
    edits.sort_by_key(|edit| {
        let order = match edit.kind {
            Kind::Before(_) => 0,
            Kind::Guard(_) => 1,
            Kind::Binary { .. } => 2,
            Kind::Unary { .. } => 3,
            Kind::After(_) => 4,
        };
        let is_text = edit.range.is_empty();
        // At one place: what stands before all, then the longest.
        (
            edit.range.start,
            order != 0,
            is_text,
            usize::MAX - edit.range.end,
            order,
        )
    });
    (edits, finder.numbers)
}

/// The condition under which a mutant is on.
pub(crate) fn is_on(number: usize) -> String {
    format!("crate::mutant_switch::is_on({number})")
}

/// What belongs to a mutant alone: an error of the compiler that lies in it is the mutant's.
pub(crate) fn marked(number: usize, text: &str) -> String {
    format!("/*M{number}[*/ {text} /*M{number}]*/")
}

struct Finder<'a> {
    mutants: &'a [Mutant],
    edits: Vec<Edit>,
    numbers: BTreeSet<usize>,
}

impl Finder<'_> {
    /// The mutants of a kind at a place.
    fn at(&self, genre: &str, range: &Range<usize>) -> Vec<(usize, String)> {
        let is_there = |mutant: &&Mutant| mutant.genre == genre && mutant.begins == range.start;
        let found = self.mutants.iter().filter(is_there);
        found
            .map(|mutant| (mutant.number, mutant.replacement.clone()))
            .collect()
    }

    fn add(&mut self, number: usize, range: Range<usize>, kind: Kind) {
        self.numbers.insert(number);
        self.edits.push(Edit { range, kind });
    }

    fn add_all(&mut self, numbers: &[(usize, String)], range: Range<usize>, kind: Kind) {
        self.numbers.extend(numbers.iter().map(|(number, _)| number));
        self.edits.push(Edit { range, kind });
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        let (left, operator, right) = (bytes(&*binary.left), bytes(&binary.op), bytes(&*binary.right));
        let others = self.at("BinaryOperator", &operator);
        if !others.is_empty() && !has_let(&binary.left) && !has_let(&binary.right) {
            let kind = Kind::Binary {
                left: left.clone(),
                operator,
                right: right.clone(),
                others: others.clone(),
            };
            self.add_all(&others, left.start..right.end, kind);
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        let found = self.at("UnaryOperator", &bytes(&unary.op));
        if !found.is_empty() {
            let kind = Kind::Unary {
                operand: bytes(&*unary.expr),
                without: found.iter().map(|(number, _)| *number).collect(),
            };
            self.add_all(&found, bytes(unary), kind);
        }
        visit::visit_expr_unary(self, unary);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        let guard = arm.guard.as_ref().map(|(_, guard)| &**guard);
        if !guard.is_some_and(has_let) {
            if let Some(guard) = guard.map(bytes) {
                let values = self.at("MatchArmGuard", &guard);
                if !values.is_empty() {
                    self.add_all(&values, guard.clone(), Kind::Guard(values.clone()));
                }
            }
            // An arm that is left out is one that never matches. There is another for all, or it would not be listed.
            for (number, _) in self.at("MatchArm", &bytes(arm)) {
                let is_in = marked(number, &format!("!{}", is_on(number)));
                match guard.map(bytes) {
                    Some(guard) => {
                        self.add(number, guard.start..guard.start, Kind::Before(format!("{is_in} && (")));
                        self.add(number, guard.end..guard.end, Kind::After(")".to_owned()));
                    }
                    None => {
                        let end = bytes(&arm.pat).end;
                        self.add(number, end..end, Kind::After(format!(" if {is_in}")));
                    }
                }
            }
        }
        visit::visit_arm(self, arm);
    }
}

/// Whether a condition has a `let`, which stands nowhere else than in a condition.
fn has_let(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        syn::Expr::Paren(inner) => has_let(&inner.expr),
        _ => false,
    }
}

fn bytes(node: &impl Spanned) -> Range<usize> {
    node.span().byte_range()
}
