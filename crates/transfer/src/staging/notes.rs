//! What the journal of a staged file is told of its content.
//!
//! A change looks at the content, lets the journal note it while that is locked alone, and only then is made:
//! the content is locked during no disk call ([`State::noting`]). A journal that has grown long is written anew
//! with the next change; what of it was on the disk is forced there first.

use std::{io, sync::TryLockError};

use penstock_base::FsResult;
use penstock_object::{Description, Key};

use crate::{
    lock::lock,
    staging::{
        content::{Base, Content},
        disk::disk_failure,
        file::{Engagement, NOT_ENGAGED, NewPlace, StagedFile, State},
        journal::{Draft, Header, Journal, Record},
    },
};

/// What a journal is to be told of a change.
#[derive(Debug)]
struct Noting {
    /// What it says first, where it is written anew.
    anew: Option<Draft>,
    /// It tells of the change already.
    is_told: bool,
}

impl StagedFile {
    /// Never saves the file from now on: it was removed. What it holds can still be read and changed. Blocks.
    pub fn abandon(&self) {
        if let Some(state) = self.state().as_mut() {
            state.abandoned = true;
        }
        if let Some(journal) = lock(&self.journal).take() {
            journal.remove();
        }
    }

    /// Writes the journal of a file that moved anew, if it has one: a recovery would put the file where it was,
    /// and find that what its changes are relative to is gone. Blocks.
    pub fn renew_journal(&self) {
        let mut journal = lock(&self.journal);
        if self.state().as_ref().is_some_and(|state| state.moved) {
            self.rewrite(&mut journal);
        }
    }

    /// Moves a file that the store never had: lets the journal name the new place, and then `show` move what is in memory
    /// ([`State::take_place`]). Fails where the disk does; nothing is changed then. Blocks.
    pub fn take_place(&self, place: &NewPlace, show: impl FnOnce()) -> FsResult<()> {
        let mut journal = lock(&self.journal);
        // What it replaces has one, and that goes.
        if journal.is_some() || place.replaces.is_some() {
            let moved = self.create_journal_at(place, journal.as_ref());
            *journal = Some(moved.map_err(|error| disk_failure(&error))?);
        }
        // Under the lock, or a change in between would be noted at the old place.
        show();
        Ok(())
    }

    fn create_journal_at(&self, place: &NewPlace, old: Option<&Journal>) -> io::Result<Journal> {
        let covered = self.cover(old)?;
        let draft = {
            let state = self.state();
            let state = state.as_ref().ok_or(io::ErrorKind::NotFound)?;
            let base = Base::in_place_of(place.version.clone());
            let header = Header {
                base,
                ..self.header(&place.key, &state.content)
            };
            Draft::of(header, &state.content, state.description.as_ref())
        };
        self.create_journal(draft.replacing(place.replaces.as_ref()), covered)
    }

    /// Makes sure that the next mount finds the file if this one breaks off, where anything of it is unsaved.
    /// Blocks.
    pub fn keep_for_recovery(&self) -> FsResult<()> {
        let mut journal = lock(&self.journal);
        if journal.is_some() {
            return Ok(());
        }
        let draft = {
            let state = self.state();
            let unsaved = state.as_ref().filter(|state| state.is_unsaved());
            unsaved.map(|state| self.draft(state))
        };
        if let Some(draft) = draft {
            let begun = self.create_journal(draft, false);
            *journal = Some(begun.map_err(|error| disk_failure(&error))?);
        }
        Ok(())
    }

    /// Whether noting a change waits for nothing but the page cache, as far as can be seen: the
    /// journal is free, and need not be written anew, which syncs it.
    pub fn notes_quickly(&self) -> bool {
        let syncs = |journal: &Journal| journal.is_long() && journal.is_covered();
        match self.journal.try_lock() {
            Ok(journal) => !journal.as_ref().is_some_and(syncs),
            Err(TryLockError::Poisoned(_)) => true,
            Err(TryLockError::WouldBlock) => false,
        }
    }

    /// Changes the content, with a record of it in the journal. `then` sees the result. The caller holds
    /// the change lock.
    pub(super) fn change(
        &self,
        record: &Record,
        change: impl FnOnce(&mut Content),
        then: impl FnOnce(&Content),
    ) -> FsResult<()> {
        let (engagement, _) = self.engaged_now()?;
        self.change_in(engagement, record, change, then)
    }

    /// The same for what was begun in `engagement`: another client's version may have been taken since,
    /// and the file be engaged anew.
    pub(super) fn change_in(
        &self,
        engagement: Engagement,
        record: &Record,
        change: impl FnOnce(&mut Content),
        then: impl FnOnce(&Content),
    ) -> FsResult<()> {
        let mut journal = lock(&self.journal);
        let covered = self.cover_long(journal.as_ref());
        let noting = {
            let mut state = self.state();
            let is_same = |state: &&mut State| state.engagement == engagement;
            let state = state.as_mut().filter(is_same).ok_or(NOT_ENGAGED)?;
            state.noting = true;
            (!state.abandoned).then(|| self.begin_noting(journal.as_ref(), state, record))
        };
        let noted = noting.map_or(Ok(()), |noting| {
            covered.and_then(|covered| self.note(&mut journal, noting, covered, record))
        });
        let mut state = self.state();
        let state = state.as_mut().ok_or(NOT_ENGAGED)?;
        state.noting = false;
        noted.map_err(|error| disk_failure(&error))?;
        change(&mut state.content);
        state.settle_payment();
        then(&state.content);
        Ok(())
    }

