//! What is served, as it is now, and the file that it comes from, which is looked at again on SIGHUP and when it has
//! changed.
//!
//! Exports, the rules for their clients, and types of mount targets change at once, for connections that are there, too. A
//! file with a fault changes nothing, nor does one that asks for what only a start can do: half of a file may let
//! in whom the whole keeps out.

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use penstock_base::{Mutex, clock, run_blocking};
use penstock_nfs::{Authentication, Export, NfsServer, Rule, TargetStatus};
use tracing::{info, warn};

use super::{NamedTarget, NamedVolume, Serving};
use crate::{
    control::{Configuration, ServedExport, ServedRule, ServedTarget},
    options::Given,
};

/// How often the file is looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// What tells one state of a file from another: device, inode, size, and when it was modified, with nanoseconds.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

/// See the module.
pub(crate) struct Live {
    /// As it was at the start. Of this volumes and addresses stay.
    began: Serving,
    server: Arc<NfsServer>,
    is_read_only: HashMap<String, bool>,
    state: Mutex<State>,
    /// One looks at a time.
    looking: tokio::sync::Mutex<()>,
}

struct State {
    seen: Stamp,
    /// When it was applied.
    applied: SystemTime,
    /// Why the file of now is not what is served.
    fault: Option<String>,
}

impl Live {
    /// What `server` serves; of the volumes these are read-only.
    pub(crate) fn new(
        began: Serving,
        server: Arc<NfsServer>,
        is_read_only: HashMap<String, bool>,
    ) -> Arc<Self> {
        let state = State {
            // The file may have changed since it was read: it is looked at once more.
            seen: None,
            applied: clock::wall_time(),
            fault: None,
        };
        Arc::new(Self {
            began,
            server,
            is_read_only,
            state: Mutex::new(state),
            looking: tokio::sync::Mutex::default(),
        })
    }

    /// Looks at the file each few seconds, for ever.
    pub(crate) async fn watch(self: Arc<Self>) {
        let Some((path, _)) = &self.began.file else {
            return;
        };
        let mut writing = Writing::default();
        loop {
            clock::sleep(LOOK_INTERVAL).await;
            let now = run_blocking(|| stamp(path));
            let has_changed = now != self.state.lock().seen;
            if writing.is_over(now) && has_changed {
                self.look().await;
            }
        }
    }

    /// Makes what the file says what is served.
    pub(crate) async fn look(&self) {
        let Some((path, given)) = &self.began.file else {
            return;
        };
        let _looking = self.looking.lock().await;
        // What changes while it is read is seen the next time.
        let seen = run_blocking(|| stamp(path));
        let read = run_blocking(|| self.read(path, given));
        let outcome = read.and_then(|serving| self.apply(&serving));
        match &outcome {
            Ok(true) => info!(path = %path.display(), "the exports of the file are served"),
            Ok(false) => {}
            Err(fault) => warn!("the exports stay as they are: {fault}"),
        }
        let mut state = self.state.lock();
        state.seen = seen;
        if outcome == Ok(true) {
            state.applied = clock::wall_time();
        }
        state.fault = outcome.err();
    }

    fn read(&self, path: &Path, given: &[Given]) -> Result<Serving, String> {
        let read = Serving::of_file(path, given.to_vec(), &self.began.environment);
        let serving = read.map_err(|faults| match &faults[..] {
            [only] => only.to_string(),
            [first, others @ ..] => format!(
                "{first} (and {} more, which `penstock serve --check --config {}` tells)",
                others.len(),
                path.display()
            ),
            [] => "the file has a fault".to_owned(),
        })?;
        match self.needs_a_start(&serving) {
            Some(cause) => Err(format!(
                "{}: {cause}; restart `penstock serve` to have it so, or take it back: until then nothing of the file \
                 is applied",
                path.display()
            )),
            None => Ok(serving),
        }
    }

    /// What a file asks for that only a start can do.
    fn needs_a_start(&self, new: &Serving) -> Option<String> {
        let old = &self.began;
        if let Some(option) = old.values.difference(&new.values) {
            return Some(format!("`{option}` has another value"));
        }
        let volumes = new.volumes.iter();
        volumes
            .filter_map(|volume| self.is_another(volume))
            .next()
            .or_else(|| moved_target(&old.targets, &new.targets))
    }

    fn is_another(&self, new: &NamedVolume) -> Option<String> {
        let NamedVolume { name, spec } = new;
        let mut volumes = self.began.volumes.iter();
        let Some(known) = volumes.find(|known| known.name == *name) else {
            return Some(format!("[volume.{name}] was not exported before"));
        };
        if known.spec.source != spec.source {
            return Some(format!("[volume.{name}] has another source"));
        }
        let option = known.spec.values.difference(&spec.values)?;
        Some(format!("`{option}` of [volume.{name}] has another value"))
    }

