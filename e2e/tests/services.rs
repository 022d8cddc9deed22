//! Services: what a node translates for its pods, for itself and for others finds its way back, with rules as kube-proxy makes
//! them in both of its modes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use e2e::{
    Cluster, Netns, Node, Pod, Shared,
    host::agent_of_next_release,
    root_or_skip,
    service::{Kind, Mode, Rules, Service},
    tcp::{self, Amount},
    udp,
};

static CLUSTER: Shared = Shared::new(|| {
    let cluster = Cluster::builder().prepare();
    for node in cluster.nodes() {
        // As many distributions have it. The effective value of a link is the larger of the two.
        node.netns.sysctl("net/ipv4/conf/all/rp_filter", "1");
    }
    cluster.nodes().iter().for_each(Node::start_agent);
    cluster
});

const CIDRS: [&str; 2] = ["10.1.0.0/16", "fd10::/48"];
const MODES: [Mode; 2] = [Mode::Nftables, Mode::Iptables];
const BULK: Amount = Amount::Bytes(2 << 20);
/// The first virtual address of each family.
const VIRTUAL: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 96, 0, 10)), IpAddr::V6(Ipv6Addr::new(0xfd96, 0, 0, 0, 0, 0, 0, 0x10))];
/// Datagrams: small, as large as a packet, and in fragments.
const SIZES: [usize; 3] = [1, 1300, 4000];

/// Virtual addresses of a Service with one pod behind it; `number` tells Services apart.
fn cluster_ips(pod: &Pod, number: u8) -> Vec<Service> {
    let addresses = VIRTUAL.map(|address| match address {
        IpAddr::V4(ip) => IpAddr::V4((u32::from(ip) + u32::from(number)).into()),
        IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) + u128::from(number)).into()),
    });
    let services = addresses.into_iter().zip(pod.addresses());
    services.map(|(address, backend)| Service { kind: Kind::ClusterIp, address, backend }).collect()
}

fn node_ports(node: &Node, pod: &Pod, kind: Kind) -> Vec<Service> {
    let services = own_addresses(node).into_iter().zip(pod.addresses());
    services.map(|(address, backend)| Service { kind, address, backend }).collect()
}

fn own_addresses(node: &Node) -> [IpAddr; 2] {
    [node.address4.into(), node.address.into()]
}

fn unspecified(other: IpAddr) -> IpAddr {
    if other.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// TCP with much data in both directions and UDP of all sizes, from an address in `from` to `service`. The client's address, as
/// the backend sees it.
fn works(from: (&Netns, IpAddr), backend: &Pod, service: &Service) -> IpAddr {
    eprintln!("{} to {service:?}", from.0.name());
    let (to, dialled) = (&backend.netns, service.address);
    let there = tcp::transfer_via(from.0, to, service.backend, dialled, BULK);
    assert_eq!(there.bytes, 2 << 20);
    let (mut client, mut server) = tcp::connect(from.0, to, service.backend, dialled);
    tcp::talk(&mut client, &mut server);
    assert_eq!(tcp::run(server, client, BULK).bytes, 2 << 20);
    datagrams(from, (to, service.backend), dialled)
}

/// UDP of all sizes. Who comes from a wider network than the segment loses a first large packet, is told, and sends smaller ones.
fn datagrams(from: (&Netns, IpAddr), to: (&Netns, IpAddr), dialled: IpAddr) -> IpAddr {
    udp::learn(from.0, to, dialled, SIZES[2]);
    udp::echo_via(from, to, dialled, SIZES)
}

#[test]
fn cluster_ips_reach_backends_on_any_node() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let (client, local) = (cluster.a().add_pod("client"), cluster.a().add_pod("local"));
    let remote = cluster.b().add_pod("remote");
    let backends = [&remote, &local, &client];
    let services: Vec<Vec<_>> =
        backends.iter().zip(0..).map(|(pod, number)| cluster_ips(pod, number)).collect();
    for mode in MODES {
        let rules = Rules::install(cluster.a(), mode, &CIDRS, &services.concat());
        for (backend, services) in backends.iter().zip(&services) {
            for (service, own) in services.iter().zip(client.addresses()) {
                let seen = works((&client.netns, own), backend, service);
                // kube-proxy masquerades what would come back to its sender.
                assert_eq!(seen != own, service.backend == own, "{service:?}: {seen}");
                // The same two by their own addresses, at the same time.
                udp::echo((&client.netns, own), (&backend.netns, service.backend), SIZES);
                assert_eq!(
                    tcp::transfer(&client.netns, &backend.netns, service.backend, BULK).bytes,
                    2 << 20
                );
            }
        }
        assert_eq!(rules.invalid(), 0, "{mode:?}");
    }
    assert!(cluster.a().events()["service_answer"] > 0);
    assert!(cluster.a().drops()["redirect"] > 0, "the node's stack redirects, and nobody may follow");
}

