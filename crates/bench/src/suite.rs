//! Suites: the published tables as data, one TOML file each under `suites/`.
//!
//! A row is a command with places for quantities. A quantity has the source's own size and says
//! how it shrinks with `--scale`: down to `least`, in steps of `step`, and, with `boost`, later than
//! the others, for what is small in the source already. `{size}` prints for people, `{size.short}`
//! as fio and sysbench want it (for fio `1MiB` is a million bytes, `1M` is not).

use std::collections::BTreeMap;

use penstock_base::ByteSize;
use penstock_devserver::{Crowd, Fill};
use serde::Deserialize;

use crate::{
    BenchError, BenchResult,
    record::Published,
    template::{self, Variables},
    worker::{Content, Expected},
};

/// The suites that are built in, in the order in which they are listed.
const BUILT_IN: [(&str, &str); 8] = [
    ("smoke", include_str!("../suites/smoke.toml")),
    ("large", include_str!("../suites/large.toml")),
    ("ossfs2", include_str!("../suites/ossfs2.toml")),
    ("ossfs1", include_str!("../suites/ossfs1.toml")),
    ("worktree", include_str!("../suites/worktree.toml")),
    ("posix", include_str!("../suites/posix.toml")),
    ("strmvol", include_str!("../suites/strmvol.toml")),
    ("fss", include_str!("../suites/fss.toml")),
];

/// Digits of numbered objects, as the development server makes them.
const NUMBER_DIGITS: usize = 8;
/// The bucket for objects that no client mounts.
pub(crate) const CROWD_BUCKET: &str = "crowd";

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Suite {
    #[serde(skip)]
    pub(crate) name: String,
    pub(crate) title: String,
    /// The client that stands for what the source is about, if that is not simply a bucket.
    pub(crate) client: Option<String>,
    /// The factor for sizes if nobody gives one.
    pub(crate) scale: f64,
    /// The latency profiles if nobody gives some.
    pub(crate) profiles: Vec<String>,
    pub(crate) rows: Vec<Row>,
}

/// A row, or several that differ in one number.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) description: String,
    /// What runs the command and understands its output.
    pub(crate) tool: Tool,
    pub(crate) command: Vec<String>,
    /// What is measured is this command of the client itself, without a mount.
    pub(crate) client_command: Option<String>,
    /// Run before anything is mounted, in `{scratch}`, once its files are made.
    pub(crate) scratch_commands: Vec<Vec<String>>,
    /// Run on the same mount before it, not measured.
    pub(crate) before: Vec<Vec<String>>,
    /// Programs that its commands use beside their first words.
    pub(crate) programs: Vec<String>,
    /// It also counts until everything is in the store, which only the development server can tell. It
    /// leaves there whatever it makes.
    pub(crate) until_stored: bool,
    /// The directory below the mount that it runs in; outside of it if empty.
    pub(crate) inside: String,
    /// How often the command is run on one mount; the median of the last three counts. Once if not given.
    pub(crate) passes: Option<u32>,
    /// Numbers that the places stand for.
    pub(crate) quantities: BTreeMap<String, Quantity>,
    /// Makes one row of each of these numbers, as `{each}`.
    pub(crate) each: Vec<u64>,
    pub(crate) inputs: Vec<Files>,
    /// Objects in a bucket of their own, too many to be mounted beside the others. Only the
    /// development server has them.
    pub(crate) crowd: Option<Files>,
    /// The command writes into its inputs.
    pub(crate) changes_inputs: bool,
    /// The command removes its inputs: none of them must be there afterwards.
    pub(crate) removes_inputs: bool,
    /// Each run has a store in which nothing is but its inputs, and so has a client with a layout of its own.
    pub(crate) fresh_store: bool,
    /// Files that are there afterwards, removed after each run.
    pub(crate) outputs: Vec<Files>,
    /// Files that are made in `{scratch}`, outside the mount, before each run.
    pub(crate) scratch: Vec<Files>,
    pub(crate) directories: Vec<String>,
    /// How many seconds the command runs by design.
    pub(crate) seconds: String,
    /// What fio does is counted by operations; by bytes alone otherwise.
    pub(crate) counts_operations: bool,
    /// How many entries a listing must show.
    pub(crate) entries: String,
    /// How many files it is about, where its outputs do not tell.
    pub(crate) files: String,
    /// Profiles that this row is confined to.
    pub(crate) profiles: Vec<String>,
    /// Why nobody can run it yet.
    pub(crate) unavailable: Option<String>,
    /// Why some client cannot, by its name.
    pub(crate) unavailable_for: BTreeMap<String, String>,
    pub(crate) published: Vec<PublishedFigures>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Tool {
    Fio,
    Sysbench,
    RwBench,
    /// Something that prints a line per entry.
    Lines,
    /// Something that says how many objects it has found: `1000 objects`.
    Objects,
    /// Something that only takes its time.
    #[default]
    Plain,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Quantity {
    /// As the source has it.
    full: Amount,
    least: Option<Amount>,
    step: Option<Amount>,
    boost: Option<f64>,
}

/// A plain number, or bytes with their unit.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
enum Amount {
    Number(u64),
    Bytes(String),
}

/// Files of a row: one, or with `{index}` in the key or a slash at its end as many as `count`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Files {
    pub(crate) key: String,
    /// One if not given.
    pub(crate) count: Option<String>,
    pub(crate) size: String,
    /// Directories over which numbered files are spread evenly.
    #[serde(default)]
    pub(crate) directories: String,
    #[serde(default)]
    pub(crate) content: Content,
}

