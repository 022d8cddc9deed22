//! headway's switch: three programs at tcx ingress that carry Ethernet frames between endpoints, and between nodes
//! in SRv6.
//!
//! ```text
//! endpoint --> headway_endpoint: allowed? | ARP, ND | local | remote | BUM | too big
//!                    |                                    |
//!                    |  super-packets: hws0 ==> hws1 --> headway_segment
//!                    v                                    v
//!              other endpoints                          uplink ==> peer --> headway_uplink --> its endpoints
//! ```
//! What is not ours is left to others with `TCX_NEXT`. What is ours and not carried is dropped and counted by reason.
//!
//! A frame cannot circle. What arrives from an uplink is never sent to an uplink, and what an endpoint sends back to
//! the switch unchanged carries another's source MAC and dies at the first question.
//!
//! The programs use no kernel functions, callbacks or tail calls, so they load without a JIT as well.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]

mod allowed;
mod arp;
mod bucket;
mod count;
mod decap;
mod deliver;
mod ecn;
mod encap;
mod endpoint;
mod extension;
mod flood;
mod flow;
mod frame;
mod map;
mod maps;
mod nd;
mod neighbour;
mod packet;
mod path_mtu;
mod segment;
mod services;
mod too_big;
mod tuple;
mod uplink;

use crate::{
    count::verdict,
    packet::{__sk_buff, Packet},
};

/// At a pod's host link and at the switch side of the gateway link.
#[unsafe(no_mangle)]
#[unsafe(link_section = "classifier")]
pub extern "C" fn headway_endpoint(skb: *mut __sk_buff) -> i32 {
    verdict(endpoint::switch(Packet(skb)))
}

/// At an uplink.
#[unsafe(no_mangle)]
#[unsafe(link_section = "classifier")]
pub extern "C" fn headway_uplink(skb: *mut __sk_buff) -> i32 {
    verdict(uplink::receive(Packet(skb)))
}

/// At the far end of the segmenter.
#[unsafe(no_mangle)]
#[unsafe(link_section = "classifier")]
pub extern "C" fn headway_segment(skb: *mut __sk_buff) -> i32 {
    verdict(segment::send(Packet(skb)))
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual BSD/GPL\0";

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    // The verifier refuses an endless loop: a program in which this can be reached does not load.
    loop {}
}
