//! Opens object stores as the options say, with all their layers.
//!
//! Opening sends no request. Each caller wants another patience: a mount rides out a store that is away, a
//! command does not, a first look ([`probe`]) gives up after seconds, and `penstock check` wants to see what
//! the store does by itself.

mod probe;
mod written;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use penstock_base::metrics::Registry;
use penstock_object::{
    Addressing, ChecksumChoice, ClientCertificate, ErrorKind, ObjectError, ObjectResult,
    RetrySettings, SignatureChoice, Store, StoreSettings, StoreUrl, StoreUrlError, Timeouts,
    TlsReport,
    credentials::{
        self, CredentialOrigin, CredentialPlace, CredentialSettings, Credentials, RoleSettings,
    },
};

use crate::{
    environment::Environment,
    explain,
    failure::{Failure, Outcome},
    limits,
    options::{Origin, Values, table},
    output,
    resources::Resources,
};

pub(crate) use probe::probe;

/// Attempts of a first look: a second one, since the first may have met a stale address.
const LOOK_ATTEMPTS: u32 = 2;

/// How long one request of a first look may take with its attempts.
const LOOK_DEADLINE: Duration = Duration::from_secs(6);

/// A body that has begun should not pause for as long as a store may think before it.
const STALL_DIVISOR: u32 = 2;

/// Finds mistakes in a source and its credentials that need no network to be found.
pub(crate) fn check_source(source: &str, values: &Values) -> Outcome {
    parse(source)?;
    credential_order(values)?;
    warn_of_idle_certificates(values);
    fixed_credentials(values).map(|_| ())
}

/// Says so where certificates are named and the store is asked without TLS. A file of options may name them for several
/// sources, and services that give credentials may speak it, so that is no mistake.
pub(crate) fn warn_of_idle_certificates(values: &Values) {
    let may_be_plain = |spec| values.text(spec).is_none_or(is_plain);
    let Some(endpoint) = values
        .text(&table::ENDPOINT)
        .filter(|endpoint| is_plain(endpoint) && may_be_plain(&table::READ_ENDPOINT))
    else {
        return;
    };
    for spec in [&table::CA_FILE, &table::CLIENT_CERT] {
        let is_named = values
            .origin(spec)
            .is_some_and(|origin| !matches!(origin, Origin::Variable(_)));
        if is_named {
            output::complain(&format!(
                "warning: {} does nothing for {endpoint}: what goes there is not enciphered; https:// does that",
                spec.name
            ));
        }
    }
}

/// Whether an endpoint is spoken to without TLS.
pub(crate) fn is_plain(endpoint: &str) -> bool {
    endpoint.to_ascii_lowercase().starts_with("http://")
}

/// The directory of a bucket on this machine.
pub(crate) fn local_directory(source: &str) -> Option<PathBuf> {
    match parse(source) {
        Ok(StoreUrl::File { directory, .. }) => Some(directory),
        _ => None,
    }
}

/// Reads a source.
pub(crate) fn parse(source: &str) -> Outcome<StoreUrl> {
    source.parse().map_err(|error: StoreUrlError| {
        let text = error.to_string();
        let (cause, remedy) = text.split_once(": ").unwrap_or((&text, "check the source"));
        Failure::usage(cause, remedy)
    })
}

/// What tells this store from every other, without credentials.
pub(crate) fn identity(source: &str, values: &Values) -> Outcome<String> {
    let url = parse(source)?;
    let endpoint = values.text(&table::ENDPOINT).unwrap_or_default();
    let host = endpoint.rsplit('@').next().unwrap_or_default();
    let region = values.text(&table::REGION).unwrap_or_default();
    Ok(format!("{url} {host} {region}"))
}

/// Opens the store with all its layers. Sends no request.
pub(crate) fn open(
    source: &str,
    values: &Values,
    environment: &Environment,
    registry: &Arc<Registry>,
) -> Outcome<Arc<dyn Store>> {
    open_with(source, &store_settings(values, environment)?, registry)
}

/// The same for a volume, which draws from the memory of its process.
pub(crate) fn for_volume(
    source: &str,
    values: &Values,
    environment: &Environment,
    resources: &Resources,
) -> Outcome<Arc<dyn Store>> {
    let mut settings = store_settings(values, environment)?;
    settings.memory = Some(Arc::clone(resources.pool.budget()));
    open_with(source, &settings, &resources.registry)
}

/// The same for a command that somebody waits for: it does not wait for a store that is away.
pub(crate) fn for_command(
    source: &str,
    values: &Values,
    environment: &Environment,
) -> Outcome<Arc<dyn Store>> {
    let mut settings = store_settings(values, environment)?;
    settings.retry.ride_out = false;
    open_with(source, &settings, &Registry::new())
}

/// The same for a command that removes: what links in a directory lead to is not shown to it.
pub(crate) fn for_removal(
    source: &str,
    values: &Values,
    environment: &Environment,
) -> Outcome<Arc<dyn Store>> {
    let mut settings = store_settings(values, environment)?;
    settings.retry.ride_out = false;
    settings.follow_links = false;
    open_with(source, &settings, &Registry::new())
}

