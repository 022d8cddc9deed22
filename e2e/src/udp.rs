//! UDP between namespaces: every datagram is compared.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    time::Duration,
};

use crate::{Netns, frame, packet_socket::set_option, wait_until};

/// A datagram between idle namespaces takes microseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// A socket in a namespace, connected to `target` if given.
///
/// # Panics
/// The kernel refuses.
#[must_use]
#[track_caller]
pub fn socket(netns: &Netns, address: IpAddr, target: Option<SocketAddr>) -> UdpSocket {
    let socket = netns.enter(|| UdpSocket::bind(SocketAddr::new(address, 0)));
    let socket = socket.unwrap_or_else(|error| panic!("bind {address} in {}: {error}", netns.name()));
    socket.set_read_timeout(Some(PATIENCE)).expect("set a timeout");
    set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 8 << 20);
    if let Some(target) = target {
        socket.connect(target).unwrap_or_else(|error| panic!("connect {address} to {target}: {error}"));
    }
    socket
}

/// Sends one datagram of each size there and has it come back.
///
/// # Panics
/// One is lost or differs.
#[track_caller]
pub fn echo(from: (&Netns, IpAddr), to: (&Netns, IpAddr), sizes: impl IntoIterator<Item = usize>) {
    echo_via(from, to, to.1, sizes);
}

/// Like [`echo`], with the client sending to another address, which is translated on the way. The client's address, as the
/// server sees it.
///
/// # Panics
/// Like [`echo`].
#[track_caller]
pub fn echo_via(
    from: (&Netns, IpAddr),
    to: (&Netns, IpAddr),
    dialled: IpAddr,
    sizes: impl IntoIterator<Item = usize>,
) -> IpAddr {
    let server = socket(to.0, to.1, None);
    let port = server.local_addr().expect("a socket has an address").port();
    let client = socket(from.0, from.1, Some(SocketAddr::new(dialled, port)));
    let mut seen = from.1;
    let mut buffer = vec![0; 65_536];
    for size in sizes {
        let data = frame::pattern(size);
        client.send(&data).unwrap_or_else(|error| panic!("{size} bytes to {}: {error}", to.1));
        let (count, sender) =
            server.recv_from(&mut buffer).unwrap_or_else(|error| panic!("{size} bytes to {}: {error}", to.1));
        assert!(buffer[..count] == data, "{size} bytes to {}: came as {count}, or differ", to.1);
        server.send_to(&data, sender).unwrap_or_else(|error| panic!("{size} bytes back: {error}"));
        let count = client.recv(&mut buffer).unwrap_or_else(|error| panic!("{size} bytes back: {error}"));
        assert!(buffer[..count] == data, "{size} bytes back: came as {count}, or differ");
        seen = sender.ip();
    }
    seen
}

/// Sends a datagram of `size` bytes again and again, as one packet that may not be fragmented until the kernel has learned better,
/// until it arrives.
///
/// # Panics
/// It never does, or differs.
#[track_caller]
pub fn learn(from: &Netns, to: (&Netns, IpAddr), dialled: IpAddr, size: usize) {
    let server = socket(to.0, to.1, None);
    let port = server.local_addr().expect("a socket has an address").port();
    let unspecified =
        if dialled.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let client = socket(from, unspecified, Some(SocketAddr::new(dialled, port)));
    // PMTUDISC_WANT: the first packet is sent whole, and lost; later ones are cut to what the path takes.
    server.set_read_timeout(Some(Duration::from_millis(50))).expect("set a timeout");
    let (data, mut buffer) = (frame::pattern(size), vec![0; 65_536]);
    wait_until(&format!("{size} bytes get to {dialled}"), PATIENCE, || {
        // EMSGSIZE is how the kernel passes on what it has been told.
        let _told = client.send(&data);
        server.recv(&mut buffer).is_ok_and(|count| buffer[..count] == data)
    });
}

/// Hands the kernel `count` datagrams of `size` bytes as one super-packet (UDP GSO, `UDP_SEGMENT`).
///
/// # Panics
/// The kernel refuses, a datagram is lost or differs.
#[track_caller]
pub fn super_packet(from: (&Netns, IpAddr), to: (&Netns, IpAddr), size: usize, count: usize) {
    let server = socket(to.0, to.1, None);
    let client = socket(from.0, from.1, server.local_addr().ok());
    // A shorter last one shows whether the lengths are kept.
    let data = frame::pattern(size * count - size / 2);
    send_super_packet(&client, &data, size);
    let mut buffer = vec![0; 65_536];
    for (index, expected) in data.chunks(size).enumerate() {
        let got = server.recv(&mut buffer);
        let got =
            got.unwrap_or_else(|error| panic!("datagram {index} of {count} x {size} to {}: {error}", to.1));
        assert!(
            buffer[..got] == *expected,
            "datagram {index} of {count} x {size}: came as {got}, or differs"
        );
    }
}

/// Hands the kernel `data` as one super-packet of datagrams of `size` bytes. The socket keeps the setting.
///
/// # Panics
/// The kernel refuses.
#[track_caller]
pub fn send_super_packet(socket: &UdpSocket, data: &[u8], size: usize) {
    set_option(socket, libc::SOL_UDP, libc::UDP_SEGMENT, size.try_into().expect("a segment size fits"));
    socket.send(data).unwrap_or_else(|error| panic!("{} bytes in pieces of {size}: {error}", data.len()));
}
