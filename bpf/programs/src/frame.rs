//! The Ethernet header of a frame, with its VLAN tags looked through.

use bpf_common::{counters::DropReason, mac, maps::Mac};

use crate::{extension::Upper, packet::Packet};

/// Length of an Ethernet header.
pub const ETHERNET: usize = 14;
/// Length of an IPv6 header.
pub const IP6_HEADER: usize = 40;
/// Length of one VLAN tag.
pub const TAG: usize = 4;

/// EtherTypes, network byte order.
pub const IP4: u16 = 0x0800_u16.to_be();
/// See [`IP4`].
pub const IP6: u16 = 0x86dd_u16.to_be();
/// See [`IP4`].
pub const ARP: u16 = 0x0806_u16.to_be();
const VLAN: u16 = 0x8100_u16.to_be();
const SERVICE_VLAN: u16 = 0x88a8_u16.to_be();
const VID: u16 = 0x0fff_u16.to_be();

/// An Ethernet header, in pieces that never need byte loads.
pub type Header = [u16; 7];

/// What the Ethernet header and the tags say. `repr(C)`: see [`crate::packet::__sk_buff`].
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Frame {
    /// Destination MAC.
    pub destination: Mac,
    /// Source MAC.
    pub source: Mac,
    /// EtherType below all tags, network byte order.
    pub protocol: u16,
    /// Where the network header begins. A byte, so that the verifier sees a bound wherever the value is kept.
    network: u8,
    /// Tags, the lifted one included.
    pub tags: u32,
    /// Whether the frame belongs to a VLAN. A tag with VLAN 0 carries a priority only: receivers treat such a frame
    /// as an untagged one (IEEE 802.1Q 6.9.1), and so does the switch.
    pub vlan: bool,
}

impl Frame {
    /// Reads the header at `start`. Makes the fixed network header and the ports behind it reachable.
    #[inline(always)]
    pub fn read(packet: Packet, start: usize) -> Result<Self, DropReason> {
        packet.pull(start + ETHERNET + 2 * TAG)?;
        let header: Header = packet.get(start)?;
        let mut frame = Self {
            destination: [header[0], header[1], header[2]],
            source: [header[3], header[4], header[5]],
            protocol: header[6],
            network: (start + ETHERNET) as u8,
            tags: 0,
            vlan: false,
        };
        if start == 0
            && let Some(tag) = packet.lifted_tag()
        {
            frame.pass_tag(tag[1]);
        }
        frame.read_tag(packet)?;
        frame.read_tag(packet)?;
        if frame.is_tagged_inside() || frame.tags > 2 {
            return Err(DropReason::TooManyTags);
        }
        packet.pull(frame.network() + frame.fixed_headers())?;
        // Here many ways meet.
        frame.network = packet.forget(u32::from(frame.network)) as u8;
        frame.protocol = packet.forget(u32::from(frame.protocol)) as u16;
        frame.tags = packet.forget(frame.tags);
        frame.vlan = packet.forget(u32::from(frame.vlan)) != 0;
        Ok(frame)
    }

    #[inline(always)]
    fn read_tag(&mut self, packet: Packet) -> Result<(), DropReason> {
        if self.is_tagged_inside() {
            let [control, protocol] = packet.get::<[u16; 2]>(self.network())?;
            self.pass_tag(control);
            self.protocol = protocol;
            self.network += TAG as u8;
        }
        Ok(())
    }

    #[inline(always)]
    fn is_tagged_inside(&self) -> bool {
        self.protocol == VLAN || self.protocol == SERVICE_VLAN
    }

    #[inline(always)]
    fn pass_tag(&mut self, control: u16) {
        self.tags += 1;
        self.vlan |= control & VID != 0;
    }

    /// How much behind the Ethernet header the programs look at by pointer.
    #[inline(always)]
    fn fixed_headers(&self) -> usize {
        match self.protocol {
            IP4 => 24,
            IP6 => IP6_HEADER + 4,
            ARP => 28,
            _ => 0,
        }
    }

    /// Where the network header begins.
    #[inline(always)]
    pub fn network(&self) -> usize {
        usize::from(self.network)
    }

    /// Follows the removal of `len` bytes in front of the frame.
    #[inline(always)]
    pub fn moved_up(&mut self, len: usize) {
        self.network -= len as u8;
    }

    /// Whether the frame is IPv4 or IPv6.
    #[inline(always)]
    pub fn is_ip(&self) -> bool {
        self.protocol == IP4 || self.protocol == IP6
    }

    /// The upper-layer protocol of an IP frame and where its header begins; protocol 0 if the frame is not IP.
    #[inline(always)]
    pub fn upper(&self, packet: Packet) -> Result<(u32, usize), DropReason> {
        let at = self.network();
        match self.protocol {
            IP6 => Upper::find(packet, at).map(|upper| (upper.protocol, upper.offset)),
            IP4 => {
                let words = packet.get::<u8>(at)? & 0xf;
                let protocol = packet.get::<u8>(at + 9)?;
                Ok((u32::from(protocol), at + usize::from(words) * 4))
            }
            _ => Ok((0, at)),
        }
    }

    /// Whether the frame is to many.
    #[inline(always)]
    pub fn is_to_group(&self) -> bool {
        mac::is_group(&self.destination)
    }
}

/// Whether two MACs are the same.
#[inline(always)]
pub fn same_mac(a: &Mac, b: &Mac) -> bool {
    (a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) == 0
}

/// Whether two IPv6 addresses are the same.
#[inline(always)]
pub fn same_ip6(a: &[u32; 4], b: &[u32; 4]) -> bool {
    (a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]) == 0
}
