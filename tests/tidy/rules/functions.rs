//! Functions are short: the median of those of `src`, without tests, is below ten lines.

use syn::visit::{self, Visit};

use crate::tree::{Finding, Tree};

/// Lines of a function from its signature to its closing brace.
#[derive(Default)]
struct Lengths(Vec<usize>);

impl<'ast> Visit<'ast> for Lengths {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.add(function.sig.fn_token.span.start().line, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.add(function.sig.fn_token.span.start().line, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if module.ident != "tests" {
            visit::visit_item_mod(self, module);
        }
    }
}

impl Lengths {
    fn add(&mut self, first: usize, block: &syn::Block) {
        let last = block.brace_token.span.close().end().line;
        self.0.push(last - first + 1);
    }
}

pub(crate) fn median(tree: &Tree) -> Vec<Finding> {
    let mut lengths = Lengths::default();
    for file in tree.sources().filter(|file| !file.path.contains("tests")) {
        lengths.visit_file(&syn::parse_file(&file.text).unwrap());
    }
    lengths.0.sort_unstable();
    let median = lengths.0.get(lengths.0.len() / 2).copied().unwrap_or_default();
    println!("{} functions, the median has {median} lines", lengths.0.len());
    let finding = Finding {
        path: "src".to_owned(),
        line: 1,
        what: format!("the median function has {median} lines: less than {MEDIAN_LINES} are wanted"),
    };
    (median >= MEDIAN_LINES).then_some(finding).into_iter().collect()
}

const MEDIAN_LINES: usize = 10;
