//! From a URL and settings to a store.

use std::sync::Arc;

use penstock_base::metrics::Registry;

use crate::{
    BucketUrl, ErrorKind, LocalSettings, LocalStore, ObjectError, ObjectResult, Operation, Store,
    StoreUrl,
    credentials::{Bridge, Chain, CredentialSource, oss_chain, s3_chain},
    http::{Client, ClientMetrics, HttpError, Origin, TlsReport},
    layers::{self, Metered, Prefixed, Split},
    oss::{self, Oss},
    rest::{Address, Dialect, Features, RestMetrics, RestStore, StoreClock},
    s3::{self, ChecksumChoice, S3},
    settings::{self, SettingsError, StoreSettings},
};

/// Opens the store at `url` with every layer around it. Sends no request: a wrong name or a
/// missing permission shows with the first one. Needs a tokio runtime once requests are made.
///
/// Fails when the settings contradict each other or cannot work, and with `NoSuchBucket` when
/// the directory of a `file://` source does not exist.
pub fn open(
    url: &StoreUrl,
    settings: &StoreSettings,
    metrics: &Arc<Registry>,
) -> ObjectResult<Arc<dyn Store>> {
    let store = open_backend(url, settings, metrics)?;
    let store = match url {
        StoreUrl::S3(_) | StoreUrl::Oss(_) => {
            layers::standard(store, settings.concurrency_max, &settings.retry, metrics)
        }
        StoreUrl::File { .. } => Arc::new(Metered::new(store, metrics)),
    };
    Ok(match url.prefix() {
        "" => store,
        prefix => Arc::new(Prefixed::new(store, prefix)),
    })
}

/// Opens the bucket of `url` as it is, without any layer and without the prefix: nothing is
/// retried, bounded or counted per operation.
///
/// Fails like [`open`].
pub fn open_backend(
    url: &StoreUrl,
    settings: &StoreSettings,
    metrics: &Arc<Registry>,
) -> ObjectResult<Arc<dyn Store>> {
    let is_local = matches!(url, StoreUrl::File { .. });
    if is_local && settings.read_endpoint.is_some() {
        return Err(wrong(SettingsError::ReadEndpointOfLocal));
    }
    match url {
        StoreUrl::S3(url) => open_s3(url, settings, metrics),
        StoreUrl::Oss(url) => open_oss(url, settings, metrics),
        StoreUrl::File { directory, .. } => {
            let local = LocalSettings {
                durable: settings.durable,
                follow_links: settings.follow_links,
                ..LocalSettings::default()
            };
            Ok(Arc::new(LocalStore::open(directory, local)?))
        }
    }
}

/// Shakes hands with the endpoint of `url`, and tells what came of it; `None` where nothing is enciphered. Takes as long as
/// a connection may take.
///
/// Fails like [`open`], and where no such connection can be made.
pub async fn report_tls(
    url: &StoreUrl,
    settings: &StoreSettings,
) -> ObjectResult<Option<TlsReport>> {
    let (bucket, endpoint) = match url {
        StoreUrl::S3(url) => (&url.bucket, s3::locate(settings).map_err(wrong)?.0),
        StoreUrl::Oss(url) => (&url.bucket, oss::locate(settings).map_err(wrong)?.0),
        StoreUrl::File { .. } => return Ok(None),
    };
    let registry = Registry::new();
    let parts = Parts::new(settings, &registry)?;
    let origin = parts.address(&endpoint, bucket)?.origin;
    if !origin.secure {
        return Ok(None);
    }
    let reported = parts.client.report_tls(&origin).await;
    reported.map(Some).map_err(cannot)
}

fn open_s3(
    url: &BucketUrl,
    settings: &StoreSettings,
    metrics: &Arc<Registry>,
) -> ObjectResult<Arc<dyn Store>> {
    let (endpoint, region) = s3::locate(settings).map_err(wrong)?;
    let parts = Parts::new(settings, metrics)?;
    let credentials =
        parts.credentials(|bridge| s3_chain(&settings.credentials, &url.bucket, &region, bridge));
    parts.split(&endpoint, |endpoint| {
        let address = parts.address(endpoint, &url.bucket)?;
        let dialect = S3::new(region.clone(), &endpoint.host, settings);
        Ok(Arc::new(parts.store(dialect, address, &credentials)))
    })
}

