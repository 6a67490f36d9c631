//! What is logged.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    static LINES: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

struct Lines;

impl log::Log for Lines {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        LINES.with_borrow_mut(|lines| {
            if let Some(lines) = lines {
                lines.push(format!("{} {}", record.level(), record.args()));
            }
        });
    }

    fn flush(&self) {}
}

/// The lines that `work` logs in this thread, each after its level.
pub(crate) fn logged(work: impl FnOnce()) -> Vec<String> {
    static SET: Once = Once::new();
    SET.call_once(|| {
        log::set_logger(&Lines).expect("tests have no other logger");
        log::set_max_level(log::LevelFilter::Debug);
    });
    LINES.set(Some(Vec::new()));
    work();
    LINES.take().unwrap_or_default()
}