/// What somebody published about a row.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PublishedFigures {
    client: String,
    figures: BTreeMap<String, String>,
    source: String,
    /// Which of several rows it is about.
    each: Option<u64>,
}

/// A row with its numbers decided.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Workload {
    /// The suite's name, below which all its files are.
    pub(crate) suite: String,
    pub(crate) row: Row,
    quantities: Variables,
    each: Option<u64>,
}

pub(crate) fn find(name: &str) -> BenchResult<Suite> {
    let found = BUILT_IN.iter().find(|(known, _)| *known == name);
    let (_, text) = found.ok_or_else(|| {
        let remedy = format!("there are {}", names().join(", "));
        BenchError::new(format!("`{name}` is no suite"), remedy)
    })?;
    let suite = toml::from_str(text);
    let mut suite: Suite = suite.map_err(|error| invalid(name, &error))?;
    name.clone_into(&mut suite.name);
    Ok(suite)
}

/// A mistake in a suite, which a test finds.
fn invalid(what: &str, error: &dyn std::fmt::Display) -> BenchError {
    BenchError::new(format!("{what} is not valid: {error}"), "report this")
}

pub(crate) fn names() -> Vec<&'static str> {
    BUILT_IN.iter().map(|(name, _)| *name).collect()
}

impl Suite {
    pub(crate) fn workloads(&self, scale: f64) -> BenchResult<Vec<Workload>> {
        let mut workloads = Vec::new();
        for row in &self.rows {
            if row.each.is_empty() {
                workloads.push(self.workload(row, scale, None)?);
            }
            for each in &row.each {
                workloads.push(self.workload(row, scale, Some(*each))?);
            }
        }
        Ok(workloads)
    }

    fn workload(&self, row: &Row, scale: f64, each: Option<u64>) -> BenchResult<Workload> {
        let mut quantities = Variables::new();
        for (name, quantity) in &row.quantities {
            let value = quantity.at(scale)?;
            quantities.insert(name.clone(), quantity.print(value));
            quantities.insert(format!("{name}.bytes"), value.to_string());
            let short = quantity.print(value).replace([' ', 'i', 'B'], "");
            quantities.insert(format!("{name}.short"), short);
        }
        if let Some(each) = each {
            quantities.insert("each".to_owned(), each.to_string());
        }
        Ok(Workload {
            suite: self.name.clone(),
            row: row.clone(),
            quantities,
            each,
        })
    }
}

impl Row {
    /// Whether the store is another one after it.
    pub(crate) fn changes_store(&self) -> bool {
        self.changes_inputs || self.removes_inputs || self.until_stored || self.fresh_store
    }

    /// The words of every command, the measured one last.
    fn all_commands(&self) -> impl Iterator<Item = &Vec<String>> {
        let commands = self.scratch_commands.iter().chain(&self.before);
        commands.chain([&self.command])
    }

    /// Programs that it needs, by their names.
    pub(crate) fn needs(&self) -> impl Iterator<Item = &String> {
        let first = self.all_commands().filter_map(|words| words.first());
        let named = first.filter(|program| !program.contains('{'));
        named.chain(&self.programs)
    }
}

impl Workload {
    pub(crate) fn name(&self) -> BenchResult<String> {
        template::expand(&self.row.name, &self.quantities)
    }

    pub(crate) fn description(&self) -> BenchResult<String> {
        template::expand(&self.row.description, &self.quantities)
    }

    /// Everything that its commands' places stand for, together with `others`.
    pub(crate) fn variables(&self, others: Variables) -> Variables {
        let mut known = self.quantities.clone();
        known.extend(others);
        known
    }

    /// The commands for people, places that differ from run to run as shell variables.
    pub(crate) fn commands(&self) -> BenchResult<Vec<String>> {
        let known = self.variables(template::variables([
            ("directory", "$DIR".to_owned()),
            ("scratch", "$SCRATCH".to_owned()),
            ("penstock", "penstock".to_owned()),
        ]));
        let all = self.row.all_commands();
        let all = all.filter(|command| !command.is_empty());
        let shown = all.map(|command| {
            let words = template::expand_all(command, &known)?.join(" ");
            Ok(match self.row.inside.as_str() {
                "" => words,
                inside => format!("cd $DIR/{inside} && {words}"),
            })
        });
        shown.collect()
    }