/// The endpoint that objects are read from, if it is one of its own, as the whole store for a first
/// look.
fn impatient_reads(
    source: &str,
    values: &Values,
    environment: &Environment,
) -> Outcome<Option<Arc<dyn Store>>> {
    let mut settings = impatient_settings(values, environment)?;
    let Some(endpoint) = settings.read_endpoint.take() else {
        return Ok(None);
    };
    settings.endpoint = Some(endpoint);
    open_with(source, &settings, &Registry::new()).map(Some)
}

/// Opens the store for a first look, which gives up soon: a mistake should be told, not retried.
///
/// Nor does it make up for a wrong clock, which should be set: it makes wrong time stamps, too. What the store
/// does with a write is seen as it is. `origin` is told where the credentials were found.
pub(crate) fn for_first_look(
    source: &str,
    values: &Values,
    environment: &Environment,
    origin: &CredentialOrigin,
) -> Outcome<Arc<dyn Store>> {
    let mut settings = impatient_settings(values, environment)?;
    settings.credentials.origin = origin.clone();
    settings.look_before_writes = false;
    open_with(source, &settings, &Registry::new())
}

fn impatient_settings(values: &Values, environment: &Environment) -> Outcome<StoreSettings> {
    let mut settings = store_settings(values, environment)?;
    settings.follow_store_clock = false;
    settings.retry.attempts_max = LOOK_ATTEMPTS;
    settings.retry.ride_out = false;
    settings.retry.total = settings.retry.total.min(LOOK_DEADLINE);
    let timeouts = &mut settings.timeouts;
    timeouts.connect = timeouts.connect.min(LOOK_DEADLINE / LOOK_ATTEMPTS);
    timeouts.first_byte = timeouts.first_byte.min(LOOK_DEADLINE);
    Ok(settings)
}

fn open_with(
    source: &str,
    settings: &StoreSettings,
    registry: &Arc<Registry>,
) -> Outcome<Arc<dyn Store>> {
    penstock_object::open(&parse(source)?, settings, registry)
        .map_err(|error| unopened(source, &error))
}

pub(crate) fn unopened(source: &str, error: &ObjectError) -> Failure {
    match error.kind {
        // Nothing was sent yet: the settings themselves are at fault.
        ErrorKind::InvalidRequest => Failure::usage(
            format!("{source}: {}", error.message),
            "`penstock help mount` explains the options",
        ),
        _ => explain::store_error(source, error),
    }
}

/// What a handshake with the endpoint comes to; nothing where it speaks no TLS. Gives up as soon as a first look.
pub(crate) async fn report_tls(
    source: &str,
    values: &Values,
    environment: &Environment,
) -> Outcome<ObjectResult<Option<TlsReport>>> {
    let settings = impatient_settings(values, environment)?;
    Ok(penstock_object::report_tls(&parse(source)?, &settings).await)
}

fn store_settings(values: &Values, environment: &Environment) -> Outcome<StoreSettings> {
    let text = |spec| values.text(spec).map(str::to_owned);
    let silence = values.duration(&table::REQUEST_TIMEOUT);
    let defaults = StoreSettings::default();
    let attempts = values.count(&table::RETRY_ATTEMPTS);
    let requests = requests(values).unwrap_or(defaults.concurrency_max);
    Ok(StoreSettings {
        endpoint: text(&table::ENDPOINT),
        read_endpoint: text(&table::READ_ENDPOINT),
        region: text(&table::REGION).or_else(|| region_of(environment)),
        signature: signature(values),
        addressing: addressing(values),
        credentials: credential_settings(values, environment)?,
        anonymous: values.flag(&table::ANONYMOUS),
        requester_pays: values.flag(&table::REQUESTER_PAYS),
        writes: written::settings(values)?,
        listing: written::listing(values),
        checksum: checksum(values),
        ca_file: values.path(&table::CA_FILE).map(Path::to_owned),
        client_certificate: client_certificate(values)?,
        http_proxy: text(&table::PROXY),
        timeouts: Timeouts {
            connect: values.duration(&table::CONNECT_TIMEOUT),
            first_byte: silence,
            long_answer: silence.max(defaults.timeouts.long_answer),
            stall: silence / STALL_DIVISOR,
        },
        retry: RetrySettings {
            total: values.duration(&table::RETRY_TIMEOUT),
            attempts_max: attempts.map_or(defaults.retry.attempts_max, |count| count as u32),
            ride_out: true,
        },
        concurrency_max: requests,
        idle_connections_max: requests,
        ..defaults
    })
}

/// Requests under way at once: what is asked for, else what a limit of processors allows.
fn requests(values: &Values) -> Option<usize> {
    let given = values
        .count(&table::MAX_REQUESTS)
        .map(|count| count as usize);
    match values.origin(&table::MAX_REQUESTS) {
        Some(_) => given,
        None => limits::requests(values).or(given),
    }
}

