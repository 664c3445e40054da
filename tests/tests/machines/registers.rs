//! A program that reads and writes registers of a file on a machine, and notes when it did.
//!
//! A register is eight bytes of the file, in a page of its own, or an extended attribute. Where a machine may be lost, what is read
//! counts once it is durable, as what is written does: else it goes with its machine.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use penstock_tests::soak::Chance;
use rustix::{
    fs::{XattrFlags, fgetxattr, fsetxattr},
    time::{ClockId, clock_gettime},
};

use crate::{
    register::Deed,
    worker::{self, Worker},
};

/// The file of the registers.
pub(crate) const REGISTERS: &str = "registers";
/// How many registers are bytes; as many are attributes.
pub(crate) const BYTES: u64 = 2;
/// Where the next register lies.
const SPACING: u64 = 4096;
/// What a program is told to do: to play, and to play where a machine may be lost.
pub(crate) const PLAY: &str = "play";
pub(crate) const SYNCED: &str = "sync";
/// Makes a worker one that plays.
const PLAYER: &str = "player ";
/// How long a program rests whose deed failed.
const REST: Duration = Duration::from_millis(20);

/// Makes the file, with 0 in each register.
pub(crate) fn make(root: &Path) {
    let file = File::create(root.join(REGISTERS)).unwrap();
    for register in 0..2 * BYTES {
        write(&file, register, 0).unwrap();
    }
    file.sync_all().unwrap();
}

fn attribute(register: u64) -> String {
    format!("user.register-{register}")
}

fn write(file: &File, register: u64, value: u64) -> std::io::Result<()> {
    let bytes = value.to_le_bytes();
    match register < BYTES {
        true => file.write_all_at(&bytes, register * SPACING),
        false => {
            let set = fsetxattr(file, attribute(register), &bytes, XattrFlags::empty());
            Ok(set?)
        }
    }
}

fn read(file: &File, register: u64) -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    match register < BYTES {
        true => file.read_exact_at(&mut bytes, register * SPACING)?,
        false => drop(fgetxattr(file, attribute(register), &mut bytes)?),
    }
    Ok(u64::from_le_bytes(bytes))
}

/// Nanoseconds of the clock that all programs share.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A deed with the register that it was done to.
pub(crate) type Noted = (u64, Deed);

/// What a program did, as one word.
fn told(deeds: &[Noted]) -> String {
    let told = deeds.iter().map(|(register, deed)| {
        let (kind, ended) = (u8::from(deed.is_write), deed.ended.unwrap_or(0));
        format!("{register}:{}:{kind}:{}:{ended}", deed.value, deed.began)
    });
    told.collect::<Vec<_>>().join(",")
}

/// The same as deeds.
pub(crate) fn heard(told: &str) -> Vec<Noted> {
    let words = told.trim().split(',').filter(|word| !word.is_empty());
    let deeds = words.map(|word| {
        let numbers: Vec<u64> = word.split(':').map(|text| text.parse().unwrap()).collect();
        let [register, value, kind, began, ended] = numbers.try_into().unwrap();
        let deed = Deed {
            value,
            is_write: kind == 1,
            began,
            ended: (ended > 0).then_some(ended),
        };
        (register, deed)
    });
    deeds.collect()
}

/// A program that reads and writes registers.
pub(crate) fn player(number: u64, seed: u64) -> Worker {
    Worker::run(&format!("{PLAYER}{number} {seed}"))
}

/// What that program does: what it is told, line by line. Says no if it was to be another one.
pub(crate) fn obey(order: &str) -> bool {
    let Some(order) = order.strip_prefix(PLAYER) else {
        return false;
    };
    let (number, seed) = order.split_once(' ').unwrap();
    let mut player = Player::new(number.parse().unwrap(), seed.parse().unwrap());
    println!("\ndone beginning");
    while let Some((verb, root)) = worker::next_order() {
        let deeds = worker::until_stopped(|stop| player.play(&root, verb == SYNCED, stop));
        println!("\ndone {}", told(&deeds));
    }
    true
}

/// Who reads and writes registers.
struct Player {
    number: u64,
    count: u64,
    chance: Chance,
}

impl Player {
    fn new(number: u64, seed: u64) -> Self {
        Self {
            number,
            count: 0,
            chance: Chance::new(seed * 211 + number),
        }
    }

    fn play(&mut self, root: &Path, is_synced: bool, stop: &AtomicBool) -> Vec<Noted> {
        let (mut deeds, mut file) = (Vec::new(), None);
        while !stop.load(Ordering::SeqCst) {
            if file.is_none() {
                let mut options = fs::OpenOptions::new();
                let opened = options.read(true).write(true).open(root.join(REGISTERS));
                file = opened.ok();
            }
            let is_done = match &file {
                Some(file) => {
                    let deed = self.deed(file, is_synced);
                    let is_done = deed.is_some_and(|(_, deed)| deed.ended.is_some());
                    deeds.extend(deed);
                    is_done
                }
                None => false,
            };
            if !is_done {
                file = None;
                thread::sleep(REST);
            }
        }
        deeds
    }

    /// Reads or writes a register. A read that failed is no deed.
    fn deed(&mut self, file: &File, is_synced: bool) -> Option<Noted> {
        let register = self.chance.below(2 * BYTES as usize) as u64;
        let is_write = self.chance.below(3) == 0;
        let sync = || match is_synced {
            true => file.sync_data(),
            false => Ok(()),
        };
        self.count += u64::from(is_write);
        let written = (self.number + 1) << 32 | self.count;
        let began = now();
        let done = match is_write {
            true => write(file, register, written).map(|()| written),
            false => read(file, register),
        };
        let done = done.and_then(|value| sync().map(|()| value));
        let ended = done.is_ok().then(now);
        let value = match done {
            Ok(value) => value,
            Err(_) if is_write => written,
            Err(_) => return None,
        };
        let deed = Deed {
            value,
            is_write,
            began,
            ended,
        };
        Some((register, deed))
    }
}
