//! A cluster to look around in: two nodes, two pods on each, until Enter is pressed (or standard input ends).
#![expect(clippy::print_stdout, reason = "it tells its user where things are")]

use e2e::{Cluster, skip};

fn main() -> std::io::Result<()> {
    if !skip::is_root() {
        std::process::exit(1);
    }
    let cluster = Cluster::builder().start();
    let pods: Vec<_> =
        cluster.nodes().iter().flat_map(|node| ["one", "two"].map(|name| node.add_pod(name))).collect();
    println!("the outside   nsenter --net={}", cluster.underlay.fabric.path().display());
    for node in cluster.nodes() {
        println!(
            "{:<13} nsenter --net={}   files in {}",
            node.name,
            node.netns.path().display(),
            node.folder.display()
        );
    }
    for pod in &pods {
        println!("{} {:<9} nsenter --net={}", pod.ip4(), pod.ip6(), pod.netns.path().display());
    }
    println!("(nsenter rather than `ip netns exec`, which hides bpffs.) Enter ends it.");
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}
