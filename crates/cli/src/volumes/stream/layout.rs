//! What an index is written as, and how the kernel mounts it.

use std::{io, path::Path, sync::Arc};

use penstock_block::{Contents, FileSystem, JoinedDisk};
use penstock_stream::{DataPath, Layout, StreamDisk};
use penstock_vfs::Disk;

use super::settings;
use crate::options::{Values, table};

/// What the options ask for.
pub(super) fn of(values: &Values) -> Layout {
    if !settings::has_disks(values) {
        return Layout::Tree;
    }
    let disks = values.count(&table::DISKS).unwrap_or(1);
    match values.choice(&table::FILE_SYSTEM) {
        "ext4" => Layout::Ext4,
        _ => Layout::Erofs {
            disks: u16::try_from(disks).unwrap_or(1),
        },
    }
}

/// What the kernel mounts: the image at `path` and the disks behind it.
pub(super) fn contents(layout: Layout, path: &Path, data: &Arc<DataPath>) -> io::Result<Contents> {
    let disk = |number| Arc::new(StreamDisk::new(Arc::clone(data), number));
    Ok(match layout {
        Layout::Ext4 => Contents {
            file_system: FileSystem::Ext4,
            image: None,
            disks: vec![Arc::new(JoinedDisk::new(path, disk(0))?)],
        },
        Layout::Erofs { .. } | Layout::Tree => Contents {
            file_system: FileSystem::Erofs,
            image: Some(path.to_owned()),
            disks: (0..layout.disks())
                .map(|number| disk(number) as Arc<dyn Disk>)
                .collect(),
        },
    })
}
