//! A bucket as a volume of files.

mod metadata;
mod staging;

use std::{sync::Arc, time::Duration};

use penstock_bucket::{BucketSettings, BucketVolume, Fsync, SaveBehind, Staging};
use penstock_object::Store;
use penstock_transfer::{Transfer, TransferSettings};
use penstock_vfs::Volume;

use super::{Form, OpenedVolume, VolumeSpec, cache};
use crate::{
    failure::{Failure, Outcome},
    options::{Origin, Values, table},
    predecessors::Predecessors,
    resources::Resources,
    stores,
};

/// How long what is known of files is believed where files are streamed, unless set otherwise.
const BELIEVED: Duration = Duration::from_secs(60);
/// The same where they are staged: as long as by the programs that keep a work tree on a bucket.
const BELIEVED_STAGED: Duration = Duration::from_secs(300);

/// Whether files can be written anywhere, by way of a staging directory.
pub(crate) fn is_staged(values: &Values) -> bool {
    values.choice(&table::MODE) == "staged"
}

/// Refuses what takes metadata that says who writes.
fn check_coherence(values: &Values) -> Outcome {
    match values.choice(&table::COHERENCE) {
        "strict" => Err(Failure::usage(
            "coherence=strict is given, and a bucket does not say what other machines are writing",
            "use --close-to-open, or a fileset whose metadata is in a database",
        )),
        _ => Ok(()),
    }
}

/// Refuses to set what no object has. The words of mount(8) stand in lines of fstab for whatever is mounted.
fn check_access_times(values: &Values) -> Outcome {
    let is_word = values.origin(&table::ATIME_MODE) == Some(&Origin::MountWord);
    match values.choice(&table::ATIME_MODE) {
        "noatime" => Ok(()),
        _ if is_word => Ok(()),
        mode => Err(Failure::usage(
            format!(
                "atime-mode={mode} is given, and the files of a bucket have no time of their last access"
            ),
            "leave atime-mode out",
        )),
    }
}

/// Opens the bucket, its cache and its staging directory. With staging, what an earlier mount left there is
/// shown as it was, and saved behind this one.
pub(super) async fn open(
    spec: &VolumeSpec,
    resources: &Resources,
    before: &Predecessors<'_>,
) -> Outcome<OpenedVolume> {
    let values = &spec.values;
    check_access_times(values)?;
    check_coherence(values)?;
    let store = stores::for_volume(&spec.source, values, &spec.environment, resources)?;
    let cache = cache::open(spec, resources, before).await?;
    let store = match &cache {
        Some(cache) => cache.around(store, &stores::identity(&spec.source, values)?),
        None => store,
    };
    let staging = staging::open(spec, &resources.pool, before).await?;
    let directory = staging
        .as_ref()
        .map(|staging| staging.settings().directory.clone());
    Ok(OpenedVolume {
        form: Form::Files(volume(&store, staging, values, resources)?),
        fileset: None,
        read_only: values.flag(&table::READ_ONLY),
        keeps_owners: metadata::keeps(values),
        read_ahead_kib: None,
        staging: directory,
        cache,
        discards_cache: values.flag(&table::CACHE_DISCARD),
        store,
        registry: Arc::clone(&resources.registry),
        note: None,
        _held: None,
    })
}

fn volume(
    store: &Arc<dyn Store>,
    staging: Option<Arc<Staging>>,
    values: &Values,
    resources: &Resources,
) -> Outcome<Arc<dyn Volume>> {
    let Resources { pool, registry } = resources.clone();
    let transfer = Transfer::with_settings(
        Arc::clone(store),
        pool,
        transfer_settings(values),
        &registry,
    );
    let settings = bucket_settings(values)?;
    let Some(staging) = staging else {
        return Ok(BucketVolume::new(transfer, settings, registry));
    };
    tell_promise(&settings);
    let volume = BucketVolume::staged(transfer, settings, staging, registry);
    volume.recover();
    Ok(volume)
}

/// Says when the store has what was written.
fn tell_promise(settings: &BucketSettings) {
    let Some(SaveBehind { after, age_max, .. }) = settings.save_behind else {
        return;
    };
    let after = after.min(age_max);
    let waits = match settings.fsync {
        Fsync::Store => "fsync and unmounting wait for the store, sync and syncfs do not",
        Fsync::Journal => {
            "fsync waits for the disk of the staging directory, `penstock sync` and unmounting for the store, sync and \
             syncfs for neither"
        }
        Fsync::Nothing => {
            "unmounting waits for the store; fsync does not, as set, nor do sync and syncfs"
        }
    };
    tracing::info!(
        "files are saved behind: close returns when the staging directory has a file, and the store has it about \
         {after:?} later, {age_max:?} at most while the store answers; {waits}"
    );
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

/// How long what is known of files is believed, and how long that a directory holds nothing else than was listed.
fn believed(values: &Values) -> (Duration, Duration) {
    let given = values.origin(&table::ATTR_TIMEOUT);
    let given = given.map(|_| values.duration(&table::ATTR_TIMEOUT));
    let given = metadata::stat_cache_interval(values).or(given);
    match (given, is_staged(values), staging::save_behind(values)) {
        (Some(given), ..) => (given, given),
        (None, false, _) => (BELIEVED, BELIEVED),
        (None, true, None) => (BELIEVED_STAGED, BELIEVED),
        (None, true, Some(_)) => (BELIEVED_STAGED, BELIEVED_STAGED),
    }
}

fn bucket_settings(values: &Values) -> Outcome<BucketSettings> {
    let id = |spec, own: u32| {
        let given = values.count(spec).and_then(|id| u32::try_from(id).ok());
        given.unwrap_or(own)
    };
    let limit = values.count(&table::RENAME_LIMIT);
    let (attr_timeout, listing_timeout) = believed(values);
    Ok(BucketSettings {
        uid: id(&table::UID, penstock_base::user_id()),
        gid: id(&table::GID, penstock_base::group_id()),
        file_mode: values.mode(&table::FILE_MODE),
        dir_mode: values.mode(&table::DIR_MODE),
        read_only: values.flag(&table::READ_ONLY),
        attr_timeout,
        listing_timeout,
        negative_timeout: values.duration(&table::NEGATIVE_TIMEOUT),
        close_to_open: values.flag(&table::CLOSE_TO_OPEN),
        fsync: staging::fsync(values)?,
        save_behind: staging::save_behind(values),
        appendable: values.flag(&table::APPENDABLE),
        symlinks: values.flag(&table::SYMLINKS),
        rename_dir_limit: limit.map_or(usize::MAX, |limit| limit as usize),
        door_keeps_sizes: values.flag(&table::WRITEBACK_CACHE),
        metadata: metadata::settings(values),
        content_types: Arc::new(metadata::content_types(values)?),
    })
}
