//! A listener over engines in a folder of its own, and a client that says exactly what it is told to.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use argon2::{Algorithm, Argon2, Params, PasswordHasher as _, Version};
use assent_coordinator::{Coordinator, Identity as Node};
use assent_docs::Database;
use assent_door::{Health, Metrics, listen_address};
use assent_journal::{Config, Journal, Log};
use assent_kv::Kv;
use assent_rest::{Admin, Documents, Entrance, Identity, LogLevel, Rest, Service, Settings, User, UsersConfig};
use assent_world::{Clock, Moment, RealClock, RealDice, RealDisk};
use serde_json::Value;
use tempfile::TempDir;

/// The machine's clock, and how far it is ahead.
#[derive(Debug, Default)]
pub(crate) struct Ahead(AtomicU64);

impl Ahead {
    pub(crate) fn by(&self, more: Duration) {
        self.0.fetch_add(u64::try_from(more.as_micros()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for Ahead {
    fn now(&self) -> Moment {
        RealClock.now().after(Duration::from_micros(self.0.load(Ordering::SeqCst)))
    }

    fn wall_ms(&self) -> u64 {
        RealClock.wall_ms() + self.0.load(Ordering::SeqCst) / 1_000
    }

    fn sleep(&self, pause: Duration) {
        RealClock.sleep(pause);
    }

    fn boot_id(&self) -> u128 {
        RealClock.boot_id()
    }
}

/// A listener of documents, over a database in a folder of its own.
pub(crate) struct Archive {
    pub(crate) rest: Rest,
    pub(crate) clock: Arc<Ahead>,
    _folder: TempDir,
}

pub(crate) fn archive(users: Option<Vec<User>>) -> Archive {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Arc::new(Ahead::default()));
    let config = Config { log_size: 1 << 20, kept_until_released: true, ..Config::default() };
    let path = folder.path().join("log");
    let (log, _) = Journal::open(Arc::new(RealDisk), clock.clone(), Arc::new(RealDice), &path, config).unwrap();
    let config = assent_docs::Config { trims: true, ..assent_docs::Config::default() };
    let index = folder.path().join("index");
    let database = Database::open(log, Arc::new(RealDisk), clock.clone(), &index, config).unwrap();
    let identity = match users {
        None => Identity::open(),
        Some(users) => {
            let config = UsersConfig { users, token_seconds: 300, refresh_seconds: 1_800 };
            Identity::users(&config, clock.clone()).unwrap()
        }
    };
    let (metrics, health) = (Arc::new(Metrics::default()), Arc::new(Health::default()));
    let entrance = Entrance {
        settings: Settings::default(),
        identity: Arc::new(identity),
        certificates: None,
        clock: clock.clone(),
        metrics: metrics.clone(),
    };
    let any = listen_address("docs.listen", "127.0.0.1:0", false).unwrap();
    let documents = Documents { metrics, health, database: Arc::new(database) };
    let rest = Rest::start(&any, entrance, Service::documents(documents)).unwrap();
    Archive { rest, clock, _folder: folder }
}

impl Archive {
    pub(crate) fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        ask_at(self.rest.address(), method, path, headers, body)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], b"")
    }
}

pub(crate) struct House {
    pub(crate) rest: Rest,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: Arc<Health>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) clock: Arc<Ahead>,
    pub(crate) kv: Arc<Kv>,
    pub(crate) coordinator: Arc<Coordinator>,
    /// The documents that its transactions take, and their own listener.
    pub(crate) documents: Arc<Database>,
    pub(crate) docs_metrics: Arc<Metrics>,
    docs: Rest,
    folder: TempDir,
}

pub(crate) struct Rules {
    pub(crate) settings: Settings,
    pub(crate) users: Option<Vec<User>>,
    pub(crate) certificates: Option<Arc<assent_rest::Certificates>>,
    pub(crate) own_store: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self { settings: Settings::default(), users: None, certificates: None, own_store: true }
    }
}

pub(crate) fn house(rules: Rules) -> House {
    let clock = Arc::new(Ahead::default());
    let identity = match &rules.users {
        None => Identity::open(),
        Some(users) => {
            let config = UsersConfig { users: users.clone(), token_seconds: 300, refresh_seconds: 1_800 };
            Identity::users(&config, clock.clone()).unwrap()
        }
    };
    house_of(rules, identity, clock)
}

pub(crate) fn house_of(rules: Rules, identity: Identity, clock: Arc<Ahead>) -> House {
    open(rules, identity, clock, tempfile::tempdir().unwrap())
}

