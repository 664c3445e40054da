//! The tools of file systems, as judges of images.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::system::{have, run};

/// Disks without contents, which is enough where only names and inodes are checked.
pub(crate) fn blank_disks(folder: &Path, count: u16) -> Vec<PathBuf> {
    let blank = folder.join("blank");
    std::fs::write(&blank, [0; 4096]).expect("written");
    vec![blank; usize::from(count)]
}

/// Checks an image with fsck.erofs; without the tool there is nothing to check with.
pub(crate) fn fsck_erofs(image: &Path, disks: &[PathBuf]) {
    if !have("fsck.erofs") {
        return;
    }
    let mut command = Command::new("fsck.erofs");
    for disk in disks {
        command.arg(format!("--device={}", disk.display()));
    }
    let output = run(command.arg(image));
    let text = [output.stdout, output.stderr].concat();
    assert_eq!(
        String::from_utf8_lossy(&text),
        "",
        "it finds nothing to say"
    );
}

/// What dump.erofs says about the superblock of an image, by name.
pub(crate) fn dump_erofs((image, disks): (&Path, &[PathBuf]), name: &str) -> Option<String> {
    if !have("dump.erofs") {
        return None;
    }
    let mut command = Command::new("dump.erofs");
    for disk in disks {
        command.arg(format!("--device={}", disk.display()));
    }
    let output = run(command.arg("-s").arg(image));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.starts_with(name));
    let line = line.unwrap_or_else(|| panic!("{name} is not in {text}"));
    Some(line.split_once(':').expect("a value").1.trim().to_owned())
}

/// Checks an image with e2fsck, which must have nothing to repair.
pub(crate) fn check_ext4(device: &Path) {
    if have("e2fsck") {
        run(Command::new("e2fsck").arg("-fn").arg(device));
    }
}
