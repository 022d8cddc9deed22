//! A program of somebody else: it lets everything pass.

use std::{
    io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
};

use crate::world::Namespace;

/// `mov r0, -1; exit`: TCX_NEXT.
const PASS: [u64; 2] = [0xffff_ffff_0000_00b7, 0x95];
const BPF_PROG_LOAD: i64 = 5;
const BPF_LINK_CREATE: i64 = 28;
const SCHED_CLS: u32 = 3;
const TCX_INGRESS: u32 = 46;
const BEFORE: u32 = 1 << 3;

/// The part of `union bpf_attr` for BPF_PROG_LOAD up to the name (linux/bpf.h).
#[repr(C)]
#[derive(Default)]
struct Load {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log: [u32; 2],
    log_buffer: u64,
    version: u32,
    flags: u32,
    name: [u8; 16],
}

/// The same for BPF_LINK_CREATE at tcx.
#[repr(C)]
#[derive(Default)]
struct Link {
    program: u32,
    ifindex: u32,
    kind: u32,
    flags: u32,
    relative: u32,
    pad: u32,
    revision: u64,
}

fn bpf<T>(command: i64, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the attributes are valid for their size, and what they point to is alive.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, &raw const *attributes, size_of::<T>()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Puts a program called `foreign` ahead of all others on the link; it stays as long as the value.
pub fn attach_ahead(namespace: &Namespace, ifindex: u32) -> OwnedFd {
    let mut name = [0; 16];
    name[..7].copy_from_slice(b"foreign");
    let load = Load {
        kind: SCHED_CLS,
        instructions: PASS.len() as u32,
        code: PASS.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        name,
        ..Load::default()
    };
    let program = bpf(BPF_PROG_LOAD, &load).unwrap();
    let link = Link {
        program: program.as_raw_fd() as u32,
        ifindex,
        kind: TCX_INGRESS,
        flags: BEFORE,
        ..Link::default()
    };
    namespace.enter(|| bpf(BPF_LINK_CREATE, &link)).unwrap()
}
