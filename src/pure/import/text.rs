//! A catalogue's text, as an import reads and writes it: lines that mark what was imported, and texts in quotes.

use std::fmt::Write;
use std::ops::Range;

/// The marks around what was imported from a provider, each a whole line.
pub(super) fn marks(provider: &str) -> (String, String) {
    (
        format!(
            "  # --- Imported from {provider} by `tollgate catalogue import`: what stands here is replaced by the next import. ---\n"
        ),
        format!("  # --- End of what was imported from {provider}. ---\n"),
    )
}

/// Where a mark stands, with the end of its line, whichever that is: an editor may write CR LF, and indent a comment otherwise.
pub(super) fn line_of_mark(text: &str, mark: &str) -> Option<Range<usize>> {
    let mark = mark.trim();
    let mut begin = 0usize;
    for line in text.split_inclusive('\n') {
        let end = begin.saturating_add(line.len());
        if line.trim() == mark {
            return Some(begin..end);
        }
        begin = end;
    }
    None
}

/// How far the entries of the list `models` are indented.
pub(super) fn list_indent(text: &str) -> usize {
    let list = top_level(text, "models:")
        .and_then(|at| text.get(at..))
        .unwrap_or_default();
    let mut entries = list.lines().skip(1).filter(|line| line.trim_start().starts_with("- "));
    entries
        .next()
        .map_or(LIST_INDENT, |line| line.len().saturating_sub(line.trim_start().len()))
}

/// Where a line that begins with `key` stands.
pub(super) fn top_level(text: &str, key: &str) -> Option<usize> {
    if text.starts_with(key) {
        return Some(0);
    }
    text.find(&format!("\n{key}")).map(|at| at.saturating_add(1))
}

/// A JSON text is a YAML text too, but for characters that YAML takes for line ends or not at all.
pub(super) fn quoted(text: &str) -> String {
    let json = serde_json::Value::from(text).to_string();
    let mut quoted = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                // Writing to a string does not fail.
                let _written = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted
}

/// Of a list that has no entry yet.
pub(super) const LIST_INDENT: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_in_quotes_is_read_as_it_was() {
        let odd = "a\u{92}b\u{7f}c\u{85}--- d\u{2028}... e\u{2029}f\u{feff}g\u{fffe}h\u{ffff}i\u{1b}\n\t\"\\ é\u{a0}\u{1f600}";
        let yaml = format!("text: {}\n", quoted(odd));
        let read: std::collections::HashMap<String, String> = serde_yaml_ng::from_str(&yaml).unwrap();
        assert_eq!(read["text"], odd, "{yaml}");
        assert!(!yaml.contains(['\u{92}', '\u{2028}', '\u{fffe}']), "{yaml}");
        assert!(yaml.contains("\\u0092") && yaml.contains("\\u2028"), "{yaml}");
        assert_eq!(
            quoted("Grüße \u{1f600}"),
            "\"Grüße \u{1f600}\"",
            "what can be read is not escaped"
        );
    }

    #[test]
    fn a_mark_is_a_line_of_its_own_whichever_way_lines_end() {
        let (_, end) = marks("p");
        for (text, is_there) in [
            (format!("models:\n{end}purposes:\n"), true),
            (format!("models:\r\n{}\r\npurposes:\r\n", end.trim_end()), true),
            (format!("models:\n    {}purposes:\n", end.trim_start()), true),
            (format!("models:\n{}", end.trim_end()), true),
            (format!("models:\n  - description: \"x  {}\"\n", end.trim()), false),
        ] {
            let found = line_of_mark(&text, &end);
            assert_eq!(found.is_some(), is_there, "{text}");
            if let Some(found) = found {
                assert_eq!(text[found.clone()].trim(), end.trim());
                assert!(
                    found.end == text.len() || text[found.end..].starts_with("purposes:"),
                    "{text}"
                );
            }
        }
    }
}
