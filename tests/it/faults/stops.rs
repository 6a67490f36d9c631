//! A graceful stop: everything finishes, everything is billed, and the process ends at once.
