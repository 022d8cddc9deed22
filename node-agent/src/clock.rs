//! The clock, the boot and chance: what the core must not ask for itself.

use std::{
    fs::{self, File},
    io::{self, Read},
};

use nix::time::{ClockId, clock_gettime};

use agent_core::lease::{BootId, Timestamp};

/// Milliseconds since the boot, sleep included: nobody can set this clock.
#[must_use]
pub fn now() -> Timestamp {
    nanoseconds(ClockId::CLOCK_BOOTTIME) / 1_000_000
}

/// Nanoseconds on the clock that eBPF programs read, `bpf_ktime_get_ns`.
#[must_use]
pub fn switch_now() -> u64 {
    nanoseconds(ClockId::CLOCK_MONOTONIC)
}

fn nanoseconds(clock: ClockId) -> u64 {
    // Both clocks are there on every Linux, and begin at zero.
    let time = clock_gettime(clock).map_or(Default::default(), std::time::Duration::from);
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The boot we are in.
///
/// # Errors
/// If the kernel does not say.
pub fn boot() -> io::Result<BootId> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// 64 random bits in hexadecimal, which name a reservation.
///
/// # Errors
/// If the kernel gives none.
pub fn nonce() -> io::Result<String> {
    random().map(|number| format!("{number:016x}"))
}

/// 64 random bits.
///
/// # Errors
/// If the kernel gives none.
pub fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}
