//! `penstock bench server`: the development server in a process of its own, as the benchmark
//! starts it, so that one binary is enough.

use std::{io::Write, net::SocketAddr};

use penstock_devserver::{Credentials, Crowd, Faults, Fill, Server, Settings};

use crate::{BenchError, BenchResult, settings};

/// What the server is started with.
#[derive(Debug, Clone)]
pub struct ServeSettings {
    /// Where to listen; port 0 picks a free one.
    pub address: SocketAddr,
    /// Buckets that exist from the start.
    pub buckets: Vec<String>,
    /// Objects that exist from the start, `BUCKET/PREFIX:COUNT:SIZE`.
    pub fills: Vec<String>,
    /// Objects that are there without taking memory, `BUCKET/PREFIX:COUNT:SIZE:DIRECTORIES`.
    pub crowds: Vec<String>,
    /// Keys that requests must be signed with, `KEY:SECRET`; any or none if empty.
    pub credentials: Vec<String>,
    /// The latency profile.
    pub profile: Option<String>,
    /// Bytes of memory to make ready before the first request.
    pub prepared_memory: u64,
}

/// Serves until the process is ended. Says where on `output`.
///
/// # Errors
/// The address cannot be listened on, or memory is exhausted.
pub fn serve(settings: ServeSettings, output: &mut dyn Write) -> BenchResult<()> {
    let address = settings.address;
    let cannot = |error: std::io::Error| {
        BenchError::new(
            format!("cannot serve on {address}: {error}"),
            "choose another --address, or less --prepared-memory",
        )
    };
    let server = Server::start(server_settings(settings)?).map_err(cannot)?;
    writeln!(output, "listening on {}", server.url())
        .and_then(|()| output.flush())
        .map_err(cannot)?;
    server.wait();
    Ok(())
}

fn server_settings(settings: ServeSettings) -> BenchResult<Settings> {
    let credentials = parse::<Credentials>(&settings.credentials)?;
    let latency = settings.profile.as_deref().map(|name| {
        settings::latency(name).ok_or_else(|| {
            BenchError::new(
                format!("`{name}` is no profile"),
                "there are lan, region and far",
            )
        })
    });
    Ok(Settings {
        address: settings.address,
        fills: parse::<Fill>(&settings.fills)?,
        crowds: parse::<Crowd>(&settings.crowds)?,
        verify_signatures: !credentials.is_empty(),
        credentials,
        buckets: settings.buckets,
        faults: Faults::latency(latency.transpose()?.unwrap_or_default()),
        prepared_memory: settings.prepared_memory,
        ..Settings::default()
    })
}

fn parse<T: std::str::FromStr<Err = String>>(texts: &[String]) -> BenchResult<Vec<T>> {
    let parsed = texts.iter().map(|text| text.parse());
    parsed
        .collect::<Result<_, _>>()
        .map_err(|why| BenchError::new(why, "see `penstock help bench`"))
}
