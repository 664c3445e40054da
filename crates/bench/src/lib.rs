//! What users choose a file client by: the published tables, measured here, side by side.
//!
//! A [`record::Report`] is everything that one invocation found out. The runner fills it, one [`record::Sample`] per run of a
//! workload by a client; the writers (terminal, Markdown, JSON, HTML) and `compare` only read it. JSON is the same structure, so a
//! report that was saved can be shown or compared again without the machine that it was measured on.

pub mod compare;
pub mod derived;
pub mod record;
pub mod report;
