//! Rows of tags.
//!
//! Walk: [`Index::tag`] finds one, [`Index::tags`] lists them · [`Index::tags_behind`] those that go with their revisions.

use std::ops::Bound;

use assent_frame::{Malformed, Reader};
use assent_runs::RunsError;

use super::{Index, VERSION, wrong};
use crate::DocsError;

impl Index {
    /// The revision of a tag.
    pub(crate) fn tag(&self, document: u64, tag: &str) -> Result<Option<u32>, DocsError> {
        let Some(found) = self.runs.get(&tag_key(document, tag))? else { return Ok(None) };
        read_tagged(&found.value).map(Some).map_err(|malformed| wrong(found.seq, &malformed))
    }

    /// The tags of a document behind this one, in order.
    pub(crate) fn tags(
        &self,
        document: u64,
        behind: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, u32)>, DocsError> {
        let from = tag_key(document, behind.unwrap_or_default());
        let from = if behind.is_some() { Bound::Excluded(&*from) } else { Bound::Included(&*from) };
        let to = tag_key(document.saturating_add(1), "");
        let view = self.runs.view();
        let mut walk = view.range(from, Bound::Excluded(&to));
        let mut tags = Vec::new();
        while tags.len() < limit
            && let Some((key, found)) = walk.next()?
        {
            let revision = read_tagged(&found.value).map_err(|malformed| wrong(found.seq, &malformed))?;
            tags.push((String::from_utf8_lossy(key.get(9..).unwrap_or_default()).into_owned(), revision));
        }
        Ok(tags)
    }

    /// The keys of tags whose revisions are behind this one.
    pub(crate) fn tags_behind(&self, document: u64, revision: u32) -> Result<Vec<Vec<u8>>, RunsError> {
        let (from, to) = (tag_key(document, ""), tag_key(document.saturating_add(1), ""));
        let view = self.runs.view();
        let mut walk = view.range(Bound::Included(&from), Bound::Excluded(&to));
        let mut keys = Vec::new();
        while let Some((key, found)) = walk.next()? {
            // One that cannot be read is told by whoever asks for it.
            if read_tagged(&found.value).is_ok_and(|of| of > revision) {
                keys.push(key.to_vec());
            }
        }
        Ok(keys)
    }
}

pub(super) fn tag_key(document: u64, tag: &str) -> Vec<u8> {
    [b"t", document.to_be_bytes().as_slice(), tag.as_bytes()].concat()
}

fn read_tagged(row: &[u8]) -> Result<u32, Malformed> {
    let mut reader = Reader::new(row);
    if reader.u8("version")? != VERSION {
        return Err(Malformed { field: "version" });
    }
    let revision = reader.u32("revision")?;
    reader.end()?;
    Ok(revision)
}
