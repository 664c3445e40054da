//! The inode table: which number is which name, and what is known about it.
//!
//! A node knows its parent and its name there, so the key of a file is found by walking up, and
//! renaming a directory changes one node however much lies below it. Nodes exist only while
//! somebody needs them: a door holds references, handles and running operations pin, and a node
//! pins its parent. When the last of these goes, so does the node; what it knew may be
//! *remembered* by its directory, within the limit of the [`Cache`], so that the next lookup
//! costs nothing. A directory that remembers something stays within the same limit ([`idle`]).
//! Numbers are never given out twice.
//!
//! The store's answers enter through [`Tree::settle`], local changes through [`Tree::link`],
//! [`Tree::unlink`], [`Tree::relocate`] and [`Tree::publish`]; the latter win over answers to
//! questions that were asked before them (see [`Directory`]), and to those that were asked while the store
//! was being changed ([`changing`]).
//!
//! # Locks
//!
//! From the outside in; a later lock may be taken while an earlier one is held, never the
//! reverse:
//! 1. the gate ([`Namespace::enter`], [`Namespace::begin_move`]): asynchronous, long;
//! 2. a file's turn ([`OpenFile::turn`], of a streamed file its write stream): asynchronous, held during
//!    uploads; of two files the one with the lower inode number first;
//! 3. a directory handle's listing: asynchronous, held during LIST requests;
//! 4. the tree ([`Namespace::lock`]): a mutex held for some map operations, never across await or a
//!    disk call ([`penstock_base::InMemory`]);
//! 5. the table of handles: a mutex held for one map operation, or while views are counted;
//! 6. a file's view ([`OpenFile::view`]), then a handle's reader: mutexes held for a few loads.
//!
//! [`OpenFile::turn`]: crate::open_file::OpenFile::turn
//! [`OpenFile::view`]: crate::open_file::OpenFile::view

mod answers;
mod cache;
mod changes;
mod changing;
mod charge;
mod directory;
mod gate;
mod guards;
mod holding;
mod idle;
mod lifetime;
mod node;
mod numbers;
mod remembering;
#[cfg(test)]
mod tests;
mod tree;

pub(crate) use answers::{Learned, Question, Recall, Told};
pub(crate) use changing::Change;
pub(crate) use charge::Charge;
pub(crate) use directory::{Dentry, Directory, Patience};
pub(crate) use gate::Moving;
pub(crate) use guards::{Entered, Namespace, Observation, Reference, Resolved};
pub(crate) use node::{Known, Node, OldMarker, Place};
pub(crate) use tree::{Tree, TreeSettings};