    /// What to tell a journal of a change, as the content is now.
    fn begin_noting(&self, journal: Option<&Journal>, state: &State, record: &Record) -> Noting {
        let is_told = matches!(record, Record::Dirty(range) if state.content.tells_dirty(range));
        let is_anew = journal.is_none_or(Journal::is_long);
        Noting {
            anew: is_anew.then(|| self.draft(state)),
            is_told,
        }
    }

    fn note(
        &self,
        journal: &mut Option<Journal>,
        noting: Noting,
        covered: bool,
        record: &Record,
    ) -> io::Result<()> {
        if let Some(draft) = noting.anew {
            *journal = Some(self.create_journal(draft, covered)?);
        }
        match journal {
            Some(journal) if noting.is_told => {
                journal.repeat();
                Ok(())
            }
            Some(journal) => journal.append(record),
            None => Ok(()),
        }
    }

    /// Before a journal is written anew whose bytes are on the disk in part: makes them be there
    /// wholly, so that what it promised of a crash of the machine still holds. Returns whether that
    /// is so. Under the lock of the journal, and not of the content, which readers need.
    fn cover(&self, old: Option<&Journal>) -> io::Result<bool> {
        let covered = old.is_some_and(Journal::is_covered);
        if covered {
            self.force_bytes()?;
        }
        Ok(covered)
    }

    /// The same of a journal that the next record makes anew because it is long.
    fn cover_long(&self, journal: Option<&Journal>) -> io::Result<bool> {
        self.cover(journal.filter(|journal| journal.is_long()))
    }

    /// Makes the journal of a file that is about to be engaged with `content`, which differs from
    /// what the store has before anything is written. Blocks.
    pub fn begin_journal(&self, content: &Content, key: &Key) -> FsResult<()> {
        let draft = Draft::of(self.header(key, content), content, None);
        let begun = self.create_journal(draft, false);
        *lock(&self.journal) = Some(begun.map_err(|error| disk_failure(&error))?);
        Ok(())
    }

    /// A journal that says everything.
    fn draft(&self, state: &State) -> Draft {
        let header = self.header(&state.key, &state.content);
        let draft = Draft::of(header, &state.content, state.description.as_ref());
        draft.replacing(state.replaces.as_ref())
    }

    fn header(&self, key: &Key, content: &Content) -> Header {
        Header {
            boot: self.staging().boot().to_owned(),
            volume: self.staging().volume().to_owned(),
            key: key.to_string(),
            base: content.base().clone(),
            size: content.size(),
        }
    }

    /// Writes a journal, which says if `covered` that what it tells of is on the disk.
    fn create_journal(&self, draft: Draft, covered: bool) -> io::Result<Journal> {
        let path = self.staging().folder().journal(&self.id);
        Journal::create(&path, draft, covered)
    }

    /// Brings the journal in line after a save: away with it if nothing is unsaved. Blocks.
    pub fn trim_journal(&self) {
        let mut journal = lock(&self.journal);
        self.rewrite(&mut journal);
    }

    /// Writes a journal anew, or removes it if there is nothing to tell.
    pub(super) fn rewrite(&self, journal: &mut Option<Journal>) {
        // Only under the lock of the journal does a file become dirty.
        let is_needed = self.state().as_ref().is_some_and(State::is_unsaved);
        let covered = self.cover(journal.as_ref().filter(|_| is_needed));
        let anew = self.draft_anew();
        let Some(old) = journal.take() else { return };
        let Some(anew) = anew else {
            old.remove();
            self.forget_unsynced();
            return;
        };
        match covered.and_then(|covered| self.create_journal(anew.draft, covered)) {
            Ok(new) => *journal = Some(new),
            Err(error) => {
                tracing::warn!(%error, "a journal in the staging directory could not be renewed");
                *journal = Some(old);
                if let Some(state) = self.state().as_mut() {
                    state.moved |= anew.moved;
                }
            }
        }
    }

    /// What a journal says that is written anew; `None` if there is nothing to tell.
    fn draft_anew(&self) -> Option<Anew> {
        let mut state = self.state();
        let state = state.as_mut()?;
        if !state.content.is_dirty() {
            state.description = None;
            state.replaces = None;
        }
        // A move from now on says so again.
        state.is_unsaved().then(|| Anew {
            draft: self.draft(state),
            moved: std::mem::take(&mut state.moved),
        })
    }

    /// Notes how the object is to be described, which `current` tells. Fails where the disk does: the
    /// description is lost then if the mount breaks off before the file is saved. Blocks.
    pub fn describe(&self, current: impl FnOnce() -> Option<Description>) -> io::Result<()> {
        let mut journal = lock(&self.journal);
        // Under the lock, so that the last record tells the last change.
        let description = current();
        let covered = self.cover_long(journal.as_ref());
        let Some(description) = description else {
            return Ok(());
        };
        let record = Record::Described(description.clone());
        let noting = {
            let mut state = self.state();
            let differs = |state: &&mut State| state.description.as_ref() != Some(&description);
            let Some(state) = state.as_mut().filter(differs) else {
                return Ok(());
            };
            state.description = Some(description);
            let journal = journal.as_ref();
            journal.map(|journal| self.begin_noting(Some(journal), state, &record))
        };
        let Some(noting) = noting else { return Ok(()) };
        self.note(&mut journal, noting, covered?, &record)
    }

    /// How the object is to be described, as far as the journal was told.
    pub fn description(&self) -> Option<Description> {
        self.state().as_ref()?.description.clone()
    }
}

/// A journal that is written anew.
#[derive(Debug)]
struct Anew {
    draft: Draft,
    /// The one before it names another place.
    moved: bool,
}
