//! Keyspaces by name: made, dropped and listed. Each waits for the disk, so the thread of the inquiries does it.

use assent_kind::Kind;
use assent_kv::{Keyspace, Kv, KvError};
use assent_wire::{Answer, KeyspaceView};

use crate::inquiry::{Refusal, lay};
use crate::shared::Shared;

/// What an answer may have of an error's own.
fn told(error: &KvError) -> Refusal {
    (error.kind(), error.to_string())
}

fn kv(shared: &Shared) -> Result<&Kv, Refusal> {
    shared.kv.as_deref().ok_or_else(|| (Kind::NotFound, "this server has no store; connect to one that has".to_owned()))
}

fn view(keyspace: &Keyspace) -> KeyspaceView<'_> {
    KeyspaceView { id: keyspace.id, name: &keyspace.name, created_ms: keyspace.created }
}

/// Makes one, and answers it.
pub(crate) fn create(shared: &Shared, name: &str, mark: u64) -> Result<Vec<u8>, Refusal> {
    let kv = kv(shared)?;
    kv.keyspace_create(name).map_err(|error| told(&error))?;
    // Dropped again by somebody else meanwhile: then the list is empty, and true.
    list(shared, Some(name), None, mark)
}

/// Drops one with all that is in it.
pub(crate) fn drop(shared: &Shared, name: &str, mark: u64) -> Result<Vec<u8>, Refusal> {
    let lsn = kv(shared)?.keyspace_drop(name).map_err(|error| told(&error))?;
    lay(shared, mark, &Answer::Written(lsn))
}

/// The one of this name, or those behind another one, as many as fit a message.
pub(crate) fn list(shared: &Shared, name: Option<&str>, after: Option<&str>, mark: u64) -> Result<Vec<u8>, Refusal> {
    let kv = kv(shared)?;
    let found = match name {
        Some(name) => kv.keyspace(name).map(|found| found.into_iter().collect()),
        None => kv.keyspaces(),
    };
    let mut found: Vec<Keyspace> = found.map_err(|error| told(&error))?;
    found.retain(|keyspace| after.is_none_or(|after| keyspace.name.as_str() > after));
    let mut views: Vec<KeyspaceView<'_>> = found.iter().map(view).collect();
    let mut more = false;
    loop {
        match lay(shared, mark, &Answer::Keyspaces { more, list: views.clone() }) {
            // Half as many until they fit; a name alone does.
            Err(_) if views.len() > 1 => {
                views.truncate(views.len() / 2);
                more = true;
            }
            laid => return laid,
        }
    }
}
