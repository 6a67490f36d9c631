//! The allocator of the bench's processes: the system's, or jemalloc where the environment asks for it. So one binary,
//! built once with one profile, is both the baseline and the baseline with the gateway's allocator.
//!
//! The choice is made by the first allocation and stays; it costs a load and a predicted branch.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicU8, Ordering::Relaxed},
};

use tikv_jemallocator::Jemalloc;

/// Set (to anything) in a process that shall use jemalloc.
pub(crate) const JEMALLOC_ENV: &str = "TOLLGATE_BENCH_JEMALLOC";

/// The global allocator of this binary.
pub(crate) struct Chosen;

// SAFETY: every call goes to the same one of two sound allocators during the life of the process: the choice depends
// only on the environment that the process was started with, and nothing in it is freed by another allocator.
unsafe impl GlobalAlloc for Chosen {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract is passed on.
        unsafe {
            if jemalloc() {
                Jemalloc.alloc(layout)
            } else {
                System.alloc(layout)
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract is passed on.
        unsafe {
            if jemalloc() {
                Jemalloc.alloc_zeroed(layout)
            } else {
                System.alloc_zeroed(layout)
            }
        }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is passed on, to the allocator that the block came from.
        unsafe {
            if jemalloc() {
                Jemalloc.dealloc(at, layout)
            } else {
                System.dealloc(at, layout)
            }
        }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's contract is passed on, to the allocator that the block came from.
        unsafe {
            if jemalloc() {
                Jemalloc.realloc(at, layout, size)
            } else {
                System.realloc(at, layout, size)
            }
        }
    }
}

fn jemalloc() -> bool {
    match CHOICE.load(Relaxed) {
        UNDECIDED => decide(),
        choice => choice == JEMALLOC,
    }
}

#[cold]
fn decide() -> bool {
    // SAFETY: the name is a C string; the environment is not written while the process starts.
    let asked = unsafe { !libc::getenv(JEMALLOC_ENV_C.as_ptr()).is_null() };
    CHOICE.store(if asked { JEMALLOC } else { SYSTEM }, Relaxed);
    asked
}

static CHOICE: AtomicU8 = AtomicU8::new(UNDECIDED);
const UNDECIDED: u8 = 0;
const SYSTEM: u8 = 1;
const JEMALLOC: u8 = 2;
/// [`JEMALLOC_ENV`] as `getenv` takes it: std's own look-up allocates.
const JEMALLOC_ENV_C: &std::ffi::CStr = c"TOLLGATE_BENCH_JEMALLOC";
