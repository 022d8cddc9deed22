//! Access to the packet: checked pointers into it, and the helpers that reshape it.

use core::{arch::asm, ffi::c_void};

use aya_ebpf::{
    bindings::bpf_adj_room_mode::BPF_ADJ_ROOM_MAC,
    helpers::generated::{
        bpf_clone_redirect, bpf_csum_diff, bpf_redirect, bpf_skb_adjust_room, bpf_skb_change_head,
        bpf_skb_change_tail, bpf_skb_change_type, bpf_skb_load_bytes, bpf_skb_pull_data, bpf_skb_store_bytes,
        bpf_skb_vlan_pop,
    },
};
use bpf_common::counters::DropReason;

const PACKET_HOST: u32 = 0; // linux/if_packet.h

/// The kernel's view of a packet (linux/bpf.h), as far as it is used here.
///
/// The kernel recognises the context of a global function by this name, in the object's type information (BTF). It
/// takes BTF only if all names in it are identifiers of C, which rules out generic types in statics and in signatures,
/// and so aya's maps and its `__sk_buff`; and only if members are in order: `repr(C)`.
#[expect(non_camel_case_types, reason = "the kernel's name")]
#[repr(C)]
pub struct __sk_buff {
    len: u32,
    pkt_type: u32,
    mark: u32,
    queue_mapping: u32,
    protocol: u32,
    vlan_present: u32,
    vlan_tci: u32,
    vlan_proto: u32,
    priority: u32,
    ingress_ifindex: u32,
    ifindex: u32,
    tc_index: u32,
    cb: [u32; 5],
    hash: u32,
    tc_classid: u32,
    data: u32,
    data_end: u32,
    napi_id: u32,
    family: u32,
    remote_ip4: u32,
    local_ip4: u32,
    remote_ip6: [u32; 4],
    local_ip6: [u32; 4],
    remote_port: u32,
    local_port: u32,
    data_meta: u32,
    flow_keys: u64,
    tstamp: u64,
    wire_len: u32,
    gso_segs: u32,
    sk: u64,
    gso_size: u32,
}

const _: () = assert!(core::mem::offset_of!(__sk_buff, gso_size) == 176);

/// A frame on its way through a program. The pointer is valid as long as the program runs.
#[derive(Clone, Copy)]
pub struct Packet(pub *mut __sk_buff);

/// A verdict for the kernel, or the reason to drop.
pub type Verdict = Result<i32, DropReason>;

/// Helpers return 0 for success.
#[inline(always)]
fn done(status: i64, reason: DropReason) -> Result<(), DropReason> {
    if status == 0 { Ok(()) } else { Err(reason) }
}

impl Packet {
    #[inline(always)]
    fn skb(&self) -> &__sk_buff {
        // SAFETY: the kernel hands the programs a valid context; the verifier checks each access.
        unsafe { &*self.0 }
    }

    /// Length from the Ethernet header on, without a tag in the metadata.
    #[inline(always)]
    pub fn len(&self) -> u32 {
        self.skb().len
    }

    /// The interface on which the packet arrived.
    #[inline(always)]
    pub fn ifindex(&self) -> u32 {
        self.skb().ifindex
    }

    /// Payload bytes of each segment of a super-packet, 0 for a single packet.
    #[inline(always)]
    pub fn gso_size(&self) -> u32 {
        self.skb().gso_size
    }

    /// EtherType as the kernel sees it, network byte order.
    #[inline(always)]
    pub fn protocol(&self) -> u16 {
        self.skb().protocol as u16
    }

    /// Whether the frame was sent to this very interface.
    #[inline(always)]
    pub fn is_to_us(&self) -> bool {
        self.skb().pkt_type == PACKET_HOST
    }

    /// The VLAN tag that the kernel has lifted out of the frame: (EtherType, TCI), network byte order.
    #[inline(always)]
    pub fn lifted_tag(&self) -> Option<[u16; 2]> {
        let skb = self.skb();
        if skb.vlan_present == 0 {
            return None;
        }
        Some([skb.vlan_proto as u16, (skb.vlan_tci as u16).to_be()])
    }

    #[inline(always)]
    pub fn mark(&self) -> u32 {
        self.skb().mark
    }

    #[inline(always)]
    pub fn set_mark(&self, mark: u32) {
        // SAFETY: as in `skb`; `mark` is writable for classifiers.
        unsafe { (*self.0).mark = mark }
    }

    /// The same value, of which the verifier knows nothing any more.
    ///
    /// It follows each way through a program with all that it knows about each value. Where ways meet that differ in
    /// small constants only, such as the number of tags, forgetting them makes one way of many. Costs two instructions.
    #[inline(always)]
    pub fn forget(&self, value: u32) -> u32 {
        let mut value = value;
        // SAFETY: no side effects. The verifier does not see that the second XOR undoes the first.
        unsafe {
            asm!("{0} ^= {1}", "{0} ^= {1}", inout(reg) value, in(reg) self.len(), options(pure, nomem, nostack));
        }
        value
    }

    /// A pointer to `T` at `offset`, if the linear part of the packet reaches that far.
    #[inline(always)]
    pub fn at<T>(&self, offset: usize) -> Result<*mut T, DropReason> {
        let mut start = self.skb().data as usize;
        // The verifier ties the length check to this very sum, so the compiler must not take it apart.
        // SAFETY: an addition.
        unsafe { asm!("{0} += {1}", inout(reg) start, in(reg) offset, options(pure, nomem, nostack)) }
        if start + size_of::<T>() > self.skb().data_end as usize {
            Err(DropReason::Malformed)
        } else {
            Ok(start as *mut T)
        }
    }

