//! Archives that tests make and take apart.

#![allow(dead_code, clippy::disallowed_methods, clippy::unwrap_used)]

use std::{
    fs,
    io::{Cursor, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use penstock_tools::{
    Patterns, Report, Stop, Summary, Threads,
    archive::{
        Compression, CreateSettings, ExtractSettings, Format, Selection, Sources, create, extract,
        list,
    },
    direct::Place,
};

use super::support::{EVERYTHING, Variety, fill, is_root};

/// What an archive can hold.
pub(crate) const ARCHIVABLE: Variety = Variety {
    sockets: false,
    ..EVERYTHING
};
/// What every program and format keeps.
pub(crate) const PLAIN: Variety = Variety {
    attributes: false,
    raw_names: false,
    ..ARCHIVABLE
};

pub(crate) fn creating(format: Format, compression: Compression) -> CreateSettings {
    CreateSettings {
        format,
        compression,
        exclude: Patterns::default(),
        one_file_system: false,
        numeric: false,
        threads: Threads::Fixed(8),
    }
}

pub(crate) fn extracting() -> ExtractSettings {
    ExtractSettings {
        selection: Selection::default(),
        strip: 0,
        same_owner: is_root(),
        numeric: true,
        same_mode: true,
        keep: false,
        links_out: true,
        bytes_max: None,
        members_max: u64::MAX,
        umask: 0o022,
        threads: Threads::Fixed(8),
    }
}

/// The same without links out of the tree.
pub(crate) fn careful() -> ExtractSettings {
    ExtractSettings {
        links_out: false,
        ..extracting()
    }
}

/// Somewhere to write that can be looked at afterwards.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

pub(crate) fn created(base: &Path, settings: &CreateSettings) -> (Vec<u8>, Summary) {
    created_of((base, "tree"), settings)
}

/// An archive of a path that begins at a directory.
pub(crate) fn created_of(
    (base, path): (&Path, &str),
    settings: &CreateSettings,
) -> (Vec<u8>, Summary) {
    let report = Report::default();
    let output = Shared::default();
    let sources = Sources {
        base: Place::Local(base.to_path_buf()),
        paths: vec![PathBuf::from(path)],
        except: Vec::new(),
    };
    create(
        &sources,
        settings,
        Box::new(output.clone()),
        &report,
        &Stop::default(),
    )
    .unwrap();
    let bytes = output.0.lock().unwrap().clone();
    (bytes, report.summary())
}

pub(crate) fn extracted(archive: &[u8], target: &Path, settings: &ExtractSettings) -> Summary {
    fs::create_dir_all(target).unwrap();
    let report = Report::default();
    let input = Box::new(Cursor::new(archive.to_vec()));
    extract(
        input,
        &Place::Local(target.to_owned()),
        settings,
        &report,
        &Stop::default(),
    );
    report.summary()
}

pub(crate) fn folder(
    count: usize,
    seed: u64,
    variety: Variety,
) -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fill(&tree, count, seed, variety);
    let to = folder.path().join("to");
    (folder, tree, to)
}

/// An archive with these members, made by GNU's rules, byte by byte.
pub(crate) fn made(members: &[(&str, u8, &str, &[u8])]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (name, kind, link, content) in members {
        let mut block = [0_u8; 512];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, name.as_bytes());
        put(100, b"0000644\x000000000\x000000000\0");
        put(
            124,
            format!("{:011o}\0{:011o}\0", content.len(), 0).as_bytes(),
        );
        put(156, &[*kind]);
        put(157, link.as_bytes());
        put(257, b"ustar  \0");
        seal(&mut block);
        archive.extend(block);
        archive.extend_from_slice(content);
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
    archive.resize(archive.len() + 1024, 0);
    archive
}

/// Gives a header its checksum.
pub(crate) fn seal(block: &mut [u8]) {
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// What listing an archive came to.
pub(crate) fn listed(archive: &[u8]) -> Summary {
    let report = Report::default();
    let input = Box::new(Cursor::new(archive.to_vec()));
    list(input, &Selection::default(), &report, &Stop::default());
    report.summary()
}
