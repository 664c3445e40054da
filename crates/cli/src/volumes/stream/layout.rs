//! What an index is written as, and how it is mounted.

use std::{io, path::Path, sync::Arc};

use penstock_block::{Contents, FileSystem, JoinedDisk};
use penstock_stream::{
    DataPath, DirectoryIndexWriter, ErofsSettings, ErofsWriter, Ext4Settings, Ext4Writer,
    ImageWriter, Permissions, StreamDisk,
};
use penstock_vfs::Disk;

use super::settings;
use crate::options::{Values, table};

/// The name that images carry inside.
const VOLUME_NAME: &str = "penstock";

/// The forms of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// An EROFS image, with data on this many disks.
    Erofs { disks: u16 },
    /// An ext4 image, with the data behind it on one device.
    Ext4,
    /// A tree that this program reads itself, for FUSE.
    Tree,
}

impl Layout {
    /// What the options ask for.
    pub(super) fn of(values: &Values) -> Self {
        if !settings::has_disks(values) {
            return Self::Tree;
        }
        let disks = values.count(&table::DISKS).unwrap_or(1);
        match values.choice(&table::FILE_SYSTEM) {
            "ext4" => Self::Ext4,
            _ => Self::Erofs {
                disks: u16::try_from(disks).unwrap_or(1),
            },
        }
    }

    /// Disks over which the data is spread.
    pub(super) fn disks(self) -> u16 {
        match self {
            Self::Erofs { disks } => disks,
            Self::Ext4 | Self::Tree => 1,
        }
    }

    /// A writer of a new image at `path`.
    pub(super) fn writer(
        self,
        path: &Path,
        permissions: Permissions,
    ) -> io::Result<Box<dyn ImageWriter + Send>> {
        let volume_name = VOLUME_NAME.to_owned();
        Ok(match self {
            Self::Erofs { disks } => Box::new(ErofsWriter::create(
                path,
                ErofsSettings {
                    permissions,
                    disks,
                    volume_name,
                    ..ErofsSettings::default()
                },
            )?),
            Self::Ext4 => Box::new(Ext4Writer::create(
                path,
                Ext4Settings {
                    permissions,
                    volume_name,
                    ..Ext4Settings::default()
                },
            )?),
            Self::Tree => Box::new(DirectoryIndexWriter::create(path)?),
        })
    }

    /// What the kernel mounts: the image at `path` and the disks behind it.
    pub(super) fn contents(self, path: &Path, data: &Arc<DataPath>) -> io::Result<Contents> {
        let disk = |number| Arc::new(StreamDisk::new(Arc::clone(data), number));
        Ok(match self {
            Self::Ext4 => Contents {
                file_system: FileSystem::Ext4,
                image: None,
                disks: vec![Arc::new(JoinedDisk::new(path, disk(0))?)],
            },
            Self::Erofs { .. } | Self::Tree => Contents {
                file_system: FileSystem::Erofs,
                image: Some(path.to_owned()),
                disks: (0..self.disks())
                    .map(|number| disk(number) as Arc<dyn Disk>)
                    .collect(),
            },
        })
    }
}
