//! Reverting: the next revision is what an earlier one was.
//!
//! Walk: [`Edit::revert`] takes the earlier revision's trees: a commit of it is as small as any, whatever has changed since.
//! Deliberately absent: keys that come back to life for new nodes. Those go on where the newest revision has ended.

use crate::DocsError;
use crate::edit::Edit;
use crate::node::NodeKey;
use crate::revision::Revision;

impl Edit {
    /// Makes the document what it was at a revision. What this edit has changed so far is gone.
    ///
    /// # Errors
    /// [`DocsError::Unfit`] for a revision of another document: nothing has changed then.
    pub fn revert(&mut self, to: &Revision) -> Result<(), DocsError> {
        if to.root.document != self.base.document {
            return Err(DocsError::Unfit { key: NodeKey::DOCUMENT, why: "the revision is of another document" });
        }
        self.drafts.clear();
        self.changes.clear();
        self.failed = None;
        self.is_listed = false;
        (self.value, self.nodes, self.unlaid_from) = (to.root.value, to.root.nodes.clone(), self.next_node);
        self.paths.revert(&to.root);
        Ok(())
    }
}
