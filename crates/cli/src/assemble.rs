//! Builds the parts of a mount from settings: the one place where crates meet.
//!
//! ```text
//! Values -> BufferPool ----+-------------------+
//!        -> Store -> Transfer -> BucketVolume -> Session
//! ```

mod kept;
mod written;

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use penstock_base::{BufferPool, KIB, MemoryBudget, metrics::Registry};
use penstock_bucket::{BucketSettings, BucketVolume, Staging};
use penstock_fuse::FuseSettings;
use penstock_object::{
    Addressing, ChecksumChoice, ErrorKind, RetrySettings, SignatureChoice, Store, StoreSettings,
    StoreUrl, StoreUrlError, Timeouts,
    credentials::{
        self, CredentialOrigin, CredentialPlace, CredentialSettings, Credentials, RoleSettings,
    },
};
use penstock_transfer::{Transfer, TransferSettings};
use penstock_vfs::Volume;

use crate::{
    environment::Environment,
    explain,
    failure::{Failure, Outcome},
    memory,
    options::{Values, table},
    stream, system,
};

/// Attempts of a first look: a second one, since the first may have met a stale address.
const LOOK_ATTEMPTS: u32 = 2;

/// How long one request of a first look may take with its attempts.
const LOOK_DEADLINE: Duration = Duration::from_secs(6);

/// A body that has begun should not pause for as long as a store may think before it.
const STALL_DIVISOR: u32 = 2;

/// The memory of a mount.
pub(crate) fn pool(values: &Values) -> Arc<BufferPool> {
    let bytes = values.size(&table::MEMORY);
    BufferPool::new(MemoryBudget::new(
        bytes.unwrap_or_else(memory::default_budget),
    ))
}