    pub(crate) fn files(&self, specs: &[Files]) -> BenchResult<Vec<Expected>> {
        let mut files = Vec::new();
        for spec in specs {
            let size = self.bytes(&spec.size)?;
            let count = self.count(spec)?;
            let crowd = self.crowd_of(spec)?;
            for index in 0..count {
                let key = match &crowd {
                    Some(crowd) => crowd.key(index),
                    None => self.key(&spec.key, index)?,
                };
                files.push(Expected {
                    key,
                    size,
                    content: spec.content,
                });
            }
        }
        Ok(files)
    }

    fn key(&self, key: &str, index: u64) -> BenchResult<String> {
        let suite = &self.suite;
        if key.ends_with('/') {
            return Ok(format!("{suite}/{key}{index:0NUMBER_DIGITS$}"));
        }
        let index = template::variables([("index", index.to_string())]);
        let key = template::expand(key, &self.variables(index))?;
        Ok(format!("{suite}/{key}"))
    }

    /// The objects that the development server makes for it.
    pub(crate) fn fills(&self) -> BenchResult<Vec<Fill>> {
        let mut fills = Vec::new();
        for spec in &self.row.inputs {
            if self.crowd_of(spec)?.is_some() {
                continue;
            }
            let count = self.count(spec)?;
            let prefixes = match spec.key.ends_with('/') {
                true => vec![format!("{}/{}", self.suite, spec.key)],
                false => (0..count)
                    .map(|index| self.key(&spec.key, index))
                    .collect::<Result<_, _>>()?,
            };
            let size = self.bytes(&spec.size)?;
            let count = count / prefixes.len().max(1) as u64;
            fills.extend(prefixes.into_iter().map(|prefix| Fill {
                bucket: String::new(),
                prefix,
                count,
                size,
            }));
        }
        Ok(fills)
    }

    /// Inputs in directories, and objects that no client mounts; the bucket is empty for the one
    /// that clients mount.
    pub(crate) fn crowds(&self) -> BenchResult<Vec<Crowd>> {
        let mut crowds = Vec::new();
        for spec in &self.row.inputs {
            crowds.extend(self.crowd_of(spec)?);
        }
        if let Some(spec) = &self.row.crowd
            && let Some(crowd) = self.crowd_of(spec)?
        {
            let bucket = CROWD_BUCKET.to_owned();
            crowds.push(Crowd { bucket, ..crowd });
        }
        Ok(crowds)
    }

    /// Files that are spread over directories, which the development server makes up.
    fn crowd_of(&self, spec: &Files) -> BenchResult<Option<Crowd>> {
        let directories = self.number(&spec.directories)?;
        if directories == 0 {
            return Ok(None);
        }
        Ok(Some(Crowd {
            bucket: String::new(),
            prefix: format!("{}/{}", self.suite, spec.key),
            count: self.count(spec)?,
            size: self.bytes(&spec.size)?,
            directories,
        }))
    }

    /// How many files these are.
    pub(crate) fn count(&self, spec: &Files) -> BenchResult<u64> {
        spec.count
            .as_ref()
            .map_or(Ok(1), |count| self.number(count))
    }

    /// A number that a template comes to; 0 if there is none.
    pub(crate) fn number(&self, text: &str) -> BenchResult<u64> {
        if text.is_empty() {
            return Ok(0);
        }
        let expanded = template::expand(text, &self.quantities)?;
        let number = expanded.parse();
        number.map_err(|error: std::num::ParseIntError| invalid(&self.row.name, &error))
    }

    pub(crate) fn bytes(&self, text: &str) -> BenchResult<u64> {
        let expanded = template::expand(text, &self.quantities)?;
        size_of(&expanded)
    }

    pub(crate) fn published(&self) -> Vec<Published> {
        let published = self.row.published.iter();
        let mine = published.filter(|it| it.each.is_none() || it.each == self.each);
        let mine = mine.cloned().map(|it| Published {
            client: it.client,
            figures: it.figures,
            source: it.source,
        });
        mine.collect()
    }
}

impl Quantity {
    /// Its value at a scale: never above the source's unless the scale is.
    fn at(&self, scale: f64) -> BenchResult<u64> {
        let full = self.full.value()?;
        let factor = match scale {
            1.0.. => scale,
            scale => (scale * self.boost.unwrap_or(1.0)).min(1.0),
        };
        let step = self.step.as_ref().map_or(Ok(1), Amount::value)?.max(1);
        let least = self.least.as_ref().map_or(Ok(1), Amount::value)?;
        let scaled = (full as f64 * factor).round() as u64 / step * step;
        Ok(scaled.max(least.min(full)).max(1))
    }

