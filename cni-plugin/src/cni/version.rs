//! The versions of the specification that this plugin speaks.

use serde_json::{Value, json};

/// A version of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CniVersion {
    /// 0.3.1
    V0_3_1,
    /// 0.4.0: adds CHECK.
    V0_4_0,
    /// 1.0.0: addresses no longer say their family.
    V1_0_0,
    /// 1.1.0: adds GC and STATUS, and the MTU of interfaces.
    V1_1_0,
}

impl CniVersion {
    /// All of them, oldest first.
    pub const ALL: [Self; 4] = [Self::V0_3_1, Self::V0_4_0, Self::V1_0_0, Self::V1_1_0];
    /// What is spoken to a caller who has not said what he speaks.
    pub const NEWEST: Self = Self::V1_1_0;

    /// As the specification writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }

    /// The version that is written so, if it is spoken here.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.as_str() == text)
    }

    /// The answer to VERSION.
    pub fn report() -> Value {
        json!({ "cniVersion": Self::NEWEST.as_str(), "supportedVersions": Self::ALL.map(Self::as_str) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_order_and_survive_their_text() {
        assert!(CniVersion::ALL.is_sorted());
        for version in CniVersion::ALL {
            assert_eq!(CniVersion::parse(version.as_str()), Some(version));
        }
        for foreign in ["", "1.1", "0.1.0", "0.3.0", "1.2.0", " 1.1.0"] {
            assert_eq!(CniVersion::parse(foreign), None);
        }
    }
}
