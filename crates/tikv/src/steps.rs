//! What each step looks at and changes.

use std::collections::BTreeMap;

use bytes::Bytes;
use penstock_fileset::engine::{
    EngineResult,
    database::{Batch, Edit, News, Outcome, Own, Point, Since, over, put_back},
};

use crate::{
    pages::{Listing, news},
    records::{Listed, Session},
    state::{Running, State, Step},
};

/// Changes that are listed at most, and how many more are kept until they go.
const LISTED_MAX: i64 = 10_000;
const LISTED_SLACK: i64 = 1_000;

/// All sessions, by number.
async fn sessions(state: &State<'_>) -> EngineResult<BTreeMap<i64, Session>> {
    let space = state.space();
    let rows = state.scan(space.sessions()).await?.unwrap_or_default();
    let mut sessions = BTreeMap::new();
    for (key, value) in rows {
        if let Some(id) = space.number(&key) {
            sessions.insert(id, Session::decoded(value)?);
        }
    }
    Ok(sessions)
}

/// A session, if it is not over.
async fn own_session(state: &State<'_>, own: Own) -> EngineResult<Option<Session>> {
    let found = state.get(&state.space().session(own.id)).await?;
    let found = found.map(Session::decoded).transpose()?;
    Ok(found.filter(|session| session.token == own.token))
}

/// Begins a session of a machine, whose earlier ones are over.
pub(crate) struct Begin<'a> {
    pub(crate) machine: i64,
    pub(crate) name: &'a str,
    pub(crate) token: i64,
}

impl Step for Begin<'_> {
    type Answer = Own;

    fn run<'a>(&'a self, state: &'a mut State<'_>) -> Running<'a, Own> {
        Box::pin(async move {
            let space = state.space();
            for (id, session) in sessions(state).await? {
                if session.machine == self.machine {
                    state.delete(space.session(id));
                }
            }
            state.head.sessions += 1;
            let (id, now) = (state.head.sessions, state.now());
            let session = Session {
                machine: self.machine,
                token: self.token,
                begun: now,
                heard: now,
                took_in: state.head.sequence,
                at: state.head.sequence,
                name: self.name.to_owned(),
                ..Session::default()
            };
            state.put(space.session(id), session.encoded());
            let token = self.token;
            Ok(Own { id, token })
        })
    }
}

/// Gets the keys alone, or asks for them.
pub(crate) struct Ask(pub(crate) Own);

impl Step for Ask {
    type Answer = (Option<i64>, Point);

    fn run<'a>(&'a self, state: &'a mut State<'_>) -> Running<'a, Self::Answer> {
        Box::pin(async move {
            let Own { id, token } = self.0;
            let sessions = sessions(state).await?;
            let own = sessions.get(&id).filter(|own| own.token == token);
            own.ok_or_else(over)?;
            let head = &mut state.head;
            let has_it = sessions.contains_key(&head.alone);
            head.is_wanted = has_it && head.alone != id;
            head.alone = match sessions.len() {
                1 => id,
                _ if has_it => head.alone,
                _ => 0,
            };
            let alone = (head.alone != 0).then_some(head.alone);
            let (at, tip) = (head.sequence, head.tip);
            Ok((alone, Point { at, tip }))
        })
    }
}

/// Has the keys no longer alone.
pub(crate) struct Share(pub(crate) Own);

impl Step for Share {
    type Answer = ();

    fn run<'a>(&'a self, state: &'a mut State<'_>) -> Running<'a, ()> {
        Box::pin(async move {
            let lives = own_session(state, self.0).await?.is_some();
            if lives && state.head.alone == self.0.id {
                (state.head.alone, state.head.is_wanted) = (0, false);
            }
            Ok(())
        })
    }
}

/// A session is alive.
pub(crate) struct Beat {
    pub(crate) own: Own,
    pub(crate) took_in: i64,
}

impl Step for Beat {
    type Answer = bool;

    fn run<'a>(&'a self, state: &'a mut State<'_>) -> Running<'a, bool> {
        Box::pin(async move {
            let Some(session) = own_session(state, self.own).await? else {
                return Ok(false);
            };
            let session = Session {
                beat: session.beat + 1,
                heard: state.now(),
                took_in: session.took_in.max(self.took_in),
                ..session
            };
            state.put(state.space().session(self.own.id), session.encoded());
            Ok(true)
        })
    }
}

/// Ends a session, if it was heard of so often and has this token, where they matter.
pub(crate) struct End {
    pub(crate) id: i64,
    pub(crate) beat: Option<i64>,
    pub(crate) token: Option<i64>,
}

impl Step for End {
    type Answer = bool;

