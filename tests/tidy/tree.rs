//! The files that are looked at, and what is found in them.

use std::fmt;
use std::path::Path;

/// A text file by its path from the root of the repository.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Files, in the order of their paths.
pub(crate) struct Tree {
    pub(crate) files: Vec<File>,
}

/// One place that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

impl Tree {
    /// Every text file of the repository but fixtures, corpora, figures and what is built.
    pub(crate) fn of_repository() -> Tree {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut files = Vec::new();
        for folder in ["src", "tests", "bench", "conf", ".github", ".ci", ".cargo", ".config"] {
            read_folder(root, &root.join(folder), &mut files);
        }
        for name in [
            "Cargo.toml",
            "README.md",
            "CHANGELOG.md",
            ".clippy.toml",
            ".rustfmt.toml",
        ] {
            let text = std::fs::read_to_string(root.join(name)).unwrap();
            let path = name.to_owned();
            files.push(File { path, text });
        }
        assert!(files.len() > 300, "only {} files were found", files.len());
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Tree { files }
    }

    /// A small tree, for the tests of rules.
    pub(crate) fn of(files: &[(&str, &str)]) -> Tree {
        let file = |(path, text): &(&str, &str)| File {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
        };
        Tree {
            files: files.iter().map(file).collect(),
        }
    }

    /// The Rust files below `folder`, as if it were the `src` of a crate: what it has of its own.
    pub(crate) fn crate_of(self, folder: &str) -> Tree {
        let below = |File { path, text }: File| {
            let path = format!("src/{}", path.strip_prefix(folder)?);
            path.ends_with(".rs").then_some(File { path, text })
        };
        Tree {
            files: self.files.into_iter().filter_map(below).collect(),
        }
    }

    /// The Rust files of the crate.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &File> {
        self.files
            .iter()
            .filter(|file| file.path.starts_with("src/") && file.path.ends_with(".rs"))
    }
}

impl File {
    pub(crate) fn finding(&self, line: usize, what: impl Into<String>) -> Finding {
        Finding {
            path: self.path.clone(),
            line,
            what: what.into(),
        }
    }

    /// Its lines with their numbers, from 1 on.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

fn read_folder(root: &Path, folder: &Path, files: &mut Vec<File>) {
    for entry in std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if !SKIPPED.contains(&name.as_str()) {
                read_folder(root, &path, files);
            }
            continue;
        }
        // What is no UTF-8 is no text.
        if let Ok(text) = std::fs::read_to_string(&path) {
            let path = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            files.push(File { path, text });
        }
    }
}

const SKIPPED: &[&str] = &[
    "fixtures",
    "corpus",
    "figures",
    "target",
    "node_modules",
    "__pycache__",
    "images",
];
