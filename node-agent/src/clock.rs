//! The clock, the boot and chance: what the core must not ask for itself.

use std::{
    fs::{self, File},
    io::{self, Read},
    time::{SystemTime, UNIX_EPOCH},
};

use agent_core::lease::{BootId, Timestamp};

/// Milliseconds since the epoch.
#[must_use]
pub fn now() -> Timestamp {
    // A clock before 1970 counts as 1970.
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
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
