//! The TLS of a listener: certificate chain and private key, read when the configuration is.

use std::path::Path;
use std::sync::Arc;

use pingora::listeners::tls::Acceptor;
use rustls::crypto::ring;
use rustls::version::{TLS12, TLS13};
use rustls::{Error, InconsistentKeys, ServerConfig};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::config::TlsFiles;
use crate::pure::time::Timestamp;

/// What new connections are greeted with.
pub(crate) struct Certificate {
    pub(crate) acceptor: Acceptor,
    /// The configuration's key for its file, and the file.
    place: String,
    /// The first and the last moment at which it is valid; none where they cannot be read.
    validity: Option<(Timestamp, Timestamp)>,
}

impl Certificate {
    /// Reads both files, of the configuration's key `name`, for connections that speak one of these protocols. One that has expired is taken:
    /// [`Certificate::doubt`] says so.
    ///
    /// # Errors
    /// When one cannot be read or holds nothing of its kind, or when the key is not the certificate's.
    pub(crate) fn load(name: &str, files: &TlsFiles, protocols: &[&[u8]]) -> Result<Certificate, String> {
        let unreadable = |key: &str, path: &Path, error: &dyn std::fmt::Display| {
            format!("{name}.{key}: {}: {error}", path.display())
        };
        let certificates = CertificateDer::pem_file_iter(&files.cert)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| unreadable("cert", &files.cert, &pem_problem(&error)))?;
        if certificates.is_empty() {
            return Err(unreadable("cert", &files.cert, &"no certificate in it"));
        }
        // The first is the listener's own; those behind it are of its authorities.
        let validity = certificates.first().and_then(validity_of);
        let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| match error {
            pem::Error::NoItemsFound => unreadable("key", &files.key, &"no private key in it"),
            error => unreadable("key", &files.key, &pem_problem(&error)),
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
            place: format!("{name}.cert: {}", files.cert.display()),
            validity,
        })
    }

    /// What an operator should know of it at `now`; none where clients take it, and will for another 14 days.
    pub(crate) fn doubt(&self, now: Timestamp) -> Option<String> {
        let doubt = match self.validity {
            None => "until when it is valid cannot be read".to_owned(),
            Some((_, last)) if last < now => format!("it expired at {last}, and clients refuse it"),
            Some((first, _)) if now < first => {
                format!("it is not valid before {first}, and clients refuse it until then")
            }
            Some((_, last)) if last.since(now) < RENEWED_BEFORE_MS => format!("it expires at {last}: renew it"),
            Some(_) => return None,
        };
        Some(format!("{}: {doubt}", self.place))
    }

    /// The last moment at which it is valid, where that can be read.
    pub(crate) fn valid_until(&self) -> Option<Timestamp> {
        self.validity.map(|(_, last)| last)
    }
}

/// The first and the last moment at which a certificate is valid.
fn validity_of(certificate: &CertificateDer<'_>) -> Option<(Timestamp, Timestamp)> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let validity = certificate.validity();
    let at = |secs: i64| Timestamp(secs.saturating_mul(1000));
    Some((at(validity.not_before.timestamp()), at(validity.not_after.timestamp())))
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
/// How long before its end a certificate should have been renewed, in milliseconds: 14 days, as in conf/prometheus/alerts.yaml.
const RENEWED_BEFORE_MS: i64 = 14 * 86_400_000;

/// What is wrong with a PEM file. Its parser names lines by the numbers of their bytes.
pub(crate) fn pem_problem(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => "its last section has no end: is it written only in part?".to_owned(),
        pem::Error::IllegalSectionStart { .. } => "a line that begins a section cannot be read".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::time::Day;

    /// It is valid in 2020.
    #[test]
    fn a_certificate_that_clients_refuse_or_soon_will_is_doubted_and_taken() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/expired.pem");
        let files = TlsFiles {
            cert: file.clone(),
            key: file.clone(),
        };
        let certificate = Certificate::load("operator_tls", &files, &HTTP_1).unwrap();
        let (first, after) = (Day::parse("2020-01-01").unwrap(), Day::parse("2021-01-01").unwrap());
        let (first, after) = (first.start(), after.start());
        assert_eq!(certificate.valid_until(), Some(after));
        let not_yet = "it is not valid before 2020-01-01T00:00:00Z, and clients refuse it until then";
        let soon = "it expires at 2021-01-01T00:00:00Z: renew it";
        for (now, said) in [
            (first.plus_millis(-1), Some(not_yet)),
            (first, None),
            (after.plus_millis(-RENEWED_BEFORE_MS), None),
            (after.plus_millis(1 - RENEWED_BEFORE_MS), Some(soon)),
            (after, Some(soon)),
            (
                after.plus_millis(1),
                Some("it expired at 2021-01-01T00:00:00Z, and clients refuse it"),
            ),
        ] {
            let said = said.map(|said| format!("operator_tls.cert: {}: {said}", file.display()));
            assert_eq!(certificate.doubt(now), said, "{now}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_file_is_told_in_words() {
        for (text, said) in [
            (
                "-----BEGIN CERTIFICATE-----\nMIIB\n",
                "its last section has no end: is it written only in part?",
            ),
            (
                "-----BEGIN CERTIFICATE\n",
                "a line that begins a section cannot be read",
            ),
        ] {
            let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
            assert_eq!(pem_problem(&read.unwrap_err()), said, "{text}");
        }
    }
}
