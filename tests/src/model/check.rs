//! Holds a directory against the model.

use std::{fmt, fs, path::Path};

use proptest::{
    strategy::Strategy,
    test_runner::{Config, FileFailurePersistence, RngSeed, TestCaseError, TestError, TestRunner},
};

use super::{
    action::{Action, NAMES, Place, Planted, Sequence, sequences, sequences_anywhere},
    driver::Driver,
    state::{Model, Rules, join},
    step::{Content, Expected, Outcome, Step},
};

/// What the same commit is always tried with. `PROPTEST_RNG_SEED` in the environment tries others.
const SEED: u64 = 20_261_121;

/// Where a directory and the model part ways.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// All steps up to and with the one that differed.
    pub steps: Vec<Step>,
    /// What the model allows.
    pub expected: Expected,
    /// What the directory answered.
    pub found: Outcome,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "{:3}. {step:?}", number + 1)?;
        }
        writeln!(f, "     expected {:?}", self.expected)?;
        write!(f, "     found    {:?}", self.found)
    }
}

/// How to look for differences.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What is expected of the directory.
    pub rules: Rules,
    /// Sequences to try.
    pub cases: u32,
    /// Actions in the longest sequence.
    pub length: usize,
    /// Where seeds of failures are kept and tried first.
    pub regressions: Option<&'static str>,
}

/// Runs random sequences, each in a directory of its own that `fresh` makes with what is planted
/// in it, and fails the test with the shortest sequence that it can find when one differs.
#[track_caller]
pub fn check(settings: &Settings, fresh: impl FnMut(Planted) -> std::path::PathBuf) {
    if let Some(difference) = counterexample(settings, fresh) {
        panic!("the model and the directory differ:\n{difference}");
    }
}

/// The shortest difference that could be found, if one was.
pub fn counterexample(
    settings: &Settings,
    mut fresh: impl FnMut(Planted) -> std::path::PathBuf,
) -> Option<Difference> {
    let defaults = Config::default();
    let config = Config {
        cases: settings.cases,
        rng_seed: match defaults.rng_seed {
            RngSeed::Random => RngSeed::Fixed(SEED),
            given => given,
        },
        failure_persistence: settings.regressions.map(|path| {
            let persistence: Box<dyn proptest::test_runner::FailurePersistence> =
                Box::new(FileFailurePersistence::Direct(path));
            persistence
        }),
        max_shrink_iters: 2000,
        ..defaults
    };
    let fresh = std::cell::RefCell::new(&mut fresh);
    let last = std::cell::RefCell::new(None);
    let sequences = match settings.rules {
        Rules::Posix => sequences_anywhere(settings.length).boxed(),
        Rules::Streaming => sequences(settings.length).boxed(),
    };
    let result = TestRunner::new(config).run(&sequences, |sequence| {
        let root = (fresh.borrow_mut())(sequence.planted);
        match compare(settings.rules, &sequence, &root) {
            Ok(()) => Ok(()),
            Err(difference) => {
                let reason = difference.to_string();
                *last.borrow_mut() = Some(*difference);
                Err(TestCaseError::fail(reason))
            }
        }
    });
    match result {
        Ok(()) => None,
        Err(TestError::Fail(_, sequence)) => {
            let root = (fresh.borrow_mut())(sequence.planted);
            let again = compare(settings.rules, &sequence, &root).err();
            again
                .map(|difference| *difference)
                .or_else(|| last.into_inner())
        }
        Err(TestError::Abort(reason)) => panic!("proptest gave up: {reason}"),
    }
}

/// Does a sequence on the model and in `root`, then closes everything and compares the trees.
pub fn compare(rules: Rules, sequence: &Sequence, root: &Path) -> Result<(), Box<Difference>> {
    let mut run = Run {
        model: Model::with_planted(rules, sequence.planted),
        driver: Driver::new(root),
        steps: Vec::new(),
    };
    for action in &sequence.actions {
        if let Some(step) = run.resolve(action) {
            run.step(step)?;
        }
    }
    for slot in run.model.open_slots() {
        run.step(Step::Close { slot })?;
    }
    run.compare_tree()?;
    compare_files(&run, root)
}

struct Run {
    model: Model,
    driver: Driver,
    steps: Vec<Step>,
}

