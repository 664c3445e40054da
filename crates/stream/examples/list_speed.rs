//! How fast a path is listed, and what that costs.
//!
//! ```text
//! list_speed SOURCE DIRECTORY [ENDPOINT [CONCURRENCY]]
//! ```
//!
//! Lists SOURCE (such as `s3://bench/many`) into runs in DIRECTORY, reads them back as an index
//! would, and removes them. CPU time and memory are those of this process.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::{sync::Arc, time::Duration};

use penstock_base::{clock, metrics::Registry};
use penstock_object::{StoreSettings, open};
use penstock_stream::{
    LIST_CONCURRENCY_DEFAULT, ListingProgress, ListingSettings, ObjectSource, Spool, SpoolSettings,
    list_all,
};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [source, directory, rest @ ..] = &arguments[..] else {
        return Err("usage: list_speed SOURCE DIRECTORY [ENDPOINT [CONCURRENCY]]".into());
    };
    let mut settings = StoreSettings {
        endpoint: rest.first().cloned(),
        ..StoreSettings::default()
    };
    settings.anonymous = true;
    settings.concurrency_max = 1024;
    let store = open(&source.parse()?, &settings, &Arc::new(Registry::default()))?;
    let listing = ListingSettings {
        concurrency: match rest.get(1) {
            Some(text) => text.parse()?,
            None => LIST_CONCURRENCY_DEFAULT,
        },
        ..ListingSettings::default()
    };
    let spool = Spool::open(&SpoolSettings::new(directory, source))?;
    let progress = Arc::new(ListingProgress::default());
    let begun = clock::now();
    let watching = tokio::spawn(watch(Arc::clone(&progress)));
    let mut objects = list_all(&store, spool, &listing, &progress).await?;
    watching.abort();
    let listed = begun.elapsed();
    let status = progress.status();
    println!(
        "{} keys, {} requests, {:.2} s, {:.0} keys/s, {} MB of runs",
        status.keys,
        status.requests,
        listed.as_secs_f64(),
        status.rate,
        objects.bytes() / 1_000_000
    );
    let mut bytes = 0;
    while let Some(object) = objects.next_object()? {
        bytes += object.size;
    }
    println!(
        "read back in {:.2} s: {bytes} bytes of objects",
        (begun.elapsed() - listed).as_secs_f64()
    );
    println!("{}", cost()?);
    objects.into_spool().discard()?;
    Ok(())
}

async fn watch(progress: Arc<ListingProgress>) {
    loop {
        clock::sleep(Duration::from_millis(500)).await;
        let status = progress.status();
        println!(
            "{:.1} s: {} keys, {} requests, {} under way, {:?} left",
            status.elapsed.as_secs_f64(),
            status.keys,
            status.requests,
            status.under_way,
            status.time_left
        );
    }
}

/// CPU time and largest memory of this process.
fn cost() -> Result<String, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find(|line| line.starts_with("VmHWM"));
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or("")
        .split_whitespace()
        .collect();
    let ticks = |index: usize| fields.get(index).and_then(|text| text.parse::<u64>().ok());
    let (user, system) = (ticks(11).unwrap_or(0), ticks(12).unwrap_or(0));
    Ok(format!(
        "CPU {:.2} s user, {:.2} s system; {}",
        user as f64 / 100.0,
        system as f64 / 100.0,
        peak.unwrap_or("")
    ))
}
