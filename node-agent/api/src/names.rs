//! Names that the plugin and the agent derive alike.

use std::path::{Path, PathBuf};

use crate::AttachmentKey;

/// Where the agent listens, unless the configuration says otherwise.
pub const SOCKET: &str = "/run/headway/agent.sock";
/// Where DEL leaves word while the agent is away, unless the configuration says otherwise.
pub const PENDING: &str = "/var/lib/headway/pending";
/// How often the agent touches its [`alive_file`].
pub const ALIVE_INTERVAL: std::time::Duration = std::time::Duration::from_secs(5);
/// All links of ours on a node begin with it.
pub const LINK_PREFIX: &str = "hw";
/// Interface group (`IFLA_GROUP`) of all links of ours on a node: set in the creating message, it tells them
/// from others whose name begins alike.
pub const LINK_GROUP: u32 = 0x6877;

/// The file beside the agent's socket whose modification time the agent renews every [`ALIVE_INTERVAL`].
///
/// The plugin keeps no state and STATUS has one second: the age of this file is how it tells an agent that is
/// just being replaced from one that is gone for long.
#[must_use]
pub fn alive_file(socket: &Path) -> PathBuf {
    socket.with_file_name("alive")
}

/// Name of an attachment's link on the node: the prefix and 48 bits of a hash of the key, 14 characters.
///
/// A function of the key alone, so that DEL can remove the link while the agent is away.
#[must_use]
pub fn host_ifname(key: &AttachmentKey) -> String {
    format!("{LINK_PREFIX}{:012x}", fingerprint(key) >> 16)
}

/// Is it a name as [`host_ifname`] makes them?
#[must_use]
pub fn is_host_ifname(name: &str) -> bool {
    let hash = name.strip_prefix(LINK_PREFIX).unwrap_or_default();
    hash.len() == 12 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// FNV-1a over the parts of the key, each ended by a zero byte (which no part may contain). Part of the
/// contract between releases: it must never change.
#[must_use]
pub fn fingerprint(key: &AttachmentKey) -> u64 {
    let parts = [&key.network, &key.container, &key.ifname];
    let bytes = parts.into_iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(network: &str, container: &str, ifname: &str) -> AttachmentKey {
        AttachmentKey { network: network.into(), container: container.into(), ifname: ifname.into() }
    }

    #[test]
    fn host_ifname_is_the_same_for_ever() {
        assert_eq!(host_ifname(&key("headway", "0123456789abcdef", "eth0")), "hwb9405eda41e3");
    }

    #[test]
    fn names_of_other_links_are_told_apart() {
        assert!(is_host_ifname(&host_ifname(&key("a", "b", "c"))));
        for other in ["hw0", "hws1", "eth0", "hwb9405eda41e", "hwb9405eda41e34", "hwx9405eda41e3"] {
            assert!(!is_host_ifname(other), "{other}");
        }
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        assert_ne!(fingerprint(&key("a", "bc", "d")), fingerprint(&key("ab", "c", "d")));
        assert_ne!(fingerprint(&key("a", "b", "cd")), fingerprint(&key("a", "bc", "d")));
    }

    #[test]
    fn the_alive_file_lies_beside_the_socket() {
        assert_eq!(alive_file(Path::new(SOCKET)), Path::new("/run/headway/alive"));
    }
}
