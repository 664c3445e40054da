//! What an index is written as.

use std::{io, path::Path};

use crate::{
    DirectoryIndexWriter, ErofsSettings, ErofsWriter, Ext4Settings, Ext4Writer, ImageWriter,
    Permissions,
};

/// The name that images carry inside.
const VOLUME_NAME: &str = "penstock";

/// The forms of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// An EROFS image, with data on this many disks.
    Erofs {
        /// From 1.
        disks: u16,
    },
    /// An ext4 image, with the data behind it on one device.
    Ext4,
    /// A tree that this program reads itself, for FUSE.
    Tree,
}

impl Layout {
    /// Disks over which the data is spread.
    pub fn disks(self) -> u16 {
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
}
