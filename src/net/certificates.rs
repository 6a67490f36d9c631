//! The TLS of a listener: certificate chain and private key, read when the configuration is.

use std::path::Path;
use std::sync::Arc;

use pingora::listeners::tls::Acceptor;
use rustls::crypto::ring;
use rustls::version::{TLS12, TLS13};
use rustls::{Error, InconsistentKeys, ServerConfig};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::TlsFiles;

/// What new connections are greeted with.
pub(crate) struct Certificate {
    pub(crate) acceptor: Acceptor,
}

impl Certificate {
    /// Reads both files, of the configuration's key `name`, for connections that speak one of these protocols.
    ///
    /// # Errors
    /// When one cannot be read or holds nothing of its kind, or when the key is not the certificate's.
    pub(crate) fn load(name: &str, files: &TlsFiles, protocols: &[&[u8]]) -> Result<Certificate, String> {
        let unreadable = |key: &str, path: &Path, error: &dyn std::fmt::Display| {
            format!("{name}.{key}: {}: {error}", path.display())
        };
        let certificates = CertificateDer::pem_file_iter(&files.cert)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| unreadable("cert", &files.cert, &error))?;
        if certificates.is_empty() {
            return Err(unreadable("cert", &files.cert, &"no certificate in it"));
        }
        let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| match error {
            pem::Error::NoItemsFound => unreadable("key", &files.key, &"no private key in it"),
            error => unreadable("key", &files.key, &error),
        })?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| format!("{name}: {error}"))?
            .with_no_client_auth()
            .with_single_cert(certificates, key)
            .map_err(|error| match error {
                Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                    let of = format!("it is not the certificate of the key in {}", files.key.display());
                    unreadable("cert", &files.cert, &of)
                }
                error => unreadable("cert", &files.cert, &error),
            })?;
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Certificate {
            acceptor: Acceptor::from_server_config(Arc::new(config)),
        })
    }
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Certificate")
    }
}

/// What clients of the interface may speak, as TLS names it.
pub(crate) const HTTP_1_AND_2: [&[u8]; 2] = [b"h2", b"http/1.1"];
/// What operators speak.
pub(crate) const HTTP_1: [&[u8]; 1] = [b"http/1.1"];
