//! How many keys are read at once: more each time for who goes on to want more, and fewer where their values are long.

/// Keys that are read where one is wanted: what lies near it is often wanted next.
const NEAR: i64 = 8;
/// The same at most, for who goes on to want more.
const NEAR_MAX: i64 = 512;
/// Keys that are read where a range is wanted.
const PAGE: i64 = 128;
/// Keys in the largest page.
const PAGE_MAX: i64 = 8192;
/// Bytes of a page, if its keys are as long as those of the one before it.
const PAGE_BYTES: usize = 4 << 20;

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paging {
    /// Pages that were read.
    pages: u32,
    /// Keys of the next one at most, by how long those of the last one were.
    most: i64,
}

impl Paging {
    /// Nothing was read yet.
    pub(super) fn new() -> Self {
        Self {
            pages: 0,
            most: PAGE_MAX,
        }
    }

    pub(super) fn pages(&self) -> u32 {
        self.pages
    }

    /// Keys of the next page.
    pub(super) fn count(&self, is_scan: bool) -> i64 {
        let (first, most) = match is_scan {
            true => (PAGE, PAGE_MAX),
            false => (NEAR, NEAR_MAX),
        };
        let count = first.saturating_mul(4_i64.saturating_pow(self.pages));
        count.min(most).min(self.most)
    }

    /// A page was read, of so many keys and bytes.
    pub(super) fn read(&mut self, keys: usize, bytes: usize) {
        self.pages = self.pages.saturating_add(1);
        let fit = keys.saturating_mul(PAGE_BYTES) / bytes.max(1);
        self.most = match keys {
            0 => PAGE_MAX,
            _ => i64::try_from(fit).unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX),
        };
    }

    /// What was missed was there; who wants more begins anew.
    pub(super) fn begin_again(&mut self) {
        self.pages = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_grow_unless_their_values_are_long() {
        let mut paging = Paging::new();
        assert_eq!(paging.count(true), PAGE);
        paging.read(PAGE as usize, 50 * PAGE as usize);
        assert_eq!(paging.count(true), 4 * PAGE);
        let long = 40 << 10;
        for _ in 0..3 {
            let keys = paging.count(true) as usize;
            paging.read(keys, keys * long);
        }
        let count = paging.count(true);
        assert!(count as usize * long <= PAGE_BYTES && count > 50, "{count}");
        paging.read(1, 10 * PAGE_BYTES);
        assert_eq!(paging.count(true), 1);
        paging.read(0, 0);
        assert_eq!(paging.count(true), PAGE_MAX);
    }
}
