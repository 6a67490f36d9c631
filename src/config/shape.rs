//! All mistakes in the shape of a YAML value (keys that are unknown or missing, values of the wrong kind), where its reader stops at the
//! first: each is told, then taken out or filled in, and the rest is read again.

use serde_yaml_ng::{Mapping, Value};

/// A key, or an entry of a list, on the way into a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Of a mapping.
    Key(String),
    /// Of a list, from 0.
    Item(usize),
}

/// A mistake and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShapeMistake {
    /// The way to it.
    pub(super) path: Vec<Step>,
    /// What the reader said.
    pub(super) problem: String,
}

/// What was wrong with a value, and a value that has its shape.
#[derive(Debug)]
pub(super) struct Mended {
    pub(super) mistakes: Vec<ShapeMistake>,
    /// The value, with something that fits where a mistake was.
    pub(super) value: Value,
    /// Where something was filled in.
    fillings: Vec<Filling>,
}

#[derive(Debug)]
struct Filling {
    path: Vec<Step>,
    tried: usize,
}

/// What a reader's words blame.
enum Blame {
    Unknown,
    Missing,
    Wrong,
}

impl Mended {
    /// Finds the mistakes of a value; `read` says what a reader of the value's text says of the first that it comes to, with the way to it
    /// in front, such as `providers.openai.base_url: …`.
    pub(super) fn of(value: Value, read: &dyn Fn(&str) -> Result<(), String>) -> Mended {
        let (mistakes, fillings) = (Vec::new(), Vec::new());
        let mut mended = Mended {
            mistakes,
            value,
            fillings,
        };
        for _ in 0..ROUNDS_MAX {
            let Ok(text) = serde_yaml_ng::to_string(&mended.value) else {
                break;
            };
            let Err(problem) = read(&text) else { break };
            if mended.mend(problem).is_none() {
                break;
            }
        }
        mended
    }

    /// Whether something was filled in at this place, or around it.
    pub(super) fn is_filled(&self, path: &[Step]) -> bool {
        self.fillings.iter().any(|filling| path.starts_with(&filling.path))
    }

    /// None when the value cannot be read further.
    fn mend(&mut self, problem: String) -> Option<()> {
        let (path, blame) = blamed(&problem);
        let known = self.fillings.iter_mut().find(|filling| filling.path == path);
        if let Some(filling) = known {
            // What was filled in does not fit either.
            filling.tried = filling.tried.checked_add(1)?;
            let filler = filler(filling.tried)?;
            return put(&mut self.value, &path, filler);
        }
        // Only what somebody wrote is a mistake.
        if !self.is_filled(&path) {
            let path = path.clone();
            self.mistakes.push(ShapeMistake { path, problem });
        }
        match blame {
            Blame::Unknown => take(&mut self.value, &path),
            Blame::Missing | Blame::Wrong => {
                put(&mut self.value, &path, filler(0)?)?;
                self.fillings.push(Filling { path, tried: 0 });
                Some(())
            }
        }
    }
}

/// Where the mistake is that a reader tells of, and of what sort it is.
fn blamed(problem: &str) -> (Vec<Step>, Blame) {
    let (mut path, rest) = match problem.split_once(": ") {
        Some((head, rest)) if !head.is_empty() && !head.contains(' ') => (steps(head), rest),
        _ => (Vec::new(), problem),
    };
    let word = |text: &str| {
        text.trim_matches('`')
            .split(['`', ' '])
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    if let Some(key) = rest.strip_prefix("unknown key ") {
        path.push(Step::Key(word(key)));
        (path, Blame::Unknown)
    } else if let Some(key) = rest.strip_prefix("missing field ") {
        path.push(Step::Key(word(key)));
        (path, Blame::Missing)
    } else {
        (path, Blame::Wrong)
    }
}

/// `targets[0].provider`, taken apart.
pub(super) fn steps(text: &str) -> Vec<Step> {
    let mut path = Vec::new();
    for part in text.split('.') {
        let mut pieces = part.split('[');
        path.extend(
            pieces
                .next()
                .filter(|key| !key.is_empty())
                .map(|key| Step::Key(key.to_owned())),
        );
        let numbers = pieces.filter_map(|piece| piece.strip_suffix(']')?.parse().ok());
        path.extend(numbers.map(Step::Item));
    }
    path
}

fn at<'a>(value: &'a mut Value, path: &[Step]) -> Option<&'a mut Value> {
    path.iter().try_fold(value, |value, step| match step {
        Step::Key(key) => value.as_mapping_mut()?.get_mut(key.as_str()),
        Step::Item(number) => value.as_sequence_mut()?.get_mut(*number),
    })
}

fn take(value: &mut Value, path: &[Step]) -> Option<()> {
    let (Step::Key(key), parents) = path.split_last()? else {
        return None;
    };
    at(value, parents)?.as_mapping_mut()?.remove(key.as_str()).map(|_| ())
}

fn put(value: &mut Value, path: &[Step], new: Value) -> Option<()> {
    let (last, parents) = path.split_last()?;
    match (last, at(value, parents)?) {
        (Step::Key(key), Value::Mapping(mapping)) => {
            mapping.insert(Value::String(key.clone()), new);
        }
        (Step::Item(number), Value::Sequence(items)) => *items.get_mut(*number)? = new,
        _ => return None,
    }
    Some(())
}

/// What is tried in a place, in this order: one of them fits each kind of value that the files have.
fn filler(tried: usize) -> Option<Value> {
    Some(match tried {
        0 => Value::String("0".to_owned()),
        1 => Value::String("free".to_owned()),
        2 => Value::String("cancel".to_owned()),
        3 => Value::Number(1.into()),
        4 => Value::Bool(true),
        5 => Value::Sequence(Vec::new()),
        6 => Value::Mapping(Mapping::new()),
        _ => return None,
    })
}

/// Mistakes and what is tried for each, at most.
const ROUNDS_MAX: usize = 400;
