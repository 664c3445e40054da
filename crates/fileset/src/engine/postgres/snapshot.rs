//! A look at one state of all keys that keeps none of them, for who goes over more than fits in memory.
//!
//! The look blocks its thread; a thread beside it asks the database, in one transaction that sees one state. What others
//! changed up to that state is told with it: looks that come later see no earlier one.

use std::{
    cell::{Cell, RefCell},
    ops::{ControlFlow, Range},
    sync::mpsc,
    time::Duration,
};

use bytes::Bytes;

use super::{
    feed::News,
    paging::Paging,
    session::{Connector, Page, Reader, Since},
    worker::size_of_rows,
};
use crate::engine::{EngineError, EngineResult, Query, Reads, Visitor, behind, layers::in_order};

/// Keys that are wanted.
struct Asked {
    start: Bytes,
    end: Bytes,
    count: i64,
}

type Rows = Vec<(Bytes, Bytes)>;
type Answer = EngineResult<Page>;

/// The side of who looks. The thread beside it ends with it.
pub(super) struct Snapshot {
    ask: mpsc::Sender<Asked>,
    answers: mpsc::Receiver<Answer>,
    patience: Duration,
    failed: RefCell<Option<EngineError>>,
    /// As of the one state.
    news: Cell<Option<News>>,
}

impl Snapshot {
    /// Begins a look. The state is that of its first page. Does not block.
    pub(super) fn begin(connector: Connector, since: Since, patience: Duration) -> Self {
        let (ask, asked) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        std::thread::spawn(move || {
            if let Err(error) = serve(&connector, since, (&asked, &answer)) {
                let _ = answer.send(Err(error));
            }
        });
        Self {
            ask,
            answers,
            patience,
            failed: RefCell::new(None),
            news: Cell::new(None),
        }
    }

    fn page(&self, start: Bytes, end: Bytes, count: i64) -> EngineResult<Rows> {
        let gone = || EngineError::Database("the look at all keys ended early".to_owned());
        let asked = self.ask.send(Asked { start, end, count });
        let answer = match asked {
            Ok(()) => self.answers.recv_timeout(self.patience),
            Err(_) => return Err(gone()),
        };
        let answer = answer.map_err(|_| gone()).and_then(|answer| answer);
        match answer {
            Ok(page) => {
                self.news.set(self.news.take().or(Some(page.news)));
                Ok(page.rows)
            }
            Err(error) => {
                self.failed.borrow_mut().get_or_insert(error.clone());
                Err(error)
            }
        }
    }
}

impl Reads for Snapshot {
    fn get(&self, key: &[u8]) -> EngineResult<Option<Bytes>> {
        let rows = self.page(Bytes::copy_from_slice(key), behind(key), 1)?;
        Ok(rows.into_iter().next().map(|(_, value)| value))
    }

    fn scan(&self, range: Range<&[u8]>, visit: Visitor<'_>) -> EngineResult<()> {
        let range = in_order(range);
        let end = Bytes::copy_from_slice(range.end);
        let mut start = Bytes::copy_from_slice(range.start);
        let mut paging = Paging::new();
        loop {
            let wanted = paging.count(true);
            let rows = self.page(start, end.clone(), wanted)?;
            let (count, bytes) = size_of_rows(&rows);
            paging.read(count, bytes);
            let Some((last, _)) = rows.last() else {
                return Ok(());
            };
            start = behind(last);
            for (key, value) in rows {
                if visit(&key, &value) == ControlFlow::Break(()) {
                    return Ok(());
                }
            }
            if (count as i64) < wanted {
                return Ok(());
            }
        }
    }
}

/// Runs a look; returns what others changed up to the state that it saw, if it saw one. Blocks.
pub(super) fn look(
    connector: Connector,
    (since, patience): (Since, Duration),
    query: Query<'_>,
) -> EngineResult<Option<News>> {
    let snapshot = Snapshot::begin(connector, since, patience);
    query(&snapshot);
    let (failed, news) = (snapshot.failed.take(), snapshot.news.take());
    failed.map_or(Ok(news), Err)
}

/// Answers until nobody asks any more.
fn serve(
    connector: &Connector,
    mut since: Since,
    (asked, answer): (&mpsc::Receiver<Asked>, &mpsc::Sender<Answer>),
) -> EngineResult<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| EngineError::Io(error.to_string()))?;
    let reader = runtime.block_on(async {
        let reader = Reader::connect(connector).await?;
        // Nobody waits for it.
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
                     SET LOCAL idle_in_transaction_session_timeout = 0";
        reader.session.all(begin).await?;
        Ok::<_, EngineError>(reader)
    })?;
    for Asked { start, end, count } in asked {
        let page = runtime.block_on(reader.page(since, &(start..end), count))?;
        // All pages are as of the same state: what others changed before it is told once.
        since.seen = page.news.point;
        if answer.send(Ok(page)).is_err() {
            break;
        }
    }
    Ok(())
}
