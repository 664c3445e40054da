//! What is tried, in an order in which the first failure is the one to repair first.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use penstock_base::{Payload, clock, random};
use penstock_object::{ErrorKind, GetOptions, HeadOptions, Key, ListOptions, PutOptions, Store};

use super::{
    Finding, Verdict,
    abilities::{CREATION, Place},
};
use crate::{commands::listing, explain, failure::Failure};

/// Clocks that differ by less are as good as the same: stores tell whole seconds, and the
/// object was written a moment ago.
const CLOCKS_AGREE: Duration = Duration::from_secs(30);

/// Stores refuse requests when the clocks differ by more.
const CLOCKS_DIFFER_MAX: Duration = Duration::from_secs(15 * 60);

/// What the object that is written holds.
const CONTENT: &[u8] = b"written by `penstock check`, to be deleted at once\n";

/// A bucket under trial.
struct Trial<'a> {
    source: &'a str,
    store: &'a Arc<dyn Store>,
    /// An object that nobody else uses.
    key: Key,
}

/// Tries everything. Trials that cannot succeed after an earlier failure are left out.
pub(super) async fn all(source: &str, store: &Arc<dyn Store>, may_write: bool) -> Vec<Finding> {
    let name = format!(".penstock-check-{}", random::token());
    let trial = Trial {
        source,
        store,
        key: Key::new(name).expect("a short name without special characters"),
    };
    let mut findings = vec![trial.list().await];
    if findings[0].verdict == Verdict::Bad {
        return findings;
    }
    findings.push(trial.look_up().await);
    if may_write {
        findings.extend(trial.write().await);
    } else {
        let left_out = "left out as asked";
        findings.push(Finding::new("write", Verdict::Untried, left_out));
    }
    let creates = findings
        .iter()
        .any(|finding| finding.what == CREATION && finding.verdict == Verdict::Good);
    findings.push(trial.capabilities(creates));
    findings
}

impl Trial<'_> {
    /// Shows at once whether address, clock, credentials and bucket are right.
    async fn list(&self) -> Finding {
        let options = ListOptions {
            max_keys: Some(1),
            ..ListOptions::default()
        };
        let listed =
            listing::within_deadline(self.source, async { Ok(self.store.list(options).await) });
        let mut what = "list";
        let listed = listed.await.and_then(|listed| {
            listed.map_err(|error| {
                if error.kind == ErrorKind::ClockSkew {
                    what = "clock";
                }
                explain::store_error(self.source, &error)
            })
        });
        Finding::of(
            what,
            listed.map(|page| {
                let is_empty = page.objects.is_empty() && page.common_prefixes.is_empty();
                let content = if is_empty { "empty" } else { "not empty" };
                format!("the bucket can be listed; it is {content}")
            }),
        )
    }

    /// A look at what is not there: the answer to a file that does not exist.
    async fn look_up(&self) -> Finding {
        let looked = self.store.head(&self.key, HeadOptions::default()).await;
        match looked {
            Err(error) if error.kind == ErrorKind::NotFound => Finding::new(
                "look up",
                Verdict::Good,
                "a missing object is reported as missing",
            ),
            Err(error) => Finding::of("look up", Err(explain::store_error(self.source, &error))),
            Ok(_) => Finding::new("look up", Verdict::Bad, "a name that cannot exist exists"),
        }
    }

    async fn write(&self) -> Vec<Finding> {
        let body = || Payload::from(CONTENT.to_vec());
        let put = self.store.put(&self.key, body(), PutOptions::default());
        let put = listing::request(self.source, put).await;
        let is_written = put.is_ok();
        let mut findings = vec![Finding::of(
            "write",
            put.map(|_| format!("wrote `{}`", self.key)),
        )];
        if !is_written {
            return findings;
        }
        findings.push(self.read().await);
        findings.push(self.compare_clocks().await);
        let place = Place {
            store: self.store,
            key: &self.key,
        };
        findings.extend(place.all(&body()).await);
        let deleted = listing::request(self.source, self.store.delete(&self.key)).await;
        findings.push(Finding::of(
            "delete",
            deleted.map(|()| "deleted it again".to_owned()),
        ));
        findings
    }

    async fn read(&self) -> Finding {
        let mut body = Vec::new();
        let got = self.store.get(&self.key, GetOptions::default(), &mut body);
        let outcome = match listing::request(self.source, got).await {
            Ok(_) if body == CONTENT => Ok("read back what was written".to_owned()),
            Ok(_) => Err(Failure::new(
                "what was read is not what was written",
                "something between here and the store changes data",
            )),
            Err(failure) => Err(failure),
        };
        Finding::of("read", outcome)
    }

    /// The store says when it wrote the object, by its own clock.
    async fn compare_clocks(&self) -> Finding {
        let head = self.store.head(&self.key, HeadOptions::default());
        match listing::request(self.source, head).await {
            Ok(info) => clock_finding(info.modified, clock::wall_time()),
            Err(failure) => Finding::of("clock", Err(failure)),
        }
    }

    fn capabilities(&self, creates: bool) -> Finding {
        let able = self.store.capabilities();
        let mut words = vec![format!(
            "objects up to {}",
            crate::text_table::bytes(able.object_size_max)
        )];
        for (has, word) in [
            (able.append, "appending"),
            (able.symlinks, "symbolic links"),
            (creates, "atomic creation"),
        ] {
            if has {
                words.push(word.to_owned());
            }
        }
        Finding::new(
            "store",
            Verdict::Good,
            format!("{}: {}", able.scheme, words.join(", ")),
        )
    }
}

fn clock_finding(store: SystemTime, ours: SystemTime) -> Finding {
    let difference = match ours.duration_since(store) {
        Ok(ahead) => ahead,
        Err(behind) => behind.duration(),
    };
    let seconds = difference.as_secs();
    if difference < CLOCKS_AGREE {
        let detail = format!("agrees with the store's to {seconds} s");
        return Finding::new("clock", Verdict::Good, detail);
    }
    let detail = format!(
        "differs from the store's by {seconds} s; requests are refused from {} s on: set it, for \
         example with `timedatectl set-ntp true`",
        CLOCKS_DIFFER_MAX.as_secs()
    );
    let verdict = match difference < CLOCKS_DIFFER_MAX {
        true => Verdict::Fair,
        false => Verdict::Bad,
    };
    Finding::new("clock", verdict, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_compared_in_both_directions() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let minute = Duration::from_secs(60);
        assert_eq!(clock_finding(now, now).verdict, Verdict::Good);
        for other in [now + minute, now - minute] {
            let finding = clock_finding(other, now);
            assert_eq!(finding.verdict, Verdict::Fair);
            assert!(finding.detail.contains("by 60 s;"), "{}", finding.detail);
        }
        let finding = clock_finding(now - minute * 20, now);
        assert_eq!(finding.verdict, Verdict::Bad);
        assert!(finding.detail.contains("by 1200 s;"), "{}", finding.detail);
    }
}
