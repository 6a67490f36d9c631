//! On which line of a YAML file something stands: for messages about what is right in shape and wrong in content, where the reader
//! has no line to tell. It looks at indentation and keys only; where a file is written so that this finds nothing, nothing is told.

/// The line, from 1, of the key at the end of this path, or of the last key on the way that was found.
pub fn of_key(text: &str, path: &[&str]) -> Option<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let (mut from, mut inside, mut found) = (0usize, 0usize, None);
    for key in path {
        let flow = found == Some(from.saturating_add(1));
        let block = lines.iter().enumerate().skip(from);
        let block = block.take_while(|(at, line)| (flow && *at == from) || is_blank(line) || indent(line) >= inside);
        let mut keys = block.filter(|(_, line)| !is_blank(line)).peekable();
        // The keys of a block stand under each other; what is further in belongs to one of them.
        let column = keys.peek().map_or(0, |(_, line)| indent(line));
        let mut keys = keys.filter(|(at, line)| (flow && *at == from) || indent(line) == column);
        let Some((at, line)) = keys.find(|(at, line)| names(line, key, flow && *at == from)) else {
            break;
        };
        found = Some(at.saturating_add(1));
        // In a flow mapping the rest of the path stands on the same line.
        from = if line.contains('{') { at } else { at.saturating_add(1) };
        inside = indent(line).saturating_add(1);
    }
    found
}

/// The line, from 1, of the entry of a list whose `id` this is; of its key, when that is found in the entry.
pub fn of_entry(text: &str, id: &str, key: &str) -> Option<usize> {
    of_entries(text, id)
        .first()
        .and_then(|at| in_entry(text, *at, key).or(Some(*at)))
}

/// The line, from 1, of the deepest of these keys that is found in an entry of the list under a key at the top, counted from 0; of the
/// entry when none is.
pub fn in_item(text: &str, list: &str, number: usize, path: &[&str]) -> Option<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let above = lines
        .iter()
        .position(|line| indent(line) == 0 && names(line, list, false))?;
    let inside = lines.iter().enumerate().skip(above.saturating_add(1));
    let mut inside = inside.filter(|(_, line)| !is_blank(line)).peekable();
    let column = inside.peek().map(|(_, line)| indent(line))?;
    let is_item = |line: &str| indent(line) == column && line.trim_start().starts_with('-');
    let mut items = inside.take_while(|(_, line)| indent(line) > column || is_item(line));
    let (item, _) = items.by_ref().filter(|(_, line)| is_item(line)).nth(number)?;
    let at = item.saturating_add(1);
    let found = path.iter().rev().find_map(|key| in_entry(text, at, key));
    Some(found.unwrap_or(at))
}

/// The line, from 1, on which a key stands without a value in such an entry; nothing where it does not.
pub fn unstated_in_item(text: &str, list: &str, number: usize, key: &str) -> Option<usize> {
    let start = in_item(text, list, number, &[])?.checked_sub(1)?;
    let dash = indent(text.lines().nth(start)?);
    let lines = text.lines().enumerate().skip(start);
    let mut entry = lines.take_while(|(at, line)| *at == start || is_blank(line) || indent(line) > dash);
    let found = entry.find(|(_, line)| !is_blank(line) && has_unstated(line, key));
    found.map(|(at, _)| at.saturating_add(1))
}

/// The lines, from 1, of all entries with this id.
pub fn of_entries(text: &str, id: &str) -> Vec<usize> {
    let is_it = |line: &str| {
        let line = line
            .trim_start()
            .trim_start_matches("- ")
            .trim_start()
            .trim_start_matches(['{', '[', ' ']);
        let line = line.trim_start_matches('"');
        let Some(value) = line
            .strip_prefix("id")
            .and_then(|rest| rest.trim_start_matches('"').trim_start().strip_prefix(':'))
        else {
            return false;
        };
        let value = value.trim_start();
        let (quote, bare) = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => (Some(quote), value.get(1..).unwrap_or_default()),
            _ => (None, value),
        };
        let end = bare.find(|c| quote.map_or(matches!(c, ',' | ' ' | '}'), |quote| c == quote));
        bare.get(..end.unwrap_or(bare.len())) == Some(id)
    };
    let lines = text.lines().enumerate().filter(|(_, line)| is_it(line));
    lines.map(|(at, _)| at.saturating_add(1)).collect()
}

