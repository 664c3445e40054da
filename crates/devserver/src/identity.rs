//! What a server shows of itself where it speaks HTTPS: a certificate, made for the run.
//!
//! An authority that signs this one certificate and nothing else is made with it, as clients differ in what they
//! believe of a certificate that signs itself. Its key is forgotten at once.

use std::{fmt, io, net::IpAddr, sync::Arc};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};

/// A server's certificate with its key, and the authority that vouches for it.
#[derive(Clone)]
pub struct Identity {
    authority: Arc<str>,
    config: Arc<ServerConfig>,
}

impl Identity {
    /// A new one for a server at `address`, which is also called `localhost`.
    ///
    /// # Errors
    /// There is no randomness to be had.
    pub fn generate(address: IpAddr) -> io::Result<Self> {
        let names = vec!["localhost".to_owned(), address.to_string()];
        let (authority, chain, key) = certificates(names).map_err(io::Error::other)?;
        let config = config(chain, key).map_err(io::Error::other)?;
        Ok(Self {
            authority: authority.into(),
            config: Arc::new(config),
        })
    }

    /// The certificate of the authority, for clients to trust, in PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    pub(crate) fn config(&self) -> &Arc<ServerConfig> {
        &self.config
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

type Certificate = rustls::pki_types::CertificateDer<'static>;

/// The authority in PEM, the server's certificate, and its key.
fn certificates(
    names: Vec<String>,
) -> Result<(String, Vec<Certificate>, PrivateKeyDer<'static>), rcgen::Error> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let name = "authority of a penstock-devserver";
    params.distinguished_name.push(DnType::CommonName, name);
    let authority_key = KeyPair::generate()?;
    let authority = params.self_signed(&authority_key)?;
    let mut served = CertificateParams::new(names)?;
    let name = "penstock-devserver";
    served.distinguished_name.push(DnType::CommonName, name);
    served.use_authority_key_identifier_extension = true;
    served.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let served = served.signed_by(&key, &Issuer::new(params, authority_key))?;
    let chain = vec![served.der().clone()];
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    Ok((authority.pem(), chain, key.into()))
}

/// Both versions, the client's first cipher, and tickets, so that a client can come back without a whole handshake.
fn config(
    chain: Vec<Certificate>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.ticketer = ring::Ticketer::new()?;
    Ok(config)
}
