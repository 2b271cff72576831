//! A wire to a server that counts the messages of its clients. Each is a round trip.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use ::mysql::Opts;

pub(crate) struct Tap {
    pub(crate) url: String,
    messages: Arc<AtomicU32>,
    bytes: Arc<Mutex<Vec<u8>>>,
    garbled: Garbled,
    first: First,
}

/// How a statement begins, and what the server hears instead.
type Garbled = Arc<Mutex<Option<(&'static str, &'static str)>>>;

/// What a statement says, and what happens before the server hears it.
type First = Arc<Mutex<Option<(&'static str, Box<dyn FnOnce() + Send>)>>>;

impl Tap {
    #[allow(clippy::disallowed_methods, reason = "a network outside of what is tested")]
    pub(crate) fn new(url: &str) -> Self {
        let options = Opts::from_url(url).unwrap();
        let server = (options.get_ip_or_hostname().to_string(), options.get_tcp_port());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().port();
        let messages = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&messages);
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&bytes);
        let garbled = Garbled::default();
        let garbles = Arc::clone(&garbled);
        let first = First::default();
        let earlier = Arc::clone(&first);
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let server = TcpStream::connect((server.0.as_str(), server.1)).unwrap();
                for stream in [&client, &server] {
                    stream.set_nodelay(true).unwrap();
                }
                let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                let (counter, kept) = (Arc::clone(&counter), Arc::clone(&kept));
                let (garbles, earlier) = (Arc::clone(&garbles), Arc::clone(&earlier));
                std::thread::spawn(move || forward(client, server, &counter, &kept, &garbles, &earlier));
            }
        });
        Self {
            url: url.replace(&format!(":{}/", options.get_tcp_port()), &format!(":{own}/")),
            messages,
            bytes,
            garbled,
            first,
        }
    }

    /// Since the last time.
    pub(super) fn messages(&self) -> u32 {
        self.messages.swap(0, Ordering::SeqCst)
    }

    /// From now on the server hears something else instead of a statement that begins so; no longer than it.
    pub(crate) fn garble(&self, statement: Option<(&'static str, &'static str)>) {
        *self.garbled.lock().unwrap() = statement;
    }

    /// Happens once, before the server hears the next statement with these words.
    pub(crate) fn before(&self, words: &'static str, happens: impl FnOnce() + Send + 'static) {
        *self.first.lock().unwrap() = Some((words, Box::new(happens)));
    }

    /// Whether a client has ever said this.
    pub(crate) fn said(&self, text: &str) -> bool {
        self.times(text) > 0
    }

    /// How often.
    pub(crate) fn times(&self, text: &str) -> usize {
        self.bytes.lock().unwrap().windows(text.len()).filter(|window| *window == text.as_bytes()).count()
    }
}

/// A packet is three bytes of length, a number, and the rest. A message begins with number 0.
fn forward(
    mut client: TcpStream,
    mut server: TcpStream,
    messages: &AtomicU32,
    bytes: &Mutex<Vec<u8>>,
    garbled: &Garbled,
    first: &First,
) {
    loop {
        let mut packet = vec![0; 4];
        if client.read_exact(&mut packet).is_err() {
            let _ = server.shutdown(std::net::Shutdown::Both);
            return;
        }
        if packet[3] == 0 {
            messages.fetch_add(1, Ordering::SeqCst);
        }
        let length = usize::from(packet[0]) | usize::from(packet[1]) << 8 | usize::from(packet[2]) << 16;
        packet.resize(4 + length, 0);
        if client.read_exact(&mut packet[4..]).is_err() {
            return;
        }
        bytes.lock().unwrap().extend_from_slice(&packet);
        let says = |words: &str| packet.windows(words.len()).any(|window| window == words.as_bytes());
        let happens = first.lock().unwrap().take_if(|(words, _)| says(words));
        if let Some((_, happens)) = happens {
            happens();
        }
        if let Some((from, to)) = *garbled.lock().unwrap()
            && let Some(begins) = packet.windows(from.len()).position(|window| window == from.as_bytes())
        {
            let rest = &mut packet[begins..];
            let length = rest.iter().position(|byte| *byte == b';').unwrap_or(rest.len());
            rest[..length].fill(b' ');
            rest[..to.len()].copy_from_slice(to.as_bytes());
        }
        if server.write_all(&packet).is_err() {
            return;
        }
    }
}
