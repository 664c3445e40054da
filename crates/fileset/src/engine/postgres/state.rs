//! All keys as operations see them: what waits to be made, above what is known of the database.
//!
//! | mode | who else has the keys | an operation is done | a query sees |
//! |---|---|---|---|
//! | [`Alone`](Mode::Alone) | nobody | when it was applied here: `sync` waits for the database | what was applied |
//! | [`Yielding`](Mode::Yielding) | somebody asks for them | not at all, until all that was applied is in the database | what was applied |
//! | [`Shared`](Mode::Shared) | anybody | when the database has it | what the database has, as far as it is known |
//!
//! A group of operations that builds on what others changed meanwhile is taken back as a whole, with the one that
//! waits behind it: who runs them does it again.
//!
//! A group that was sent lies above what is known for as long as nothing that came from the database has it in it. What
//! comes says which batch of this session was made last: with the first that says this one its edits become known, in
//! the same instant, be its own answer late or lost. So nothing that it changed is seen twice, and nothing that others
//! changed behind it is hidden by it.

use std::collections::BTreeMap;

use bytes::Bytes;
use tokio::sync::watch;

use super::{
    edits::{Draft, Edits, Over, number},
    feed::{Feed, News, Point},
    grounds::{Grounds, Noted},
    known::{Known, Look, Want},
    session::{Batch, Own, Page, Since},
};
use crate::engine::{
    EngineError, EngineResult, Operation, Query, Verdict,
    layers::{Changes, Layer, Layered},
};

/// Bytes that one operation may change, and that it may look at which do not fit in memory.
pub(super) const OPERATION_MAX: usize = 64 << 20;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Alone,
    Yielding,
    Shared,
}

/// What becomes of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Open,
    Made,
    /// Others changed what it builds on: its operations are run again.
    Outdated,
}

/// What became of a run.
pub(super) enum Ran {
    /// It is done, with all that it said.
    Done,
    /// It is done when its group is made.
    Waits(watch::Receiver<Fate>),
    /// It did nothing: it needs to know this first.
    Missed(Want),
    /// It did nothing: others come in just now.
    Yielding,
    /// It did nothing: the session may be over.
    Uncertain,
}

/// Operations that are made at once.
#[derive(Debug)]
struct Group {
    /// Among the batches of this session, once it is sent.
    number: i64,
    operations: u64,
    edits: Edits,
    grounds: Grounds,
    /// What they build on is as of this point or a later one.
    seen: Option<Point>,
    bytes: usize,
    fate: watch::Sender<Fate>,
}

impl Group {
    fn new() -> Self {
        Self {
            number: 0,
            operations: 0,
            edits: Edits::default(),
            grounds: Grounds::default(),
            seen: None,
            bytes: 0,
            fate: watch::Sender::new(Fate::Open),
        }
    }

