//! A volume over a bucket in memory whose requests are counted and can be made to fail.

mod bed;
mod probe;

pub(crate) use bed::{Bed, CALLER, Listed, READ, READ_WRITE, WRITE, name, new_directory, new_file};
pub(crate) use probe::Probe;