    /// The value at `offset`.
    #[inline(always)]
    pub fn get<T: Copy>(&self, offset: usize) -> Result<T, DropReason> {
        // SAFETY: `at` checked the bounds. The packet may be misaligned for T, which BPF loads allow;
        // read_unaligned would become byte loads on this target.
        self.at::<T>(offset).map(|p| unsafe { *p })
    }

    /// Overwrites the value at `offset`.
    #[inline(always)]
    pub fn put<T: Copy>(&self, offset: usize, value: T) -> Result<(), DropReason> {
        // SAFETY: as in `get`.
        self.at::<T>(offset).map(|p| unsafe { *p = value })
    }

    /// Makes the first `len` bytes reachable for `at`, or all of a shorter packet.
    #[inline(always)]
    pub fn pull(&self, len: usize) -> Result<(), DropReason> {
        let len = (len as u32).min(self.len());
        let skb = self.skb();
        if skb.data as usize + len as usize <= skb.data_end as usize {
            return Ok(());
        }
        // SAFETY: plain helper call.
        done(unsafe { bpf_skb_pull_data(self.0.cast(), len) }, DropReason::Room)
    }

    /// Copies out of the packet, wherever its bytes lie.
    #[inline(always)]
    pub fn load<T: Copy>(&self, offset: usize, into: &mut T) -> Result<(), DropReason> {
        let into = (&raw mut *into).cast::<c_void>();
        // SAFETY: `into` points to size_of::<T>() writable bytes.
        let status = unsafe { bpf_skb_load_bytes(self.0.cast(), offset as u32, into, size_of::<T>() as u32) };
        done(status, DropReason::Malformed)
    }

    /// Copies into the packet; `flags` as for `bpf_skb_store_bytes`.
    #[inline(always)]
    pub fn store<T: Copy>(&self, offset: usize, from: &T, flags: u64) -> Result<(), DropReason> {
        let from = (&raw const *from).cast::<c_void>();
        // SAFETY: `from` points to size_of::<T>() readable bytes.
        let status =
            unsafe { bpf_skb_store_bytes(self.0.cast(), offset as u32, from, size_of::<T>() as u32, flags) };
        done(status, DropReason::Malformed)
    }

    /// Grows (or shrinks) the packet behind its Ethernet header, telling the kernel what for by `flags`.
    #[inline(always)]
    pub fn adjust_room(&self, difference: i32, flags: u64) -> Result<(), DropReason> {
        // SAFETY: plain helper call.
        done(
            unsafe { bpf_skb_adjust_room(self.0.cast(), difference, BPF_ADJ_ROOM_MAC, flags) },
            DropReason::Room,
        )
    }

    /// Puts `len` bytes of zeros in front of the packet.
    #[inline(always)]
    pub fn change_head(&self, len: u32) -> Result<(), DropReason> {
        // SAFETY: plain helper call.
        done(unsafe { bpf_skb_change_head(self.0.cast(), len, 0) }, DropReason::Room)
    }

    /// Cuts the packet to `len` bytes or pads it with zeros up to there. Linearises it.
    #[inline(always)]
    pub fn change_tail(&self, len: u32) -> Result<(), DropReason> {
        // SAFETY: plain helper call.
        done(unsafe { bpf_skb_change_tail(self.0.cast(), len, 0) }, DropReason::Room)
    }

    /// Removes the outermost tag; the kernel lifts the next one, if there is one, into its place.
    #[inline(always)]
    pub fn pop_tag(&self) -> Result<(), DropReason> {
        // SAFETY: plain helper call.
        done(unsafe { bpf_skb_vlan_pop(self.0.cast()) }, DropReason::Room)
    }

    /// Makes the packet one that its next receiver takes for its own, without marks of an earlier one.
    #[inline(always)]
    pub fn disown(&self) {
        self.set_mark(0);
        // Fails for types beyond PACKET_OTHERHOST only, and those never reach tc ingress.
        // SAFETY: plain helper call.
        let _ = unsafe { bpf_skb_change_type(self.0.cast(), PACKET_HOST) };
    }

    /// Sends a copy out of `ifindex`; whether that worked.
    #[inline(always)]
    pub fn copy_to(&self, ifindex: u32) -> bool {
        // SAFETY: plain helper call.
        unsafe { bpf_clone_redirect(self.0.cast(), ifindex, 0) == 0 }
    }
}

/// Sends the packet out of `ifindex`.
#[inline(always)]
pub fn redirect(ifindex: u32) -> i32 {
    // SAFETY: plain helper call.
    unsafe { bpf_redirect(ifindex, 0) as i32 }
}

/// The Internet checksum (RFC 1071) over `words`, which are in memory order, starting from `sum`.
#[inline(always)]
pub fn checksum(words: &mut [u32], sum: u32) -> u16 {
    !fold(partial_sum(words, sum))
}

/// Two halves, in memory order, as the word that they make in memory.
#[inline(always)]
pub fn word(first: u16, second: u16) -> u32 {
    (u32::from(u16::from_be(first)) << 16 | u32::from(u16::from_be(second))).to_be()
}

/// The sum over `words`, not yet folded.
#[inline(always)]
pub fn partial_sum(words: &mut [u32], sum: u32) -> u32 {
    let len = size_of_val(words) as u32;
    // SAFETY: `words` has `len` readable bytes.
    unsafe { bpf_csum_diff(core::ptr::null_mut(), 0, words.as_mut_ptr(), len, sum) as u32 }
}

#[inline(always)]
fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    sum as u16
}
