//! One test for each fault that was found and mended; its name or its comment says the cause.
