//! What Services cost those that do not use them.

use std::{fs, path::PathBuf};

use crate::{
    node::{BpfDir, Node, address4, mac},
    packets::{IP4, UDP, ethernet, ip4, udp},
    pod::Pod,
    root::need_root,
    world::unique,
};

const PORT: u16 = 8080;
/// Runs of a program in a row, and rows. The fastest row counts: whatever else the machine does only adds.
const RUNS: u32 = 20_000;
const ROWS: u32 = 15;

fn packet(from: u16, to: u16, ports: (u16, u16)) -> Vec<u8> {
    let packet = ip4(address4(1, from), address4(1, to), UDP, &udp(ports, b"hello"));
    ethernet(mac(1, to), mac(1, from), IP4, &packet)
}

/// What the programs run on: files for `bpftool prog run`, removed when dropped.
struct Bench(PathBuf);

impl Bench {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(unique("cost"));
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    /// Nanoseconds that the endpoint program takes for a frame of the pod, which it would then pass on.
    fn nanoseconds(&self, node: &Node, dir: &BpfDir, pod: &Pod, frame: &[u8]) -> u32 {
        let (data, context) = (self.0.join("data"), self.0.join("context"));
        fs::write(&data, frame).unwrap();
        let mut words = [0_u32; 48];
        // `ifindex` of struct __sk_buff (linux/bpf.h).
        words[10] = pod.ifindex;
        fs::write(&context, words.map(u32::to_ne_bytes).as_flattened()).unwrap();
        let pin = dir.0.join(format!("links/endpoint-{}", pod.ifindex));
        let link = node.namespace.run("bpftool", &["-j", "link", "show", "pinned", pin.to_str().unwrap()]);
        let program = number(&link, "\"prog_id\":");
        let arguments = [
            "prog",
            "run",
            "id",
            &program.to_string(),
            "repeat",
            &RUNS.to_string(),
            "data_in",
            data.to_str().unwrap(),
            "ctx_in",
            context.to_str().unwrap(),
        ];
        let row = |_| number(&node.namespace.run("bpftool", &arguments), "duration (average): ");
        (0..ROWS).map(row).min().unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn number(text: &str, behind: &str) -> u32 {
    let rest = text.split(behind).nth(1).unwrap_or_else(|| panic!("no {behind} in {text}"));
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

#[test]
fn plain_traffic_does_not_pay_for_services() {
    need_root!(Alone);
    let mut node = Node::new(1);
    let pods = [10, 11, 12].map(|host| node.add_pod(host));
    let bench = Bench::new();
    let plain = packet(10, 11, (1, 2));
    let cost = || bench.nanoseconds(&node, &node.dir, &pods[0], &plain);
    let uses_service = |client, backend| {
        let mut frame = packet(client, backend, (4000, PORT));
        frame[6..12].copy_from_slice(&mac(1, 1));
        node.gateway.send(&frame);
        pods[usize::from(backend) - 10]
            .tap
            .expect("the client's packet", |arrived| arrived[..6] == frame[..6]);
    };
    let before = cost();
    // Both use Services, but not with each other.
    uses_service(10, 12);
    uses_service(11, 12);
    let with_others = cost();
    uses_service(11, 10);
    let at_the_client = cost();
    uses_service(10, 11);
    let at_both = cost();
    println!(
        "ns for a plain packet: {before} without Services, {with_others} with Services elsewhere, {at_the_client} to a pod that \
         has its sender as a backend, {at_both} if that is so both ways"
    );
    assert!(with_others * 10 <= before * 12, "{with_others} ns instead of {before}");
    assert!(at_both > with_others, "what is measured is not the look-up: {at_both} and {with_others} ns");
}