#[test]
fn nodes_use_services_and_pods_use_the_nodes() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let (client, local) = (cluster.a().add_pod("client"), cluster.a().add_pod("local"));
    let remote = cluster.b().add_pod("remote");
    for mode in MODES {
        let backends = [&remote, &local];
        let services: Vec<Vec<_>> =
            backends.iter().zip(0..).map(|(pod, number)| cluster_ips(pod, number)).collect();
        let rules = Rules::install(cluster.a(), mode, &CIDRS, &services.concat());
        for (backend, services) in backends.iter().zip(&services) {
            for service in services {
                works((&cluster.a().netns, unspecified(service.address)), backend, service);
            }
        }
        assert_eq!(rules.invalid(), 0, "{mode:?}");
        drop(rules);
        // A pod by the NodePort of its own node and of another.
        for (node, backend) in [(cluster.a(), &remote), (cluster.b(), &local), (cluster.b(), &remote)] {
            let services = node_ports(node, backend, Kind::NodePort);
            let rules = Rules::install(node, mode, &CIDRS, &services);
            for (service, own) in services.iter().zip(client.addresses()) {
                works((&client.netns, own), backend, service);
            }
            assert_eq!(rules.invalid(), 0, "{mode:?}");
        }
    }
}

#[test]
fn node_ports_take_clients_from_outside() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let (local, remote) = (cluster.a().add_pod("local"), cluster.b().add_pod("remote"));
    let outside = &cluster.underlay.fabric;
    let clients = [cluster.underlay.outside4(), cluster.underlay.outside()];
    for mode in MODES {
        for (kind, backend) in
            [(Kind::NodePort, &remote), (Kind::NodePort, &local), (Kind::NodePortLocal, &local)]
        {
            let services = node_ports(cluster.a(), backend, kind);
            let rules = Rules::install(cluster.a(), mode, &CIDRS, &services);
            for (service, client) in services.iter().zip(clients) {
                let seen = works((outside, client), backend, service);
                assert_eq!(seen == client, kind == Kind::NodePortLocal, "{service:?}: {seen}");
            }
            assert_eq!(rules.invalid(), 0, "{mode:?}");
        }
    }
}

#[test]
fn others_reach_pods_beside_the_rules() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let (local, remote) = (cluster.a().add_pod("local"), cluster.b().add_pod("remote"));
    let outside = &cluster.underlay.fabric;
    outside.ip(&format!(
        "route add 10.1.1.0/24 via {}\nroute add fd10:0:0:1::/64 via {}",
        cluster.a().address4,
        cluster.a().address
    ));
    let clients = [cluster.underlay.outside4(), cluster.underlay.outside()];
    for mode in MODES {
        let rules = Rules::install(cluster.a(), mode, &CIDRS, &cluster_ips(&remote, 0));
        for (address, client) in local.addresses().into_iter().zip(clients) {
            assert_eq!(datagrams((outside, client), (&local.netns, address), address), client);
            assert_eq!(tcp::transfer(outside, &local.netns, address, BULK).bytes, 2 << 20);
            let away = tcp::transfer(&local.netns, outside, client, BULK);
            assert_eq!(away.bytes, 2 << 20);
        }
        // The node itself, from whatever address: by itself it takes the one that it has on the segment.
        for (address, gateway) in remote.addresses().into_iter().zip(cluster.a().gateway_addresses()) {
            let seen = udp::echo_via(
                (&cluster.a().netns, unspecified(address)),
                (&remote.netns, address),
                address,
                [1],
            );
            assert_eq!(seen, gateway);
        }
        for pod in [&local, &remote] {
            for (address, own) in pod.addresses().into_iter().zip(own_addresses(cluster.a())) {
                udp::echo((&cluster.a().netns, own), (&pod.netns, address), SIZES);
                assert_eq!(tcp::transfer(&cluster.a().netns, &pod.netns, address, BULK).bytes, 2 << 20);
            }
        }
        assert_eq!(rules.invalid(), 0, "{mode:?}");
    }
    outside.ip("route del 10.1.1.0/24\nroute del fd10:0:0:1::/64");
}

