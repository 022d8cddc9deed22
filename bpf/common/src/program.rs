//! The eBPF programs, by where they sit.

/// One of the programs, each at tcx ingress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// On a pod's host link and on the switch side of the gateway link.
    Endpoint,
    /// On an uplink.
    Uplink,
    /// On the far end of the segmenter.
    Segment,
}

impl Program {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Endpoint, Self::Uplink, Self::Segment];

    /// Its name in the object and in the kernel.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Endpoint => "headway_endpoint",
            Self::Uplink => "headway_uplink",
            Self::Segment => "headway_segment",
        }
    }
}