/// The first line from `at` on, from 1, that has this text in it; else `at`.
pub fn of_text(text: &str, at: usize, wanted: &str) -> usize {
    let mut lines = text.lines().enumerate().skip(at.saturating_sub(1));
    let found = lines.find(|(_, line)| line.contains(wanted));
    found.map_or(at, |(number, _)| number.saturating_add(1))
}

/// The same of a text that stands there as a value by itself.
pub fn of_value(text: &str, at: usize, wanted: &str) -> usize {
    let mut lines = text.lines().enumerate().skip(at.saturating_sub(1));
    let found = lines.find(|(_, line)| line.split([' ', ',', '[', ']', '"', '\'']).any(|value| value == wanted));
    found.map_or(at, |(number, _)| number.saturating_add(1))
}

/// The line, from 1, on which a key stands for the second time in the mapping that begins on this line and column, from 1; else the line.
pub fn of_repeated(text: &str, line: usize, column: usize, key: &str) -> usize {
    let (first, inside) = (line.saturating_sub(1), column.saturating_sub(1));
    let lines = text.lines().enumerate().skip(first);
    let block = lines.take_while(|(at, line)| *at == first || is_blank(line) || indent(line) >= inside);
    let mut keys = block.filter(|(at, line)| {
        // An entry of a list has its first key behind the dash.
        let is_of_it = *at == first || indent(line) == inside;
        is_of_it && line.get(inside..).is_some_and(|line| names(line, key, false))
    });
    keys.nth(1).map_or(line, |(at, _)| at.saturating_add(1))
}

/// The line of a key of the entry whose id stands on the line `at`.
fn in_entry(text: &str, at: usize, key: &str) -> Option<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let begins = |line: &&str| line.trim_start().starts_with("- ");
    let start = lines.get(..at)?.iter().rposition(begins)?;
    let dash = indent(lines.get(start)?);
    let entry = lines.iter().enumerate().skip(start);
    let mut entry = entry.take_while(|(at, line)| *at == start || is_blank(line) || indent(line) > dash);
    let found = entry.find(|(at, line)| names(line, key, *at == start));
    found.map(|(at, _)| at.saturating_add(1))
}

/// Whether a line begins with the key, or has it in a flow mapping.
fn names(line: &str, key: &str, flow: bool) -> bool {
    let bare = line.trim_start().trim_start_matches("- ").trim_start();
    let begins = |text: &str| {
        let text = text.trim_start_matches(['{', ',', ' ', '"']);
        text.strip_prefix(key)
            .is_some_and(|rest| rest.trim_start_matches('"').trim_start().starts_with(':'))
    };
    begins(bare) || (flow && line.split(['{', ',']).skip(1).any(begins))
}

/// Whether a line has the key with nothing behind it, or with YAML's null.
fn has_unstated(line: &str, key: &str) -> bool {
    line.split(['{', ',', '}', '[', ']']).any(|part| {
        let part = part
            .trim_start()
            .trim_start_matches("- ")
            .trim_start()
            .trim_start_matches('"');
        let rest = part
            .strip_prefix(key)
            .map(|rest| rest.trim_start_matches('"').trim_start());
        let value = rest.and_then(|rest| rest.strip_prefix(':'));
        let value = value.map(|value| value.split('#').next().unwrap_or_default().trim());
        matches!(value, Some("" | "~" | "null" | "Null" | "NULL"))
    })
}

fn indent(line: &str) -> usize {
    line.len().saturating_sub(line.trim_start().len())
}

fn is_blank(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#')
}

#[cfg(test)]
mod tests {
    use super::*;

    const YAML: &str = "\
# A comment
listen: 1
providers:
  # another
  openai:
    base_url: x

