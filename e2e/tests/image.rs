//! The image holds all that the agent needs, little else, and is the same each time.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{self, Command},
};

use e2e::{host, root_or_skip};
use serde_json::Value;

/// Bytes that the image may have on a node.
const MOST: u64 = 60 << 20;

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = env::temp_dir().join(format!("headway-image-{}", process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs it, gives what it prints.
#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn build(archive: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/build-image.sh");
    let mut command = Command::new(script);
    command.args([archive, Path::new("registry.example/headway:test")]);
    run(command.env("HEADWAY_AGENT", host::agent_binary()).env("HEADWAY_PLUGIN", host::plugin_binary()));
}

fn unpack(archive: &Path, folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    run(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(folder));
}

/// The document behind a descriptor.
fn blob(layout: &Path, descriptor: &Value) -> PathBuf {
    let digest = descriptor["digest"].as_str().unwrap().replace(':', "/");
    let path = layout.join("blobs").join(digest);
    assert_eq!(fs::metadata(&path).unwrap().len(), descriptor["size"].as_u64().unwrap());
    path
}

fn document(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn the_image_is_complete_small_and_the_same_each_time() {
    root_or_skip!();
    let folder = Folder::new();
    let (first, second) = (folder.at("first.tar"), folder.at("second.tar"));
    build(&first);
    build(&second);
    assert!(fs::read(&first).unwrap() == fs::read(&second).unwrap(), "two builds differ");

    let layout = folder.at("layout");
    unpack(&first, &layout);
    let index = document(&layout.join("index.json"));
    let entry = &index["manifests"][0];
    assert_eq!(entry["annotations"]["io.containerd.image.name"], "registry.example/headway:test");
    let manifest = document(&blob(&layout, entry));
    let config = document(&blob(&layout, &manifest["config"]));
    assert_eq!(config["config"]["Entrypoint"][0], "/usr/bin/headway-agent");

    let root = folder.at("root");
    unpack(&blob(&layout, &manifest["layers"][0]), &root);
    let size = run(Command::new("du").args(["-sb"]).arg(&root));
    let size: u64 = size.split('\t').next().unwrap().parse().unwrap();
    assert!(size < MOST, "{size} bytes");
    let inside = |arguments: &[&str]| run(Command::new("chroot").arg(&root).args(arguments));
    assert!(inside(&["/usr/bin/headway-agent", "schema"]).contains("headway-agent configuration"));
    assert!(inside(&["/usr/sbin/nft", "--version"]).contains("nftables"));
    inside(&["/usr/bin/headway-agent", "install", "--folder", "/opt/cni/bin"]);
    let plugin = host::plugin_binary();
    assert!(fs::read(root.join("opt/cni/bin/headway")).unwrap() == fs::read(plugin).unwrap());
}
