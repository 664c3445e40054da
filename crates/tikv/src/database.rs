//! TiKV behind the seam of the engine, and maintenance.
//!
//! A cluster without TiDB keeps each value that a key ever had until somebody says up to which moment they may go. The session
//! that began first among those that are alive says so, every few minutes, up to [`GARBAGE_AGE`] ago. That is for the whole
//! cluster, so an address can say that somebody else does it.

use std::{
    fmt,
    ops::Range,
    time::{Duration, UNIX_EPOCH},
};

use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::{
    Mutex,
    clock::{self, Instant},
    random,
};
use penstock_fileset::engine::{
    EngineResult, SessionId, SessionRecord,
    database::{Batch, Database, Limits, News, Outcome, Own, Page, Pages, Point, Since, moment},
};
use tokio::task::JoinHandle;

use crate::{
    address::TikvAddress,
    client::{Client, Committed, before},
    pages::{FrozenPages, Look},
    records::{Session, Space},
    state::Keys,
    steps::{Ask, Beat, Begin, Change, End, Share, Trim},
};

/// How old a value is at least that goes.
pub(crate) const GARBAGE_AGE: Duration = Duration::from_secs(20 * 60);
/// How often that is said.
const GARBAGE_INTERVAL: Duration = Duration::from_secs(5 * 60);
/// Changes that are not listed any more which go in one transaction, and such transactions at once.
const TRIMMED: usize = 256;
const TRIMS: usize = 40;
/// What one operation may change, and what may wait: a key of TiKV has at most 8 MB, and the head has both, in the worst case
/// with all keys twice.
const LIMITS: Limits = Limits {
    operation: 2 << 20,
    waiting: 1 << 20,
};

/// See the module.
pub(crate) struct Tikv {
    keys: Keys,
    collects_garbage: bool,
    collecting: Mutex<Option<Collecting>>,
}

impl Tikv {
    pub(crate) fn new(address: &TikvAddress, identity: u64) -> Self {
        Self {
            keys: Keys {
                client: Client::new(address),
                space: Space::new(&address.prefix, identity),
                folded: Mutex::default(),
            },
            collects_garbage: address.collects_garbage,
            collecting: Mutex::default(),
        }
    }

    /// All keys as they are now.
    async fn look(&self) -> EngineResult<Look<'_>> {
        Look::at(&self.keys, self.keys.client.now().await?).await
    }

    /// Removes changes that are not listed any more. Nobody looks at them.
    async fn remove_listed(&self, floor: i64) -> EngineResult<()> {
        let Keys { client, space, .. } = &self.keys;
        let range = space.change(0)..space.change(floor + 1);
        for _ in 0..TRIMS {
            let now = client.now().await?;
            let rows = self.keys.scan(&now, range.clone(), TRIMMED).await?;
            if rows.is_empty() {
                break;
            }
            let mut transaction = client.begin().await?;
            for (key, _) in rows {
                client.trip(transaction.delete(Vec::from(key))).await?;
            }
            if !matches!(client.commit(&mut transaction).await, Committed::Perhaps) {
                client.roll_back(&mut transaction).await;
                break;
            }
        }
        Ok(())
    }

    /// Lets the values go that nobody looks at any more, if this session is the one that does. Nobody waits for it.
    async fn collect_garbage(&self, own: Own) -> EngineResult<()> {
        let is_due = |last: &Collecting| clock::now() >= last.next && last.work.is_finished();
        if !self.collects_garbage || !self.collecting.lock().as_ref().is_none_or(is_due) {
            return Ok(());
        }
        let sessions = self.sessions().await?;
        let first = sessions.first().map(|(record, _)| record.id);
        if first == Some(SessionId(own.id.cast_unsigned())) {
            let work = tokio::spawn(collected(self.keys.client.another()));
            let next = clock::now() + GARBAGE_INTERVAL;
            *self.collecting.lock() = Some(Collecting { next, work });
        }
        Ok(())
    }
}