fn open_oss(
    url: &BucketUrl,
    settings: &StoreSettings,
    metrics: &Arc<Registry>,
) -> ObjectResult<Arc<dyn Store>> {
    let (endpoint, region) = oss::locate(settings).map_err(wrong)?;
    let parts = Parts::new(settings, metrics)?;
    let credentials =
        parts.credentials(|bridge| oss_chain(&settings.credentials, &url.bucket, bridge));
    parts.split(&endpoint, |endpoint| {
        let address = parts.address(endpoint, &url.bucket)?;
        let dialect = Oss::new(region.clone(), settings.checksum != ChecksumChoice::Off);
        Ok(Arc::new(parts.store(dialect, address, &credentials)))
    })
}

/// What both REST backends need, at each of their endpoints.
struct Parts<'a> {
    settings: &'a StoreSettings,
    registry: &'a Arc<Registry>,
    client: Arc<Client>,
    bridge: Bridge,
}

impl<'a> Parts<'a> {
    fn new(settings: &'a StoreSettings, registry: &'a Arc<Registry>) -> ObjectResult<Self> {
        let http = settings.http().map_err(wrong)?;
        Ok(Self {
            settings,
            registry,
            bridge: Bridge::new(&http, settings.credentials.environment.clone()),
            client: Arc::new(Client::new(http, ClientMetrics::new(registry))),
        })
    }

    /// Those of the places in `chain`, unless nothing is to be signed.
    fn credentials(&self, chain: impl FnOnce(&Bridge) -> Chain) -> Arc<CredentialSource> {
        if self.settings.anonymous {
            return CredentialSource::anonymous();
        }
        CredentialSource::new(chain(&self.bridge))
    }

    /// The bucket at `endpoint`, and connections to it prepared.
    fn address(&self, endpoint: &Origin, bucket: &str) -> ObjectResult<Address> {
        let address = Address::new(endpoint, bucket, self.settings.addressing);
        self.client.prepare(&address.origin).map_err(cannot)?;
        Ok(address)
    }

    fn store<D: Dialect>(
        &self,
        dialect: D,
        address: Address,
        credentials: &Arc<CredentialSource>,
    ) -> RestStore<D> {
        RestStore {
            features: Features::new(dialect.is_original()),
            dialect,
            address,
            client: Arc::clone(&self.client),
            credentials: Arc::clone(credentials),
            metrics: RestMetrics::new(self.registry),
            requester_pays: self.settings.requester_pays,
            writes: self.settings.writes.clone(),
            listing: self.settings.listing,
            clock: StoreClock::new(self.settings.follow_store_clock),
        }
    }

    /// The store at `endpoint`; where the settings name one to read from, both.
    fn split(
        &self,
        endpoint: &Origin,
        store: impl Fn(&Origin) -> ObjectResult<Arc<dyn Store>>,
    ) -> ObjectResult<Arc<dyn Store>> {
        let main = store(endpoint)?;
        match settings::read_origin(self.settings).map_err(wrong)? {
            None => Ok(main),
            Some(reads) if reads == *endpoint => Ok(main),
            Some(reads) => Ok(Arc::new(Split::new(main, store(&reads)?, self.registry))),
        }
    }
}

#[allow(clippy::needless_pass_by_value)]
fn wrong(error: SettingsError) -> ObjectError {
    unusable(error.to_string())
}

fn cannot(error: HttpError) -> ObjectError {
    ObjectError::new(error.kind, Operation::Head, error.message)
}

fn unusable(message: impl Into<String>) -> ObjectError {
    ObjectError::new(ErrorKind::InvalidRequest, Operation::Head, message)
}
