//! Tests that need root.

/// Whether the test can run. Says so if not; with `HEADWAY_REQUIRE_ROOT=1` that is a failure.
pub fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        let required = std::env::var("HEADWAY_REQUIRE_ROOT").is_ok_and(|value| value == "1");
        assert!(!required, "HEADWAY_REQUIRE_ROOT=1, but this is not root");
        println!("skipped: network namespaces and BPF need root");
    }
    root
}

/// Returns from a test that needs root and does not have it.
macro_rules! need_root {
    () => {
        if !crate::root::is_root() {
            return;
        }
    };
}
pub(crate) use need_root;
