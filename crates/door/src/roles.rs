//! Who may do what: five roles, global or of one database.
//!
//! Walk: [`Grants::read`] the words of a token, [`Grants::checked`] those of a configuration · [`Grants::allows`] one act.
//! A word is a role (`view`), or a database and a role (`shop-view`); a keyspace of the store is a database here.
//! Deliberately absent: how a caller proves who he is. `rest` knows that.

use std::collections::BTreeMap;
use std::fmt;

/// What somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Reads.
    View,
    /// Makes what is not there: databases, documents, keyspaces.
    Create,
    /// Changes what is there: nodes, keys; begins and ends transactions of his own.
    Modify,
    /// Drops: databases, documents, keyspaces, keys.
    Delete,
    /// Everything, and the server itself: its configuration, its log level, decisions by force.
    Admin,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::View, Self::Create, Self::Modify, Self::Delete, Self::Admin];

    /// The word in tokens and configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::Create => "create",
            Self::Modify => "modify",
            Self::Delete => "delete",
            Self::Admin => "admin",
        }
    }

    const fn bit(self) -> u8 {
        match self {
            Self::View => 1,
            Self::Create => 2,
            Self::Modify => 4,
            Self::Delete => 8,
            Self::Admin => 16,
        }
    }

    fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == word)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Set(u8);

impl Set {
    const fn has(self, role: Role) -> bool {
        self.0 & (role.bit() | Role::Admin.bit()) != 0
    }
}

/// The roles of one caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    global: Set,
    of: BTreeMap<String, Set>,
}

impl Grants {
    /// Everything.
    #[must_use]
    pub fn all() -> Self {
        Self { global: Set(Role::Admin.bit()), of: BTreeMap::new() }
    }

    /// The roles among these words. A provider has words for other programs, too: those say nothing here.
    pub fn read<'w>(words: impl IntoIterator<Item = &'w str>) -> Self {
        let mut grants = Self::default();
        words.into_iter().for_each(|word| _ = grants.take(word));
        grants
    }

    /// The roles of these words, each of which must be one.
    ///
    /// # Errors
    /// The first word that is none.
    pub fn checked<'w>(words: impl IntoIterator<Item = &'w str>) -> Result<Self, &'w str> {
        let mut grants = Self::default();
        words.into_iter().try_for_each(|word| if grants.take(word) { Ok(()) } else { Err(word) })?;
        Ok(grants)
    }

    fn take(&mut self, word: &str) -> bool {
        if let Some(role) = Role::of(word) {
            self.global.0 |= role.bit();
            return true;
        }
        // A database's own name may have a dash in it: the role is behind the last one.
        match word.rsplit_once('-') {
            Some((database, role)) if !database.is_empty() => {
                let Some(role) = Role::of(role) else { return false };
                self.of.entry(database.to_owned()).or_default().0 |= role.bit();
                true
            }
            _ => false,
        }
    }

    /// How many databases are named.
    #[must_use]
    pub fn databases(&self) -> usize {
        self.of.len()
    }

    /// Whether this may be done: in one database, or to all of it if none is named.
    #[must_use]
    pub fn allows(&self, role: Role, database: Option<&str>) -> bool {
        let of = || database.and_then(|name| self.of.get(name)).is_some_and(|set| set.has(role));
        self.global.has(role) || of()
    }

    /// Whether this may be done in any database at all.
    #[must_use]
    pub fn allows_somewhere(&self, role: Role) -> bool {
        self.global.has(role) || self.of.values().any(|set| set.has(role))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_global_or_of_one_database_and_admin_is_every_role() {
        let grants = Grants::read(["view", "shop-modify", "a-b-delete", "offline_access", "-view", "shop-"]);
        assert!(grants.allows(Role::View, None) && grants.allows(Role::View, Some("any")));
        assert!(grants.allows(Role::Modify, Some("shop")) && !grants.allows(Role::Modify, Some("shops")));
        assert!(!grants.allows(Role::Modify, None) && grants.allows_somewhere(Role::Modify));
        assert!(grants.allows(Role::Delete, Some("a-b")) && !grants.allows(Role::Delete, Some("a")));
        assert!(!grants.allows_somewhere(Role::Create) && !grants.allows_somewhere(Role::Admin));
        for role in Role::ALL {
            assert!(Grants::all().allows(role, None) && !Grants::default().allows_somewhere(role), "{role}");
            let of_one = Grants::read(["shop-admin"]);
            assert!(of_one.allows(role, Some("shop")) && !of_one.allows(role, None), "{role}");
        }
    }

    #[test]
    fn a_word_of_the_configuration_that_is_no_role_is_named() {
        assert_eq!(Grants::checked(["view", "veiw"]), Err("veiw"));
        assert_eq!(Grants::read(["view", "shop-view", "shop-modify", "a-view"]).databases(), 2);
        assert_eq!(Grants::checked(["shop-view"]), Ok(Grants::read(["shop-view"])));
    }
}