    fn print(&self, value: u64) -> String {
        match self.full {
            Amount::Number(_) => value.to_string(),
            Amount::Bytes(_) => with_space(&ByteSize(value).to_string()),
        }
    }
}

/// `8MiB` as people write it: `8 MiB`.
fn with_space(size: &str) -> String {
    let digits = size.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = size.split_at(digits);
    format!("{number} {unit}").trim_end().to_owned()
}

impl Amount {
    fn value(&self) -> BenchResult<u64> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Bytes(text) => size_of(text),
        }
    }
}

fn size_of(text: &str) -> BenchResult<u64> {
    let size = text.parse().map(|size: ByteSize| size.0);
    size.map_err(|error| invalid(text, &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_base::{GIB, MIB};

    fn quantity(text: &str) -> Quantity {
        toml::from_str(text).expect("valid")
    }

    #[test]
    fn quantities_shrink_in_steps_and_not_below_the_least() {
        let size = quantity("full = \"100GiB\"\nleast = \"16MiB\"\nstep = \"1MiB\"");
        assert_eq!(size.at(1.0), Ok(100 * GIB));
        assert_eq!(size.at(0.02), Ok(2 * GIB));
        assert_eq!(size.at(0.000_001), Ok(16 * MIB));
        assert_eq!(size.at(2.0), Ok(200 * GIB));
        let boosted = quantity("full = 128\nboost = 20.0");
        assert_eq!(boosted.at(0.05), Ok(128));
        assert_eq!(boosted.at(0.5), Ok(128));
        assert_eq!(boosted.at(0.005), Ok(13));
    }

    #[test]
    fn sizes_print_for_people_and_for_tools() {
        let size = quantity("full = \"10GiB\"");
        for (bytes, people) in [(10 * GIB, "10 GiB"), (1000, "1000"), (3 * MIB, "3 MiB")] {
            assert_eq!(size.print(bytes), people);
        }
    }

    #[test]
    fn every_suite_is_complete_at_every_scale() {
        for name in names() {
            let suite = find(name).expect("valid");
            for scale in [1.0, suite.scale, 0.0001] {
                let mut seen = std::collections::BTreeSet::new();
                for workload in suite.workloads(scale).expect("valid") {
                    let row = &workload.row;
                    let short = workload.name().expect("places are known");
                    assert!(seen.insert(short.clone()), "{name} has {short} twice");
                    assert!(
                        !workload
                            .description()
                            .expect("places are known")
                            .contains('{')
                    );
                    workload.commands().expect("places are known");
                    let is_run = !row.command.is_empty() || row.client_command.is_some();
                    assert_ne!(is_run, row.unavailable.is_some(), "{short}");
                    workload.crowds().expect("places are known");
                    for files in [&row.inputs, &row.outputs, &row.scratch] {
                        if scale < 1.0 {
                            workload.files(files).expect("places are known");
                        }
                    }
                    workload.number(&row.seconds).expect("a number");
                    workload.number(&row.entries).expect("a number");
                    workload.number(&row.files).expect("a number");
                }
            }
        }
    }

    #[test]
    fn rows_of_each_number_have_their_own_figures() {
        let suite = find("strmvol").expect("valid");
        let workloads = suite.workloads(suite.scale).expect("valid");
        let row = workloads
            .iter()
            .find(|row| row.name().is_ok_and(|name| name == "random-1024"))
            .expect("there");
        let published = row.published();
        assert_eq!(published.len(), 1);
        assert_eq!(published[0].figures["bandwidth"], "1,306.61 MB/s");
        assert!(row.commands().expect("valid")[0].contains("--threads 1024"));
    }

    #[test]
    fn files_are_numbered_as_the_server_numbers_them() {
        let suite = find("ossfs2").expect("valid");
        let workloads = suite.workloads(0.001).expect("valid");
        let keys = |name: &str| {
            let row = workloads
                .iter()
                .find(|row| row.name().as_deref() == Ok(name));
            let row = row.expect("there");
            row.files(&row.row.inputs).expect("valid")
        };
        assert_eq!(keys("read-4")[3].key, "ossfs2/fio/file-100g.3.0");
        let small = keys("small-read");
        assert_eq!(small[1].key, "ossfs2/small/00000001");
        let row = workloads.iter().find(|row| row.row.name == "small-read");
        let fills = row.expect("there").fills().expect("valid");
        let filled: Vec<_> = fills.iter().flat_map(Fill::keys).collect();
        assert!(filled.iter().eq(small.iter().map(|file| &file.key)));
    }
}
