//! Opening a snapshot.

use std::{io, path::Path, sync::Arc};

use penstock_base::{metrics::Registry, run_blocking};
use penstock_stream::{
    Confined, ControlGroups, DataPath, DataSettings, DirectoryIndex, Index, Layout, ObjectMap,
    StreamVolume, keep_to_processors,
};
use penstock_transfer::Transfer;
use tracing::{info, warn};

use super::{index, layout, settings};
use crate::{
    control::mount_id,
    failure::{Failure, Outcome},
    limits, mount_point,
    options::table,
    resources::Resources,
    stores,
    volumes::{Form, OpenedVolume, VolumeSpec},
};

/// Finds or builds the index of the path. With the `note` of a process that was killed it is the one which
/// that process had.
pub(crate) async fn open(
    spec: &VolumeSpec,
    resources: &Resources,
    note: Option<&str>,
) -> Outcome<OpenedVolume> {
    let (values, environment) = (&spec.values, &spec.environment);
    let folder = settings::index_directory(values, environment)?;
    mount_point::check_outside(&spec.mountpoint, &folder, "index directory")?;
    let store = stores::for_volume(&spec.source, values, environment, resources)?;
    let Resources { pool, registry } = resources.clone();
    let request = index::request(&spec.source, values, environment, &store)?;
    let index = match note {
        Some(note) => index::again(&spec.source, &request, note)?,
        None => index::get(&spec.source, &request, settings::refresh(values)).await?,
    };
    let transfer = Transfer::with_settings(
        Arc::clone(&store),
        pool,
        settings::transfer(values),
        &registry,
    );
    let data = data_path(spec, &index.objects, transfer, &registry)?;
    let form = form(spec, &index, data)?;
    // A FUSE door ends with its process.
    let has_disks = matches!(form, Form::Disks(_));
    let note = has_disks.then(|| index.image.to_string_lossy().into_owned());
    Ok(OpenedVolume {
        fileset: None,
        form,
        read_only: true,
        keeps_owners: false,
        read_ahead_kib: Some(settings::read_ahead_kib(values)),
        staging: None,
        cache: None,
        discards_cache: false,
        registry: Arc::clone(&resources.registry),
        store,
        note,
        _held: Some(Box::new((index, confine(spec)))),
    })
}

/// The index as the kernel's own file system reads it, or as files.
fn form(spec: &VolumeSpec, index: &Index, data: Arc<DataPath>) -> Outcome<Form> {
    if index.layout != Layout::Tree {
        let contents = layout::contents(index.layout, &index.image, &data);
        let contents = contents.map_err(|error| unreadable(&index.image, &error))?;
        return Ok(Form::Disks(contents));
    }
    let tree = run_blocking(|| DirectoryIndex::open(&index.image));
    let tree = tree.map_err(|error| Failure::new(error.to_string(), ""))?;
    let permissions = settings::permissions(&spec.values);
    Ok(Form::Files(Arc::new(StreamVolume::new(
        tree,
        data,
        permissions,
    ))))
}

fn data_path(
    spec: &VolumeSpec,
    objects: &Path,
    transfer: Arc<Transfer>,
    registry: &Arc<Registry>,
) -> Outcome<Arc<DataPath>> {
    let map = run_blocking(|| ObjectMap::open(objects));
    let map = map.map_err(|error| Failure::new(error.to_string(), ""))?;
    let settings = DataSettings {
        direct: spec.values.flag(&table::DIRECT),
        ..DataSettings::within(limits::memory(&spec.values))
    };
    Ok(DataPath::new(Arc::new(map), transfer, settings, registry))
}

/// Has the kernel hold the volume to its tier. The index is there by now, and was not to be held
/// to it. Without control groups memory is bounded by the budget alone.
fn confine(spec: &VolumeSpec) -> Option<Confined> {
    let limits = limits::enforced(&spec.values)?;
    let groups = ControlGroups::of_this_process();
    let name = mount_id(&spec.mountpoint);
    match groups.and_then(|groups| groups.confine(&name, &limits)) {
        Ok(confined) => Some(confined),
        Err(reason) => {
            info!("{reason}");
            match keep_to_processors(limits.processors) {
                Ok(true) => info!(limits.processors, "the threads are kept to processors"),
                Ok(false) => {}
                Err(error) => warn!(%error, "processors are not limited"),
            }
            None
        }
    }
}

fn unreadable(image: &Path, error: &io::Error) -> Failure {
    Failure::new(
        format!("cannot read `{}`: {error}", image.display()),
        "build it again with --refresh",
    )
}
