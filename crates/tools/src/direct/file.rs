//! One file of any kind but directories.

use std::{
    io,
    time::{Duration, SystemTime},
};

use penstock_vfs::{FileKind, NewKind};
use rustix::{fs::Mode, io::Errno};

use super::{
    job::{Branch, Direct, Item, UNDRESSED},
    links::Spot,
    prune::remove_tree,
};
use crate::{
    copy::{Stays, Unchanged, in_the_way},
    local,
    tree::{Content, Dress, Facts, LOST_LINKS, Source, Target, Written, Xattrs, was_taken},
};

/// Bytes that are read at once; each thread has as many on their way.
const PIECE_BYTES: usize = 1 << 20;
/// Bytes that a volume copies by itself between two looks at the stop.
const COPY_BYTES: u64 = 1 << 30;
/// A hole is made of what holds zeros only, by so many.
const HOLE_BYTES: usize = 64 << 10;

/// What is said of a copy that could not be read again, or not to its end.
const UNVERIFIED: &str = "cannot verify the copy of";

impl Direct<'_> {
    pub(super) fn copy_file(&self, branch: &Branch, item: &Item) -> io::Result<()> {
        item.check_name()?;
        let facts = item.found.file.facts()?;
        match facts.attributes.kind {
            FileKind::Symlink if !self.settings.recursive => return Err(Errno::LOOP.into()),
            FileKind::Directory => return Err(Errno::ISDIR.into()),
            _ => {}
        }
        if !self.settings.preserve.links || facts.attributes.links < 2 {
            return self.copy_one(branch, item, &facts).map(drop);
        }
        let keeps = branch.data.target.as_ref().map(|target| target.keeps());
        if keeps.is_some_and(|keeps| !keeps.links) {
            self.lose(LOST_LINKS);
            return self.copy_one(branch, item, &facts).map(drop);
        }
        let copied = self.links.meet(&facts);
        let mut copied = copied.lock();
        if let Some(spot) = &*copied {
            return self.link(branch, item, &facts, spot);
        }
        if self.copy_one(branch, item, &facts)? != Some(Stays::Newer) {
            *copied = Spot::of(branch, item.target_name().to_owned());
        }
        Ok(())
    }

    /// Copies one, or says why what is there stays.
    fn copy_one(&self, branch: &Branch, item: &Item, facts: &Facts) -> io::Result<Option<Stays>> {
        let stays = match self.copy_over(branch, item, facts, branch.data.is_fresh) {
            // Somebody made it since it was looked for, such as the requests of a copy that was killed.
            Err(error) if was_taken(&error) => self.copy_over(branch, item, facts, false)?,
            stays => stays?,
        };
        match stays {
            None => self.report.files.add(1),
            Some(_) => self.report.stay(facts.attributes.size),
        }
        Ok(stays)
    }

    /// The same in the place of what has the name.
    fn copy_over(
        &self,
        branch: &Branch,
        item: &Item,
        facts: &Facts,
        is_fresh: bool,
    ) -> io::Result<Option<Stays>> {
        let existing = self.make_way(branch, item, is_fresh)?;
        match facts.attributes.kind {
            FileKind::Regular => self.copy_regular(branch, item, facts, existing.as_ref()),
            _ if !self.settings.recursive => Err(io::Error::other(
                "it is no file; use -a to copy it as what it is",
            )),
            _ => {
                let made = self.copy_other(branch, item, facts, existing.as_ref())?;
                Ok((!made).then_some(Stays::Same))
            }
        }
    }

    /// What has the name of the copy; nothing in a fresh directory. A directory is removed where that is asked for.
    fn make_way(&self, branch: &Branch, item: &Item, is_fresh: bool) -> io::Result<Option<Facts>> {
        let target = branch.data.target.as_ref();
        let Some(target) = target.filter(|_| !is_fresh) else {
            return Ok(None);
        };
        let existing = target.find(item.target_name())?;
        match existing.as_ref().map(|existing| existing.attributes.kind) {
            Some(FileKind::Directory) if !self.settings.delete => Err(in_the_way()),
            Some(FileKind::Directory) if self.settings.dry_run => Ok(None),
            Some(FileKind::Directory) => {
                match remove_tree(self, branch, target, item.target_name())? {
                    None => Ok(None),
                    Some(kept) => Err(kept.into()),
                }
            }
            Some(FileKind::Special(_)) if !self.settings.recursive => Err(io::Error::other(
                "what has the name of the copy is no file and is not replaced",
            )),
            _ => Ok(existing),
        }
    }

    fn tell(&self, branch: &Branch, item: &Item) {
        self.report
            .tell(|| branch.path_of(item.name()).display().to_string());
    }

    /// Copies a regular file, or says why what is there stays.
    fn copy_regular(
        &self,
        branch: &Branch,
        item: &Item,
        facts: &Facts,
        existing: Option<&Facts>,
    ) -> io::Result<Option<Stays>> {
        let target = branch.data.target.as_ref();
        if let (Some(existing), Some(target)) = (existing, target)
            && let Some(stays) = self.may_stay(branch, item, &**target, (facts, existing))?
        {
            return Ok(Some(stays));
        }
        self.tell(branch, item);
        let Some(target) = target.filter(|_| !self.settings.dry_run) else {
            self.report.bytes.add(facts.attributes.size);
            return Ok(None);
        };
        let source = item.found.file.open()?;
        let mut written = target.create(item.target_name(), existing)?;
        self.fill(facts, &*source, &mut *written, target.keeps().holes)?;
        if source.has_changed(&facts.attributes)? {
            self.report.note_change(&branch.path_of(item.name()));
        }
        let dressed = self
            .dress(&*item.found.file, facts, existing, &**target)
            .map(|dress| self.after_writing(dress))
            .and_then(|dress| written.dress(&dress, &|kind| self.lose(kind)));
        written.finish()?;
        let verified = self.verify(&*source, &*written);
        if matches!(verified, Ok(false)) {
            return Err(io::Error::other(
                "the copy differs from its source and was removed",
            ));
        }
        written.publish()?;
        if let Err(error) = verified {
            self.fail(branch, item.name(), UNVERIFIED, error);
        }
        if let Err(error) = dressed {
            self.fail(branch, item.name(), UNDRESSED, error);
        }
        Ok(None)
    }

    /// Copies the content.
    fn fill(
        &self,
        facts: &Facts,
        source: &dyn Content,
        written: &mut dyn Written,
        keeps_holes: bool,
    ) -> io::Result<()> {
        let attributes = &facts.attributes;
        let is_sparse = keeps_holes && attributes.allocated < attributes.size;
        // One more, to see that it does not go on.
        let usual = usize::try_from(attributes.size).map_or(PIECE_BYTES, |size| size + 1);
        let length = usual.clamp(2, PIECE_BYTES);
        let mut at = self.copy_within(source, written)?;
        let mut end = at;
        loop {
            self.check_stop()?;
            let piece = source.read_at(at, length)?;
            let is_last = piece.len() < length;
            let mut rest = piece;
            while !rest.is_empty() {
                let step = match is_sparse {
                    true => rest.split_to(rest.len().min(HOLE_BYTES)),
                    false => std::mem::take(&mut rest),
                };
                let count = step.len() as u64;
                if !(is_sparse && step.iter().all(|byte| *byte == 0)) {
                    written.write_at(at, step)?;
                    end = at + count;
                }
                at += count;
                self.report.bytes.add(count);
            }
            if is_last {
                break;
            }
        }
        match end < at {
            true => written.set_size(at),
            false => Ok(()),
        }
    }

    /// Lets a volume copy the content by itself, if both are in one that can. Returns how far that went.
    fn copy_within(&self, source: &dyn Content, written: &mut dyn Written) -> io::Result<u64> {
        let mut at = 0;
        loop {
            self.check_stop()?;
            let copied = written.copy_from(source, at, COPY_BYTES)?;
            if copied == 0 {
                return Ok(at);
            }
            at += copied;
            self.report.bytes.add(copied);
        }
    }

    fn check_stop(&self) -> io::Result<()> {
        match self.stop.is_set() {
            true => Err(io::ErrorKind::Interrupted.into()),
            false => Ok(()),
        }
    }

    /// Whether what was written is what the source holds, if that is to be known. Where it cannot be known the copy is whole
    /// all the same, and what it replaced may be gone.
    fn verify(&self, source: &dyn Content, written: &dyn Written) -> io::Result<bool> {
        match self.settings.verify {
            true => self.is_equal(source, &*written.content()?),
            false => Ok(true),
        }
    }

    fn is_equal(&self, one: &dyn Content, other: &dyn Content) -> io::Result<bool> {
        let mut at = 0;
        loop {
            self.check_stop()?;
            let piece = one.read_at(at, PIECE_BYTES)?;
            if piece != other.read_at(at, PIECE_BYTES)? {
                return Ok(false);
            }
            if piece.len() < PIECE_BYTES {
                return Ok(true);
            }
            at += piece.len() as u64;
        }
    }

    /// Why the copy that is there needs no new content, if it needs none. What else differs is set right.
    fn may_stay(
        &self,
        branch: &Branch,
        item: &Item,
        target: &dyn Target,
        (facts, existing): (&Facts, &Facts),
    ) -> io::Result<Option<Stays>> {
        let (wanted, there) = (&facts.attributes, &existing.attributes);
        if there.kind != FileKind::Regular {
            return Ok(None);
        }
        let has_same_size = wanted.size == there.size;
        if let Some(stays) = self.stays_as_new((facts, existing), target) {
            return Ok(Some(stays));
        }
        let is_same = match self.settings.unchanged {
            Unchanged::Never => false,
            Unchanged::ByTime => has_same_size && is_same_time(facts, existing, target),
            Unchanged::ByContent => {
                let copy = || target.source(item.target_name())?.open();
                has_same_size && self.is_equal(&*item.found.file.open()?, &*copy()?)?
            }
        };
        if is_same && !self.settings.dry_run {
            self.set_right(branch, item, target, (facts, existing));
        }
        Ok(is_same.then_some(Stays::Same))
    }

    /// Why a file stays that is as new as its source, if such files do.
    fn stays_as_new(
        &self,
        (facts, existing): (&Facts, &Facts),
        target: &dyn Target,
    ) -> Option<Stays> {
        let (wanted, there) = (&facts.attributes, &existing.attributes);
        let stays = self.settings.update
            && there.kind == FileKind::Regular
            && there.modified >= wanted.modified;
        stays.then(
            || match wanted.size == there.size && is_same_time(facts, existing, target) {
                true => Stays::Same,
                false => Stays::Newer,
            },
        )
    }

    /// Gives a copy whose content is right what else the source has.
    fn set_right(
        &self,
        branch: &Branch,
        item: &Item,
        target: &dyn Target,
        (facts, existing): (&Facts, &Facts),
    ) {
        let name = item.target_name();
        let done = self
            .dress(&*item.found.file, facts, Some(existing), target)
            .and_then(|mut dress| {
                self.leave_same(&mut dress, existing, || target.source(name)?.xattrs())?;
                match dress.is_nothing() {
                    true => Ok(()),
                    false => target.dress_named((name, facts.attributes.kind), &dress, &|kind| {
                        self.lose(kind);
                    }),
                }
            });
        if let Err(error) = done {
            self.fail(branch, item.name(), UNDRESSED, error);
        }
    }

    /// What the copy of a file is to have; `existing` is what it replaces.
    pub(super) fn dress(
        &self,
        source: &dyn Source,
        facts: &Facts,
        existing: Option<&Facts>,
        target: &dyn Target,
    ) -> io::Result<Dress> {
        let (keep, wanted) = (self.settings.preserve, &facts.attributes);
        if keep.mode || keep.owner || keep.times {
            self.losses.check_metadata(target);
        }
        let replaced = existing.map(|existing| &existing.attributes);
        let replaced = replaced.filter(|replaced| replaced.kind == wanted.kind);
        Ok(Dress {
            owner: match keep.owner {
                true => Some((wanted.uid, wanted.gid)),
                false => replaced.map(|replaced| (replaced.uid, replaced.gid)),
            },
            permissions: Some(match (keep.mode, replaced) {
                (true, _) => wanted.permissions,
                (false, Some(replaced)) => replaced.permissions,
                (false, None) => wanted.permissions & 0o777 & !(self.settings.umask as u16),
            }),
            times: keep.times.then_some((wanted.accessed, wanted.modified)),
            xattrs: keep.attributes.then(|| source.xattrs()).transpose()?,
            adds_xattrs: false,
        })
    }

    /// The same of a file that gets new content.
    fn after_writing(&self, dress: Dress) -> Dress {
        let after = |permissions: u16| {
            let mode = Mode::from_raw_mode(permissions.into());
            local::after_writing(mode).as_raw_mode() as u16
        };
        Dress {
            permissions: match self.settings.preserve.mode {
                true => dress.permissions,
                false => dress.permissions.map(after),
            },
            ..dress
        }
    }

    /// Takes out of `dress` what `existing` has already, so that nothing is asked for that changes nothing.
    pub(super) fn leave_same(
        &self,
        dress: &mut Dress,
        existing: &Facts,
        xattrs: impl FnOnce() -> io::Result<Xattrs>,
    ) -> io::Result<()> {
        let there = &existing.attributes;
        dress.owner = dress.owner.filter(|owner| *owner != (there.uid, there.gid));
        let has_mode = dress.permissions == Some(there.permissions) && dress.owner.is_none();
        dress.permissions = dress.permissions.filter(|_| !has_mode);
        // Exactly: an object without attributes has the second in which it was stored.
        dress.times = dress.times.filter(|times| times.1 != there.modified);
        if let Some(wanted) = &mut dress.xattrs {
            let mut existing = xattrs()?;
            existing.sort_unstable();
            wanted.sort_unstable();
            if *wanted == existing {
                dress.xattrs = None;
            }
        }
        Ok(())
    }

    /// Copies a link, a FIFO, a socket or a device. Says whether it had to be made.
    fn copy_other(
        &self,
        branch: &Branch,
        item: &Item,
        facts: &Facts,
        existing: Option<&Facts>,
    ) -> io::Result<bool> {
        let kind = facts.attributes.kind;
        let mut is_same = existing.is_some_and(|existing| existing.attributes.kind == kind);
        let mut leads_to = Vec::new();
        if kind == FileKind::Symlink {
            leads_to = item.found.file.read_link()?;
        }
        let target = branch.data.target.as_ref();
        if let Some(target) = target.filter(|_| is_same && kind == FileKind::Symlink) {
            is_same = target.source(item.target_name())?.read_link()? == leads_to;
        }
        if !is_same {
            self.tell(branch, item);
        }
        let Some(target) = target.filter(|_| !self.settings.dry_run) else {
            return Ok(!is_same);
        };
        let new = match kind {
            FileKind::Special(special) => NewKind::Special(special),
            _ => NewKind::Symlink(&leads_to),
        };
        if !is_same {
            let permissions = facts.attributes.permissions;
            clear_way(branch, item, existing);
            target.make_other(item.target_name(), new, permissions, existing.is_some())?;
        }
        match target.find(item.target_name())? {
            Some(made) => self.set_right(branch, item, &**target, (facts, &made)),
            None => return Err(Errno::NOENT.into()),
        }
        Ok(!is_same)
    }

    /// Makes `item` another name of what is at `spot`.
    fn link(&self, branch: &Branch, item: &Item, facts: &Facts, spot: &Spot) -> io::Result<()> {
        let existing = self.make_way(branch, item, branch.data.is_fresh)?;
        let Some(target) = &branch.data.target else {
            self.report.files.add(1);
            return Ok(());
        };
        let known = existing.as_ref();
        let stays = known.and_then(|known| self.stays_as_new((facts, known), &**target));
        if stays == Some(Stays::Newer) {
            self.report.unchanged.add(1);
            return Ok(());
        }
        let directory = spot.open()?;
        if let Some(existing) = &existing {
            let first = directory.find(&spot.name)?;
            if first.is_some_and(|first| first.key() == existing.key()) {
                self.report.unchanged.add(1);
                return Ok(());
            }
        }
        self.report.files.add(1);
        if self.settings.dry_run {
            return Ok(());
        }
        clear_way(branch, item, existing.as_ref());
        let (name, is_taken) = (item.target_name(), existing.is_some());
        target.link(&*directory, &spot.name, name, is_taken)
    }
}

/// Removes what was left of another copy where nothing else takes its place.
fn clear_way(branch: &Branch, item: &Item, existing: Option<&Facts>) {
    if let Some(target) = &branch.data.target
        && existing.is_none()
        && !branch.data.is_fresh
    {
        target.clear_way(item.target_name());
    }
}

/// Whether a copy has the source's time. Where no times are kept it has that of when it was made.
fn is_same_time(facts: &Facts, existing: &Facts, target: &dyn Target) -> bool {
    let (source, copy) = (facts.attributes.modified, existing.attributes.modified);
    match target.keeps().metadata {
        true => is_kept_as(source, copy),
        false => copy >= source,
    }
}

/// Whether a time is the same where whole seconds may be all that is kept.
fn is_kept_as(time: SystemTime, kept: SystemTime) -> bool {
    let split = |time: SystemTime| {
        let since = time.duration_since(SystemTime::UNIX_EPOCH);
        since.unwrap_or(Duration::ZERO)
    };
    let (since, kept_since) = (split(time), split(kept));
    time == kept || (since.as_secs() == kept_since.as_secs() && kept_since.subsec_nanos() == 0)
}