  local: { base_url: y, headers: { a: b } }
tiers:
  free: { rpm: 1 }
models:
  - id: a/b
    name: A
    pricing: { prompt: \"0\" }
  - { id: \"a/c:free\", name: C }
  - name: D
    id: 'a/d'
    tier: free
";

    #[test]
    fn keys() {
        for (path, line) in [
            (&["listen"][..], Some(2)),
            (&["providers", "openai"], Some(5)),
            (&["providers", "openai", "base_url"], Some(6)),
            (&["providers", "local", "base_url"], Some(8)),
            (&["providers", "local", "headers"], Some(8)),
            (&["tiers", "free", "rpm"], Some(10)),
            (&["tiers", "lite", "rpm"], Some(9)),
            (&["nothing"], None),
            (&["tier"], None),
            (&["openai"], None),
            (&["providers", "base_url"], Some(3)),
        ] {
            assert_eq!(of_key(YAML, path), line, "{path:?}");
        }
    }

    #[test]
    fn items() {
        for (number, path, line) in [
            (0, &["name"][..], Some(13)),
            (0, &["pricing", "prompt"], Some(14)),
            (0, &["tier"], Some(12)),
            (1, &["name"], Some(15)),
            (2, &["tier"], Some(18)),
            (3, &[], None),
        ] {
            assert_eq!(in_item(YAML, "models", number, path), line, "{number} {path:?}");
        }
        assert_eq!(
            in_item("models:\n- id: a\n- b: c\npurposes:\n  - d: e\n", "models", 1, &["b"]),
            Some(3)
        );
        assert_eq!(
            in_item("models:\n- id: a\npurposes:\n  - d: e\n", "models", 1, &["b"]),
            None
        );
        assert_eq!(
            in_item("models:\n- id: a\npurposes:\n- d: e\n", "models", 1, &["d"]),
            None,
            "the list ends where another key begins"
        );
    }

    #[test]
    fn entries() {
        for (id, key, line) in [
            ("a/b", "name", Some(13)),
            ("a/b", "prompt", Some(12)),
            ("a/b", "tier", Some(12)),
            ("a/c:free", "name", Some(15)),
            ("a/d", "tier", Some(18)),
            ("a/e", "tier", None),
            ("a", "tier", None),
        ] {
            assert_eq!(of_entry(YAML, id, key), line, "{id} {key}");
        }
        assert_eq!(of_value("k:\n  - ab\n  - 'a'\n", 1, "a"), 3);
        assert_eq!(of_value("k: [ab,\n  b, a]\n", 1, "a"), 2);
        assert_eq!(of_entries("- id: a/b\n- id: a/b # again\n", "a/b"), [1, 2]);
    }

    #[test]
    fn repeated() {
        for (text, line, column, key, expected) in [
            ("a: 1\nb: 2\n\n# a: 3\na: 4\n", 1, 1, "a", 5),
            ("p:\n  a: { x: 1 }\n  b:\n    a: 1\n  a: 2\nq:\n  a: 1\n", 2, 3, "a", 5),
            ("m:\n  - id: x\n    n: 1\n    id: y\n", 2, 5, "id", 4),
            ("t: { a: 1, a: 2 }\na: 3\n", 1, 4, "a", 1),
        ] {
            assert_eq!(of_repeated(text, line, column, key), expected, "{text}");
        }
    }

    #[test]
    fn a_text_is_found_from_a_line_on() {
        let text = "a: x\nb: xy\nc: z\nd: x\n";
        for (at, wanted, line) in [
            (1, "x", 1),
            (2, "x", 2),
            (3, "x", 4),
            (1, "xy", 2),
            (3, "y", 3),
            (1, "nothing", 1),
        ] {
            assert_eq!(of_text(text, at, wanted), line, "{at} {wanted}");
        }
    }

    #[test]
    fn a_key_is_looked_for_in_its_own_mapping() {
        for (text, path, line) in [
            ("a: { b: 1 }\nc: 2\n", &["a", "c"][..], Some(1)),
            ("a: { b: 1 }\nc: 2\n", &["b"], None),
            ("a:\n  b: { c: 1 }\n  c: 2\n", &["a", "c"], Some(3)),
            ("a:\n  b: { c: 1 }\n  c: 2\n", &["a", "b", "c"], Some(2)),
            ("a:\n  b: 1\nc: 2\n", &["a", "c"], Some(1)),
            // A flow mapping of several lines is told by its first.
            ("a: {\n  b: 1\n}\n", &["a", "b"], Some(1)),
        ] {
            assert_eq!(of_key(text, path), line, "{path:?} in {text}");
        }
    }
}
