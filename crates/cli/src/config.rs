//! `assent.toml`: what a server runs. Flag > `ASSENT_SECTION_KEY` > file > default; an unknown key is an error.
//!
//! Walk: a table · environment and flags are laid over it · serde checks keys and types · [`Config::check`] what goes together.

mod variables;

use std::path::{Path, PathBuf};

use assent_kind::Kind;
use serde::Deserialize;
use toml::{Table, Value};

use crate::assets::{options, section};
pub(crate) use crate::documents::{Docs, Documents};
pub(crate) use crate::entrance::{Identity, Tls};
use crate::failure::Failure;
use crate::mistake::sentence;
use crate::resource;
pub(crate) use crate::resource::Resource;
use crate::shown::shown;

/// Everything `assent serve` reads.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Where engines keep their folders.
    pub(crate) data_dir: PathBuf,
    /// The binary protocol.
    #[serde(default)]
    pub(crate) server: Server,
    /// Health and metrics.
    #[serde(default)]
    pub(crate) admin: Admin,
    /// Documents over HTTP.
    #[serde(default)]
    pub(crate) docs: Docs,
    /// Runs the documents if present.
    pub(crate) documents: Option<Documents>,
    /// Who may do what by HTTP.
    #[serde(default)]
    pub(crate) identity: Identity,
    /// What the HTTP listeners show; without, nothing is encrypted.
    pub(crate) tls: Option<Tls>,
    /// What callers may take of the HTTP listeners.
    #[serde(default)]
    pub(crate) http: assent_rest::Settings,
    /// Runs the coordinator if present.
    pub(crate) coordinator: Option<Engine>,
    /// Runs the key-value store if present.
    pub(crate) kv: Option<Engine>,
    /// Serves assets if present: a server alone, or a node of a group.
    pub(crate) assets: Option<options::Serve>,
    /// The resource managers that clients may enlist and the agent recovers.
    #[serde(default, rename = "resource")]
    pub(crate) resources: Vec<Resource>,
    /// What was read, without secrets.
    #[serde(skip)]
    pub(crate) shown: serde_json::Value,
}

/// `[server]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Server {
    pub(crate) listen: String,
    pub(crate) threads: u32,
    pub(crate) client_lost_ms: u64,
    pub(crate) connections_max: u32,
    pub(crate) idle_ms: u32,
    pub(crate) partial_frame_ms: u32,
    pub(crate) long_bytes_max: u64,
    pub(crate) insecure: bool,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7430".into(),
            threads: 1,
            client_lost_ms: 1_000,
            connections_max: 1_024,
            idle_ms: 0,
            partial_frame_ms: 10_000,
            long_bytes_max: assent_door::Limits::default().long_bytes_max,
            insecure: false,
        }
    }
}

/// `[admin]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Admin {
    pub(crate) listen: String,
}

impl Default for Admin {
    fn default() -> Self {
        Self { listen: "127.0.0.1:7431".into() }
    }
}

