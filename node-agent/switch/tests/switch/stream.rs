//! TCP between namespaces, byte for byte.

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, TcpListener, TcpStream},
    thread,
};

use crate::world::{Namespace, PATIENCE};

pub const MEGABYTE: usize = 1 << 20;

/// Bytes that repeat so late that no shift of a segment goes unnoticed.
pub fn pattern(len: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Sends `data` by TCP; panics unless it arrives as it is.
pub fn transfer(from: &Namespace, to: &Namespace, address: IpAddr, data: &[u8]) {
    let listener = to.enter(|| TcpListener::bind((address, 0))).unwrap();
    let target = listener.local_addr().unwrap();
    thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            let mut received = Vec::new();
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.read_to_end(&mut received).unwrap();
            received
        });
        let mut stream = from.enter(|| TcpStream::connect_timeout(&target, PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(data).unwrap();
        drop(stream);
        assert!(receiver.join().unwrap() == data, "what arrived at {address} is not what was sent");
    });
}
