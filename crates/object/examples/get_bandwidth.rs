//! How fast ranged GETs fill pooled memory, and what that costs.
//!
//! ```text
//! get_bandwidth SOURCE KEY CONNECTIONS SECONDS [ENDPOINT]
//! ```
//!
//! Each connection reads the object's 8 MiB ranges one after the other into 1 MiB pool buffers,
//! as a mount does, and drops them. CPU time is that of this process.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::{collections::VecDeque, mem::MaybeUninit, sync::Arc, time::Duration};

use penstock_base::{
    BLOCK_SIZE, BufferPool, BufferView, BufferWriter, GIB, MIB, MemoryBudget, clock,
    metrics::Registry,
};
use penstock_object::{
    BodySink, GetOptions, HeadOptions, Key, Store, StoreSettings, credentials::Environment, open,
};

const RANGE: u64 = 8 * MIB;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Pool buffers that are filled one after the other.
struct Blocks {
    writers: VecDeque<BufferWriter>,
    _views: Vec<BufferView>,
    filled: u64,
}

impl Blocks {
    async fn take(pool: &Arc<BufferPool>) -> Result<Self, Failure> {
        let (mut writers, mut views) = (VecDeque::new(), Vec::new());
        for _ in 0..RANGE / BLOCK_SIZE as u64 {
            let (writer, view) = pool.take(BLOCK_SIZE).await?.share();
            writers.push_back(writer);
            views.push(view);
        }
        Ok(Self {
            writers,
            _views: views,
            filled: 0,
        })
    }
}

impl BodySink for Blocks {
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

    #[allow(unsafe_code)]
    unsafe fn advance(&mut self, count: usize) {
        if let Some(writer) = self.writers.front_mut() {
            // SAFETY: the caller filled the front of `unfilled`, which was this writer's.
            unsafe { writer.advance(count) };
            self.filled += count as u64;
        }
    }
}

async fn read_until(
    end: clock::Instant,
    store: Arc<dyn Store>,
    key: Key,
    pool: Arc<BufferPool>,
) -> Result<u64, Failure> {
    let size = store.head(&key, HeadOptions::default()).await?.size;
    let (mut total, mut offset) = (0, 0);
    while clock::now() < end {
        let mut blocks = Blocks::take(&pool).await?;
        let options = GetOptions {
            range: Some(offset..offset + RANGE),
            if_match: None,
        };
        store.get(&key, options, &mut blocks).await?;
        total += blocks.filled;
        offset = (offset + RANGE) % size.max(1);
    }
    Ok(total)
}

/// CPU time that this process has used, user and system.
fn cpu_time() -> Result<[Duration; 2], Failure> {
    const TICK: Duration = Duration::from_millis(10);
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split(' ').collect();
    let ticks = |index: usize| fields.get(index).unwrap_or(&"0").parse::<u32>();
    Ok([TICK * ticks(12)?, TICK * ticks(13)?])
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [source, key, connections, seconds, endpoint @ ..] = &arguments[..] else {
        return Err("usage: get_bandwidth SOURCE KEY CONNECTIONS SECONDS [ENDPOINT]".into());
    };
    let mut settings = StoreSettings {
        endpoint: endpoint.first().cloned(),
        ..StoreSettings::default()
    };
    settings.credentials.environment = Environment::new(std::env::vars());
    settings.anonymous = settings
        .credentials
        .environment
        .get("AWS_ACCESS_KEY_ID")
        .is_none();
    let store = open(&source.parse()?, &settings, &Registry::new())?;
    let pool = BufferPool::new(MemoryBudget::new(GIB));
    let (start, before) = (clock::now(), cpu_time()?);
    let end = start + Duration::from_secs(seconds.parse()?);
    let readers: Vec<_> = (0..connections.parse()?)
        .map(|_| {
            let (store, pool) = (Arc::clone(&store), Arc::clone(&pool));
            let key = Key::new(key);
            tokio::spawn(async move { read_until(end, store, key?, pool).await })
        })
        .collect();
    let mut total = 0;
    for reader in readers {
        total += reader.await??;
    }
    let (wall, after) = (start.elapsed().as_secs_f64(), cpu_time()?);
    let gibibytes = total as f64 / GIB as f64;
    let [user, system] = [0, 1].map(|part| (after[part] - before[part]).as_secs_f64());
    println!(
        "{:.2} GB/s, {:.3} CPU-s/GiB ({:.3} user, {:.3} system)",
        total as f64 / 1e9 / wall,
        (user + system) / gibibytes,
        user / gibibytes,
        system / gibibytes
    );
    Ok(())
}
