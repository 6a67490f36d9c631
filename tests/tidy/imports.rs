//! Which file of `src` imports which: `use` trees, and paths that begin with `crate`, `self` or `super` anywhere in code and macros.
//!
//! Tests within `src` are left out: they may use whatever they test with.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Attribute, Item, UseTree};

use crate::tree::Tree;

/// One import, from the line of a file to another file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Import {
    pub(crate) from: String,
    pub(crate) line: usize,
    pub(crate) to: String,
}

type Path = Vec<String>;

#[derive(Default)]
struct Module {
    file: String,
    /// Absolute paths that are named, with their lines.
    named: Vec<(usize, Path)>,
    /// What is passed on under a name of this module's.
    passed_on: BTreeMap<String, Path>,
}

/// All imports between files, each once. An item that a module passes on from another is imported from there.
pub(crate) fn imports(tree: &Tree) -> Vec<Import> {
    let mut modules: BTreeMap<Path, Module> = BTreeMap::new();
    for file in tree.sources() {
        let path = module_path(&file.path);
        if path.iter().any(|part| part == "tests") {
            continue;
        }
        let parsed = syn::parse_file(&file.text).unwrap_or_else(|error| panic!("{}: {error}", file.path));
        let mut module = Module {
            file: file.path.clone(),
            ..Module::default()
        };
        walk(&parsed.items, &path, true, &mut module);
        modules.insert(path, module);
    }
    let mut all = BTreeSet::new();
    for module in modules.values() {
        for (line, path) in &module.named {
            if let Some(to) = file_of(&modules, path.clone())
                && to != module.file
            {
                let (from, line) = (module.file.clone(), *line);
                all.insert(Import { from, line, to });
            }
        }
    }
    all.into_iter().collect()
}

/// The folder or file below `src` that a file belongs to: `gateway`, `clock`.
pub(crate) fn room(path: &str) -> &str {
    let below = path.strip_prefix("src/").unwrap_or(path);
    below.split(['/', '.']).next().unwrap_or(below)
}

fn module_path(path: &str) -> Path {
    let below = path.strip_prefix("src/").unwrap().strip_suffix(".rs").unwrap();
    let mut parts: Path = below.split('/').map(str::to_owned).collect();
    if parts
        .last()
        .is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str()))
    {
        parts.pop();
    }
    parts
}

fn file_of(modules: &BTreeMap<Path, Module>, mut path: Path) -> Option<String> {
    // A name may be passed on several times; a circle of names is none that compiles.
    for _ in 0..8 {
        let known = (0..=path.len())
            .rev()
            .find(|length| modules.contains_key(&path[..*length]))?;
        let module = &modules[&path[..known]];
        match path.get(known).and_then(|name| module.passed_on.get(name)) {
            Some(onward) => path = [onward.as_slice(), &path[known + 1..]].concat(),
            None => return Some(module.file.clone()),
        }
    }
    None
}

fn walk(items: &[Item], context: &Path, is_top: bool, module: &mut Module) {
    for item in items {
        match item {
            Item::Use(item) if !is_test(&item.attrs) => {
                let is_passed_on = is_top && !matches!(item.vis, syn::Visibility::Inherited);
                let line = item.use_token.span.start().line;
                for (path, name) in leaves(&item.tree, &mut Vec::new()) {
                    let Some(path) = absolute(&path, context) else { continue };
                    if is_passed_on {
                        module.passed_on.insert(name, path.clone());
                    }
                    module.named.push((line, path));
                }
            }
            Item::Mod(item) if is_test(&item.attrs) => {}
            Item::Mod(item) => {
                if let Some((_, inner)) = &item.content {
                    let context = [context.as_slice(), &[item.ident.to_string()]].concat();
                    walk(inner, &context, false, module);
                }
            }
            Item::Use(_) => {}
            Item::Fn(item) if is_test(&item.attrs) => {}
            other => inline(other.to_token_stream(), context, module),
        }
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let text = attribute.meta.to_token_stream().to_string();
        attribute.path().is_ident("cfg") && text.contains("test") && !text.contains("not")
    })
}

