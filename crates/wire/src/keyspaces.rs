//! Keyspaces by name. Since version 2.

use assent_frame::{Malformed, Reader, Writer};

use crate::field;

/// Which keyspaces are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyspaceQuery<'a> {
    /// Only the one of this name.
    pub name: Option<&'a str>,
    /// Those behind this name.
    pub after: Option<&'a str>,
}

/// A keyspace that has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyspaceView<'a> {
    /// Its number, in `Get` and its like.
    pub id: u32,
    /// Its name.
    pub name: &'a str,
    /// When it was created, in milliseconds since 1970.
    pub created_ms: u64,
}

impl<'a> KeyspaceQuery<'a> {
    pub(crate) fn put(&self, to: &mut Writer) {
        field::put_option(to, self.name.as_ref(), |to, name| _ = to.text(name));
        field::put_option(to, self.after.as_ref(), |to, name| _ = to.text(name));
    }

    pub(crate) fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        let text = |from: &mut Reader<'a>| from.text("name");
        Ok(Self { name: field::option(from, "name", text)?, after: field::option(from, "after", text)? })
    }
}

impl<'a> KeyspaceView<'a> {
    pub(crate) fn put(&self, to: &mut Writer) {
        to.u32(self.id).text(self.name).u64(self.created_ms);
    }

    pub(crate) fn take(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self { id: from.u32("keyspace")?, name: from.text("name")?, created_ms: from.u64("created")? })
    }
}