/// `[coordinator]` and `[kv]`: the journal, or the state table, under an engine, in the field's names.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Engine {
    /// Of the coordinator: what keeps its state.
    pub(crate) engine: Option<StateEngine>,
    pub(crate) min_elapsed_sync_time: Option<u64>,
    pub(crate) max_elapsed_sync_time: Option<u64>,
    pub(crate) log_size: Option<u64>,
    pub(crate) max_buffer_log_size: Option<u64>,
    #[serde(alias = "log_o_direct")]
    pub(crate) direct: Option<bool>,
    #[serde(alias = "log_o_dsync")]
    pub(crate) dsync: Option<bool>,
    /// Of the coordinator: what becomes of a prepared branch whose decision may be lost (RPO > 0).
    pub(crate) lost_decision: Option<LostDecision>,
    /// Of the coordinator: bytes of trimmed log that are kept as history; 0 keeps none.
    pub(crate) history_bytes_max: Option<u64>,
    /// Of the store: its ledger's memory is written out once it takes so many bytes.
    pub(crate) memory_bytes: Option<u64>,
    /// Of the store: bytes of its ledger's files that are kept in memory.
    pub(crate) cache_bytes: Option<u64>,
    /// Of the store: memory for values of more than 4 KiB, which are read past the page cache then.
    pub(crate) value_cache_bytes: Option<u64>,
    /// Of the store: bytes that work in the background may write in a second.
    pub(crate) background_bytes_per_second: Option<u64>,
    /// Of the store: bytes of values on disk for each hundred that live.
    pub(crate) space_amplification_max_percent: Option<u32>,
    /// And bytes beyond those that live that are none too many.
    pub(crate) space_room_bytes_min: Option<u64>,
    /// Of the store: from which hour to which values may be compacted.
    pub(crate) compact_from_hour: Option<u8>,
    pub(crate) compact_to_hour: Option<u8>,
    /// Of the store: leases of its readers and branches, and the bytes of memory and of files that they alone keep.
    pub(crate) leases_max: Option<u32>,
    pub(crate) leases_memory_bytes_max: Option<u64>,
    pub(crate) leases_file_bytes_max: Option<u64>,
    /// Of the store: threads that read at once, for each processor.
    pub(crate) readers_per_processor: Option<u32>,
    /// Of the store: what those hours are ahead of UTC.
    pub(crate) utc_offset_minutes: Option<i16>,
}

impl Engine {
    /// Whether it says anything that only a store has.
    const fn has_store(&self) -> bool {
        self.memory_bytes.is_some()
            || self.cache_bytes.is_some()
            || self.value_cache_bytes.is_some()
            || self.background_bytes_per_second.is_some()
            || self.space_amplification_max_percent.is_some()
            || self.space_room_bytes_min.is_some()
            || self.compact_from_hour.is_some()
            || self.compact_to_hour.is_some()
            || self.utc_offset_minutes.is_some()
            || self.readers_per_processor.is_some()
            || self.leases_max.is_some()
            || self.leases_memory_bytes_max.is_some()
            || self.leases_file_bytes_max.is_some()
    }

    /// What the store is opened with.
    pub(crate) fn store(&self, store: assent_ids::NodeId) -> assent_kv::Config {
        let defaults = assent_kv::Config::default();
        assent_kv::Config {
            memory_bytes: self.memory_bytes.unwrap_or(defaults.memory_bytes),
            cache_bytes: self.cache_bytes.unwrap_or(defaults.cache_bytes),
            value_cache_bytes: self.value_cache_bytes.unwrap_or(defaults.value_cache_bytes),
            background_bytes_per_second: self
                .background_bytes_per_second
                .unwrap_or(defaults.background_bytes_per_second),
            space_amplification_max_percent: self
                .space_amplification_max_percent
                .unwrap_or(defaults.space_amplification_max_percent),
            space_room_bytes_min: self.space_room_bytes_min.unwrap_or(defaults.space_room_bytes_min),
            readers_per_processor: self.readers_per_processor.unwrap_or(defaults.readers_per_processor),
            leases_max: self.leases_max.unwrap_or(defaults.leases_max),
            leases_memory_bytes_max: self.leases_memory_bytes_max.unwrap_or(defaults.leases_memory_bytes_max),
            leases_file_bytes_max: self.leases_file_bytes_max.unwrap_or(defaults.leases_file_bytes_max),
            compact_hours: (self.compact_from_hour.unwrap_or(0), self.compact_to_hour.unwrap_or(0)),
            utc_offset_minutes: self.utc_offset_minutes.unwrap_or(defaults.utc_offset_minutes),
            store,
            ..defaults
        }
    }
}

/// `coordinator.engine`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StateEngine {
    /// A log with checkpoints, readable as history.
    #[default]
    Journal,
    /// A table updated in place; no history.
    Table,
}

