//! The delaying proxy: bytes as they were, in order, and not too early.
#![allow(clippy::disallowed_methods, reason = "a test is a client and a server of its own")]

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use assent_bench::proxy::{Delay, Proxy};
use assent_world::net::Address;

fn connect(address: &Address) -> TcpStream {
    let Address::Tcp { host, port } = address else { panic!("{address}") };
    let stream = TcpStream::connect((host.as_str(), *port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// A server that sends back what it gets, until the end; for that many connections.
fn echo(connections: usize) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::from(listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().take(connections) {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut bytes = vec![0; 8_192];
                while let Ok(read @ 1..) = stream.read(&mut bytes) {
                    stream.write_all(bytes.get(..read).unwrap_or_default()).unwrap();
                }
            });
        }
    });
    address
}

#[test]
fn bytes_pass_unharmed_and_in_order_both_ways_and_so_does_the_end() {
    let proxy = Proxy::start(&echo(2), Delay { rtt_us: 2_000, jitter_us: 4_000 }).unwrap();
    let threads: Vec<_> = (0..2_u32)
        .map(|seed| {
            let stream = connect(proxy.address());
            std::thread::spawn(move || {
                let sent: Vec<u8> =
                    (0..400_000_u32).map(|n| n.wrapping_mul(2_654_435_761 + seed).to_be_bytes()[1]).collect();
                let (mut writing, expected) = (stream.try_clone().unwrap(), sent.clone());
                let write = std::thread::spawn(move || {
                    // Pieces of all sizes, so that they meet the proxy's own borders.
                    for piece in sent.chunks(7_919) {
                        writing.write_all(piece).unwrap();
                    }
                    writing.shutdown(Shutdown::Write).unwrap();
                });
                let mut back = Vec::new();
                (&stream).read_to_end(&mut back).unwrap();
                write.join().unwrap();
                assert_eq!(back.len(), expected.len());
                assert!(back == expected, "the bytes came back otherwise");
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(proxy.cpu() > Duration::ZERO);
}

#[test]
fn no_answer_comes_before_a_round_trip_is_over() {
    let delay = Delay { rtt_us: 30_000, jitter_us: 0 };
    let proxy = Proxy::start(&echo(1), delay).unwrap();
    let mut stream = connect(proxy.address());
    for _ in 0..5 {
        let start = Instant::now();
        stream.write_all(b"a").unwrap();
        stream.read_exact(&mut [0; 1]).unwrap();
        assert!(start.elapsed() >= Duration::from_micros(delay.rtt_us), "{:?}", start.elapsed());
    }
}

#[test]
fn a_server_that_is_not_there_ends_the_connection() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = Proxy::start(&Address::from(free), Delay::default()).unwrap();
    let mut stream = connect(proxy.address());
    assert!(matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_)), "nobody answers");
}

#[test]
fn a_dropped_proxy_cuts_its_connections() {
    let proxy = Proxy::start(&echo(1), Delay::default()).unwrap();
    let mut stream = connect(proxy.address());
    stream.write_all(b"a").unwrap();
    stream.read_exact(&mut [0; 1]).unwrap();
    drop(proxy);
    assert!(matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_)));
}
