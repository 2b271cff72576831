//! A wire to a server that counts the messages of its only client. Each is a round trip.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ::mysql::Opts;

pub(super) struct Tap {
    pub(super) url: String,
    messages: Arc<AtomicU32>,
}

impl Tap {
    #[allow(clippy::disallowed_methods, reason = "a network outside of what is tested")]
    pub(super) fn new(url: &str) -> Self {
        let options = Opts::from_url(url).unwrap();
        let server = (options.get_ip_or_hostname().to_string(), options.get_tcp_port());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().port();
        let messages = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&messages);
        std::thread::spawn(move || {
            let Ok((client, _)) = listener.accept() else { return };
            let server = TcpStream::connect((server.0.as_str(), server.1)).unwrap();
            for stream in [&client, &server] {
                stream.set_nodelay(true).unwrap();
            }
            let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            forward(client, server, &counter)
        });
        Self { url: url.replace(&format!(":{}/", options.get_tcp_port()), &format!(":{own}/")), messages }
    }

    /// Since the last time.
    pub(super) fn messages(&self) -> u32 {
        self.messages.swap(0, Ordering::SeqCst)
    }
}

/// A packet is three bytes of length, a number, and the rest. A message begins with number 0.
fn forward(mut client: TcpStream, mut server: TcpStream, messages: &AtomicU32) {
    loop {
        let mut packet = vec![0; 4];
        if client.read_exact(&mut packet).is_err() {
            let _ = server.shutdown(std::net::Shutdown::Both);
            return;
        }
        if packet[3] == 0 {
            messages.fetch_add(1, Ordering::SeqCst);
        }
        let bytes = usize::from(packet[0]) | usize::from(packet[1]) << 8 | usize::from(packet[2]) << 16;
        packet.resize(4 + bytes, 0);
        if client.read_exact(&mut packet[4..]).and_then(|()| server.write_all(&packet)).is_err() {
            return;
        }
    }
}
