//! Where a listener may listen: on this machine, unless it knows its callers and hides what they say, or is told
//! otherwise in so many words.

use std::net::ToSocketAddrs;

use assent_world::net::Address;

use crate::DoorError;

/// What stands between a listener and strangers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shield {
    /// What is said travels encrypted.
    pub tls: bool,
    /// Callers prove who they are.
    pub identity: bool,
}

/// The address of a configuration value, for a listener with neither identity nor TLS. Anything that other machines can
/// reach is refused unless `insecure`.
///
/// # Errors
/// [`DoorError::Address`] if the text names none; [`DoorError::NotLoopback`] if one of the addresses it names is not
/// a loopback address.
pub fn listen_address(key: &str, text: &str, insecure: bool) -> Result<Address, DoorError> {
    match address(key, text)? {
        (address, is_inside) if is_inside || insecure => Ok(address),
        _ => Err(DoorError::NotLoopback { key: key.to_owned(), text: text.to_owned() }),
    }
}

/// The address of a configuration value, for a listener that has this shield. Anything that other machines can reach is
/// refused unless both parts of it are up, or `insecure`.
///
/// # Errors
/// [`DoorError::Address`] if the text names none; [`DoorError::Unshielded`] names what is missing.
pub fn shielded_address(key: &str, text: &str, shield: Shield, insecure: bool) -> Result<Address, DoorError> {
    let missing = match shield {
        Shield { tls: true, identity: true } => None,
        Shield { tls: false, identity: true } => Some("TLS: write [tls]"),
        Shield { tls: true, identity: false } => Some("identity: write [identity]"),
        Shield { tls: false, identity: false } => Some("identity and TLS: write [identity] and [tls]"),
    };
    match (address(key, text)?, missing) {
        ((_, false), Some(missing)) if !insecure => {
            Err(DoorError::Unshielded { key: key.to_owned(), text: text.to_owned(), missing })
        }
        ((address, _), _) => Ok(address),
    }
}

/// What a text names, and whether only this machine reaches it.
fn address(key: &str, text: &str) -> Result<(Address, bool), DoorError> {
    let wrong = |why: String| DoorError::Address { key: key.to_owned(), text: text.to_owned(), why };
    let address: Address = text.parse().map_err(|error: assent_world::net::AddressError| wrong(error.to_string()))?;
    if let Address::Tcp { host, port } = &address {
        let places = (host.as_str(), *port).to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
        let mut places = places.peekable();
        if places.peek().is_none() {
            return Err(wrong("it has no address".to_owned()));
        }
        // All of them: a name that resolves to loopback and to the outside listens on whichever comes first today.
        let is_inside = places.all(|place| place.ip().to_canonical().is_loopback());
        return Ok((address, is_inside));
    }
    Ok((address, true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use assent_kind::Kind;

    #[test]
    fn loopback_is_taken_and_the_outside_only_when_said() {
        for inside in [
            "127.0.0.1:7430",
            "127.9.9.9:1",
            "[::1]:0",
            "localhost:7430",
            "[::ffff:127.0.0.1]:7430",
            "unix:/run/assent",
        ] {
            assert!(listen_address("server.listen", inside, false).is_ok(), "{inside}");
        }
        for outside in ["0.0.0.0:7430", "[::]:7430", "192.168.1.1:80", "[::ffff:10.0.0.1]:7430"] {
            let refused = listen_address("server.listen", outside, false).unwrap_err();
            assert_eq!(refused.kind(), Kind::Denied, "{outside}");
            assert!(refused.to_string().contains(outside) && refused.to_string().contains("--insecure"));
            assert!(listen_address("server.listen", outside, true).is_ok(), "{outside}");
        }
    }

    #[test]
    fn the_outside_is_for_listeners_that_have_both_identity_and_tls_or_were_told() {
        let shields = [(false, false, "identity and TLS"), (true, false, "identity"), (false, true, "TLS")];
        for (tls, identity, missing) in shields {
            let shield = Shield { tls, identity };
            let refused = shielded_address("docs.listen", "0.0.0.0:9443", shield, false).unwrap_err();
            assert_eq!(refused.kind(), Kind::Denied);
            assert!(refused.to_string().contains(&format!("without {missing}: ")), "{refused}");
            assert!(shielded_address("docs.listen", "127.0.0.1:9443", shield, false).is_ok());
            assert!(shielded_address("docs.listen", "0.0.0.0:9443", shield, true).is_ok());
        }
        let whole = Shield { tls: true, identity: true };
        assert!(shielded_address("docs.listen", "0.0.0.0:9443", whole, false).is_ok());
        assert_eq!(shielded_address("docs.listen", "x", whole, false).unwrap_err().kind(), Kind::Invalid);
    }

    #[test]
    fn what_is_no_address_is_named() {
        for wrong in ["", "7430", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:x"] {
            let refused = listen_address("server.listen", wrong, true).unwrap_err();
            assert_eq!(refused.kind(), Kind::Invalid, "{wrong}");
            assert!(refused.to_string().starts_with(&format!("server.listen = {wrong:?}: ")), "{refused}");
        }
    }
}
