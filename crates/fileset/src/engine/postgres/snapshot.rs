//! A look at one state of all keys that keeps none of them, for who goes over more than fits in memory.
//!
//! The look blocks its thread; a thread beside it asks the database, in one transaction that sees one state.

use std::{
    cell::RefCell,
    ops::{ControlFlow, Range},
    sync::mpsc,
    time::Duration,
};

use bytes::Bytes;

use super::{
    known::behind,
    session::{Connector, Reader, Since},
    worker::PAGE_MAX,
};
use crate::engine::{EngineError, EngineResult, Query, Reads, Visitor, layers::in_order};

/// Keys that are wanted.
struct Asked {
    start: Bytes,
    end: Bytes,
    count: i64,
}

type Answer = EngineResult<Vec<(Bytes, Bytes)>>;

/// The side of who looks.
struct Snapshot {
    ask: mpsc::Sender<Asked>,
    answers: mpsc::Receiver<Answer>,
    patience: Duration,
    failed: RefCell<Option<EngineError>>,
}

impl Snapshot {
    fn page(&self, start: Bytes, end: Bytes, count: i64) -> Answer {
        let gone = || EngineError::Database("the look at all keys ended early".to_owned());
        let asked = self.ask.send(Asked { start, end, count });
        let answer = match asked {
            Ok(()) => self.answers.recv_timeout(self.patience),
            Err(_) => return Err(gone()),
        };
        let answer = answer.map_err(|_| gone()).and_then(|answer| answer);
        if let Err(error) = &answer {
            self.failed.borrow_mut().get_or_insert(error.clone());
        }
        answer
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
        loop {
            let rows = self.page(start, end.clone(), PAGE_MAX)?;
            let count = rows.len() as i64;
            let Some((last, _)) = rows.last() else {
                return Ok(());
            };
            start = behind(last);
            for (key, value) in rows {
                if visit(&key, &value) == ControlFlow::Break(()) {
                    return Ok(());
                }
            }
            if count < PAGE_MAX {
                return Ok(());
            }
        }
    }
}

/// Runs a look. Blocks.
pub(super) fn look(
    connector: Connector,
    (since, patience): (Since, Duration),
    query: Query<'_>,
) -> EngineResult<()> {
    let (ask, asked) = mpsc::channel();
    let (answer, answers) = mpsc::channel();
    let asking = std::thread::spawn(move || {
        if let Err(error) = serve(&connector, since, (&asked, &answer)) {
            let _ = answer.send(Err(error));
        }
    });
    let snapshot = Snapshot {
        ask,
        answers,
        patience,
        failed: RefCell::new(None),
    };
    query(&snapshot);
    let failed = snapshot.failed.take();
    drop(snapshot);
    let _ = asking.join();
    failed.map_or(Ok(()), Err)
}

/// Answers until nobody asks any more.
fn serve(
    connector: &Connector,
    since: Since,
    (asked, answer): (&mpsc::Receiver<Asked>, &mpsc::Sender<Answer>),
) -> EngineResult<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| EngineError::Io(error.to_string()))?;
    let reader = runtime.block_on(async {
        let reader = Reader::connect(connector).await?;
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        reader.session.all(begin).await?;
        Ok::<_, EngineError>(reader)
    })?;
    for Asked { start, end, count } in asked {
        let page = runtime.block_on(reader.page(since, &(start..end), count))?;
        if answer.send(Ok(page.rows)).is_err() {
            break;
        }
    }
    Ok(())
}
