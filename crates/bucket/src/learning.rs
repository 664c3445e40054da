//! Where files are saved behind: one listing of a directory in place of a question for each of its names.
//!
//! A program that makes many files looks for name after name that memory does not know, and one that looks at a tree
//! again comes to name after name that is believed no longer. After [a few](crate::inode::Directory::wants_listing) of
//! them the directory is listed, if one page holds it. That
//!
//! - answers for names that are free, as long as the absence of a name is believed and [`LISTED_MAX`] at most;
//! - renews what is known of files that still are the version that was known. With kept metadata that needs the time
//!   since when the store has the version, as the store told it. Of what was stored here that is not known before it is
//!   asked for once: as many such files as [a few](crate::inode::Directory::take_described) are with each listing, at the
//!   same time, those first that come after the name.
//!
//! What else the listing shows is asked for when it is used. A name that it could not renew costs no second listing, but
//! where it left some that it did not ask for.

use std::time::Duration;

use penstock_base::{FsResult, Utf8Name, clock};
use penstock_object::{ListOptions, ListPage};
use penstock_vfs::{FileKind, Inode};

use crate::{
    inode::{Known, Learned, Told},
    key,
    lookup::Lookups,
    metadata::Wanted,
};

/// How long a listing answers at most for names that were not looked for one by one.
const LISTED_MAX: Duration = Duration::from_secs(1);

impl Lookups {
    /// Lists a directory of which memory does not know `name`, or believes no longer what it knows, if that is cheaper
    /// than to ask for each. Returns whether it was listed.
    pub(crate) async fn learn_names(&self, directory: Inode, name: &Utf8Name) -> FsResult<bool> {
        let settings = &self.mount.settings;
        if self.mount.save_behind().is_none() || settings.attr_timeout.is_zero() {
            return Ok(false);
        }
        let is_wanted = {
            let mut tree = self.mount.namespace.lock();
            let believes_absence = !settings.negative_timeout.is_zero();
            tree.may_learn(directory, name, believes_absence)?
                && tree.directory_mut(directory)?.wants_listing(clock::now())
        };
        Ok(is_wanted && self.list_names(directory, name).await?)
    }

    async fn list_names(&self, directory: Inode, wanted: &Utf8Name) -> FsResult<bool> {
        let observation = self.mount.namespace.observe(directory)?;
        let prefix = self.mount.namespace.lock().prefix(directory)?;
        let options = ListOptions {
            prefix: prefix.clone(),
            delimited: true,
            ..ListOptions::default()
        };
        let listed = self.mount.list(options).await;
        let is_whole = |page: &ListPage| page.continuation.is_none() && page.hidden == 0;
        let Some(page) = listed.ok().filter(is_whole) else {
            // What cannot be listed is asked for name by name.
            let mut tree = self.mount.namespace.lock();
            tree.directory_mut(directory)?.note_unlisted(clock::now());
            return Ok(false);
        };
        let believed_until = self.mount.believed_until(observation.begun());
        let mut names = self.names_of(&prefix, page, believed_until);
        let leaves_some = match self.mount.keeps_metadata() {
            true => {
                let directory = (directory, &*prefix);
                self.describe_known(directory, wanted, &mut names).await?
            }
            false => false,
        };
        let patience = self.mount.settings.negative_timeout.min(LISTED_MAX);
        Ok(observation.learn(Learned {
            names,
            leaves_some,
            complete_until: observation.begun() + patience,
            keeps_metadata: self.mount.keeps_metadata(),
        }))
    }

    /// Asks for the metadata that a listing does not tell of what memory knew. What cannot be asked for now is asked
    /// for when it is used. Returns whether some were left for a next time.
    async fn describe_known(
        &self,
        (directory, prefix): (Inode, &str),
        first: &Utf8Name,
        told: &mut Told,
    ) -> FsResult<bool> {
        let (mut names, count) = {
            let mut tree = self.mount.namespace.lock();
            let names = tree.to_describe(directory, told);
            (names, tree.directory_mut(directory)?.take_described())
        };
        let leaves_some = names.len() > count;
        let begin = names.partition_point(|name| name < first);
        names.rotate_left(begin);
        names.truncate(count);
        let wanted = names.iter().filter_map(|name| {
            let listed = told.get(name)?.clone()?;
            Some(Wanted { name, listed })
        });
        let described = self
            .describe_entries((directory, prefix), wanted.collect())
            .await;
        for (name, known) in names.iter().zip(described.into_iter().flatten()) {
            told.insert(name.clone(), known);
        }
        Ok(leaves_some)
    }

    /// The names that a page tells, and what it tells of them. A directory hides a file of its name.
    fn names_of(&self, prefix: &str, page: ListPage, until: clock::Instant) -> Told {
        let objects = page.objects.into_iter();
        let objects = objects.map(|mut object| (std::mem::take(&mut object.key), Some(object)));
        let prefixes = page.common_prefixes.into_iter().map(|key| (key, None));
        let mut names = Told::new();
        for (key, object) in objects.chain(prefixes) {
            for name in key::names_told(prefix, &key) {
                names.entry(name).or_insert(None);
            }
            let (key, known) = self.mount.listed(key, object, until);
            let Some(name) = key::listed_name(prefix, &key) else {
                continue;
            };
            let told = names.entry(name).or_insert(None);
            if told
                .as_ref()
                .is_none_or(|told: &Known| told.kind != FileKind::Directory)
            {
                *told = Some(known);
            }
        }
        names
    }
}
