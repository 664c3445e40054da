//! Where credentials are found.
