//! Lists of keys as a bucket may hold them: whatever they are, the images made of them pass the
//! checkers of their file systems.

#![no_main]

use std::{collections::BTreeSet, path::Path, process::Command};

use libfuzzer_sys::fuzz_target;
use penstock_stream::{
    BlockAddress, ErofsSettings, ErofsWriter, Ext4Settings, Ext4Writer, FileNode, ImageWriter,
    Placement, Timestamp, TreeBuilder,
};

/// Entries in memory before they spill: few, so that fuzzing reaches that, too.
const DIRECTORIES_MEMORY: usize = 200;

fuzz_target!(|bytes: &[u8]| {
    let keys: BTreeSet<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let folder = tempfile::tempdir().expect("a folder");
    check_erofs(&keys, folder.path());
    check_ext4(&keys, folder.path());
});

fn check_erofs(keys: &BTreeSet<&[u8]>, folder: &Path) {
    let settings = ErofsSettings {
        directories_memory: DIRECTORIES_MEMORY,
        ..ErofsSettings::default()
    };
    let image = folder.join("erofs");
    let writer = ErofsWriter::create(&image, settings).expect("a writer");
    write(keys, Box::new(writer));
    let disk = folder.join("disk");
    std::fs::write(&disk, [0; 4096]).expect("a disk");
    let device = format!("--device={}", disk.display());
    must_pass(Command::new("fsck.erofs").arg(device).arg(&image));
}

fn check_ext4(keys: &BTreeSet<&[u8]>, folder: &Path) {
    let settings = Ext4Settings {
        directories_memory: DIRECTORIES_MEMORY,
        ..Ext4Settings::default()
    };
    let image = folder.join("ext4");
    let writer = Ext4Writer::create(&image, settings).expect("a writer");
    let blocks = write(keys, Box::new(writer));
    let file = std::fs::File::options().append(true).open(&image).expect("an image");
    let metadata = file.metadata().expect("an image").len();
    file.set_len(metadata + blocks * 4096).expect("room for the data");
    must_pass(Command::new("e2fsck").arg("-fn").arg(&image));
}

/// Writes the image and says how many blocks the files have.
fn write(keys: &BTreeSet<&[u8]>, writer: Box<dyn ImageWriter + Send>) -> u64 {
    let mut tree = TreeBuilder::new(writer);
    let mut placement = Placement::new(1);
    for key in keys {
        let size = key.len() as u64 * 1000;
        let mut start = BlockAddress { disk: 0, block: 0 };
        if TreeBuilder::needs_place(key) {
            start = placement.place(size);
        }
        let modified = Timestamp::default();
        let node = FileNode {
            size,
            modified,
            start,
        };
        tree.add(key, &node).expect("any key can be added");
    }
    let (summary, hidden) = tree.finish(placement.blocks()).expect("finished");
    assert!(summary.files + hidden.total() <= keys.len() as u64);
    placement.blocks()[0]
}

fn must_pass(checker: &mut Command) {
    // Where a checker is not installed, only the writers are tried.
    if let Ok(output) = checker.output() {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}{errors}");
    }
}
