//! READDIR and READDIRPLUS.

use bytes::Bytes;
use penstock_vfs::{AccessMask, Attributes, ListFrom};

use super::{
    Asked, Service,
    listing::{Listed, Page},
    status,
};
use crate::{
    limits::LISTING_MAX,
    nodes::Node,
    places::{BEHIND_PARENT, BEHIND_SELF},
    protocol::{
        nfs3::{Status, VERIFIER, post_operation},
        xdr::Encoder,
    },
};

/// Bytes of an answer beside its entries: a status, attributes, the verifier, and the end.
const AROUND: usize = 4 + 88 + VERIFIER + 8;
/// Cookies are made of names and good for ever, so every verifier is the same.
const COOKIE_VERIFIER: [u8; VERIFIER] = [0; VERIFIER];

/// From where to list, as the client said: a cookie with the verifier that came with it.
type From = (u64, [u8; VERIFIER]);

impl Service {
    pub(super) async fn read_directory(
        &self,
        asked: &Asked,
        directory: &Bytes,
        (from, bytes): (From, u32),
        out: &mut Encoder,
    ) {
        let page = Page::new(&self.volume, false, room(bytes));
        self.list(asked, (directory, from), page, out).await;
    }

    pub(super) async fn read_directory_plus(
        &self,
        asked: &Asked,
        directory: &Bytes,
        (from, bytes): (From, u32),
        out: &mut Encoder,
    ) {
        let page = Page::new(&self.volume, true, room(bytes));
        self.list(asked, (directory, from), page, out).await;
    }

    async fn list(
        &self,
        asked: &Asked,
        (directory, from): (&Bytes, From),
        mut page: Page,
        out: &mut Encoder,
    ) {
        let mut above = None;
        let filled = self
            .fill(asked, (directory, from), &mut page, &mut above)
            .await;
        let filled = status(out, filled);
        post_operation(out, above.as_ref(), self.system);
        if filled.is_none() {
            return;
        }
        out.fixed(&COOKIE_VERIFIER);
        let is_end = !page.is_full;
        let is_plus = page.is_plus;
        for entry in page.entries {
            self.write_entry(asked, (entry, is_plus), out);
        }
        out.bool(false);
        out.bool(is_end);
    }

    fn write_entry(&self, asked: &Asked, (entry, is_plus): (Listed, bool), out: &mut Encoder) {
        out.bool(true);
        out.u64(entry.inode.0);
        out.opaque(entry.name.as_bytes());
        out.u64(entry.cookie);
        if !is_plus {
            return;
        }
        let attributes = entry.node.as_ref().map(|node| &node.attributes);
        post_operation(out, attributes, self.system);
        let handle = entry
            .node
            .map(|node| self.nodes.handle_for_ever(asked.export, node));
        out.option(handle, |out, handle| out.opaque(&handle));
    }

    async fn fill(
        &self,
        asked: &Asked,
        (handle, (cookie, verifier)): (&Bytes, From),
        page: &mut Page,
        above: &mut Option<Attributes>,
    ) -> Result<(), Status> {
        let directory = self.directory(asked, handle).await?;
        *above = Some(directory.attributes.clone());
        asked.check(&directory.attributes, AccessMask::READ)?;
        if cookie != 0 && verifier != COOKIE_VERIFIER {
            return Err(Status::BAD_COOKIE);
        }
        // A handle is as good as a search for its name.
        let searched = asked.check(&directory.attributes, AccessMask::EXECUTE);
        page.shows_files = page.is_plus && searched.is_ok();
        self.push_dots(asked, (&directory, cookie), page).await?;
        if !page.is_full {
            self.push_names(asked, (&directory, cookie), page).await?;
        }
        match page.entries.is_empty() && page.is_full {
            true => Err(Status::TOO_SMALL),
            false => Ok(()),
        }
    }

    /// `.` and `..`, which are no names to a volume.
    async fn push_dots(
        &self,
        asked: &Asked,
        (directory, cookie): (&Node, u64),
        page: &mut Page,
    ) -> Result<(), Status> {
        if cookie < BEHIND_SELF && page.takes(1) {
            let held = self.volume.hold(&asked.by, directory.inode()).await?;
            let node = Node::of(&self.volume, held);
            page.push_dots(b".", node, BEHIND_SELF);
        }
        if cookie < BEHIND_PARENT && !page.is_full && page.takes(2) {
            let parent = self.volume.parent(&asked.by, directory.inode()).await?;
            let node = Node::of(&self.volume, parent);
            page.push_dots(b"..", node, BEHIND_PARENT);
        }
        Ok(())
    }

    async fn push_names(
        &self,
        asked: &Asked,
        (directory, cookie): (&Node, u64),
        page: &mut Page,
    ) -> Result<(), Status> {
        let (volume, inode) = (&*self.volume, directory.inode());
        let after = match cookie {
            0..=BEHIND_PARENT => None,
            cookie => Some(self.places.find((volume, &asked.by), inode, cookie).await?),
        };
        let from = after.as_ref().map_or(ListFrom::START, ListFrom::After);
        volume.list(&asked.by, inode, from, page).await?;
        self.places.remember(inode, page.names());
        Ok(())
    }
}

/// Bytes for entries in an answer of so many bytes.
fn room(bytes: u32) -> usize {
    (bytes.min(LISTING_MAX) as usize).saturating_sub(AROUND)
}