fn leaves(tree: &UseTree, before: &mut Path) -> Vec<(Path, String)> {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            let found = leaves(&path.tree, before);
            before.pop();
            found
        }
        UseTree::Group(group) => group.items.iter().flat_map(|tree| leaves(tree, before)).collect(),
        UseTree::Name(name) if name.ident == "self" => {
            vec![(before.clone(), before.last().cloned().unwrap_or_default())]
        }
        UseTree::Name(name) => vec![(
            [before.as_slice(), &[name.ident.to_string()]].concat(),
            name.ident.to_string(),
        )],
        UseTree::Rename(name) => {
            vec![(
                [before.as_slice(), &[name.ident.to_string()]].concat(),
                name.rename.to_string(),
            )]
        }
        UseTree::Glob(_) => vec![(before.clone(), "*".to_owned())],
    }
}

/// Paths in code, also in the arguments of macros.
fn inline(tokens: TokenStream, context: &Path, module: &mut Module) {
    let mut path: Path = Vec::new();
    let (mut line, mut colons) = (0, 0);
    let mut finish = |path: &mut Path, line: usize| {
        if path.len() > 1
            && let Some(path) = absolute(path, context)
        {
            module.named.push((line, path));
        }
        path.clear();
    };
    let mut groups = Vec::new();
    let mut after_pub = false;
    for token in tokens {
        // `pub(in crate::gateway)` says who sees an item, and imports nothing.
        if std::mem::replace(
            &mut after_pub,
            matches!(&token, TokenTree::Ident(ident) if ident == "pub"),
        ) && is_visibility(&token)
        {
            continue;
        }
        match token {
            TokenTree::Ident(ident) => {
                let name = ident.to_string();
                if !path.is_empty() && colons == 2 {
                    path.push(name);
                } else {
                    finish(&mut path, line);
                    // After one colon there is a type.
                    if colons < 2 && ["crate", "self", "super"].contains(&name.as_str()) {
                        line = ident.span().start().line;
                        path.push(name);
                    }
                }
                colons = 0;
            }
            TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
            TokenTree::Group(group) => {
                // `use crate::{a, b::C}` within a function.
                let is_tree = !path.is_empty() && colons == 2 && group.delimiter() == Delimiter::Brace;
                match syn::parse2::<UseTree>(TokenStream::from(TokenTree::Group(group.clone()))) {
                    Ok(tree) if is_tree => {
                        for (mut whole, _) in leaves(&tree, &mut path.clone()) {
                            finish(&mut whole, line);
                        }
                        path.clear();
                    }
                    _ => groups.push(group.stream()),
                }
                finish(&mut path, line);
                colons = 0;
            }
            _ => {
                finish(&mut path, line);
                colons = 0;
            }
        }
    }
    finish(&mut path, line);
    for group in groups {
        inline(group, context, module);
    }
}

/// `(in crate::gateway)`.
fn is_visibility(token: &TokenTree) -> bool {
    let TokenTree::Group(group) = token else { return false };
    let first = group.stream().into_iter().next();
    group.delimiter() == Delimiter::Parenthesis && matches!(first, Some(TokenTree::Ident(ident)) if ident == "in")
}

/// From the crate's root; none for paths of other crates.
fn absolute(path: &[String], context: &Path) -> Option<Path> {
    let mut base = context.clone();
    let mut rest = path;
    match rest.first()?.as_str() {
        "crate" | "tollgate" => {
            base.clear();
            rest = &rest[1..];
        }
        "self" => rest = &rest[1..],
        "super" => {}
        _ => return None,
    }
    while rest.first().is_some_and(|part| part == "super") {
        base.pop()?;
        rest = &rest[1..];
    }
    base.extend_from_slice(rest);
    Some(base)
}
