//! READ, WRITE and COMMIT.

use std::ops::Range;

use bytes::Bytes;
use penstock_base::{FsError, FsResult, Payload};
use penstock_vfs::{
    Access, AccessMask, Attributes, Change, Durability, Position, WritePlace, Written,
};

use super::{Asked, Service, status};
use crate::{
    limits::TRANSFER_MAX,
    open_files::InUse,
    protocol::{
        nfs3::{Stability, Status, post_operation, weak_consistency},
        xdr::Encoder,
    },
};

/// What a WRITE is answered with.
struct Answered {
    count: u32,
    committed: Stability,
}

impl Service {
    /// Returns the bytes, which belong behind what is written to `out`.
    pub(super) async fn read(
        &self,
        asked: &Asked,
        file: &Bytes,
        (offset, count): (u64, u32),
        out: &mut Encoder,
    ) -> Payload {
        let mut attributes = None;
        let count = count.min(TRANSFER_MAX);
        let read = self.read_file(asked, file, (offset, count), &mut attributes);
        let read = read.await;
        let end = |bytes: &Payload| offset.saturating_add(bytes.len() as u64);
        if let (Ok(bytes), Some(seen)) = (&read, &attributes)
            && !bytes.is_empty()
            && end(bytes) > seen.size
        {
            // It grew since it was looked at, and need not end where it was read to.
            attributes = self.attributes_of(asked, seen.inode).await;
        }
        let read = status(out, read);
        post_operation(out, attributes.as_ref(), self.system);
        let Some(bytes) = read else {
            return Payload::new();
        };
        let length = bytes.len() as u32;
        let is_end = attributes.is_some_and(|file| end(&bytes) >= file.size);
        out.u32(length);
        out.bool(length < count || is_end);
        out.u32(length);
        bytes
    }

    async fn read_file(
        &self,
        asked: &Asked,
        file: &Bytes,
        (offset, count): (u64, u32),
        attributes: &mut Option<Attributes>,
    ) -> Result<Payload, Status> {
        let node = self.find(asked, file).await?;
        let file = attributes.insert(node.attributes.clone());
        // A client reads what it executes.
        asked.check_content(file, &[AccessMask::READ, AccessMask::EXECUTE])?;
        if count == 0 || offset.checked_add(count.into()).is_none() {
            return Ok(Payload::new());
        }
        let read = match self.read_once(asked, file, (offset, count)).await {
            // Some volumes show only what is saved.
            Err(FsError::Busy(_)) => {
                self.files.sync(file.inode, 0..u64::MAX).await?;
                self.read_once(asked, file, (offset, count)).await
            }
            // What was open was an earlier version.
            Err(FsError::Stale | FsError::BadHandle) => {
                self.read_once(asked, file, (offset, count)).await
            }
            read => read,
        };
        Ok(read?)
    }

    async fn read_once(
        &self,
        asked: &Asked,
        file: &Attributes,
        (offset, count): (u64, u32),
    ) -> FsResult<Payload> {
        let reader = self.files.open(file, Access::Read).await?;
        let at = Position {
            handle: reader.id,
            offset,
        };
        let read = self.volume.read(&asked.by, at, count).await;
        if matches!(read, Err(FsError::Stale)) {
            self.files.close_reader(reader).await;
        }
        read
    }

    pub(super) async fn write(
        &self,
        asked: &Asked,
        file: &Bytes,
        (offset, stability, data): (u64, Stability, Bytes),
        out: &mut Encoder,
    ) {
        let mut change = Change::UNTOLD;
        let write = self.write_file(asked, file, (offset, stability, data), &mut change);
        let written = status(out, write.await);
        weak_consistency(out, &change, self.system);
        if let Some(Answered { count, committed }) = written {
            out.u32(count);
            out.u32(committed as u32);
            out.u64(self.volume.epoch());
        }
    }

    async fn write_file(
        &self,
        asked: &Asked,
        file: &Bytes,
        (offset, stability, data): (u64, Stability, Bytes),
        change: &mut Change,
    ) -> Result<Answered, Status> {
        let node = self.find(asked, file).await?;
        let file = change.after.insert(node.attributes.clone());
        asked.may_change()?;
        asked.check_content(file, &[AccessMask::WRITE])?;
        let count = data.len() as u32;
        let end = offset.checked_add(count.into());
        let end = end.filter(|end| *end <= self.features.file_size_max);
        let end = end.ok_or(Status::TOO_BIG)?;
        let writer = self.files.open(file, Access::Write).await?;
        writer.file.in_order(offset).await;
        let place = WritePlace::At(offset);
        let written = self.volume.write(&asked.by, writer.id, place, data).await;
        let written = writer.file.told(written)?;
        writer.file.grows_to(end);
        let committed = self
            .committed(&writer, (offset..end, stability), &written)
            .await?;
        *change = self.told(asked, node.inode(), written.file).await;
        Ok(Answered { count, committed })
    }

    /// How durable what was written is: at least as was asked for, and never less than is said.
    async fn committed(
        &self,
        writer: &InUse,
        (range, wanted): (Range<u64>, Stability),
        written: &Written,
    ) -> Result<Stability, Status> {
        if written.durability == Durability::Durable {
            return Ok(Stability::FileSync);
        }
        if wanted == Stability::Unstable {
            writer.file.note_write();
            return Ok(Stability::Unstable);
        }
        let synced = self.volume.sync(writer.id, range, false).await;
        let synced = writer.file.told(synced);
        synced.inspect_err(|_| writer.file.note_write())?;
        Ok(Stability::FileSync)
    }

    pub(super) async fn commit(
        &self,
        asked: &Asked,
        file: &Bytes,
        range: Range<u64>,
        out: &mut Encoder,
    ) {
        let mut change = Change::UNTOLD;
        let committed = async {
            let node = self.find(asked, file).await?;
            change.after = Some(node.attributes.clone());
            self.files.sync(node.inode(), range).await?;
            change = self.told(asked, node.inode(), Change::UNTOLD).await;
            Ok(())
        };
        let committed = status(out, committed.await);
        weak_consistency(out, &change, self.system);
        if committed.is_some() {
            out.u64(self.volume.epoch());
        }
    }
}