fn open(rules: Rules, identity: Identity, clock: Arc<Ahead>, folder: TempDir) -> House {
    let journal = |name: &str, kept_until_released| {
        let config = Config { log_size: 1 << 20, kept_until_released, ..Config::default() };
        let path = folder.path().join(name);
        Journal::open(Arc::new(RealDisk), clock.clone(), Arc::new(RealDice), &path, config).unwrap().0
    };
    let node = Node::load_or_create(&RealDisk, &RealDice, folder.path()).unwrap();
    let log: Arc<dyn Log> = journal("coordinator", false);
    let coordinator = Coordinator::open(log.clone(), clock.clone(), node, Default::default()).unwrap();
    let coordinator = Arc::new(coordinator);
    let kv_config = assent_kv::Config::default();
    let kv_log = journal("kv", true);
    let kv = Kv::open(kv_log, Arc::new(RealDisk), clock.clone(), &folder.path().join("ledger"), kv_config).unwrap();
    let kv = Arc::new(kv);
    let config = assent_docs::Config { trims: true, ..assent_docs::Config::default() };
    let (docs_log, index) = (journal("docs", true), folder.path().join("docs-index"));
    let documents = Database::open(docs_log, Arc::new(RealDisk), clock.clone(), &index, config).unwrap();
    let documents = Arc::new(documents);
    let (metrics, health) = (Arc::new(Metrics::default()), Arc::new(Health::default()));
    let identity = Arc::new(identity);
    let level = Arc::new(std::sync::Mutex::new("info".to_owned()));
    let told = level.clone();
    let admin = Admin {
        metrics: metrics.clone(),
        health: health.clone(),
        node: node.node,
        coordinator: Some(coordinator.clone()),
        coordinator_log: Some(log),
        kv: Some(kv.clone()),
        own_store: rules.own_store.then(|| "store".to_owned()),
        documents: Some(documents.clone()),
        own_documents: rules.own_store.then(|| "documents".to_owned()),
        resources: vec!["store".to_owned(), "documents".to_owned()],
        configuration: serde_json::json!({"data_dir": "data"}),
        log_level: Some(LogLevel {
            get: Box::new(move || told.lock().unwrap().clone()),
            set: Box::new(move |text| match text {
                "info" | "debug" => {
                    text.clone_into(&mut level.lock().unwrap());
                    Ok(())
                }
                _ => Err("no level".to_owned()),
            }),
        }),
    };
    let entrance = Entrance {
        settings: rules.settings,
        identity: identity.clone(),
        certificates: rules.certificates,
        clock: clock.clone(),
        metrics: metrics.clone(),
    };
    let any = listen_address("admin.listen", "127.0.0.1:0", false).unwrap();
    let served =
        Documents { metrics: Arc::new(Metrics::default()), health: health.clone(), database: documents.clone() };
    let docs_metrics = served.metrics.clone();
    let docs = Entrance { metrics: docs_metrics.clone(), ..entrance.clone() };
    let docs = Rest::start(&any, docs, Service::documents(served)).unwrap();
    let rest = Rest::start(&any, entrance, Service::admin(admin)).unwrap();
    House { rest, metrics, health, identity, clock, kv, coordinator, documents, docs_metrics, docs, folder }
}

/// A user whose hash costs nothing.
pub(crate) fn user(name: &str, password: &str, roles: &[&str]) -> User {
    let cheap = Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::new(8, 1, 1, None).unwrap());
    let password_hash = cheap.hash_password(password.as_bytes()).unwrap().to_string();
    User { name: name.to_owned(), password_hash, roles: roles.iter().map(|role| (*role).to_owned()).collect() }
}

#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned()).next()
    }

    /// All but what is another in each answer.
    pub(crate) fn headers(&self) -> Vec<&str> {
        let is_own = |line: &&str| !line.starts_with("date:") && !line.starts_with("x-request-id:");
        let mut lines: Vec<&str> = self.head.lines().skip(1).filter(is_own).collect();
        lines.sort_unstable();
        lines
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

pub(crate) fn ask_at(address: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n");
    headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
    if !body.is_empty() || matches!(method, "POST" | "PUT") {
        head.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    // Whoever refuses a body may not read it to its end.
    _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
    let mut answer = Vec::new();
    _ = stream.read_to_end(&mut answer);
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or_else(|| panic!("no head: {answer:?}"));
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head, body: answer[end + 4..].to_vec() }
}

fn wait_for(metrics: &Metrics, listener: &str, under_way: u64) {
    let line = format!("http_requests_under_way{{listener=\"{listener}\"}} {under_way}");
    while !metrics.text().contains(&line) {
        std::thread::yield_now();
    }
}

impl House {
    /// Changes one byte of these in the documents' journal, where they stand last.
    pub(crate) fn rot(&self, bytes: &[u8]) {
        for file in std::fs::read_dir(self.folder.path().join("docs")).unwrap() {
            let path = file.unwrap().path();
            let all = std::fs::read(&path).unwrap();
            if let Some(at) = all.windows(bytes.len()).rposition(|window| window == bytes) {
                let file = std::fs::File::options().write(true).open(&path).unwrap();
                return file.write_all_at(&[all[at] ^ 1], at as u64).unwrap();
            }
        }
        panic!("not on the disk");
    }

    /// The same folder, opened anew.
    pub(crate) fn again(self) -> House {
        let House { rest, docs, clock, kv, coordinator, documents, folder, .. } = self;
        drop((rest, docs));
        drop((kv, coordinator, documents));
        open(Rules::default(), Identity::open(), clock, folder)
    }

    /// A request to the listener of documents.
    pub(crate) fn docs(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        ask_at(self.docs.address(), method, path, headers, body.as_bytes())
    }

    /// Waits until so many requests are under way at the listener of documents.
    pub(crate) fn docs_wait_for(&self, under_way: u64) {
        wait_for(&self.docs_metrics, "docs", under_way);
    }

    /// The same at that of all else.
    pub(crate) fn wait_for(&self, under_way: u64) {
        wait_for(&self.metrics, "admin", under_way);
    }

    /// Where that listens.
    pub(crate) fn docs_address(&self) -> SocketAddr {
        self.docs.address()
    }

    pub(crate) fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        ask_at(self.rest.address(), method, path, headers, body)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Answer {
        self.ask("POST", path, &[], body.as_bytes())
    }

    /// A token for a name and a password.
    pub(crate) fn token(&self, name: &str, password: &str) -> Value {
        let asked = serde_json::json!({"username": name, "password": password, "grant_type": "password"});
        let answer = self.post("/token", &asked.to_string());
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }
}

/// The header that a token travels in.
pub(crate) fn bearer(tokens: &Value) -> String {
    format!("{} {}", tokens["token_type"].as_str().unwrap(), tokens["access_token"].as_str().unwrap())
}
