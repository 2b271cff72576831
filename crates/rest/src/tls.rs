//! A listener's certificate, taken anew while it serves.
//!
//! Walk: [`Certificates::new`] checks that certificate and key belong together · each new connection takes what is there ·
//! [`Certificates::replace`] puts others in their place; connections that are open keep theirs.
//! Deliberately absent: certificates of clients, and where the bytes come from.

use std::sync::Arc;

use arc_swap::ArcSwap;
use assent_kind::Kind;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Why there is no TLS.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(String);

impl TlsError {
    /// What the caller must do.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        Kind::Invalid
    }
}

/// What a listener shows to whoever connects.
#[derive(Debug)]
pub struct Certificates(ArcSwap<ServerConfig>);

impl Certificates {
    /// A chain of certificates and the key of the first, both as PEM.
    ///
    /// # Errors
    /// [`TlsError`] says which of them is no such thing, or that they do not belong together.
    pub fn new(chain: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        Ok(Self(ArcSwap::from_pointee(config(chain, key)?)))
    }

    /// Shows these from now on.
    ///
    /// # Errors
    /// As [`Certificates::new`]; what was there stays.
    pub fn replace(&self, chain: &[u8], key: &[u8]) -> Result<(), TlsError> {
        self.0.store(Arc::new(config(chain, key)?));
        Ok(())
    }

    pub(crate) fn now(&self) -> Arc<ServerConfig> {
        self.0.load_full()
    }
}

fn config(chain: &[u8], key: &[u8]) -> Result<ServerConfig, TlsError> {
    let wrong = |what: &str, error: &dyn std::fmt::Display| TlsError(format!("{what}: {error}"));
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<_, _>>()
        .map_err(|error| wrong("tls.certificate is no PEM", &error))?;
    if chain.is_empty() {
        return Err(TlsError("tls.certificate holds no certificate".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| wrong("tls.key holds no private key", &error))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong("TLS", &error))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| wrong("tls.certificate and tls.key do not work together", &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
