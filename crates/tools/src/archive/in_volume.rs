//! An archive that lies in a volume: read in its order, and written so. What is written is there when it is whole.

use std::io::{self, Read, Write};

use bytes::Bytes;
use penstock_vfs::FileKind;
use rustix::io::Errno;

use crate::{
    Stop,
    direct::VolumePlace,
    tree::{Content, Dress, Facts, Written},
};

/// Mode bits of a new file, of which the umask takes some.
const NEW_FILE: u16 = 0o666;
/// Mode bits that an archive takes over from what it replaces.
const PERMISSIONS: u16 = 0o777;
/// Those that are the mask of an access list, where there is one, and no rights of the group.
const OF_GROUP: u16 = 0o070;

/// An archive that is read.
pub struct StoredArchive {
    content: Box<dyn Content>,
    size: u64,
    at: u64,
    stop: Stop,
}

impl StoredArchive {
    /// Opens what is at `place`. Reading it fails once `stop` is set.
    pub fn open(place: &VolumePlace, stop: &Stop) -> io::Result<Self> {
        let source = place.source(&place.path)?;
        let attributes = source.facts()?.attributes;
        if attributes.kind == FileKind::Directory || place.is_directory {
            return Err(Errno::ISDIR.into());
        }
        Ok(Self {
            content: source.open()?,
            size: attributes.size,
            at: 0,
            stop: stop.clone(),
        })
    }

    /// Bytes that it has.
    pub fn size(&self) -> u64 {
        self.size
    }
}

impl Read for StoredArchive {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.is_set() {
            return Err(io::Error::other("interrupted"));
        }
        let read = self.content.read_at(self.at, buffer.len())?;
        buffer[..read.len()].copy_from_slice(&read);
        self.at += read.len() as u64;
        Ok(read.len())
    }
}

/// An archive on its way. Dropped before it is published, nothing of it is there, and what was there stays.
pub struct NewArchive {
    written: Box<dyn Written>,
    dress: Dress,
    at: u64,
}

impl NewArchive {
    /// Begins what is to be at `place`, with the rights that `umask` leaves or those and the owner of the file that it
    /// replaces, as far as the volume keeps these.
    pub fn create(place: &VolumePlace, umask: u32) -> io::Result<Self> {
        let Some((name, above)) = place.path.split_last().filter(|_| !place.is_directory) else {
            return Err(Errno::ISDIR.into());
        };
        let directory = place.target(place.walk(above)?);
        let existing = directory.find(name)?;
        match existing.as_ref().map(|found| found.attributes.kind) {
            None | Some(FileKind::Regular) => {}
            Some(FileKind::Directory) => return Err(Errno::ISDIR.into()),
            Some(_) => return Err(io::Error::other("what has its name is no file")),
        }
        Ok(Self {
            written: directory.create(name, existing.as_ref())?,
            dress: dress(existing.as_ref(), umask),
            at: 0,
        })
    }

    /// Gives it its name.
    pub fn publish(mut self) -> io::Result<()> {
        self.written.dress(&self.dress, &|_| {})?;
        self.written.finish()?;
        self.written.publish()
    }
}

fn dress(existing: Option<&Facts>, umask: u32) -> Dress {
    let existing = existing.map(|existing| &existing.attributes);
    let umask = umask as u16;
    let permissions = match existing {
        None => NEW_FILE & !umask,
        Some(existing) if existing.access_list.is_some() => {
            existing.permissions & PERMISSIONS & !OF_GROUP
        }
        Some(existing) => existing.permissions & PERMISSIONS,
    };
    Dress {
        owner: existing.map(|existing| (existing.uid, existing.gid)),
        permissions: Some(permissions),
        ..Dress::default()
    }
}

impl Write for NewArchive {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written
            .write_at(self.at, Bytes::copy_from_slice(bytes))?;
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
