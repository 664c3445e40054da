//! What there is to run, and with what: `penstock bench list`.

use std::{collections::BTreeMap, path::Path};

use crate::{BenchResult, catalog::Catalog, settings::Surroundings, suite};

/// A suite in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct SuiteListing {
    /// Its name.
    pub name: &'static str,
    /// What it reproduces.
    pub title: String,
    /// The client that the source is about, if that is one of ours of which nothing can be taken
    /// for granted.
    pub client: Option<String>,
    /// The factor for sizes if nobody gives one.
    pub scale: f64,
    /// Its latency profiles if nobody gives some.
    pub profiles: Vec<String>,
    /// Its rows at that scale.
    pub rows: Vec<RowListing>,
}

/// A row in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowListing {
    /// Its short name.
    pub name: String,
    /// What is done.
    pub description: String,
    /// Why nobody can run it yet.
    pub unavailable: Option<String>,
    /// Why some client cannot, by its name.
    pub unavailable_for: BTreeMap<String, String>,
}

/// A client in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientListing {
    /// Its name.
    pub name: String,
    /// What it is.
    pub about: String,
    /// Where its program is, or why it cannot be run.
    pub found: Result<String, String>,
}

/// Every suite.
///
/// # Errors
/// A suite is not valid, which a test rules out.
pub fn suites() -> BenchResult<Vec<SuiteListing>> {
    suite::names().into_iter().map(suite_listing).collect()
}

fn suite_listing(name: &'static str) -> BenchResult<SuiteListing> {
    let suite = suite::find(name)?;
    let mut rows = Vec::new();
    for workload in suite.workloads(suite.scale)? {
        rows.push(RowListing {
            name: workload.name()?,
            description: workload.description()?,
            unavailable: workload.row.unavailable.clone(),
            unavailable_for: workload.row.unavailable_for.clone(),
        });
    }
    Ok(SuiteListing {
        name,
        title: suite.title,
        client: suite.client,
        scale: suite.scale,
        profiles: suite.profiles,
        rows,
    })
}

/// Every client of the table.
///
/// # Errors
/// The user's table cannot be read.
pub fn clients(
    table: Option<&Path>,
    surroundings: &Surroundings,
) -> BenchResult<Vec<ClientListing>> {
    let catalog = Catalog::read(table)?;
    let listing = |name: String| {
        let spec = catalog.get(&name)?;
        let found = spec.find(&surroundings.program, &surroundings.path);
        Ok(ClientListing {
            about: spec.about.clone(),
            found: found.map(|path| path.display().to_string()),
            name,
        })
    };
    catalog.names().into_iter().map(listing).collect()
}
