//! How fast images are made: an index of made-up objects, without a store.
//!
//! `build_image erofs|ext4 FILES DIRECTORIES IMAGE` spreads the files over the directories and
//! prints the time, the bytes and the peak of memory.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::{error::Error, io, io::Write, path::Path};

use penstock_stream::{
    BlockAddress, BuildParts, BuildProgress, ErofsSettings, ErofsWriter, Ext4Settings, Ext4Writer,
    ImageWriter, ObjectSource, PlacedObjects, Placement, SnapshotError, SnapshotObject, Timestamp,
    build_index,
};

/// Objects of 100 KB whose keys are made when they are asked for.
struct MadeUp {
    files: u64,
    in_each: u64,
    given: u64,
    key: Vec<u8>,
}

impl ObjectSource for MadeUp {
    fn next_object(&mut self) -> Result<Option<SnapshotObject<'_>>, SnapshotError> {
        if self.given == self.files {
            return Ok(None);
        }
        let directory = self.given / self.in_each;
        self.key.clear();
        write!(self.key, "train/{directory:07}/image-{:09}.jpg", self.given)
            .expect("memory takes it");
        self.given += 1;
        Ok(Some(SnapshotObject {
            key: &self.key,
            size: 102_400,
            modified: Timestamp {
                seconds: 1_700_000_000,
                nanoseconds: 0,
            },
            etag: "\"0123456789abcdef0123456789abcdef\"",
            target: "",
        }))
    }
}

/// Remembers nothing.
struct Nowhere;

impl PlacedObjects for Nowhere {
    fn add(&mut self, _: &SnapshotObject<'_>, _: BlockAddress) -> io::Result<()> {
        Ok(())
    }
}

fn writer(kind: &str, path: &Path) -> io::Result<Box<dyn ImageWriter + Send>> {
    Ok(match kind {
        "ext4" => Box::new(Ext4Writer::create(path, Ext4Settings::default())?),
        _ => Box::new(ErofsWriter::create(path, ErofsSettings::default())?),
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [kind, files, directories, image] = words.as_slice() else {
        return Err("usage: build_image erofs|ext4 FILES DIRECTORIES IMAGE".into());
    };
    let files: u64 = files.parse()?;
    let directories: u64 = directories.parse()?;
    let summary = build_index(BuildParts {
        source: &mut MadeUp {
            files,
            in_each: files.div_ceil(directories).max(1),
            given: 0,
            key: Vec::new(),
        },
        placement: Placement::new(1),
        image: writer(kind, Path::new(image))?,
        objects: &mut Nowhere,
        progress: &BuildProgress::default(),
    })?;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find(|line| line.starts_with("VmHWM"));
    println!(
        "{kind} {files} files in {directories} directories: {:.2} s, {} MB, {}",
        summary.took.as_secs_f64(),
        summary.image.bytes / 1_000_000,
        peak.unwrap_or("peak unknown")
    );
    Ok(())
}
