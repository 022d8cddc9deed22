//! Counts what happens to packets.

use aya_ebpf::bindings::tcx_action_base::TCX_DROP;
use bpf_common::counters::{DropReason, Event};

use crate::{maps, packet::Verdict};

/// Counts an event.
#[inline(always)]
pub fn count(event: Event) {
    increment(maps::events(event));
}

/// Counts a drop.
#[inline(always)]
pub fn dropped(reason: DropReason) {
    increment(maps::drops(reason));
}

/// What a question returns that is not the answer yet: the next one is asked. No verdict of the kernel's.
pub const UNDECIDED: i32 = i32::MIN;

/// The verdict for the kernel; a drop is counted.
#[inline(always)]
pub fn verdict(verdict: Verdict) -> i32 {
    match verdict {
        Ok(action) => action,
        Err(reason) => {
            dropped(reason);
            TCX_DROP
        }
    }
}

#[inline(always)]
fn increment(counter: Option<*mut u64>) {
    if let Some(counter) = counter {
        // SAFETY: a per-CPU value, and tc programs run to the end on their CPU.
        unsafe { *counter += 1 }
    }
}
