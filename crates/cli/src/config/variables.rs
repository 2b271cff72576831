//! What the environment can say of the configuration: each key of the file that has a variable, and what that holds.

use toml::Value;

use crate::failure::Failure;

/// The keys that the environment can set, as `section.key`, and whether they are numbers, booleans or texts.
pub(super) const KEYS: &[(&str, Type)] = &[
    ("data_dir", Type::Path),
    ("server.listen", Type::Text),
    ("server.threads", Type::Number),
    ("server.client_lost_ms", Type::Number),
    ("server.connections_max", Type::Number),
    ("server.idle_ms", Type::Number),
    ("server.partial_frame_ms", Type::Number),
    ("server.long_bytes_max", Type::Number),
    ("server.insecure", Type::Boolean),
    ("admin.listen", Type::Text),
    ("docs.listen", Type::Text),
    ("documents.min_elapsed_sync_time", Type::Number),
    ("documents.max_elapsed_sync_time", Type::Number),
    ("documents.log_size", Type::Number),
    ("documents.max_buffer_log_size", Type::Number),
    ("documents.direct", Type::Boolean),
    ("documents.dsync", Type::Boolean),
    ("documents.cache_bytes", Type::Number),
    ("documents.memory_bytes", Type::Number),
    ("identity.mode", Type::Text),
    ("identity.users_file", Type::Path),
    ("identity.token_seconds", Type::Number),
    ("identity.refresh_seconds", Type::Number),
    ("identity.issuer", Type::Text),
    ("identity.audience", Type::Text),
    ("identity.roles_claim", Type::Text),
    ("identity.ca_file", Type::Path),
    ("tls.certificate", Type::Path),
    ("tls.key", Type::Path),
    ("http.requests_max", Type::Number),
    ("http.request_ms", Type::Number),
    ("http.body_bytes_max", Type::Number),
    ("http.requests_per_second", Type::Number),
    ("http.threads", Type::Number),
    ("http.insecure", Type::Boolean),
    ("http.idempotency_seconds", Type::Number),
    ("http.look_us", Type::Number),
    ("coordinator.engine", Type::Text),
    ("coordinator.min_elapsed_sync_time", Type::Number),
    ("coordinator.max_elapsed_sync_time", Type::Number),
    ("coordinator.log_size", Type::Number),
    ("coordinator.max_buffer_log_size", Type::Number),
    ("coordinator.direct", Type::Boolean),
    ("coordinator.dsync", Type::Boolean),
    ("coordinator.lost_decision", Type::Text),
    ("coordinator.history_bytes_max", Type::Number),
    ("kv.min_elapsed_sync_time", Type::Number),
    ("kv.max_elapsed_sync_time", Type::Number),
    ("kv.log_size", Type::Number),
    ("kv.max_buffer_log_size", Type::Number),
    ("kv.direct", Type::Boolean),
    ("kv.dsync", Type::Boolean),
    ("kv.memory_bytes", Type::Number),
    ("kv.cache_bytes", Type::Number),
    ("kv.value_cache_bytes", Type::Number),
    ("kv.background_bytes_per_second", Type::Number),
    ("kv.space_amplification_max_percent", Type::Number),
    ("kv.space_room_bytes_min", Type::Number),
    ("kv.readers_per_processor", Type::Number),
    ("kv.leases_max", Type::Number),
    ("kv.leases_memory_bytes_max", Type::Number),
    ("kv.leases_file_bytes_max", Type::Number),
    ("kv.compact_from_hour", Type::Number),
    ("kv.compact_to_hour", Type::Number),
    ("kv.utc_offset_minutes", Type::Number),
];

/// What a variable holds.
#[derive(Clone, Copy)]
pub(super) enum Type {
    Text,
    /// From where the server was started, as whoever says it sees it.
    Path,
    Number,
    Boolean,
}

impl Type {
    /// It, of this variable's text.
    pub(super) fn value(self, name: &str, text: &str) -> Result<Value, Failure> {
        let wrong = |what: &str| Failure::invalid(format!("{name} = {text:?}; write {what}"));
        match self {
            Self::Text => Ok(Value::String(text.to_owned())),
            Self::Path => {
                let here = std::path::absolute(text).map_err(|_| wrong("a path"))?;
                Ok(Value::String(here.display().to_string()))
            }
            Self::Number => text.parse().map(Value::Integer).map_err(|_| wrong("a whole number")),
            Self::Boolean => text.parse().map(Value::Boolean).map_err(|_| wrong("true or false")),
        }
    }
}

/// A list where there are blanks; `true` and `false`.
pub(super) fn of_text(text: String) -> Value {
    match text.parse() {
        Ok(is) => Value::Boolean(is),
        Err(_) if text.contains(' ') => {
            Value::Array(text.split_whitespace().map(|word| Value::String(word.to_owned())).collect())
        }
        Err(_) => Value::String(text),
    }
}
