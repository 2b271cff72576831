//! What stands before a value: the name of a member, and where metadata begins. Members of one path have the same.

use super::sheet::{Room, Sheet};
use super::text::Letters;
use super::{Form, Metadata};
use crate::DocsError;
use crate::look::{Look, Stepped};
use crate::path::PathId;

/// So many heads are kept; paths that are so far apart take each other's place.
const HEADS_MAX: usize = 4_096;
/// Room for so many is taken at once.
const HEADS_FEW: usize = 8;
/// Those of short names are no longer.
pub(super) const HEAD_BLOCK_BYTES: usize = 64;

/// What stands before a member.
#[derive(Debug)]
struct Head {
    of: PathId,
    block: [u8; HEAD_BLOCK_BYTES],
    /// So many bytes of the block.
    many: u8,
    /// What is longer.
    long: Option<Box<[u8]>>,
}

#[derive(Debug)]
pub(super) struct Heads {
    /// By the path's number; each in a place of its own, as of a document with many paths a reading may need the last alone.
    kept: Vec<Option<Box<Head>>>,
    is_pretty: bool,
    /// What stands around the name.
    around: [&'static str; 2],
}

impl Heads {
    pub(super) const fn new(form: Form) -> Self {
        let around = match (form.metadata, form.pretty) {
            (Metadata::None, false) => ["\"", "\":"],
            (Metadata::None, true) => ["\"", "\": "],
            (_, false) => ["{\"key\":\"", "\",\"metadata\":{\"nodeKey\":"],
            (_, true) => ["{\"key\": \"", "\",\"metadata\": {\"nodeKey\":"],
        };
        Self { kept: Vec::new(), is_pretty: form.pretty, around }
    }

    /// Puts what stands before the value of a member, if it is kept and short. Whether it is.
    #[inline(always)]
    pub(super) fn put(&self, path: PathId, room: &mut Room<'_>) -> bool {
        match self.kept.get(place(path)) {
            Some(Some(head)) if head.of == path && head.many > 0 => {
                room.put(&head.block, head.many);
                true
            }
            _ => false,
        }
    }

    /// Puts what stands before the value of a member, which is kept from then on.
    #[cold]
    #[inline(never)]
    pub(super) fn member<L: Look>(&mut self, look: &L, path: PathId, out: &mut Sheet) -> Result<(), DocsError> {
        let at = place(path);
        let kept = self.kept.get(at).and_then(Option::as_ref).filter(|head| head.of == path);
        if let Some(long) = kept.and_then(|head| head.long.as_ref()) {
            out.put_all(long);
            return Ok(());
        }
        let named = look.path(path)?.filter(|named| named.step == Stepped::Member);
        let name = named.as_ref().map(|named| named.name.bytes());
        let Some(name) = name.and_then(|name| Letters::read(name, name.len())) else {
            return Err(DocsError::NoPath { path, revision: look.revision() });
        };
        let ([before, behind], from) = (self.around, out.len());
        out.put_all(before.as_bytes());
        name.put_escaped(out);
        out.put_all(behind.as_bytes());
        let head = Head::new(path, out.written().get(from..).unwrap_or_default());
        if self.kept.len() <= at {
            // Documents of a few paths are most of those that are read again and again.
            self.kept.reserve((at + 1).max(HEADS_FEW).saturating_sub(self.kept.len()));
            self.kept.resize_with(at + 1, || None);
        }
        if let Some(place) = self.kept.get_mut(at) {
            *place = Some(Box::new(head));
        }
        Ok(())
    }

    /// Before a value without a name; there is metadata.
    #[inline(always)]
    pub(super) fn item(&self, room: &mut Room<'_>) {
        if self.is_pretty {
            room.put(b"{\"metadata\": {\"nodeKey\":", 24);
        } else {
            room.put(b"{\"metadata\":{\"nodeKey\":", 23);
        }
    }
}

impl Head {
    const NONE: Self = Self { of: 0, block: [0; HEAD_BLOCK_BYTES], many: 0, long: None };

    fn new(of: PathId, bytes: &[u8]) -> Self {
        let mut head = Self { of, ..Self::NONE };
        match (head.block.get_mut(..bytes.len()), u8::try_from(bytes.len())) {
            (Some(block), Ok(many)) => {
                block.copy_from_slice(bytes);
                head.many = many;
            }
            _ => head.long = Some(bytes.into()),
        }
        head
    }
}

/// Where the head of a path is kept.
fn place(path: PathId) -> usize {
    usize::try_from(path).unwrap_or(0) % HEADS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::{Item, Named, Text};
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
            let is_put = |heads: &Heads, path: PathId| heads.put(path, &mut Sheet::default().room());
            assert!(is_put(&heads, 1) && [0, 2, 3, 1 + 4_096].iter().all(|other| !is_put(&heads, *other)));
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
