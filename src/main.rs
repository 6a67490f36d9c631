//! The `tollgate` binary: runs the command line and writes what it leaves.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use tollgate::cli;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// What jemalloc reads before its first allocation.
#[cfg(feature = "jemalloc")]
#[unsafe(export_name = "_rjem_malloc_conf")]
// SAFETY: the text is one byte long at least, and lives as long as the process.
static ALLOCATOR_OPTIONS: Option<&'static std::ffi::c_char> = Some(unsafe { &*tollgate::ALLOCATOR_OPTIONS.as_ptr() });

fn main() -> ExitCode {
    let outcome = cli::execute(std::env::args_os());
    let mut stderr = std::io::stderr();
    let mut status = outcome.status;
    match write(&mut std::io::stdout(), &outcome.stdout) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            status = status.max(1);
            // Where the errors cannot be written either, only the exit status is left to say so.
            drop(write(
                &mut stderr,
                &format!("error: cannot write the answer: {error}\n"),
            ));
        }
        // A reader that has gone, such as `head`, has read what it wanted.
        _ => {}
    }
    drop(write(&mut stderr, &outcome.stderr));
    ExitCode::from(status)
}

fn write(to: &mut impl Write, text: &str) -> std::io::Result<()> {
    to.write_all(text.as_bytes())?;
    to.flush()
}
