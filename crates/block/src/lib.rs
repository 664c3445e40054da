//! The block door: a volume's disks as block devices of the kernel.
//!
//! A volume that is a disk implements [`penstock_vfs::Disk`]; this crate gives its disks to the
//! kernel and mounts the file system that is on them.
