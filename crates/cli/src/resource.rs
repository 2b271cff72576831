//! `[[resource]]`: what clients may enlist and the agent recovers.
//!
//! Walk: [`Resource`] as serde reads it · [`check`] what cannot work together.

use std::collections::BTreeMap;
use std::path::PathBuf;

use assent_ids::ResourceId;
use serde::Deserialize;

use crate::config::{Config, read};
use crate::failure::Failure;

/// `[[resource]]`.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Resource {
    /// The name that clients enlist and that XIDs carry as a hash.
    pub(crate) name: String,
    /// `postgres`, `mariadb` or `assent`.
    pub(crate) kind: String,
    pub(crate) url: Option<String>,
    pub(crate) url_file: Option<PathBuf>,
}

// The URL may hold a password: never printed.
impl std::fmt::Debug for Resource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resource").field("name", &self.name).field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Resource {
    /// Whether it is that engine of this server.
    pub(crate) fn is_own(&self, url: &str) -> bool {
        self.kind == "own" && self.url.as_deref() == Some(url)
    }

    /// The URL, from the file if one is named.
    pub(crate) fn url(&self) -> Result<String, Failure> {
        match (&self.url, &self.url_file) {
            (Some(url), None) => Ok(url.clone()),
            (None, Some(path)) => Ok(read(path)?.trim().to_owned()),
            _ => Err(Failure::invalid(format!("resource {:?}: give either url or url_file", self.name))),
        }
    }
}

/// Says what cannot work together.
pub(crate) fn check(config: &Config) -> Result<(), String> {
    let wrong = Err;
    let mut names = BTreeMap::new();
    for resource in &config.resources {
        if !matches!(resource.kind.as_str(), "postgres" | "mariadb" | "assent" | "own") {
            // Whatever stands there, it may hold a password.
            let kind = if resource.kind.contains("://") { "a URL".to_owned() } else { format!("{:?}", resource.kind) };
            return wrong(format!(
                "resource {:?}: kind = {kind}; write \"postgres\", \"mariadb\", \"assent\" or \"own\"",
                resource.name
            ));
        }
        if resource.kind == "own" {
            let is_there = match resource.url.as_deref() {
                Some("kv") => config.kv.is_some(),
                Some("docs") => config.documents.is_some(),
                _ => false,
            };
            if !is_there || config.coordinator.is_none() {
                return wrong(format!(
                    "resource {:?}: kind = \"own\" is an engine of this server: write url = \"kv\" and [kv], or url = \"docs\" \
                     and [documents]; and [coordinator]",
                    resource.name
                ));
            }
            // One store under two names would be its own rival.
            if resource.url.as_deref().and_then(|url| config.own(url)) != Some(&resource.name) {
                return wrong(format!("resource {:?}: this server's store has a name already", resource.name));
            }
        }
        if resource.url_file.as_ref().is_some_and(|path| path.to_string_lossy().contains("://")) {
            return wrong(format!("resource {:?}: url_file names a file; a URL is given as url", resource.name));
        }
        if resource.url.is_some() == resource.url_file.is_some() {
            return wrong(format!("resource {:?}: give either url or url_file", resource.name));
        }
        // Two names with one hash could not be told apart in an XID.
        if let Some(other) = names.insert(ResourceId::of(&resource.name), &resource.name) {
            return wrong(format!("resource {:?} collides with {other:?}: rename one", resource.name));
        }
    }
    Ok(())
}
