//! The coarse error kinds: what the caller must do, and the one table to every outer code.
//!
//! Walk: a room's own error enum has `kind()` · only the [`Kind`] travels upwards and over the wire · the front
//! doors turn it into an exit code, an HTTP status, a TX or an XA code by the table below.
//! Deliberately absent: details and texts. They stay in the room that knows them.
#![forbid(unsafe_code)]

use std::fmt;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $wire:literal, $name:literal, exit $exit:literal, http $http:literal, tx $tx:literal, xa $xa:literal;)*) => {
        /// What went wrong, said as what the caller has to do.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind { $($(#[$doc])* $kind),* }

        impl Kind {
            /// Every kind, in the order of the table.
            pub const ALL: &'static [Kind] = &[$(Kind::$kind),*];

            /// The name in JSON and logs, lower case.
            #[must_use]
            pub const fn name(self) -> &'static str { match self { $(Kind::$kind => $name),* } }
            /// The exit code of the command line.
            #[must_use]
            pub const fn exit_code(self) -> u8 { match self { $(Kind::$kind => $exit),* } }
            /// The HTTP status (RFC 9110).
            #[must_use]
            pub const fn http_status(self) -> u16 { match self { $(Kind::$kind => $http),* } }
            /// The return code of the X/Open TX interface (`tx.h`).
            #[must_use]
            pub const fn tx_code(self) -> i32 { match self { $(Kind::$kind => $tx),* } }
            /// The return code of the XA interface (`xa.h`).
            #[must_use]
            pub const fn xa_code(self) -> i32 { match self { $(Kind::$kind => $xa),* } }
            /// The byte on the wire. Never renumbered.
            #[must_use]
            pub const fn wire(self) -> u8 { match self { $(Kind::$kind => $wire),* } }
            /// The kind of a byte from the wire; an unknown byte is [`Kind::Internal`], as a newer peer may know more.
            #[must_use]
            pub const fn from_wire(byte: u8) -> Kind { match byte { $($wire => Kind::$kind,)* _ => Kind::Internal } }
        }
    };
}

// TX codes: TX_FAIL -7, TX_ERROR -6, TX_EINVAL -8, TX_ROLLBACK -2, TX_HAZARD -4, TX_PROTOCOL_ERROR -5.
// How a transaction ended has finer codes (TX_MIXED -3, TX_COMMITTED -9): `xa::TxReturn`, folded over its branches.
// XA codes: XAER_INVAL -5, XAER_NOTA -4, XAER_RMERR -3, XAER_RMFAIL -7, XAER_DUPID -8, XA_RBROLLBACK 100, XA_HEURHAZ 8.
kinds! {
    /// The request breaks a rule or a limit; change it before you send it again.
    Invalid = 1, "invalid", exit 2, http 400, tx -8, xa -5;
    /// What was named is not there.
    NotFound = 2, "not_found", exit 3, http 404, tx -6, xa -4;
    /// Another writer was first; start the work again.
    Conflict = 3, "conflict", exit 4, http 409, tx -2, xa -8;
    /// A limit is reached for the moment; wait and send it again.
    Busy = 4, "busy", exit 5, http 429, tx -6, xa -3;
    /// You may not do this.
    Denied = 5, "denied", exit 6, http 403, tx -6, xa -3;
    /// The disk or a quota is full; make room.
    Full = 6, "full", exit 7, http 507, tx -6, xa -3;
    /// It cannot be reached; nothing was done.
    Unavailable = 7, "unavailable", exit 8, http 503, tx -6, xa -7;
    /// It has shut itself after a failure; reopen it, recovery decides.
    Closed = 8, "closed", exit 9, http 503, tx -7, xa -7;
    /// The transaction was rolled back; everything of it is undone.
    RolledBack = 9, "rolled_back", exit 10, http 409, tx -2, xa 100;
    /// The answer was lost: it may have been done or not; ask for the outcome.
    InDoubt = 10, "in_doubt", exit 11, http 504, tx -4, xa -7;
    /// A resource finished its branch on its own, against or without the decision.
    Heuristic = 11, "heuristic", exit 12, http 500, tx -4, xa 8;
    /// Stored bytes are damaged; the message names the place.
    Corrupt = 12, "corrupt", exit 13, http 500, tx -7, xa -3;
    /// A promise of ours is broken; report it.
    Internal = 13, "internal", exit 70, http 500, tx -7, xa -3;
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_that_scripts_rely_on() {
        let codes: Vec<(&str, u8)> = Kind::ALL.iter().map(|k| (k.name(), k.exit_code())).collect();
        let expected = [
            ("invalid", 2),
            ("not_found", 3),
            ("conflict", 4),
            ("busy", 5),
            ("denied", 6),
            ("full", 7),
            ("unavailable", 8),
            ("closed", 9),
            ("rolled_back", 10),
            ("in_doubt", 11),
            ("heuristic", 12),
            ("corrupt", 13),
            ("internal", 70),
        ];
        assert_eq!(codes, expected);
    }

    #[test]
    fn a_kind_survives_the_wire_and_an_unknown_byte_is_internal() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_wire(kind.wire()), *kind);
        }
        assert_eq!(Kind::from_wire(0), Kind::Internal);
        assert_eq!(Kind::from_wire(255), Kind::Internal);
    }
}
