//! Steps from path to path that a build took lately: most nodes of a load take one of a few, and to compare its name costs less than to
//! digest it.
//!
//! Walk: a step has one place where it may be, [`Lately::find`] looks there · [`Lately::keep`] puts another one out of it.
//! Deliberately absent: long names, and more than a few kilobytes of others.

use crate::path::PathId;

const PLACES: usize = 256;
const NAME_BYTES_MAX: usize = 64;

/// A step, and the path that it leads to.
#[derive(Clone, Debug, Default)]
struct Taken {
    before: PathId,
    name: Option<Box<str>>,
    /// 0: none.
    path: PathId,
}

/// Steps by their places. It takes no memory before the first is kept.
#[derive(Debug, Default)]
pub(super) struct Lately(Vec<Taken>);

impl Lately {
    #[inline]
    pub(super) fn find(&self, before: PathId, name: Option<&str>) -> Option<PathId> {
        let taken = self.0.get(place(before, name))?;
        (taken.path != 0 && taken.before == before && taken.name.as_deref() == name).then_some(taken.path)
    }

    pub(super) fn keep(&mut self, before: PathId, name: Option<&str>, path: PathId) {
        if name.is_some_and(|name| name.len() > NAME_BYTES_MAX) {
            return;
        }
        self.0.resize(PLACES, Taken::default());
        if let Some(taken) = self.0.get_mut(place(before, name)) {
            *taken = Taken { before, name: name.map(Box::from), path };
        }
    }
}

/// Spread by the path before, the name's length and its ends; two steps of one place only put each other out.
#[inline]
fn place(before: PathId, name: Option<&str>) -> usize {
    let name = name.unwrap_or_default().as_bytes();
    let end = |byte: Option<&u8>| byte.map_or(0, |byte| u64::from(*byte));
    let ends = end(name.first()) | end(name.last()) << 8 | end(Some(&name.len().to_le_bytes()[0])) << 16;
    // As maps by paths hash.
    let [.., high] = ((before.rotate_left(24) ^ ends).wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes();
    usize::from(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_is_the_step_that_was_kept_and_no_other() {
        let mut lately = Lately::default();
        assert_eq!(lately.find(1, None), None);
        let names: Vec<String> = (0..300).map(|number| format!("a{number}z")).collect();
        let steps = || names.iter().flat_map(|name| [(1, Some(name.as_str())), (2, Some(name)), (3, None)]);
        for (path, (before, name)) in (1..).zip(steps()) {
            lately.keep(before, name, path);
            assert_eq!(lately.find(before, name), Some(path));
        }
        let found: Vec<_> =
            (1..).zip(steps()).filter(|(_, (before, name))| lately.find(*before, *name).is_some()).collect();
        assert!(found.len() > 50, "{}", found.len());
        // Three of a kind lead to the last one kept; others only to their own.
        assert!(
            found.iter().all(|(path, (before, name))| name.is_none() || lately.find(*before, *name) == Some(*path))
        );
        assert_eq!(
            (lately.find(4, Some("a1z")), lately.find(1, Some("")), lately.find(3, Some(""))),
            (None, None, None)
        );
        let (long, longer) = ("n".repeat(NAME_BYTES_MAX), "n".repeat(NAME_BYTES_MAX + 1));
        lately.keep(9, Some(&long), 7);
        lately.keep(9, Some(&longer), 8);
        assert_eq!((lately.find(9, Some(&long)), lately.find(9, Some(&longer))), (Some(7), None));
    }
}
