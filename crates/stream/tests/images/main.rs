//! Images as the kernel and the tools of their file systems see them.

#![allow(clippy::panic, clippy::print_stdout)]

mod both;
mod check;
mod erofs;
mod ext4;
mod mounted;
mod random_keys;
mod sample;
mod system;
