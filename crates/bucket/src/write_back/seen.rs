//! What the store's answers are without what is to be removed.

use std::collections::BTreeSet;

use penstock_object::{Key, ListOptions, ListPage, ObjectResult};

use crate::mount::Mount;

impl Mount {
    /// Lists one page, without what is to be removed: before the question was asked or until it was answered.
    pub(crate) async fn list(&self, options: ListOptions) -> ObjectResult<ListPage> {
        let prefix = options.prefix.clone();
        let before = self.removed_below(&prefix);
        let mut page = self.store().list(options).await?;
        for removed in [before, self.removed_below(&prefix)] {
            if !removed.is_empty() {
                page.objects
                    .retain(|object| !removed.contains(object.key.as_str()));
                page.common_prefixes
                    .retain(|prefix| !removed.contains(prefix.as_str()));
            }
        }
        Ok(page)
    }

    /// The keys below a prefix whose objects are to be removed.
    pub(crate) fn removed_below(&self, prefix: &str) -> BTreeSet<Key> {
        self.write_back()
            .map(|write_back| write_back.removed_below(prefix))
            .unwrap_or_default()
    }

    /// Whether the object of this key is to be removed.
    pub(crate) fn is_removed(&self, key: &Key) -> bool {
        self.write_back()
            .is_some_and(|write_back| write_back.is_removed(key.as_str()))
    }
}
