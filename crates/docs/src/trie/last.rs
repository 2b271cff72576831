//! The page that was looked at last: what is looked at next is often there too, and needs no walk down the trie.
//!
//! Walk: [`Last::page`] of a tree; another tree of the document, as an edit has it behind what it lays, has other pages.
//! Deliberately absent: waiting. Who finds another thread at it walks.

use std::sync::{Arc, Mutex};

use super::Tree;
use crate::DocsError;
use crate::page::Page;
use crate::place::Place;

/// A page of level 0 as a tree has it; none if it has none.
#[derive(Debug)]
struct Looked {
    top: Option<Place>,
    number: u64,
    page: Option<Arc<Page>>,
}

#[derive(Debug, Default)]
pub(crate) struct Last(Mutex<Option<Looked>>);

impl Clone for Last {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Last {
    /// The page with this number. A tree is known by the newest fragment of its top, which no other tree has.
    pub(crate) fn page(
        &self,
        tree: &Tree,
        number: u64,
        find: impl FnOnce() -> Result<Option<Arc<Page>>, DocsError>,
    ) -> Result<Option<Arc<Page>>, DocsError> {
        let top = tree.top.newest();
        if let Ok(last) = self.0.try_lock()
            && let Some(looked) = last.as_ref().filter(|looked| (looked.top, looked.number) == (top, number))
        {
            return Ok(looked.page.clone());
        }
        let page = find()?;
        if let Ok(mut last) = self.0.try_lock() {
            *last = Some(Looked { top, number, page: page.clone() });
        }
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use assent_ids::Lsn;

    use super::*;
    use crate::place::{Chain, Entry};

    #[test]
    fn a_page_is_found_once_for_each_tree_and_number() {
        let place = |lsn| Place { entry: Entry::new(Lsn(lsn), 10), index: 0 };
        let trees = [None, Some(place(64)), Some(place(128))];
        let trees = trees.map(|top| Tree { height: 0, top: Chain::from_iter(top) });
        let last = Last::default();
        for tree in &trees {
            for number in [0, 1] {
                let page = Some(Arc::new(Page::default()));
                let found = last.page(tree, number, || Ok(page.clone())).unwrap();
                let again = last.page(tree, number, || panic!("it was looked at last")).unwrap();
                assert!(found.zip(again).is_some_and(|(found, again)| Arc::ptr_eq(&found, &again)));
                assert!(last.page(tree, number + 1, || Ok(None)).unwrap().is_none(), "another number");
                assert!(last.page(tree, number, || Ok(None)).unwrap().is_none(), "it is not the last one any more");
            }
        }
    }
}
