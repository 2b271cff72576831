//! Where a listener may listen: on this machine, unless told otherwise in so many words.

use std::net::ToSocketAddrs;

use assent_world::net::Address;

use crate::DoorError;

/// The address of a configuration value. Anything that other machines can reach is refused unless `insecure`.
///
/// # Errors
/// [`DoorError::Address`] if the text names none; [`DoorError::NotLoopback`] if one of the addresses it names is not
/// a loopback address.
pub fn listen_address(key: &str, text: &str, insecure: bool) -> Result<Address, DoorError> {
    let wrong = |why: String| DoorError::Address { key: key.to_owned(), text: text.to_owned(), why };
    let address: Address = text.parse().map_err(|error: assent_world::net::AddressError| wrong(error.to_string()))?;
    if let Address::Tcp { host, port } = &address {
        let places = (host.as_str(), *port).to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
        let mut places = places.peekable();
        if places.peek().is_none() {
            return Err(wrong("it has no address".to_owned()));
        }
        // All of them: a name that resolves to loopback and to the outside listens on whichever comes first today.
        if !insecure && !places.all(|place| place.ip().to_canonical().is_loopback()) {
            return Err(DoorError::NotLoopback { key: key.to_owned(), text: text.to_owned() });
        }
    }
    Ok(address)
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
    fn what_is_no_address_is_named() {
        for wrong in ["", "7430", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:x"] {
            let refused = listen_address("server.listen", wrong, true).unwrap_err();
            assert_eq!(refused.kind(), Kind::Invalid, "{wrong}");
            assert!(refused.to_string().starts_with(&format!("server.listen = {wrong:?}: ")), "{refused}");
        }
    }
}
