//! Making and removing names.