    fn run<'a>(&'a self, state: &'a mut State<'_>) -> Running<'a, bool> {
        Box::pin(async move {
            let key = state.space().session(self.id);
            let found = state.get(&key).await?;
            let Some(session) = found.map(Session::decoded).transpose()? else {
                return Ok(false);
            };
            let is_it = self.beat.is_none_or(|beat| beat == session.beat)
                && self.token.is_none_or(|token| token == session.token);
            if is_it {
                state.delete(key);
            }
            Ok(is_it)
        })
    }
}

/// Lists no longer what nobody needs. Returns up to where, if that is new.
pub(crate) struct Trim;

impl Step for Trim {
    type Answer = Option<i64>;

    fn run<'a>(&'a self, state: &'a mut State<'_>) -> Running<'a, Option<i64>> {
        Box::pin(async move {
            let floor = state.head.sequence - LISTED_MAX;
            let is_new = floor > state.head.floor + LISTED_SLACK;
            if is_new {
                state.head.floor = floor;
            }
            Ok(is_new.then_some(floor))
        })
    }
}

/// Makes a batch.
pub(crate) struct Change<'a> {
    pub(crate) since: Since,
    pub(crate) batch: &'a Batch,
    /// The tip that comes.
    pub(crate) tip: i64,
}

impl Step for Change<'_> {
    type Answer = (Outcome, News);

    fn run<'a>(&'a self, state: &'a mut State<'_>) -> Running<'a, Self::Answer> {
        Box::pin(async move {
            let own = self.since.own;
            let session = own_session(state, own).await?.ok_or_else(over)?;
            let outcome = match self.batch.number - session.batch {
                0 => Outcome::Made {
                    at: session.at,
                    stand: BTreeMap::new(),
                },
                1 => self.make(state, session).await?,
                _ => return Err(put_back()),
            };
            let session = own_session(state, own).await?;
            let listing = self.listing(state, self.since.seen).await?;
            let told = news(&state.head, (own, session), listing);
            Ok((outcome, self.since.checked(told)?))
        })
    }
}

impl Change<'_> {
    /// What was changed behind a point, as the state has it.
    async fn listing(&self, state: &State<'_>, seen: Point) -> EngineResult<Option<Listing>> {
        let (space, head) = (state.space(), &state.head);
        if seen.at >= head.sequence {
            return Ok(Some(Listing::new()));
        }
        let range = space.change(seen.at + 1)..space.change(head.sequence + 1);
        let rows = state.scan(range).await?;
        rows.map(|rows| Listing::read(space, rows)).transpose()
    }

    async fn make(&self, state: &mut State<'_>, session: Session) -> EngineResult<Outcome> {
        let (batch, own) = (self.batch, self.since.own);
        let (seen, head) = (batch.seen, &state.head);
        let is_other = head.sequence < seen.at || head.sequence == seen.at && head.tip != seen.tip;
        if is_other {
            return Err(put_back());
        }
        let Some(listing) = self.listing(state, seen).await? else {
            return Ok(Outcome::Outdated);
        };
        let before = listing.before(seen.at);
        if before.is_some_and(|before| before != seen.tip) {
            return Err(put_back());
        }
        if state.head.floor > seen.at || batch.grounds.have(listing.keys_of_others(own.id)) {
            return Ok(Outcome::Outdated);
        }
        let stand = self.apply(state).await?;
        let found = std::mem::replace(&mut state.head.tip, self.tip);
        state.head.sequence += 1;
        let at = state.head.sequence;
        if batch.is_told {
            let listed = Listed {
                session: own.id,
                before: found,
                keys: batch.edits.iter().map(|(key, _)| key.clone()).collect(),
            };
            state.put(state.space().change(at), listed.encoded());
        }
        let session = Session {
            batch: batch.number,
            at,
            beat: session.beat + 1,
            heard: state.now(),
            took_in: batch.took_in,
            ..session
        };
        state.put(state.space().session(own.id), session.encoded());
        Ok(Outcome::Made { at, stand })
    }

    /// Makes the edits; returns where counters stand.
    async fn apply(&self, state: &mut State<'_>) -> EngineResult<BTreeMap<Bytes, i64>> {
        let space = state.space();
        let edits = || self.batch.edits.iter();
        let counted = edits().filter(|(_, edit)| matches!(edit, Edit::Count(_)));
        let counted: Vec<Bytes> = counted.map(|(key, _)| space.data(key)).collect();
        let values = state.get_all(counted).await?;
        let mut stand = BTreeMap::new();
        for (key, edit) in edits() {
            let place = space.data(key);
            match edit {
                Edit::Set(value) => state.put(place, value.clone()),
                Edit::Remove => state.delete(place),
                Edit::Count(count) => {
                    let value = count.of(values.get(&place).and_then(Option::as_ref));
                    let number = penstock_fileset::engine::counter(Some(&value));
                    stand.insert(key.clone(), number);
                    state.put(place, value);
                }
            }
        }
        Ok(stand)
    }
}
