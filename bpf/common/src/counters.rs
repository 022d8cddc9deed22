//! Why packets are dropped and what else happened to them: indices of the per-CPU counters.

macro_rules! counters {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $label:literal,)* }) => {
        $(#[$meta])*
        #[repr(u32)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$doc])* $variant,)* }
        impl $name {
            /// All of them, in the order of their indices.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];
            /// The word for it in metrics and status.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self { $(Self::$variant => $label,)* }
            }
        }
    };
}

counters! {
    /// Why a frame was dropped.
    DropReason {
        /// An endpoint's frame carries a source MAC that is not its own.
        SourceMac = "source_mac",
        /// An endpoint's packet carries a source address that is not its own.
        SourceIp = "source_ip",
        /// An ARP packet names a sender that is not the endpoint.
        ArpSender = "arp_sender",
        /// A neighbour advertisement for an address that is not the endpoint's, or with another's MAC.
        NdTarget = "nd_target",
        /// A router advertisement from an endpoint.
        RouterAdvertisement = "router_advertisement",
        /// An ICMPv6 redirect from an endpoint or from this node's own stack.
        Redirect = "redirect",
        /// An endpoint's packet carries a routing header.
        SegmentRouting = "segment_routing",
        /// An endpoint addresses the SID block.
        SidDestination = "sid_destination",
        /// The destination MAC is nobody's that this node knows.
        UnknownUnicast = "unknown_unicast",
        /// Broadcast or multicast while flooding is off.
        FloodingOff = "flooding_off",
        /// The endpoint sends more broadcast and multicast than its storm limit.
        StormLimit = "storm_limit",
        /// The destination lies in this node's own pod prefix and nobody has it.
        NoSuchEndpoint = "no_such_endpoint",
        /// Too big for the way to the peer, and the sender cannot be told.
        TooBig = "too_big",
        /// More VLAN tags than the switch carries.
        TooManyTags = "too_many_tags",
        /// No way to the peer is known.
        NoNextHop = "no_next_hop",
        /// A frame too short for the headers it announces.
        Malformed = "malformed",
        /// Arrived for this node's locator but for no SID of it.
        UnknownSid = "unknown_sid",
        /// The outer source is not the infrastructure address of another node in the SID block.
        OuterSource = "outer_source",
        /// An extension header or an upper-layer protocol that the SID does not take.
        OuterHeader = "outer_header",
        /// Shorter than the outer header says.
        Truncated = "truncated",
        /// The inner source is not an endpoint of the node that sent it.
        InnerSource = "inner_source",
        /// The inner packet addresses the SID block again.
        Nested = "nested",
        /// Something else than ICMPv6 to the infrastructure address.
        InfraProtocol = "infra_protocol",
        /// More ICMPv6 to the infrastructure address than its limit.
        InfraRate = "infra_rate",
        /// The outer header reports congestion, and the inner packet cannot carry that (RFC 6040 section 4.2).
        Ecn = "ecn",
        /// The kernel could not make room or memory for a header.
        Room = "room",
        /// A super-packet came out of the segmenter.
        Segmenter = "segmenter",
    }
}

counters! {
    /// What else happened to a frame.
    Event {
        /// Handed to a local endpoint by a pod or the node.
        Local = "local",
        /// Encapsulated and sent to a peer.
        Encapsulated = "encapsulated",
        /// Decapsulated from a peer.
        Decapsulated = "decapsulated",
        /// Copied to a peer by flooding.
        FloodedRemote = "flooded_remote",
        /// Copied to a local endpoint by flooding.
        FloodedLocal = "flooded_local",
        /// Kept off the underlay because nobody there needs it.
        Chatter = "chatter",
        /// An ARP request answered by the switch.
        ArpAnswered = "arp_answered",
        /// A neighbour solicitation answered by the switch.
        NdAnswered = "nd_answered",
        /// A super-packet sent through the segmenter.
        Segmented = "segmented",
        /// A packet-too-big or fragmentation-needed sent to an endpoint.
        TooBigSent = "too_big_sent",
        /// A path MTU learned.
        PathMtuLearned = "path_mtu_learned",
        /// Sent by way of the kernel's neighbour resolution, the next hop's MAC being unknown.
        Resolving = "resolving",
        /// A flow that the node routes on behalf of a pod was remembered.
        ServiceFlow = "service_flow",
        /// The answer to such a flow was handed to the node.
        ServiceAnswer = "service_answer",
        /// An established TCP connection was not remembered any more when its pod sent the next packet.
        ServiceFlowLost = "service_flow_lost",
    }
}
