//! Somebody else's program on a link, at tcx or clsact: counts packets and passes them on.

use std::{
    ffi::CString,
    fs, io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    path::Path,
};

use crate::Netns;

// Commands and types of bpf(2), include/uapi/linux/bpf.h.
const MAP_CREATE: libc::c_long = 0;
const MAP_LOOKUP_ELEM: libc::c_long = 1;
const PROG_LOAD: libc::c_long = 5;
const OBJ_PIN: libc::c_long = 6;
const LINK_CREATE: libc::c_long = 28;
const MAP_TYPE_ARRAY: u32 = 2;
const PROG_TYPE_SCHED_CLS: u32 = 3;
const TCX_INGRESS: u32 = 46;

/// An attached counter; at tcx it is detached on drop.
#[derive(Debug)]
pub struct Counter {
    map: OwnedFd,
    _link: Option<OwnedFd>,
}

impl Counter {
    /// Attaches one at tcx ingress, behind the programs that are there.
    ///
    /// # Panics
    /// The kernel refuses.
    #[must_use]
    #[track_caller]
    pub fn at_tcx(netns: &Netns, link: &str) -> Self {
        let ifindex = netns.ifindex(link);
        let map = counting_map();
        let program = load(&map);
        let flags = 0;
        // The interface index means one of the namespace of the caller.
        let link = netns.enter(|| descriptor(LINK_CREATE, &mut [raw(&program), ifindex, TCX_INGRESS, flags]));
        Self { map, _link: Some(link) }
    }

    /// Attaches one as clsact filter, for ingress. `bpffs`: where it can be pinned for a moment, so that tc finds it.
    ///
    /// # Panics
    /// The kernel or tc refuses.
    #[must_use]
    #[track_caller]
    pub fn at_clsact(netns: &Netns, link: &str, bpffs: &Path) -> Self {
        let map = counting_map();
        let program = load(&map);
        let pin = bpffs.join("foreign");
        let path = CString::new(pin.as_os_str().as_encoded_bytes()).expect("a path has no zero byte");
        let [low, high] = halves(path.as_ptr() as u64);
        call(OBJ_PIN, &mut [low, high, raw(&program), 0]).expect("pin the program");
        netns.run(&format!("tc qdisc add dev {link} clsact"));
        let pinned = pin.display();
        netns.run(&format!("tc filter add dev {link} ingress bpf direct-action object-pinned {pinned}"));
        fs::remove_file(&pin).expect("unpin the program");
        Self { map, _link: None }
    }

    /// Packets seen so far.
    ///
    /// # Panics
    /// The kernel does not say.
    #[must_use]
    pub fn packets(&self) -> u64 {
        let (key, mut value) = (0_u32, 0_u64);
        let [key_low, key_high] = halves((&raw const key) as u64);
        let [value_low, value_high] = halves((&raw mut value) as u64);
        call(MAP_LOOKUP_ELEM, &mut [raw(&self.map), 0, key_low, key_high, value_low, value_high, 0, 0])
            .expect("read the counter");
        value
    }
}

fn counting_map() -> OwnedFd {
    descriptor(MAP_CREATE, &mut [MAP_TYPE_ARRAY, 4, 8, 1])
}

/// `map[0] += 1; return TCX_NEXT`, which for clsact is `TC_ACT_UNSPEC`
fn load(map: &OwnedFd) -> OwnedFd {
    let instruction = |code: u8, registers: u8, offset: i16, immediate: i32| {
        let [a, b] = offset.to_ne_bytes();
        u64::from_ne_bytes({
            let [c, d, e, f] = immediate.to_ne_bytes();
            [code, registers, a, b, c, d, e, f]
        })
    };
    let map = i32::try_from(raw(map)).expect("a descriptor is small");
    let code = [
        instruction(0x62, 0x0a, -4, 0),  // *(u32 *)(r10 - 4) = 0
        instruction(0xbf, 0xa2, 0, 0),   // r2 = r10
        instruction(0x07, 0x02, 0, -4),  // r2 += -4
        instruction(0x18, 0x11, 0, map), // r1 = map
        instruction(0, 0, 0, 0),         //   (second half)
        instruction(0x85, 0, 0, 1),      // call map_lookup_elem
        instruction(0x15, 0x00, 2, 0),   // if r0 == 0 goto +2
        instruction(0xb7, 0x01, 0, 1),   // r1 = 1
        instruction(0xdb, 0x10, 0, 0),   // lock *(u64 *)(r0 + 0) += r1
        instruction(0xb7, 0x00, 0, -1),  // r0 = TCX_NEXT
        instruction(0x95, 0, 0, 0),      // exit
    ];
    let license = c"GPL";
    let [code_low, code_high] = halves(code.as_ptr() as u64);
    let [license_low, license_high] = halves(license.as_ptr() as u64);
    let count = u32::try_from(code.len()).expect("a short program");
    descriptor(PROG_LOAD, &mut [PROG_TYPE_SCHED_CLS, count, code_low, code_high, license_low, license_high])
}

fn halves(pointer: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = pointer.to_ne_bytes();
    [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])]
}

fn raw(fd: &OwnedFd) -> u32 {
    fd.as_raw_fd().unsigned_abs()
}

fn descriptor(command: libc::c_long, attributes: &mut [u32]) -> OwnedFd {
    let fd = call(command, attributes).unwrap_or_else(|error| panic!("bpf({command}): {error}"));
    let fd = i32::try_from(fd).expect("a descriptor is small");
    // SAFETY: the kernel has just made this descriptor for us.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn call(command: libc::c_long, attributes: &mut [u32]) -> io::Result<libc::c_long> {
    let size = size_of_val(attributes);
    // SAFETY: the kernel reads `size` bytes of attributes; pointers in them are to live values of the callers.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_mut_ptr(), size) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
