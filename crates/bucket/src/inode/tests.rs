//! The tree alone, without a store.