    /// Its edits above what is below them.
    fn over<'a>(&'a self, below: &'a Layered<'a>) -> Over<'a> {
        Over {
            edits: &self.edits,
            below,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct State {
    failed: Option<EngineError>,
    mode: Mode,
    pub(super) known: Known,
    pub(super) feed: Feed,
    /// Somebody waits for the keys, which the database says this session has alone, who does not know that.
    is_asked: bool,
    /// What is on its way to the database.
    sending: Group,
    /// What goes there next.
    waiting: Group,
    /// The last batch that is known to be made.
    made: i64,
    /// Operations that were applied.
    applied: u64,
}

impl State {
    pub(super) fn new(mode: Mode, known: Known, feed: Feed) -> Self {
        Self {
            failed: None,
            mode,
            known,
            feed,
            is_asked: false,
            sending: Group::new(),
            waiting: Group::new(),
            made: 0,
            applied: 0,
        }
    }

    /// From now on nothing more is done. Returns whether that is new.
    pub(super) fn fail(&mut self, error: EngineError) -> bool {
        let is_new = self.failed.is_none();
        self.failed.get_or_insert(error);
        is_new
    }

    /// Fails with what the engine failed with.
    pub(super) fn check(&self) -> EngineResult<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    pub(super) fn applied(&self) -> u64 {
        self.applied
    }

    /// From where news are wanted.
    pub(super) fn since(&self, own: Own) -> Since {
        Since {
            seen: self.feed.seen(),
            made: self.made,
            own,
        }
    }

    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting.bytes
    }

    /// Others may have the keys, too. Nothing waits that was answered.
    pub(super) fn share(&mut self) {
        self.mode = Mode::Shared;
        self.is_asked = false;
    }

    /// The database is to be told that others may have the keys, too.
    pub(super) fn is_to_share(&self) -> bool {
        self.mode == Mode::Yielding || self.mode == Mode::Shared && self.is_asked
    }

    /// Nobody else has the keys any more. What waits may build on what others changed last.
    pub(super) fn be_alone(&mut self, news: News) {
        self.go_on(news);
        self.give_up_waiting();
        self.mode = Mode::Alone;
    }

    /// Runs a look.
    pub(super) fn look(&self, query: Query<'_>) -> EngineResult<Ran> {
        self.check()?;
        let look = Look::new(&self.known);
        let known = Layered(vec![&look]);
        match self.mode {
            Mode::Shared => query(&known),
            Mode::Alone | Mode::Yielding => {
                let sending = self.sending.over(&known);
                let sent = Layered(vec![&sending, &look]);
                let waiting = self.waiting.over(&sent);
                query(&Layered(vec![&waiting, &sending, &look]));
            }
        }
        Ok(look.into_missed().map_or(Ran::Done, Ran::Missed))
    }

    /// Runs an operation.
    pub(super) fn run(&mut self, operation: &mut Operation) -> EngineResult<Ran> {
        self.check()?;
        if self.mode == Mode::Yielding {
            return Ok(Ran::Yielding);
        }
        let (edits, grounds) = match self.draft(operation) {
            Ok(drafted) => drafted,
            Err(missed) => return Ok(Ran::Missed(missed)),
        };
        let is_alone = self.mode == Mode::Alone;
        if is_alone && edits.is_empty() {
            return Ok(Ran::Done);
        }
        self.apply(edits, grounds)?;
        Ok(match is_alone {
            true => Ran::Done,
            false => Ran::Waits(self.waiting.fate.subscribe()),
        })
    }

    fn draft(&self, operation: &mut Operation) -> Result<(Edits, Grounds), Want> {
        let look = Look::new(&self.known);
        let known = Layered(vec![&look]);
        let sending = self.sending.over(&known);
        let noted = Noted::new(vec![&sending, &look]);
        let sent: Vec<&dyn Layer> = match self.mode {
            Mode::Shared => vec![&noted],
            Mode::Alone | Mode::Yielding => vec![&sending, &look],
        };
        let sent = Layered(sent);
        let waiting = self.waiting.over(&sent);
        let layers = [&waiting as &dyn Layer].into_iter();
        let layers = layers.chain(sent.0.iter().copied()).collect();
        let mut draft = Draft::new(Layered(layers), self.mode == Mode::Shared);
        let verdict = operation(&mut draft);
        let edits = draft.into_edits();
        let grounds = noted.into_grounds();
        match look.into_missed() {
            Some(missed) => Err(missed),
            None if verdict == Verdict::Keep => Ok((edits, grounds)),
            None => Ok((Edits::default(), grounds)),
        }
    }

    fn apply(&mut self, edits: Edits, grounds: Grounds) -> EngineResult<()> {
        let bytes = edits.size() + grounds.size();
        if bytes > OPERATION_MAX {
            return Err(EngineError::TooLarge(bytes));
        }
        let group = &mut self.waiting;
        group.edits.extend(edits);
        group.grounds.extend(grounds);
        group.seen.get_or_insert(self.feed.seen());
        group.bytes += bytes;
        group.operations += 1;
        self.applied += 1;
        Ok(())
    }

    /// What goes to the database now, if something does, and the last operation that was applied: all before it was made
    /// or taken back when that is done.
    pub(super) fn begin(&mut self) -> (Option<Batch>, u64) {
        if self.waiting.operations == 0 {
            return (None, self.applied);
        }
        self.sending = std::mem::replace(&mut self.waiting, Group::new());
        self.sending.number = self.made + 1;
        let batch = Batch {
            number: self.sending.number,
            seen: self.sending.seen.unwrap_or_default(),
            grounds: std::mem::take(&mut self.sending.grounds),
            edits: self.sending.edits.clone(),
            is_told: self.mode == Mode::Shared,
            took_in: self.feed.taken_in(),
        };
        (Some(batch), self.applied)
    }

    /// What others changed. If they ask for the keys they get them next.
    pub(super) fn go_on(&mut self, news: News) {
        if news.is_asked && self.mode == Mode::Alone {
            self.mode = Mode::Yielding;
        }
        self.is_asked = news.is_asked;
        let (batch, at) = news.made;
        let changed = self.feed.go_on(news);
        self.known.forget(changed.as_deref());
        if batch > self.made {
            self.made = batch;
            self.settle(at);
        }
    }

    /// What was sent was made, under this number: it is known now, but for its counters.
    fn settle(&mut self, at: i64) {
        let edits = std::mem::take(&mut self.sending.edits);
        let keys: Vec<Bytes> = edits.iter().map(|(key, _)| key.clone()).collect();
        self.known.forget(Some(&keys));
        self.learn_made(at, edits.settled());
        self.feed.changed(at, keys.into_iter());
    }

    /// What this session made under this number, but for what was changed since.
    fn learn_made(&mut self, at: i64, mut made: Changes) {
        if let Some(since) = self.feed.behind(at) {
            made.retain(|key, _| !since.contains(key));
            self.known.learn_changes(made);
        }
    }

    /// What was read of a range.
    pub(super) fn learn(&mut self, range: std::ops::Range<Bytes>, page: Page) {
        let at = page.news.point.at;
        self.go_on(page.news);
        if let Some(since) = self.feed.behind(at) {
            self.known.learn_range(range, page.rows, &since);
        }
    }

    /// The database has what was sent, under number `at`, and told where counters `stand`.
    pub(super) fn finish(&mut self, at: i64, stand: &BTreeMap<Bytes, i64>, news: News) {
        self.go_on(news);
        let stand = stand.iter();
        let stand = stand.map(|(key, value)| (key.clone(), Some(number(*value))));
        self.learn_made(at, stand.collect());
        let sent = std::mem::replace(&mut self.sending, Group::new());
        sent.fate.send_replace(Fate::Made);
    }

    /// What was sent changes nothing: whether it was right is known from what others changed by now.
    pub(super) fn finish_unchanged(&mut self, grounds: &Grounds, news: News) {
        self.go_on(news);
        let seen = self.sending.seen.unwrap_or_default();
        let later = self.feed.behind(seen.at);
        let is_right = later.is_some_and(|later| !grounds.have(later.into_iter()));
        let sent = std::mem::replace(&mut self.sending, Group::new());
        sent.fate.send_replace(match is_right {
            true => Fate::Made,
            false => Fate::Outdated,
        });
    }

    /// Others changed what was sent builds on.
    pub(super) fn take_back(&mut self, news: News) {
        self.go_on(news);
        let sent = std::mem::replace(&mut self.sending, Group::new());
        sent.fate.send_replace(Fate::Outdated);
        self.give_up_waiting();
    }

    fn give_up_waiting(&mut self) {
        let waiting = std::mem::replace(&mut self.waiting, Group::new());
        waiting.fate.send_replace(Fate::Outdated);
    }
}