#[test]
fn a_connection_to_a_service_survives_the_agent() {
    root_or_skip!();
    let cluster = CLUSTER.alone();
    let (client, remote) = (cluster.a().add_pod("client"), cluster.b().add_pod("remote"));
    let services = cluster_ips(&remote, 0);
    let rules = Rules::install(cluster.a(), Mode::Nftables, &CIDRS, &services);
    let mut connections: Vec<_> = services
        .iter()
        .map(|service| tcp::connect(&client.netns, &remote.netns, service.backend, service.address))
        .collect();
    for (client, server) in &mut connections {
        tcp::talk(client, server);
    }
    cluster.a().kill_agent();
    for (client, server) in &mut connections {
        // The backend speaks first: what the switch knows of the flow has outlived the agent.
        tcp::talk(server, client);
    }
    cluster.a().start_agent();
    for (client, server) in &mut connections {
        tcp::talk(server, client);
    }
    assert_eq!(rules.invalid(), 0);
}

#[test]
fn a_connection_to_a_service_survives_an_upgrade_by_a_minor_release_and_back() {
    root_or_skip!();
    let cluster = Cluster::builder().start();
    let (client, remote) = (cluster.a().add_pod("client"), cluster.b().add_pod("remote"));
    let service = cluster_ips(&remote, 0)[0];
    let _rules = Rules::install(cluster.a(), Mode::Nftables, &CIDRS, &[service]);
    let (mut near, mut far) = tcp::connect(&client.netns, &remote.netns, service.backend, service.address);
    tcp::talk(&mut near, &mut far);
    cluster.a().stop_agent();
    cluster.a().spawn_agent_binary(agent_of_next_release("minor"));
    cluster.a().wait_ready();
    // The backend speaks first: the other release's maps are not the ones in which the flow was noted.
    tcp::talk(&mut far, &mut near);
    let (mut other_near, mut other_far) =
        tcp::connect(&client.netns, &remote.netns, service.backend, service.address);
    tcp::talk(&mut other_near, &mut other_far);
    cluster.a().stop_agent();
    cluster.a().start_agent();
    tcp::talk(&mut far, &mut near);
    tcp::talk(&mut other_far, &mut other_near);
}

#[test]
fn a_service_client_is_told_what_is_too_big_for_the_backend() {
    root_or_skip!();
    let mtus: [u32; 2] = [9000, 1500];
    let cluster = Cluster::builder().mtu(mtus[0]).node_mtu(2, mtus[1]).config(move |node, config| {
        for peer in config["peers"].as_array_mut().into_iter().flatten() {
            peer["mtu"] = mtus[2 - usize::from(node)].into();
        }
    });
    let cluster = cluster.start();
    let (client, remote) = (cluster.a().add_pod("client"), cluster.b().add_pod("remote"));
    let services = cluster_ips(&remote, 0);
    for mode in MODES {
        let rules = Rules::install(cluster.a(), mode, &CIDRS, &services);
        for service in &services {
            // The backend's segment size bounds TCP from the start: a datagram is what meets the limit.
            udp::learn(&client.netns, (&remote.netns, service.backend), service.address, 4000);
            let there =
                tcp::transfer_via(&client.netns, &remote.netns, service.backend, service.address, BULK);
            assert_eq!(there.bytes, 2 << 20);
        }
        assert_eq!(rules.invalid(), 0, "{mode:?}");
    }
    assert!(cluster.a().events()["too_big_sent"] >= 2);
}