/// A collection of garbage, and when the next one is due.
struct Collecting {
    next: Instant,
    work: JoinHandle<()>,
}

impl Drop for Collecting {
    fn drop(&mut self) {
        self.work.abort();
    }
}

/// Collects garbage of the cluster.
async fn collected(client: Client) {
    let collect = async {
        let made = client.get().await?;
        let until = before(&client.now().await?, GARBAGE_AGE);
        let collected = made.gc(until).await;
        collected.map_err(|error| client.failure(error))
    };
    let collected = clock::deadline(GARBAGE_INTERVAL, Box::pin(collect)).await;
    if let Ok(Err(error)) = collected {
        tracing::warn!(%error, "the garbage of the cluster was not collected; it is tried again");
    }
}

impl fmt::Debug for Tikv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.keys.client.place)
    }
}

#[async_trait]
impl Database for Tikv {
    fn place(&self) -> &str {
        &self.keys.client.place
    }

    fn limits(&self) -> Limits {
        LIMITS
    }

    async fn create(&self) -> EngineResult<()> {
        self.keys.create().await
    }

    async fn is_there(&self) -> EngineResult<bool> {
        let now = self.keys.client.now().await?;
        Ok(self.keys.head_at(&now).await?.is_some())
    }

    async fn remove(&self) -> EngineResult<()> {
        self.keys.remove().await
    }

    async fn begin(&self, machine: i64, name: &str) -> EngineResult<Own> {
        let token = random::number().cast_signed();
        let begin = Begin {
            machine,
            name,
            token,
        };
        self.keys.step(&begin).await
    }

    async fn ask(&self, own: Own) -> EngineResult<(Option<i64>, Point)> {
        self.keys.step(&Ask(own)).await
    }

    async fn share(&self, own: Own) -> EngineResult<()> {
        self.keys.step(&Share(own)).await
    }

    async fn beat(&self, own: Own, took_in: i64) -> EngineResult<bool> {
        self.keys.step(&Beat { own, took_in }).await
    }

    async fn sessions(&self) -> EngineResult<Vec<(SessionRecord, i64)>> {
        let look = self.look().await?;
        let mut records = Vec::new();
        for (id, session) in look.sessions().await? {
            records.push((record(id, &session), session.beat));
        }
        Ok(records)
    }

    async fn end(&self, own: Own) -> EngineResult<()> {
        let (id, token) = (own.id, Some(own.token));
        let end = End {
            id,
            beat: None,
            token,
        };
        self.keys.step(&end).await.map(drop)
    }

    async fn end_other(&self, id: i64, beat: Option<i64>) -> EngineResult<bool> {
        let token = None;
        self.keys.step(&End { id, beat, token }).await
    }

    async fn trim(&self, own: Own) -> EngineResult<()> {
        if let Some(floor) = self.keys.step(&Trim).await? {
            self.remove_listed(floor).await?;
        }
        self.collect_garbage(own).await
    }

    async fn page(&self, since: Since, range: &Range<Bytes>, count: i64) -> EngineResult<Page> {
        self.look().await?.page(since, range, count).await
    }

    async fn news(&self, since: Since) -> EngineResult<News> {
        self.look().await?.news(since).await
    }

    async fn change(&self, since: Since, batch: &Batch) -> EngineResult<(Outcome, News)> {
        let tip = random::number().cast_signed();
        let change = Change { since, batch, tip };
        self.keys.step(&change).await
    }

    async fn freeze(&self) -> EngineResult<Box<dyn Pages>> {
        Ok(Box::new(FrozenPages {
            keys: self.keys.another(),
            moment: None,
        }))
    }
}

fn record(id: i64, session: &Session) -> SessionRecord {
    let time = |milliseconds: i64| {
        UNIX_EPOCH + Duration::from_millis(u64::try_from(milliseconds).unwrap_or_default())
    };
    SessionRecord {
        id: SessionId(id.cast_unsigned()),
        name: session.name.clone(),
        begun: time(session.begun),
        heard: time(session.heard),
        took_in: moment(session.took_in),
    }
}
