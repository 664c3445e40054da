//! A fileset as a volume of files.

use std::sync::Arc;

use penstock_base::FsError;
use penstock_fileset::{
    AccessTimes, Coherence, Durability, FilesetVolume, Label, LabelError, Opening, engine::Engine,
    unchanging,
};
use penstock_object::{Store, credentials::CredentialOrigin};
use penstock_transfer::{MemoryCache, Transfer, TransferSettings};
use penstock_vfs::Volume;

use super::{Form, OpenedVolume, VolumeSpec, cache};
use crate::{
    encryption::{self, Known},
    explain,
    failure::{Failure, Outcome},
    filesets::{self, Company, Fileset, Record},
    options::{Group, OptionSpec, Values, table},
    predecessors::Predecessors,
    resources::Resources,
    stores,
};

/// The part of the memory that the metadata's engine may use: one in so many.
const METADATA_SHARE: u64 = 4;
/// The same at most.
const METADATA_MAX: u64 = 256 << 20;

/// The part of the memory that bodies take which are there a second time, encrypted, and frames that are being read.
const SEALING_SHARE: u64 = 8;
/// The same at most: enough for all objects that are written at once.
const SEALING_MAX: u64 = 80 << 20;
/// Of this the log has one in so many for its own bodies, and as much is for frames.
const LOG_SHARE: u64 = 10;

/// Options of these groups say how files are made of objects, which here nobody does.
const FOREIGN_GROUPS: [Group; 4] = [
    Group::Staging,
    Group::Freshness,
    Group::Files,
    Group::Metadata,
];
/// Others that mean nothing here.
const FOREIGN: [&OptionSpec; 5] = [
    &table::READ_PART_SIZE,
    &table::PREFETCH_LIMIT,
    &table::PREFETCH_PARTS,
    &table::PART_SIZE,
    &table::UPLOAD_CONCURRENCY,
];

/// Refuses options that would do nothing.
fn check_options(values: &Values) -> Outcome {
    let foreign = table::ALL.iter().copied().filter(|spec| {
        FOREIGN_GROUPS.contains(&spec.group) || FOREIGN.iter().any(|other| other.name == spec.name)
    });
    let mut given = foreign.filter(|spec| values.origin(spec).is_some());
    let Some(spec) = given.next() else {
        return Ok(());
    };
    Err(Failure::usage(
        format!("`--{}` means nothing for a fileset", spec.name),
        "leave it out, also of the environment and the configuration file",
    ))
}

fn access_times(values: &Values) -> AccessTimes {
    match values.choice(&table::ATIME_MODE) {
        _ if values.flag(&table::READ_ONLY) => AccessTimes::Never,
        "relatime" => AccessTimes::Relative,
        "strictatime" => AccessTimes::Always,
        _ => AccessTimes::Never,
    }
}

fn coherence(values: &Values) -> Coherence {
    match values.choice(&table::COHERENCE) {
        "strict" => Coherence::Strict,
        _ => Coherence::CloseToOpen,
    }
}

/// Fails if another file system, or none, lies where this one's data should be. One that is on this disk can be mounted
/// while its bucket is away, and asks once.
async fn check_place(
    record: &Record,
    store: &Arc<dyn Store>,
    spec: &VolumeSpec,
) -> Outcome<Option<Label>> {
    let is_local = record.durability == Durability::Local;
    let store = match is_local {
        true => stores::for_first_look(
            &record.store,
            &spec.values,
            &spec.environment,
            &CredentialOrigin::default(),
        )?,
        false => Arc::clone(store),
    };
    match Label::read(&*store).await {
        Err(LabelError::Store(error)) if is_local && error.kind.is_transient() => {
            tracing::warn!(%error, "the bucket cannot be asked which file system it holds: mounted without it");
            Ok(None)
        }
        Err(LabelError::Store(error)) => Err(explain::store_error(&record.store, &error)),
        label => {
            let label = label.ok();
            record.check_label(label.clone())?;
            Ok(label)
        }
    }
}

/// Why a file system cannot be served. Its engine is closed.
async fn cannot_be_opened(name: &str, why: &FsError, engine: &dyn Engine) -> Failure {
    if let Err(error) = engine.close().await {
        tracing::debug!(%error, "the metadata of a fileset that cannot be opened");
    }
    Failure::new(
        format!("fileset `{name}`: {why}"),
        format!("`penstock fileset check {name}` says more"),
    )
}

/// Opens metadata and data of the file system that the source names.
pub(super) async fn open(
    spec: &VolumeSpec,
    resources: &Resources,
    before: &Predecessors<'_>,
) -> Outcome<OpenedVolume> {
    check_options(&spec.values)?;
    let name = filesets::name_in(&spec.source).unwrap_or(&spec.source);
    let fileset = Fileset::new(name, &spec.environment)?;
    let record = fileset.record()?;
    let values = &spec.values;
    let store = stores::for_volume(&record.store, values, &spec.environment, resources)?;
    let label = check_place(&record, &store, spec).await?;
    let known = Known::of(&record, label.as_ref());
    let key = encryption::data_key(name, &known, values).await?;
    let Resources { pool, registry } = resources.clone();
    let total = pool.budget().total();
    let sealing = match key {
        Some(_) => (total / SEALING_SHARE).min(SEALING_MAX),
        None => 0,
    };
    let bucket = encryption::sealed(Arc::clone(&store), key.as_ref(), sealing / LOG_SHARE);
    let cache = cache::open(spec, resources, before).await?;
    let store = match &cache {
        Some(cache) => unchanging(cache.around(store, &stores::identity(&record.store, values)?)),
        None => store,
    };
    // Around the cache: what that has on the disk is encrypted, too.
    let sealed = encryption::sealed(
        Arc::clone(&store),
        key.as_ref(),
        sealing - 2 * (sealing / LOG_SHARE),
    );
    // The engine's memory is taken out of the one budget for as long as it is open, and so is what encryption needs.
    let memory = (total / METADATA_SHARE).min(METADATA_MAX);
    let reservation = pool.budget().reserve(memory + sealing).await;
    let reservation = reservation.map_err(|error| {
        Failure::new(
            format!("memory for metadata: {error}"),
            "give more with --memory",
        )
    })?;
    let kept = MemoryCache::around(sealed, pool.budget(), &registry);
    let with = (memory, Company::Others);
    let opened = fileset.open(&record, with, (&bucket, kept)).await?;
    let settings = TransferSettings::default();
    let transfer = Transfer::with_settings(opened.store, pool, settings, &registry);
    let engine = Arc::clone(&opened.engine);
    let how = Opening {
        ahead: opened.ahead,
        access_times: access_times(values),
        coherence: coherence(values),
    };
    let volume = FilesetVolume::open_with(opened.engine, transfer, how).await;
    let volume = match volume {
        Ok(volume) => volume,
        Err(error) => return Err(cannot_be_opened(name, &error, &*engine).await),
    };
    volume.show_in(&registry);
    let files: Arc<dyn Volume> = volume.clone();
    Ok(OpenedVolume {
        form: Form::Files(files),
        fileset: Some((name.to_owned(), volume)),
        read_only: values.flag(&table::READ_ONLY),
        keeps_owners: true,
        read_ahead_kib: None,
        staging: None,
        cache,
        discards_cache: values.flag(&table::CACHE_DISCARD),
        store,
        registry: Arc::clone(&resources.registry),
        note: None,
        _held: Some(Box::new(reservation)),
    })
}
