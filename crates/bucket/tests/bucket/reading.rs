//! Reading files.