    /// Says whether anything changed.
    fn apply(&self, new: &Serving) -> Result<bool, String> {
        let exports = new.effective_exports(&self.is_read_only);
        let types: Vec<_> = new
            .targets
            .iter()
            .map(|target| (target.name.clone(), target.target_type))
            .collect();
        let before = self.server.status();
        let changed = self.server.change(&exports, &types);
        changed.map_err(|error| format!("{error}; see to the file"))?;
        let what = |all: Vec<TargetStatus>| -> Vec<_> {
            let all = all.into_iter();
            all.map(|target| (target.target_type, target.exports))
                .collect()
        };
        Ok(what(before) != what(self.server.status()))
    }

    /// The mount targets as `penstock stats` shows them.
    pub(crate) fn targets(&self) -> Vec<ServedTarget> {
        self.server.status().iter().map(told_target).collect()
    }

    /// The same of the file, if there is one.
    pub(crate) fn configuration(&self) -> Option<Configuration> {
        let (path, _) = self.began.file.as_ref()?;
        let state = self.state.lock();
        let applied = state.applied.duration_since(UNIX_EPOCH);
        Some(Configuration {
            path: path.clone(),
            applied: applied.map_or(0, |since| since.as_secs()),
            fault: state.fault.clone(),
        })
    }
}

/// Targets come, go and move with a start alone.
fn moved_target(old: &[NamedTarget], new: &[NamedTarget]) -> Option<String> {
    let is_in = |targets: &[NamedTarget], wanted: &NamedTarget| {
        targets.iter().any(|target| {
            (&target.name, target.listen, target.portmap)
                == (&wanted.name, wanted.listen, wanted.portmap)
        })
    };
    let moved = new.iter().find(|target| !is_in(old, target));
    let moved = moved.or_else(|| old.iter().find(|target| !is_in(new, target)))?;
    Some(format!(
        "[target.{}] is new, is gone, or listens elsewhere",
        moved.name
    ))
}

/// Whether a file is being written. What is there of it by then may be a file without a fault that lets everybody in,
/// because its rules are still to come.
#[derive(Debug, Default)]
struct Writing {
    before: Stamp,
}

impl Writing {
    /// Whether the file is as it was at the last look.
    fn is_over(&mut self, now: Stamp) -> bool {
        std::mem::replace(&mut self.before, now) == now
    }
}

fn stamp(path: &Path) -> Stamp {
    let file = fs::metadata(path).ok()?;
    Some((
        file.dev(),
        file.ino(),
        file.size(),
        file.mtime(),
        file.mtime_nsec(),
    ))
}

fn told_target(target: &TargetStatus) -> ServedTarget {
    ServedTarget {
        name: target.name.clone(),
        address: target.address.to_string(),
        portmap: target.port_mapper.map(|address| address.to_string()),
        target_type: target.target_type.to_string(),
        connections: target.connections,
        exports: target.exports.iter().map(told_export).collect(),
    }
}

fn told_export(export: &Export) -> ServedExport {
    ServedExport {
        path: export.path.clone(),
        volume: export.volume.clone(),
        rules: export.rules.iter().map(told_rule).collect(),
    }
}

fn told_rule(rule: &Rule) -> ServedRule {
    ServedRule {
        source: rule.clients.iter().map(ToString::to_string).collect(),
        access: match rule.read_only {
            true => "read-only".to_owned(),
            false => "read-write".to_owned(),
        },
        identity_squash: rule.squash.word().to_owned(),
        anonymous_uid: rule.anonymous.uid,
        anonymous_gid: rule.anonymous.gid,
        require_privileged_source_port: rule.privileged_port,
        allowed_auth: match rule.authentication {
            Authentication::System => vec!["sys".to_owned()],
            Authentication::None => vec!["none".to_owned()],
            Authentication::Both => vec!["sys".to_owned(), "none".to_owned()],
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_being_written_is_not_read() {
        let state_of = |size| Some((1, 2, size, 3, 4));
        let mut writing = Writing::default();
        assert!(!writing.is_over(state_of(10)));
        assert!(
            !writing.is_over(state_of(20)),
            "its rules are still to come"
        );
        assert!(writing.is_over(state_of(20)));
        assert!(!writing.is_over(None), "it is replaced");
        assert!(!writing.is_over(state_of(20)));
        assert!(writing.is_over(state_of(20)));
    }
}
