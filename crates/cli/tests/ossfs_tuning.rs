//! What the documents of ossfs 1.91 say to tune of its `direct_read` has the effect that they tell:
//! seen in the requests that reach the server, and in the memory of the mount.

// Tests live in the ambient world.
#![allow(clippy::disallowed_methods)]

mod support;

use std::{
    fs::{File, OpenOptions},
    io::Read,
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    process::Command,
    time::Duration,
};

use penstock_devserver::{Operation, Server};
use support::{BUCKET, KEY_ID, SECRET, Scratch, run, strict_server, succeed};

const MIB: u64 = 1 << 20;

/// Bytes of each file.
const SIZE: u64 = 36 * MIB;

struct Bed {
    scratch: Scratch,
    server: Server,
    mountpoint: PathBuf,
}

impl Bed {
    /// Mounts `files` files as `ossfs` with `words`; none of them may be warned about.
    #[track_caller]
    fn mount(files: usize, words: &str) -> Self {
        let (scratch, server) = (Scratch::new(), strict_server());
        for number in 0..files {
            let (key, bytes) = (number.to_string(), vec![7; SIZE as usize]);
            server.data().put(BUCKET, &key, &bytes).expect("room");
        }
        let mountpoint = scratch.folder("mnt");
        let passwords = scratch.file("passwd", &format!("{KEY_ID}:{SECRET}\n"));
        succeed(Command::new("chmod").arg("600").arg(&passwords));
        let mut command = scratch.called("ossfs");
        command
            .arg(BUCKET)
            .arg(&mountpoint)
            .arg(format!("-ourl={}", server.url()))
            .arg(format!("-opasswd_file={}", passwords.display()))
            .args(["-o", words]);
        let ended = run(&mut command);
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        assert!(!ended.err.contains("prefetch"), "{ended:#?}");
        server.reset_counters();
        Self {
            scratch,
            server,
            mountpoint,
        }
    }

    /// Opens a file, and reads `bytes` of it around the page cache, which would read ahead by itself.
    fn read(&self, number: usize, bytes: u64) -> File {
        let path = self.mountpoint.join(number.to_string());
        let mut options = OpenOptions::new();
        let direct = options.read(true).custom_flags(libc::O_DIRECT).open(path);
        let mut file = direct.expect("there");
        let mut piece = vec![0; 128 << 10];
        for _ in 0..bytes / piece.len() as u64 {
            file.read_exact(&mut piece).expect("readable");
        }
        file
    }

    /// Waits until what is on its way has arrived; returns the bytes that the server sent.
    fn sent(&self) -> u64 {
        let mut sent = self.server.counters().bytes_out;
        loop {
            std::thread::sleep(Duration::from_millis(300));
            let now = self.server.counters().bytes_out;
            if now == sent {
                return sent;
            }
            sent = now;
        }
    }

    fn gets(&self) -> u64 {
        self.server.counters().operation(Operation::GetObject)
    }

    /// Bytes of memory that buffers occupy.
    fn memory(&self) -> u64 {
        let mut command = self.scratch.penstock();
        let command = command.args(["stats", "--json"]).arg(&self.mountpoint);
        let text = succeed(command);
        let (_, memory) = text.split_once("\"memory\"").expect("told");
        let used = memory.split("\"used\":").nth(1).expect("told");
        let digits = used.trim_start().split(|sign: char| !sign.is_ascii_digit());
        digits
            .into_iter()
            .next()
            .and_then(|digits| digits.parse().ok())
            .expect("a number")
    }
}

#[test]
fn without_chunks_ahead_each_read_is_a_request_of_its_own() {
    let bed = Bed::mount(1, "direct_read,direct_read_prefetch_chunks=0");
    let _open = bed.read(0, 4 * MIB);
    assert_eq!((bed.gets(), bed.sent() / MIB), (32, 4));
}

#[test]
fn chunks_ahead_are_the_window_of_a_file() {
    let ahead = |words: &str| {
        let bed = Bed::mount(1, words);
        let _open = bed.read(0, 16 * MIB);
        bed.sent() / MIB - 16
    };
    let few = ahead("direct_read,direct_read_chunk_size=1,direct_read_prefetch_chunks=3");
    assert!((1..=3).contains(&few), "{few}");
    let usual = ahead("direct_read");
    assert!(usual > 2 * few, "{usual}");
}

#[test]
fn the_limit_is_that_of_all_files_together() {
    // With 20 MiB ahead of each it would be nearly twice the limit.
    let bed = Bed::mount(12, "direct_read,direct_read_prefetch_limit=128");
    let before = bed.memory();
    let open: Vec<_> = (0..12).map(|number| bed.read(number, 16 * MIB)).collect();
    let ahead = bed.sent() - 12 * 16 * MIB;
    assert!(ahead > 48 * MIB, "{ahead}: something is read ahead");
    let held = bed.memory() - before;
    assert!(held <= (128 + 16) * MIB, "{held}");
    drop(open);
}
