//! Which programs run at tcx ingress of an interface.

use std::io;

use aya::programs::loaded_programs;
use nix::errno::Errno;

use crate::{error::Error, syscall::bpf};

// linux/bpf.h
const PROG_QUERY: libc::c_long = 16;
const TCX_INGRESS: u32 = 46;

/// The part of `union bpf_attr` for BPF_PROG_QUERY, all of it: the kernel writes the revision whatever size it is told
/// (`bpf_mprog_query`, kernel/bpf/mprog.c).
#[repr(C)]
struct ProgramQuery {
    ifindex: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    identifiers: u64,
    count: u32,
    pad: u32,
    program_flags: u64,
    links: u64,
    link_flags: u64,
    revision: u64,
}

const _: () = assert!(size_of::<ProgramQuery>() == 64);

/// Identifiers of the programs, in order; none if there is no such interface.
///
/// The library opens each program that it finds, which takes CAP_SYS_ADMIN. To ask which ones are there takes CAP_NET_ADMIN.
///
/// # Errors
/// If the kernel refuses the query.
pub(crate) fn programs_at(ifindex: u32) -> Result<Vec<u32>, Error> {
    let mut identifiers = vec![0; 16];
    loop {
        match query(ifindex, &mut identifiers) {
            Ok(count) => {
                identifiers.truncate(count);
                return Ok(identifiers);
            }
            Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                // Nothing has ever been attached there, or there is no such interface.
                Some(Errno::ENOENT | Errno::ENODEV) => return Ok(Vec::new()),
                Some(Errno::ENOSPC) => identifiers.resize(2 * identifiers.len(), 0),
                _ => {
                    return Err(Error::program("querying programs of", format!("interface {ifindex}"))(
                        error,
                    ));
                }
            },
        }
    }
}

/// Fills `identifiers`, gives how many there are.
fn query(ifindex: u32, identifiers: &mut [u32]) -> io::Result<usize> {
    let mut query = ProgramQuery {
        ifindex,
        attach_type: TCX_INGRESS,
        query_flags: 0,
        attach_flags: 0,
        identifiers: identifiers.as_mut_ptr() as u64,
        count: u32::try_from(identifiers.len()).unwrap_or(u32::MAX),
        pad: 0,
        program_flags: 0,
        links: 0,
        link_flags: 0,
        revision: 0,
    };
    // SAFETY: there is room for as many identifiers as the attributes say.
    unsafe { bpf(PROG_QUERY, &mut query)? };
    Ok(query.count as usize)
}

/// The name of a program, at most 15 bytes. Empty if it is gone, or if this process may not look at programs of others, which takes
/// CAP_SYS_ADMIN.
pub(crate) fn name_of(identifier: u32) -> String {
    let program = loaded_programs().flatten().find(|program| program.id() == identifier);
    program.and_then(|program| program.name_as_str().map(ToOwned::to_owned)).unwrap_or_default()
}