/// Finds mistakes in a source and its credentials that need no network to be found.
pub(crate) fn check_source(source: &str, values: &Values) -> Outcome {
    parse(source)?;
    credential_order(values)?;
    fixed_credentials(values).map(|_| ())
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

/// Opens the store with all its layers. Sends no request.
pub(crate) fn store(
    source: &str,
    values: &Values,
    environment: &Environment,
    registry: &Arc<Registry>,
) -> Outcome<Arc<dyn Store>> {
    open(source, &store_settings(values, environment)?, registry)
}

/// The same for a command that somebody waits for: it does not wait for a store that is away.
pub(crate) fn store_for_command(
    source: &str,
    values: &Values,
    environment: &Environment,
) -> Outcome<Arc<dyn Store>> {
    let mut settings = store_settings(values, environment)?;
    settings.retry.ride_out = false;
    open(source, &settings, &Registry::new())
}

/// The endpoint that objects are read from, if it is one of its own, as the whole store for a first
/// look.
pub(crate) fn impatient_read_store(
    source: &str,
    values: &Values,
    environment: &Environment,
) -> Outcome<Option<Arc<dyn Store>>> {
    let mut settings = impatient_settings(values, environment)?;
    let Some(endpoint) = settings.read_endpoint.take() else {
        return Ok(None);
    };
    settings.endpoint = Some(endpoint);
    open(source, &settings, &Registry::new()).map(Some)
}

/// Opens the store for a first look, which gives up soon: a mistake should be told, not retried.
///
/// Nor does it make up for a wrong clock, which should be set: it makes wrong time stamps, too.
/// `origin` is told where the credentials were found.
pub(crate) fn impatient_store(
    source: &str,
    values: &Values,
    environment: &Environment,
    origin: &CredentialOrigin,
) -> Outcome<Arc<dyn Store>> {
    let mut settings = impatient_settings(values, environment)?;
    settings.credentials.origin = origin.clone();
    open(source, &settings, &Registry::new())
}

/// The same for `penstock check`, which wants to see what the store does by itself.
pub(crate) fn store_under_trial(
    source: &str,
    values: &Values,
    environment: &Environment,
    origin: &CredentialOrigin,
) -> Outcome<Arc<dyn Store>> {
    let mut settings = impatient_settings(values, environment)?;
    settings.credentials.origin = origin.clone();
    settings.look_before_writes = false;
    open(source, &settings, &Registry::new())
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

fn open(
    source: &str,
    settings: &StoreSettings,
    registry: &Arc<Registry>,
) -> Outcome<Arc<dyn Store>> {
    penstock_object::open(&parse(source)?, settings, registry).map_err(|error| match error.kind {
        // Nothing was sent yet: the settings themselves are at fault.
        ErrorKind::InvalidRequest => Failure::usage(
            format!("{source}: {}", error.message),
            "`penstock help mount` explains the options",
        ),
        _ => explain::store_error(source, &error),
    })
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
        None => stream::requests(values).or(given),
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

/// What moves bytes between a store and memory.
pub(crate) fn transfer(
    store: &Arc<dyn Store>,
    pool: &Arc<BufferPool>,
    values: &Values,
    registry: &Arc<Registry>,
) -> Arc<Transfer> {
    let (store, pool) = (Arc::clone(store), Arc::clone(pool));
    Transfer::with_settings(store, pool, transfer_settings(values), registry)
}

/// The bucket as a file system. With `staging` its files can be written anywhere, and what an
/// earlier mount left there is shown as it was, and saved behind this one.
pub(crate) fn volume(
    store: &Arc<dyn Store>,
    (pool, staging): (&Arc<BufferPool>, Option<Arc<Staging>>),
    values: &Values,
    registry: &Arc<Registry>,
) -> Outcome<Arc<dyn Volume>> {
    let transfer = transfer(store, pool, values, registry);
    let (settings, registry) = (bucket_settings(values)?, Arc::clone(registry));
    let Some(staging) = staging else {
        return Ok(BucketVolume::new(transfer, settings, registry));
    };
    let volume = BucketVolume::staged(transfer, settings, staging, registry);
    volume.recover();
    Ok(volume)
}

fn transfer_settings(values: &Values) -> TransferSettings {
    let defaults = TransferSettings::default();
    let parts = values.count(&table::UPLOAD_CONCURRENCY);
    let read = values.size(&table::READ_PART_SIZE);
    let written = values.size(&table::PART_SIZE);
    TransferSettings {
        upload_part_size: written.unwrap_or(defaults.upload_part_size),
        uploads_in_flight: parts.map_or(defaults.uploads_in_flight, |count| count as usize),
        read_part_size: read.unwrap_or(defaults.read_part_size),
        read_ahead_max: values.size(&table::PREFETCH_LIMIT),
        parts_ahead_max: values.count(&table::PREFETCH_PARTS),
        ..defaults
    }
}

fn bucket_settings(values: &Values) -> Outcome<BucketSettings> {
    let id = |spec, own: u32| {
        let given = values.count(spec).and_then(|id| u32::try_from(id).ok());
        given.unwrap_or(own)
    };
    let limit = values.count(&table::RENAME_LIMIT);
    let interval = kept::stat_cache_interval(values);
    Ok(BucketSettings {
        uid: id(&table::UID, system::user_id()),
        gid: id(&table::GID, system::group_id()),
        file_mode: values.mode(&table::FILE_MODE),
        dir_mode: values.mode(&table::DIR_MODE),
        read_only: values.flag(&table::READ_ONLY),
        attr_timeout: interval.unwrap_or_else(|| values.duration(&table::ATTR_TIMEOUT)),
        negative_timeout: values.duration(&table::NEGATIVE_TIMEOUT),
        close_to_open: values.flag(&table::CLOSE_TO_OPEN),
        fsync: values.flag(&table::FSYNC),
        appendable: values.flag(&table::APPENDABLE),
        symlinks: values.flag(&table::SYMLINKS),
        rename_dir_limit: limit.map_or(usize::MAX, |limit| limit as usize),
        door_keeps_sizes: values.flag(&table::WRITEBACK_CACHE),
        metadata: kept::settings(values),
        content_types: Arc::new(kept::content_types(values)?),
    })
}

/// How the kernel mounts it.
pub(crate) fn fuse_settings(source: &str, mountpoint: &Path, values: &Values) -> FuseSettings {
    let threads = values.count(&table::FUSE_THREADS);
    let background = values.count(&table::MAX_BACKGROUND);
    let background = background.and_then(|count| u16::try_from(count).ok());
    let defaults = FuseSettings::new(mountpoint, source);
    FuseSettings {
        read_only: values.flag(&table::READ_ONLY),
        allow_other: values.flag(&table::ALLOW_OTHER),
        default_permissions: kept::keeps(values).then_some(true),
        nonempty: values.flag(&table::NONEMPTY),
        noexec: values.flag(&table::NOEXEC),
        threads: threads.and_then(|count| NonZeroUsize::new(count as usize)),
        max_background: background.unwrap_or(defaults.max_background),
        congestion_threshold: background.unwrap_or(defaults.congestion_threshold),
        read_ahead_kib: read_ahead_kib(values),
        local_files: values.path(&table::CACHE_DIR).is_some(),
        writeback_cache: values.flag(&table::WRITEBACK_CACHE),
        ..defaults
    }
}

/// KiB that the kernel reads ahead, where an option says.
pub(crate) fn read_ahead_kib(values: &Values) -> u32 {
    let bytes = values.size(&table::READ_AHEAD).unwrap_or_default();
    u32::try_from(bytes / KIB).unwrap_or(u32::MAX)
}

/// Parts of files that are on their way to the store.
pub(crate) fn uploads_in_flight(registry: &Registry) -> u64 {
    let upload = ("direction", "upload".to_owned());
    sum(registry, "transfer_parts_in_flight", |labels| {
        labels.contains(&upload)
    })
}

/// What is counted under a name, whatever the labels.
pub(crate) fn metric(registry: &Registry, name: &str) -> u64 {
    sum(registry, name, |_| true)
}

fn sum(registry: &Registry, name: &str, wanted: impl Fn(&[(&'static str, String)]) -> bool) -> u64 {
    let samples = registry.samples();
    let of_name = samples.iter().filter(|sample| sample.name == name);
    let wanted = of_name.filter(|sample| wanted(&sample.labels));
    wanted.map(|sample| sample.value).sum()
}
