//! The `tollgate` binary: runs the command line and writes what it leaves.

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
    ExitCode::from(cli::execute(std::env::args_os()).write_out())
}
