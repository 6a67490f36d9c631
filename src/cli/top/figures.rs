//! How the figures of `tollgate top` are written.

/// So many in so many milliseconds, a second, with one decimal below 100.
pub(super) fn rate(count: i128, millis: i64) -> String {
    let tenths = count
        .saturating_mul(10_000)
        .checked_div(i128::from(millis))
        .unwrap_or(0);
    if tenths >= 1_000 {
        return (tenths / 10).to_string();
    }
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Credits a second, to six decimals.
pub(super) fn credit_rate(pico: i128, millis: i64) -> String {
    let micro = pico.saturating_mul(1_000).checked_div(i128::from(millis)).unwrap_or(0) / 1_000_000;
    format!("{}.{:06}", micro / 1_000_000, micro % 1_000_000)
}

/// A figure, or a dash where there is none.
pub(super) fn shown(value: Option<u64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// A time in its largest sensible unit.
pub(super) fn span(millis: i64) -> String {
    let secs = millis / 1000;
    match secs {
        ..120 => format!("{secs} s"),
        120..7200 => format!("{} min", secs / 60),
        7200..172_800 => format!("{} h", secs / 3600),
        _ => format!("{} d", secs / 86_400),
    }
}

/// The text in at most so many characters.
pub(super) fn cut(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(chars_max.saturating_sub(1)).collect();
    short.push('…');
    short
}
