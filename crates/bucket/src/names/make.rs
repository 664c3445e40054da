//! Making whatever can have a name.

use std::sync::Arc;

use penstock_base::{FsError, FsResult, Utf8Name};
use penstock_vfs::{Change, Exclusivity, Identity, Inode, Made, New, NewKind, OpenOptions};

use crate::{mount::run_to_end, names::Names};

impl Names {
    /// Makes a file, a directory, a link, or a pipe, socket or device.
    pub(crate) async fn make(
        self: &Arc<Self>,
        by: &Identity,
        place: (Inode, &Utf8Name),
        new: New<'_>,
        open: Option<OpenOptions>,
    ) -> FsResult<Made> {
        if matches!(new.exclusivity, Exclusivity::Verified(_)) {
            return Err(FsError::Unsupported(
                "a bucket keeps no number of who created a file",
            ));
        }
        let (owner, permissions) = (by.owner(), new.permissions);
        let entry = match new.kind {
            NewKind::Regular => return Box::pin(self.make_file(by, place, new, open)).await,
            _ if open.is_some() => Err(FsError::InvalidArgument("only files are opened")),
            NewKind::Directory => {
                let kept = self.metadata.new_directory(place.0, owner, permissions);
                self.make_directory(place.0, place.1, kept).await
            }
            NewKind::Symlink(target) => self.make_symlink(place, (target, owner)).await,
            NewKind::Special(special) => {
                let special = (special, permissions);
                self.make_special(place, owner, special).await
            }
        };
        entry.map(Made::new)
    }

    async fn make_file(
        self: &Arc<Self>,
        by: &Identity,
        place: (Inode, &Utf8Name),
        new: New<'_>,
        open: Option<OpenOptions>,
    ) -> FsResult<Made> {
        let options = open.unwrap_or(OpenOptions::WRITE);
        let must_be_new = new.exclusivity == Exclusivity::New;
        let created = self.files.create(place, options, must_be_new).await?;
        let inode = created.file.inode();
        if self.mount.keeps_metadata() && !created.existed {
            self.metadata
                .own_new_file(inode, by.owner(), new.permissions);
        }
        if open.is_none() {
            let (this, handle) = (Arc::clone(self), created.opened.handle);
            run_to_end(async move { this.files.save_and_close(handle).await }).await?;
        }
        let (existed, opened) = (created.existed, open.map(|_| created.opened));
        Ok(Made {
            entry: self.mount.given_away(created.file)?,
            opened,
            existed,
            directory: Change::UNTOLD,
        })
    }
}