impl Run {
    /// Does one step on both sides.
    fn step(&mut self, step: Step) -> Result<(), Box<Difference>> {
        let expected = self.model.apply(&step);
        let found = self.driver.apply(&step);
        self.steps.push(step);
        if expected.allows(&found) {
            return Ok(());
        }
        Err(Box::new(Difference {
            steps: self.steps.clone(),
            expected,
            found,
        }))
    }

    /// Lists every directory and asks for the status of every entry.
    fn compare_tree(&mut self) -> Result<(), Box<Difference>> {
        for (path, is_directory) in self.model.paths() {
            if is_directory {
                self.step(Step::List { path: path.clone() })?;
            }
            self.step(Step::Status { path })?;
        }
        Ok(())
    }

    /// The concrete step that an action means now; `None` when it needs a handle and none is open.
    fn resolve(&mut self, action: &Action) -> Option<Step> {
        let step = match action {
            Action::Open(place, mode) => {
                let slot = self.model.slots_used;
                self.model.slots_used += 1;
                let path = self.path(*place);
                let mode = *mode;
                Step::Open { slot, path, mode }
            }
            Action::Write(..)
            | Action::Read(..)
            | Action::TruncateOpen(..)
            | Action::Sync(_)
            | Action::Close(_)
            | Action::StatusOpen(_) => return self.resolve_open(action),
            Action::Truncate(place, size) => Step::Truncate {
                path: self.path(*place),
                size: u64::from(*size),
            },
            Action::Status(place) => Step::Status {
                path: self.path(*place),
            },
            Action::StatusBelow(place, name) => Step::Status {
                path: join(&self.path(*place), name_at(*name)),
            },
            Action::List(place) => Step::List {
                path: self.path(*place),
            },
            Action::MakeDirectory(place) => Step::MakeDirectory {
                path: self.path(*place),
            },
            Action::RemoveDirectory(place) => Step::RemoveDirectory {
                path: self.path(*place),
            },
            Action::Remove(place) => Step::Remove {
                path: self.path(*place),
            },
            Action::Rename(from, to, no_replace) => Step::Rename {
                from: self.path(*from),
                to: self.path(*to),
                no_replace: *no_replace,
            },
        };
        Some(step)
    }

    /// Actions on an open handle.
    fn resolve_open(&self, action: &Action) -> Option<Step> {
        let slots = self.model.open_slots();
        let pick = |index: u8| slots.get(usize::from(index) % slots.len().max(1)).copied();
        Some(match *action {
            Action::Write(handle, position, length) => {
                let slot = pick(handle)?;
                Step::Write {
                    slot,
                    offset: self.model.offset_of(slot, position),
                    length,
                    seed: self.steps.len() as u8,
                }
            }
            Action::Read(handle, position, length) => {
                let slot = pick(handle)?;
                Step::Read {
                    slot,
                    offset: self.model.offset_of(slot, position),
                    length,
                }
            }
            Action::TruncateOpen(handle, size) => Step::TruncateOpen {
                slot: pick(handle)?,
                size: u64::from(size),
            },
            Action::Sync(handle) => Step::Sync {
                slot: pick(handle)?,
            },
            Action::Close(handle) => Step::Close {
                slot: pick(handle)?,
            },
            Action::StatusOpen(handle) => Step::StatusOpen {
                slot: pick(handle)?,
            },
            _ => return None,
        })
    }

    fn path(&self, place: Place) -> String {
        let directories = self.model.directories();
        let parent = &directories[usize::from(place.parent) % directories.len()];
        join(parent, name_at(place.name))
    }
}

fn name_at(index: u8) -> &'static str {
    NAMES[usize::from(index) % NAMES.len()]
}

/// Reads every file whole, through handles of its own.
fn compare_files(run: &Run, root: &Path) -> Result<(), Box<Difference>> {
    for (path, _) in run.model.paths() {
        let Some(content) = run.model.content(&path) else {
            continue;
        };
        let expected = Expected::from(Outcome::Data(Content(content)));
        let found = fs::read(root.join(&path)).map_or_else(
            |error| Outcome::Failed(error.into()),
            |data| Outcome::Data(Content(data)),
        );
        if !expected.allows(&found) {
            let mut steps = run.steps.clone();
            steps.push(Step::Status { path });
            return Err(Box::new(Difference {
                steps,
                expected,
                found,
            }));
        }
    }
    Ok(())
}