/// The region as the tools of both providers find it.
fn region_of(environment: &Environment) -> Option<String> {
    let names = ["AWS_REGION", "AWS_DEFAULT_REGION", "OSS_REGION"];
    let mut regions = names.iter().filter_map(|name| environment.variable(name));
    regions.next().map(str::to_owned)
}

fn signature(values: &Values) -> SignatureChoice {
    match values.choice(&table::SIGNATURE) {
        "v1" => SignatureChoice::V1,
        "v4" => SignatureChoice::V4,
        _ => SignatureChoice::Auto,
    }
}

fn addressing(values: &Values) -> Addressing {
    match values.choice(&table::ADDRESSING) {
        "path" => Addressing::Path,
        "virtual-host" => Addressing::VirtualHost,
        _ => Addressing::Auto,
    }
}

fn checksum(values: &Values) -> ChecksumChoice {
    match values.choice(&table::CHECKSUM) {
        "off" => ChecksumChoice::Off,
        _ => ChecksumChoice::Auto,
    }
}

/// The certificate that servers are shown. Its key may be in the same file, as curl has it.
fn client_certificate(values: &Values) -> Outcome<Option<ClientCertificate>> {
    let key = values.path(&table::CLIENT_KEY);
    match values.path(&table::CLIENT_CERT) {
        Some(certificate) => Ok(Some(ClientCertificate {
            certificate: certificate.to_owned(),
            key: key.unwrap_or(certificate).to_owned(),
        })),
        None if key.is_some() => Err(Failure::usage(
            "client-key does nothing without client-cert",
            "name the certificate that it is the key of",
        )),
        None => Ok(None),
    }
}

fn credential_settings(values: &Values, environment: &Environment) -> Outcome<CredentialSettings> {
    let text = |spec| values.text(spec).map(str::to_owned);
    let variables = environment.variables().clone();
    let ram_role = text(&table::RAM_ROLE);
    Ok(CredentialSettings {
        order: credential_order(values)?,
        fixed: fixed_credentials(values)?,
        password_file: values.path(&table::PASSWORD_FILE).map(Path::to_owned),
        profile: text(&table::PROFILE),
        process: text(&table::CREDENTIAL_PROCESS),
        role: text(&table::ROLE).map(|arn| RoleSettings {
            arn,
            ..RoleSettings::default()
        }),
        ram_role: ram_role.filter(|role| role != "auto"),
        environment: credentials::Environment::new(variables),
        origin: CredentialOrigin::default(),
    })
}

/// Where to look for credentials. An option that names a place means that one alone.
fn credential_order(values: &Values) -> Outcome<Vec<CredentialPlace>> {
    if values.text(&table::RAM_ROLE).is_some() {
        return Ok(vec![CredentialPlace::Metadata]);
    }
    if let Some(text) = values.text(&table::CREDENTIAL_ORDER) {
        let names = text.split([':', ',']).map(str::trim);
        let place = |name| {
            CredentialPlace::from_name(name).ok_or_else(|| {
                let known = CredentialPlace::AUTO.map(CredentialPlace::name);
                Failure::usage(
                    format!("`credential-order` names `{name}`, which is no place"),
                    format!("they are {}", known.join(", ")),
                )
            })
        };
        return names.map(place).collect();
    }
    Ok(match values.path(&table::PASSWORD_FILE) {
        Some(_) => vec![CredentialPlace::Fixed, CredentialPlace::PasswordFile],
        None => Vec::new(),
    })
}

/// Credentials that are among the options; both halves or none.
fn fixed_credentials(values: &Values) -> Outcome<Option<Credentials>> {
    let id = values.secret(&table::ACCESS_KEY_ID);
    let secret = values.secret(&table::ACCESS_KEY_SECRET);
    match (id, secret) {
        (None, None) => Ok(None),
        (Some(id), Some(secret)) => Ok(Some(Credentials {
            key_id: id.expose().to_owned(),
            secret,
            token: values.secret(&table::SESSION_TOKEN),
            expires: None,
        })),
        (Some(_), None) | (None, Some(_)) => Err(Failure::usage(
            "only one of access-key-id and access-key-secret is given",
            "give both, or neither to look for credentials elsewhere",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Given;

    fn values(endpoint: &str) -> Values {
        let given = Given {
            spec: &table::ENDPOINT,
            spelling: "endpoint".to_owned(),
            text: endpoint.to_owned(),
            origin: Origin::CommandLine,
        };
        Values::resolve(vec![given]).expect("valid")
    }

    #[test]
    fn stores_are_told_apart_and_credentials_kept_out() {
        let identity = |source, endpoint| identity(source, &values(endpoint)).expect("valid");
        let one = identity("s3://bucket/a", "http://AKIA:secret@host:1");
        assert!(one.contains("s3://bucket/a/") && one.contains("host:1"));
        assert!(!one.contains("AKIA") && !one.contains("secret"), "{one}");
        assert_ne!(one, identity("s3://bucket/a", "http://host:2"));
        assert_ne!(one, identity("s3://bucket/b", "http://host:1"));
    }
}