/// What the coordinator keeps of its log as history, unless it is told.
pub(crate) const HISTORY_BYTES_MAX: u64 = 1 << 30;

/// `coordinator.lost_decision`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LostDecision {
    /// It stays prepared until a person decides.
    #[default]
    Hold,
    /// It is rolled back.
    Rollback,
}

/// A value laid over the file: `section.key` and the value.
pub(crate) type Flag = (&'static str, Value);

impl Config {
    /// Reads and checks a file, with the environment and the flags over it.
    pub(crate) fn load(path: &Path, flags: &[Flag]) -> Result<Self, Failure> {
        let text = read(path)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut config = Self::parse(&text, &path.display().to_string(), |name| std::env::var(name).ok(), flags)?;
        // A path in the file means beside the file, wherever the server was started.
        config.data_dir = folder.join(&config.data_dir);
        config.resources.iter_mut().for_each(|resource| {
            resource.url_file = resource.url_file.as_ref().map(|path| folder.join(path));
        });
        config.identity.beside(folder);
        config.tls.iter_mut().for_each(|tls| tls.beside(folder));
        Ok(config)
    }

    fn parse(
        text: &str,
        file: &str,
        environment: impl Fn(&str) -> Option<String>,
        flags: &[Flag],
    ) -> Result<Self, Failure> {
        let mut table: Table =
            toml::from_str(text).map_err(|error| Failure::invalid(format!("{file}: {}", sentence(text, &error))))?;
        for (key, kind) in variables::KEYS {
            let name = format!("ASSENT_{}", key.replace('.', "_").to_uppercase());
            if let Some(text) = environment(&name) {
                lay(&mut table, key, kind.value(&name, &text)?)?;
            }
        }
        // A server of assets is begun by its section, and by no variable alone.
        let keys = if table.contains_key("assets") { section::keys() } else { Vec::new() };
        for key in keys {
            if let Some(text) = environment(&format!("ASSENT_ASSETS_{}", key.to_uppercase())) {
                lay(&mut table, &format!("assets.{key}"), variables::of_text(text))?;
            }
        }
        flags.iter().try_for_each(|(key, value)| lay(&mut table, key, value.clone()))?;
        // Back to text: serde then names the section and the key of a wrong value, whoever gave it.
        let merged = toml::to_string(&table).map_err(|error| Failure::new(Kind::Internal, error.to_string()))?;
        let wrong = |error| Failure::invalid(format!("{file}: {}", sentence(&merged, &error)));
        let mut config: Self = toml::from_str(&merged).map_err(wrong)?;
        config.check(file)?;
        config.shown = shown(&Value::Table(table));
        Ok(config)
    }

    fn check(&self, file: &str) -> Result<(), Failure> {
        let wrong = |message: String| Err(Failure::invalid(format!("{file}: {message}")));
        if self.coordinator.is_none() && self.kv.is_none() && self.documents.is_none() && self.assets.is_none() {
            return wrong("no engine: write a [coordinator], a [kv], a [documents] or an [assets] section".into());
        }
        if self.server.threads == 0 || self.server.threads > 64 {
            return wrong(format!("server.threads = {}; 1 to 64", self.server.threads));
        }
        if let Some(section) = &self.coordinator
            && section.engine == Some(StateEngine::Table)
            && section.history_bytes_max.is_some()
        {
            return wrong(
                "coordinator: engine = \"table\" keeps no history; remove history_bytes_max, or write engine = \"journal\""
                    .into(),
            );
        }
        let documents = self.documents.as_ref().map(Documents::engine);
        for (name, section) in [("coordinator", &self.coordinator), ("kv", &self.kv), ("documents", &documents)] {
            let section = section.as_ref();
            let times =
                section.map(|it| (it.min_elapsed_sync_time.unwrap_or(0), it.max_elapsed_sync_time.unwrap_or(0)));
            if let Some((min, max)) = times.filter(|(min, max)| min > max) {
                return wrong(format!(
                    "{name}.min_elapsed_sync_time = {min} is more than max_elapsed_sync_time = {max}; write at most {max}"
                ));
            }
        }
        if self.kv.as_ref().is_some_and(|it| it.lost_decision.is_some() || it.history_bytes_max.is_some()) {
            return wrong(
                "kv: lost_decision and history_bytes_max are the coordinator's; write them in [coordinator]".into(),
            );
        }
        if self.kv.as_ref().is_some_and(|section| section.engine.is_some()) {
            return wrong("kv.engine: the key-value store has one engine; remove the key".into());
        }
        if self.coordinator.as_ref().is_some_and(Engine::has_store) {
            return wrong(
                "coordinator: memory_bytes, cache_bytes, value_cache_bytes, background_bytes_per_second, \
                 space_amplification_max_percent, space_room_bytes_min, readers_per_processor, \
                 the leases and the hours of compaction are the store's; write them in [kv]"
                    .into(),
            );
        }
        if let Some(Err(error)) = self.kv.as_ref().map(|it| it.store(assent_ids::NodeId(0)).check()) {
            return wrong(format!("kv.{error}"));
        }
        if let Some(Err(error)) = self.documents.as_ref().map(Documents::check) {
            return wrong(format!("documents.{error}"));
        }
        self.identity.check().or_else(|message| wrong(format!("identity.{message}")))?;
        resource::check(self).or_else(wrong)
    }

    /// The name of an engine of this server among the resources, by its url: `kv` or `docs`.
    pub(crate) fn own(&self, url: &str) -> Option<&str> {
        let is_own = |resource: &&Resource| resource.is_own(url);
        self.resources.iter().find(is_own).map(|resource| resource.name.as_str())
    }
}

fn lay(table: &mut Table, key: &str, value: Value) -> Result<(), Failure> {
    let Some((section, key)) = key.split_once('.') else {
        table.insert(key.to_owned(), value);
        return Ok(());
    };
    match table.entry(section.to_owned()).or_insert_with(|| Value::Table(Table::new())) {
        Value::Table(inner) => {
            inner.insert(key.to_owned(), value);
            Ok(())
        }
        _ => Err(Failure::invalid(format!("{section} is a section: write [{section}]"))),
    }
}

#[expect(clippy::disallowed_methods, reason = "a front door reads its own configuration")]
pub(crate) fn read(path: &Path) -> Result<String, Failure> {
    let bytes = std::fs::read(path).map_err(|error| Failure::io("read", path.display(), &error))?;
    String::from_utf8(bytes).map_err(|_| Failure::invalid(format!("{} is not a UTF-8 text", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, Failure> {
        Config::parse(text, "assent.toml", |_| None, &[])
    }

    #[test]
    fn a_flag_beats_the_environment_beats_the_file_beats_the_default() {
        let text = "data_dir = \"d\"\n[coordinator]\n[server]\nthreads = 2\nidle_ms = 5\n";
        let environment =
            |name: &str| matches!(name, "ASSENT_SERVER_THREADS" | "ASSENT_SERVER_IDLE_MS").then(|| "3".to_owned());
        let flags = [("server.threads", Value::Integer(4))];
        let config = Config::parse(text, "assent.toml", environment, &flags).unwrap();
        assert_eq!((config.server.threads, config.server.idle_ms), (4, 3));
        assert_eq!((config.server.listen.as_str(), config.server.client_lost_ms), ("127.0.0.1:7430", 1_000));
        assert_eq!(parse(text).unwrap().server.threads, 2);
    }

    #[test]
    fn assets_are_told_by_file_and_environment_and_a_variable_alone_begins_none() {
        let environment = |name: &str| match name {
            "ASSENT_ASSETS_MEMBER" => Some("1=a:1,a:2 2=b:1,b:2".to_owned()),
            "ASSENT_ASSETS_ACK" => Some("received".to_owned()),
            _ => None,
        };
        let text = "data_dir = \"d\"\n[assets]\nnode = 1\nwitness = \"w:1\"\nack = \"none\"\n";
        let config = Config::parse(text, "assent.toml", environment, &[]).unwrap();
        let assets = config.assets.unwrap();
        assert_eq!((assets.ack, assets.group.member.len()), (options::Acknowledge::Received, 2));
        assert!(Config::parse("data_dir = \"d\"\n[kv]", "assent.toml", environment, &[]).unwrap().assets.is_none());
        let wrong = parse("data_dir = \"d\"\n[assets]\ncolour = 1").unwrap_err().message;
        assert!(wrong.contains("assent.toml") && wrong.contains("assets.colour: no such key"), "{wrong}");
    }

    #[test]
    fn wrong_configurations_are_refused_with_the_value() {
        let cases = [
            ("", "data_dir"),
            ("data_dir = \"d\"", "no engine"),
            ("data_dir = \"d\"\ncolour = 1\n[kv]", "colour"),
            ("data_dir = \"d\"\n[kv]\nlog_sise = 1", "log_sise"),
            ("data_dir = \"d\"\n[server]\nthreads = 0\n[kv]", "threads = 0"),
            ("data_dir = \"d\"\n[server]\nthreads = \"two\"\n[kv]", "threads"),
            ("data_dir = \"d\"\n[coordinator]\nengine = \"etcd\"", "etcd"),
            ("data_dir = \"d\"\n[coordinator]\nengine = \"table\"\nhistory_bytes_max = 5", "keeps no history"),
            ("data_dir = \"d\"\n[kv]\nengine = \"table\"", "kv.engine"),
            ("data_dir = \"d\"\n[coordinator]\nmin_elapsed_sync_time = 5", "min_elapsed_sync_time = 5"),
            ("data_dir = \"d\"\n[coordinator]\nmax_elapsed_sync_time = 5\nlost_decision = \"guess\"", "guess"),
            ("data_dir = \"d\"\n[kv]\nhistory_bytes_max = 5", "history_bytes_max"),
            ("data_dir = \"d\"\n[kv]\nmemory_bytes = 65535", "kv.memory_bytes = 65535; it must be 65536 to 268435456"),
            ("data_dir = \"d\"\n[kv]\nmemory_bytes = 268435457", "kv.memory_bytes = 268435457"),
            (
                "data_dir = \"d\"\n[kv]\ncache_bytes = 1099511627777",
                "kv.cache_bytes = 1099511627777; it must be at most",
            ),
            ("data_dir = \"d\"\n[kv]\ncache_bytes = -1", "cache_bytes"),
            (
                "data_dir = \"d\"\n[kv]\nvalue_cache_bytes = 1099511627777",
                "kv.value_cache_bytes = 1099511627777; it must be at most",
            ),
            ("data_dir = \"d\"\n[coordinator]\nvalue_cache_bytes = 0", "write them in [kv]"),
            ("data_dir = \"d\"\n[coordinator]\nmemory_bytes = 65536", "write them in [kv]"),
            ("data_dir = \"d\"\n[coordinator]\nbackground_bytes_per_second = 1", "write them in [kv]"),
            ("data_dir = \"d\"\n[coordinator]\ncompact_to_hour = 1", "write them in [kv]"),
            (
                "data_dir = \"d\"\n[kv]\nspace_amplification_max_percent = 109",
                "kv.space_amplification_max_percent = 109",
            ),
            ("data_dir = \"d\"\n[coordinator]\nspace_room_bytes_min = 1", "write them in [kv]"),
            (
                "data_dir = \"d\"\n[kv]\nspace_room_bytes_min = 1099511627777",
                "kv.space_room_bytes_min = 1099511627777; it must be at most",
            ),
            ("data_dir = \"d\"\n[kv]\ncompact_from_hour = 24", "24"),
            ("data_dir = \"d\"\n[kv]\nleases_max = 0", "kv.leases_max = 0; it must be at least 1"),
            ("data_dir = \"d\"\n[coordinator]\nleases_max = 1", "write them in [kv]"),
            ("data_dir = \"d\"\n[kv]\n[[resource]]\nname = \"a\"\nkind = \"oracle\"\nurl = \"x\"", "oracle"),
            ("data_dir = \"d\"\n[kv]\n[[resource]]\nname = \"a\"\nkind = \"assent\"", "url"),
            (
                "data_dir = \"d\"\n[kv]\n[[resource]]\nname = \"a\"\nkind = \"assent\"\nurl = \"x\"\n[[resource]]\nname = \"a\"\nkind = \"assent\"\nurl = \"x\"",
                "collides",
            ),
            ("data_dir = \"d\"\n[kv]\n[identity]\nmode = \"users\"", "identity.users_file or [[identity.user]]"),
            ("data_dir = \"d\"\n[kv]\n[identity]\nmode = \"oidc\"", "identity.issuer"),
            ("data_dir = \"d\"\n[kv]\n[identity]\nissuer = \"https://a\"", "mode = \"none\" takes no"),
            ("data_dir = \"d\"\n[kv]\n[tls]\ncertificate = \"c\"", "key"),
            ("data_dir = \"d\"\n[kv]\n[[resource]]\nname = \"a\"\nkind = \"own\"\nurl = \"kv\"", "[coordinator]"),
            (
                "data_dir = \"d\"\n[kv]\n[coordinator]\n[[resource]]\nname = \"a\"\nkind = \"own\"\nurl = \"kv\"\n\
                 [[resource]]\nname = \"b\"\nkind = \"own\"\nurl = \"kv\"",
                "has a name already",
            ),
            (
                "data_dir = \"d\"\n[kv]\n[coordinator]\n[[resource]]\nname = \"a\"\nkind = \"own\"\nurl = \"docs\"",
                "[documents]",
            ),
            ("data_dir = \"d\"\n[documents]\nlisten = \"x\"", "listen"),
            ("data_dir = ", "assent.toml"),
        ];
        for (text, named) in cases {
            let failure = parse(text).unwrap_err();
            assert_eq!(failure.kind, Kind::Invalid, "{text}");
            assert!(failure.message.contains(named), "{text}: {}", failure.message);
        }
    }

    #[test]
    fn the_store_takes_the_sizes_that_are_written_up_to_their_limits_and_its_own_where_none_is() {
        let store = |text: &str| {
            let environment = |name: &str| (name == "ASSENT_KV_CACHE_BYTES").then(|| "0".to_owned());
            let config = Config::parse(text, "assent.toml", environment, &[]).unwrap();
            config.kv.unwrap().store(assent_ids::NodeId(7))
        };
        let told = store(
            "data_dir = \"d\"\n[kv]\nmemory_bytes = 268435456\ncache_bytes = 5\nleases_max = 7\ncompact_to_hour = 6\n\
             space_room_bytes_min = 0\nreaders_per_processor = 9\nvalue_cache_bytes = 6",
        );
        assert_eq!((told.leases_max, told.compact_hours, told.space_room_bytes_min), (7, (0, 6), 0));
        assert_eq!((told.readers_per_processor, told.value_cache_bytes), (9, 6));
        assert_eq!((told.memory_bytes, told.cache_bytes, told.store), (256 << 20, 0, assent_ids::NodeId(7)));
        let own = parse("data_dir = \"d\"\n[kv]").unwrap().kv.unwrap().store(assent_ids::NodeId(0));
        assert_eq!(own, assent_kv::Config::default());
    }

    #[test]
    fn a_lazy_coordinator_holds_what_may_be_lost_unless_it_is_told_otherwise() {
        let lazy = "data_dir = \"d\"\n[coordinator]\nmax_elapsed_sync_time = 10\n";
        let section = |text: &str| parse(text).unwrap().coordinator.unwrap();
        assert_eq!(section(lazy).lost_decision.unwrap_or_default(), LostDecision::Hold);
        let told = section(&format!("{lazy}lost_decision = \"rollback\"\nhistory_bytes_max = 0"));
        assert_eq!((told.lost_decision, told.history_bytes_max), (Some(LostDecision::Rollback), Some(0)));
    }

    #[test]
    fn the_state_engine_is_the_journal_unless_another_is_named_and_the_fields_own_spelling_is_taken() {
        let section =
            |text: &str| parse(&format!("data_dir = \"d\"\n[coordinator]\n{text}")).unwrap().coordinator.unwrap();
        assert_eq!(section("").engine.unwrap_or_default(), StateEngine::Journal);
        let told = section(
            "engine = \"table\"\nlog_size = 40960\nmax_buffer_log_size = 8192\nlog_o_direct = false\nlog_o_dsync = true",
        );
        assert_eq!((told.engine, told.log_size), (Some(StateEngine::Table), Some(40_960)));
        assert_eq!((told.max_buffer_log_size, told.direct, told.dsync), (Some(8_192), Some(false), Some(true)));
    }

    #[test]
    fn variables_tell_documents_how_durable_they_are_and_paths_from_where_the_server_was_started() {
        let environment = |name: &str| match name {
            "ASSENT_DOCUMENTS_MAX_ELAPSED_SYNC_TIME" => Some("0".to_owned()),
            "ASSENT_DATA_DIR" => Some("mine".to_owned()),
            _ => None,
        };
        let text = "data_dir = \"d\"\n[documents]\nmax_elapsed_sync_time = 60000\n";
        let config = Config::parse(text, "assent.toml", environment, &[]).unwrap();
        assert_eq!(config.documents.unwrap().engine().max_elapsed_sync_time, Some(0));
        assert_eq!(config.data_dir, std::path::absolute("mine").unwrap());
        let text = "data_dir = \"d\"\n[documents]\nmin_elapsed_sync_time = 5\n";
        let wrong = Config::parse(text, "assent.toml", |_| None, &[]).unwrap_err();
        assert!(wrong.message.contains("documents.min_elapsed_sync_time = 5"), "{}", wrong.message);
    }

    #[test]
    fn an_environment_value_of_the_wrong_type_names_its_variable() {
        let environment = |name: &str| (name == "ASSENT_SERVER_THREADS").then(|| "many".to_owned());
        let failure = Config::parse("data_dir = \"d\"\n[kv]", "assent.toml", environment, &[]).unwrap_err();
        assert!(failure.message.contains("ASSENT_SERVER_THREADS = \"many\""), "{}", failure.message);
    }

    #[test]
    fn a_password_is_never_printed() {
        let text = "data_dir = \"d\"\n[kv]\n[[resource]]\nname = \"a\"\nkind = \"postgres\"\nurl = \"postgresql://u:secret@h/d\"";
        let config = parse(text).unwrap();
        assert!(!format!("{config:?}").contains("secret"));
        assert_eq!(config.shown["resource"][0]["url"], "hidden");
        assert_eq!(config.shown["resource"][0]["kind"], "postgres");
    }

    #[test]
    fn a_user_s_hash_is_never_printed_and_his_roles_are() {
        let text = "data_dir = \"d\"\n[kv]\n[identity]\nmode = \"users\"\n[[identity.user]]\nname = \"anna\"\n\
                    password_hash = \"$argon2id$secret\"\nroles = [\"view\"]";
        let config = parse(text).unwrap();
        assert!(!format!("{config:?}").contains("secret"));
        let user = &config.shown["identity"]["user"][0];
        assert_eq!((&user["password_hash"], &user["roles"][0]), (&"hidden".into(), &"view".into()));
    }
}
