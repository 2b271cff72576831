//! `[documents]` and `[docs]`: versioned documents, and the listener that serves them.
//!
//! Walk: the sections as serde reads them · [`Documents::engine`] its journal, in the words of the others ·
//! [`Documents::settings`] what the database is opened with.

use assent_docs::{Config, DocsError};
use serde::Deserialize;

use crate::config::Engine;

/// `[docs]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Docs {
    pub(crate) listen: String,
}

impl Default for Docs {
    fn default() -> Self {
        Self { listen: "127.0.0.1:9443".into() }
    }
}

/// `[documents]`: its journal in the field's names, and its memory.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Documents {
    min_elapsed_sync_time: Option<u64>,
    max_elapsed_sync_time: Option<u64>,
    log_size: Option<u64>,
    max_buffer_log_size: Option<u64>,
    #[serde(alias = "log_o_direct")]
    direct: Option<bool>,
    #[serde(alias = "log_o_dsync")]
    dsync: Option<bool>,
    /// Bytes of pages and revisions that are kept in memory.
    cache_bytes: Option<u64>,
    /// The index is written out once it takes so many bytes.
    memory_bytes: Option<u64>,
}

impl Documents {
    /// What its journal is opened with.
    pub(crate) fn engine(&self) -> Engine {
        Engine {
            min_elapsed_sync_time: self.min_elapsed_sync_time,
            max_elapsed_sync_time: self.max_elapsed_sync_time,
            log_size: self.log_size,
            max_buffer_log_size: self.max_buffer_log_size,
            direct: self.direct,
            dsync: self.dsync,
            ..Engine::default()
        }
    }

    /// What the database is opened with. Its journal keeps what is trimmed.
    pub(crate) fn settings(&self) -> Config {
        let defaults = Config::default();
        Config {
            cache_bytes: self.cache_bytes.unwrap_or(defaults.cache_bytes),
            memory_bytes: self.memory_bytes.unwrap_or(defaults.memory_bytes),
            trims: true,
            ..defaults
        }
    }

    pub(crate) fn check(&self) -> Result<(), DocsError> {
        self.settings().check()
    }
}
