//! Whom to trust.

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio_rustls::TlsConnector;

use super::{HttpError, Origin};
use crate::ErrorKind;

/// A connector that trusts the system's certificates and those in `ca_file`.
pub(super) fn connector(ca_file: Option<&Path>) -> Result<TlsConnector, HttpError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca_file {
        add_file(&mut roots, path)?;
    }
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(untrusting(
            "the system has no certificates to check the server's with: install \
             `ca-certificates` or set `ca_file`",
        ));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| untrusting(format!("cannot set TLS up: {error}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The name that the server's certificate must be for.
pub(super) fn server_name(origin: &Origin) -> Result<ServerName<'static>, HttpError> {
    ServerName::try_from(origin.host.clone())
        .map_err(|_| untrusting(format!("`{}` cannot be in a certificate", origin.host)))
}

fn add_file(roots: &mut RootCertStore, path: &Path) -> Result<(), HttpError> {
    let unusable = |error: &dyn std::fmt::Display| {
        untrusting(format!("cannot use `ca_file` {}: {error}", path.display()))
    };
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| unusable(&error))?;
    let mut count = 0;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| unusable(&error))?;
        roots.add(certificate).map_err(|error| unusable(&error))?;
        count += 1;
    }
    if count == 0 {
        return Err(unusable(&"it has no PEM certificate"));
    }
    Ok(())
}

fn untrusting(message: impl Into<String>) -> HttpError {
    HttpError::new(ErrorKind::InvalidRequest, message)
}
