//! What stands before a value: the name of a member, and where metadata begins. Members of one path have the same.

use super::sheet::Sheet;
use super::text::Letters;
use super::{Form, Metadata};
use crate::DocsError;
use crate::look::Look;
use crate::path::{PathId, Step};

/// So many heads are kept; paths that are so far apart take each other's place.
const HEADS_MAX: usize = 4_096;
/// Room for so many is taken at once.
const HEADS_FEW: usize = 16;
/// Those of short names are no longer.
const HEAD_BLOCK_BYTES: usize = 64;

/// What stands before a member.
#[derive(Debug)]
struct Head {
    of: PathId,
    /// With room behind it, up to a block.
    bytes: Box<[u8]>,
    length: usize,
}

#[derive(Debug)]
pub(super) struct Heads {
    /// By the path's number.
    kept: Vec<Option<Head>>,
    is_plain: bool,
    is_pretty: bool,
}

impl Heads {
    pub(super) const fn new(form: Form) -> Self {
        Self { kept: Vec::new(), is_plain: matches!(form.metadata, Metadata::None), is_pretty: form.pretty }
    }

    /// Before the value of a member.
    #[inline(always)]
    pub(super) fn member<L: Look>(&mut self, look: &L, path: PathId, out: &mut Sheet) -> Result<(), DocsError> {
        let at = usize::try_from(path).unwrap_or(0) % HEADS_MAX;
        match self.kept.get(at) {
            Some(Some(head)) if head.of == path => out.put_first::<HEAD_BLOCK_BYTES>(&head.bytes, head.length),
            _ => self.keep(look, (path, at), out)?,
        }
        Ok(())
    }

    /// Makes what stands before the members of a path.
    #[cold]
    fn keep<L: Look>(&mut self, look: &L, (path, at): (PathId, usize), out: &mut Sheet) -> Result<(), DocsError> {
        let mut bytes = self.make(look, path)?;
        out.put_all(&bytes);
        let length = bytes.len();
        bytes.resize(length.max(HEAD_BLOCK_BYTES), 0);
        if self.kept.len() <= at {
            // Documents of a few paths are most of those that are read again and again.
            self.kept.reserve((at + 1).max(HEADS_FEW).saturating_sub(self.kept.len()));
            self.kept.resize_with(at + 1, || None);
        }
        let mut head = Some(Head { of: path, bytes: bytes.into(), length });
        self.kept.get_mut(at).into_iter().for_each(|place| *place = head.take());
        Ok(())
    }

    /// Before a value without a name; there is metadata.
    pub(super) fn item(&self, out: &mut Sheet) {
        if self.is_pretty { out.put(b"{\"metadata\": {\"nodeKey\":") } else { out.put(b"{\"metadata\":{\"nodeKey\":") }
    }

    fn make<L: Look>(&self, look: &L, path: PathId) -> Result<Vec<u8>, DocsError> {
        let (mut head, colon) = (Sheet::with_room(HEAD_BLOCK_BYTES), if self.is_pretty { &b": "[..] } else { b":" });
        let named = look.path(path)?;
        let Some(Step::Member(name)) = named.as_ref().map(|named| named.step()) else {
            return Err(DocsError::NoPath { path, revision: look.revision() });
        };
        if self.is_plain {
            Letters::of(name).quote(&mut head);
            head.put_all(colon);
            return Ok(head.taken());
        }
        head.put(b"{\"key\"");
        head.put_all(colon);
        Letters::of(name).quote(&mut head);
        head.put(b",\"metadata\"");
        head.put_all(colon);
        head.put(b"{\"nodeKey\":");
        Ok(head.taken())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::{Item, Named, Stepped, Text};
    use crate::node::NodeKey;

    /// Of its paths the second is one of an array's values, and the third is not there.
    struct Broken;

    impl Look for Broken {
        fn value(&self) -> Option<NodeKey> {
            None
        }

        fn revision(&self) -> u32 {
            5
        }

        fn find(&self, _: NodeKey) -> Result<Option<Item>, DocsError> {
            Ok(None)
        }

        fn path(&self, path: PathId) -> Result<Option<Named>, DocsError> {
            let step = if path == 1 { Stepped::Member } else { Stepped::Items };
            Ok((path < 3).then(|| Named { before: 0, step, name: Text::own("a"), references: 1 }))
        }
    }

    #[test]
    fn a_member_whose_path_is_damaged_is_an_error_that_names_it_and_never_json_without_a_name() {
        // An object with a member that had no name was written, which is no JSON.
        for metadata in [Metadata::None, Metadata::All] {
            let mut heads = Heads::new(Form { metadata, ..Form::default() });
            let mut out = Sheet::default();
            heads.member(&Broken, 1, &mut out).unwrap();
            let whole = out.written().to_vec();
            for path in [2, 3] {
                let error = heads.member(&Broken, path, &mut out).unwrap_err();
                assert!(matches!(error, DocsError::NoPath { path: of, revision: 5 } if of == path), "{error}");
                assert_eq!(error.kind(), assent_kind::Kind::Corrupt);
            }
            assert_eq!(out.written(), whole);
        }
    }
}
