//! How fast ranged GETs fill pooled memory, and what that costs.
//!
//! ```text
//! get_bandwidth SOURCE KEY CONNECTIONS SECONDS RANGE [ENDPOINT]
//! ```
//!
//! Each connection reads the object's ranges of `RANGE` bytes (such as `8MiB`) one after the other
//! into pool buffers of at most 1 MiB, as a mount does, and drops them. CPU time is that of this
//! process. Requests are signed when `AWS_ACCESS_KEY_ID` is set.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::{collections::VecDeque, mem::MaybeUninit, sync::Arc, time::Duration};

use penstock_base::{
    BLOCK_SIZE, BufferPool, BufferView, BufferWriter, ByteSize, GIB, MemoryBudget, clock,
    metrics::Registry,
};
use penstock_object::{
    BodySink, GetOptions, HeadOptions, Key, Store, StoreSettings, credentials::Environment, open,
};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Pool buffers that are filled one after the other.
struct Blocks {
    writers: VecDeque<BufferWriter>,
    _views: Vec<BufferView>,
    filled: u64,
}

impl Blocks {
    async fn take(pool: &Arc<BufferPool>, mut bytes: usize) -> Result<Self, Failure> {
        let (mut writers, mut views) = (VecDeque::new(), Vec::new());
        while bytes > 0 {
            let size = bytes.min(BLOCK_SIZE);
            let (writer, view) = pool.take(size).await?.share();
            writers.push_back(writer);
            views.push(view);
            bytes -= size;
        }
        Ok(Self {
            writers,
            _views: views,
            filled: 0,
        })
    }
}

// SAFETY: `unfilled` is the same memory until it is advanced over.
#[allow(unsafe_code)]
unsafe impl BodySink for Blocks {
    fn filled(&self) -> u64 {
        self.filled
    }

    fn unfilled(&mut self) -> &mut [MaybeUninit<u8>] {
        let full = |writer: &mut BufferWriter| writer.unfilled().is_empty();
        while self.writers.front_mut().is_some_and(full) {
            self.writers.pop_front();
        }
        self.writers
            .front_mut()
            .map_or(&mut [], BufferWriter::unfilled)
    }

    unsafe fn advance(&mut self, count: usize) {
        if let Some(writer) = self.writers.front_mut() {
            // SAFETY: the caller filled the front of `unfilled`, which was this writer's.
            unsafe { writer.advance(count) };
            self.filled += count as u64;
        }
    }
}

/// What one connection does.
#[derive(Clone)]
struct Reading {
    store: Arc<dyn Store>,
    key: Key,
    pool: Arc<BufferPool>,
    range: u64,
    end: clock::Instant,
}

impl Reading {
    /// Reads until the end and returns how many bytes and requests that were.
    async fn run(self) -> Result<(u64, u64), Failure> {
        let size = self
            .store
            .head(&self.key, HeadOptions::default())
            .await?
            .size;
        let (mut bytes, mut requests, mut offset) = (0, 0, 0);
        while clock::now() < self.end {
            let mut blocks = Blocks::take(&self.pool, self.range as usize).await?;
            let options = GetOptions {
                range: Some(offset..offset + self.range),
                ..GetOptions::default()
            };
            self.store.get(&self.key, options, &mut blocks).await?;
            bytes += blocks.filled;
            requests += 1;
            offset = (offset + self.range) % size.max(1);
        }
        Ok((bytes, requests))
    }
}

/// CPU time that this process has used, user and system.
fn cpu_time() -> Result<[Duration; 2], Failure> {
    const TICK: Duration = Duration::from_millis(10);
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split(' ').collect();
    let ticks = |index: usize| fields.get(index).unwrap_or(&"0").parse::<u32>();
    Ok([TICK * ticks(12)?, TICK * ticks(13)?])
}

fn settings(endpoint: Option<&String>) -> StoreSettings {
    let environment = Environment::new(std::env::vars());
    let mut settings = StoreSettings {
        endpoint: endpoint.cloned(),
        anonymous: environment.get("AWS_ACCESS_KEY_ID").is_none(),
        ..StoreSettings::default()
    };
    settings.credentials.environment = environment;
    settings
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [source, key, connections, seconds, range, endpoint @ ..] = &arguments[..] else {
        return Err("usage: get_bandwidth SOURCE KEY CONNECTIONS SECONDS RANGE [ENDPOINT]".into());
    };
    let (start, before) = (clock::now(), cpu_time()?);
    let reading = Reading {
        store: open(
            &source.parse()?,
            &settings(endpoint.first()),
            &Registry::new(),
        )?,
        key: Key::new(key)?,
        pool: BufferPool::new(MemoryBudget::new(GIB)),
        range: range.parse::<ByteSize>()?.0,
        end: start + Duration::from_secs(seconds.parse()?),
    };
    let connections: u32 = connections.parse()?;
    let readers = (0..connections).map(|_| tokio::spawn(reading.clone().run()));
    let (mut bytes, mut requests) = (0, 0);
    for reader in readers.collect::<Vec<_>>() {
        let (more_bytes, more_requests) = reader.await??;
        bytes += more_bytes;
        requests += more_requests;
    }
    let (wall, after) = (start.elapsed().as_secs_f64(), cpu_time()?);
    let gibibytes = bytes as f64 / GIB as f64;
    let [user, system] = [0, 1].map(|part| (after[part] - before[part]).as_secs_f64());
    println!(
        "{:.2} GB/s, {:.0} requests/s, {:.3} CPU-s/GiB ({:.3} user), {:.1} CPU-us/request",
        bytes as f64 / 1e9 / wall,
        requests as f64 / wall,
        (user + system) / gibibytes,
        user / gibibytes,
        (user + system) * 1e6 / requests as f64,
    );
    Ok(())
}
