//! The writers of a report: pure functions of [`crate::record::Report`].
//!
//! ```text
//! record ── derived ─┐
//!                    ├─ figure ─ view ─┬─ terminal   a table while and after it runs
//! statistics ────────┘     │           ├─ markdown   tables with conditions and footnotes
//!                    units ┘           ├─ html       one page of charts
//!  ranking, family, published, sections ┘  svg     charts as pictures of their own, for documents
//!                                          json    the record itself
//! ```
//!
//! - [`statistics`] turns the repeats of one figure into a median and a spread, and says when two of them differ.
//! - [`figure`] knows each figure: what it is called, its unit, which way is better, how it follows from a sample.
//! - [`view`] joins a row with its clients: what was measured, what failed, what must be noted.
//! - [`ranking`] says who is first, where, and by how much; the summaries of all writers come from it.
//! - [`charts`] draws figures, for the page and for pictures alike; [`sections`] and [`notes`] say what stands around them.
//! - [`published`] reads figures that others printed, [`family`] finds rows that make a curve.
//!
//! Names and errors in a report come from other programs. Each writer makes them harmless for its own medium: control
//! characters for a terminal, pipes and tags for Markdown, markup for HTML.

mod charts;
pub mod family;
pub mod figure;
pub mod html;
pub mod json;
pub mod markdown;
mod notes;
pub mod published;
pub mod ranking;
mod sections;
pub mod statistics;
pub mod svg;
pub mod terminal;
pub mod units;
pub mod view;

#[cfg(test)]
pub(crate) mod specimen;
