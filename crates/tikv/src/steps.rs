//! What each step looks at and changes.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::future;
use penstock_fileset::engine::{
    EngineResult, counter,
    database::{Batch, Edit, News, Outcome, Own, Point, Since, over, put_back},
};

use crate::{
    pages::{Listing, news},
    records::{Changes, Listed, Session, Space},
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
            let seen = self.since.seen.at.min(self.batch.seen.at);
            let found = future::join3(
                own_session(state, own),
                self.listing(state, seen),
                state.get_all(self.counted(state.space())),
            );
            let (session, listing, counters) = found.await;
            let (session, mut listing) = (session?.ok_or_else(over)?, listing?);
            let (outcome, session) = match self.batch.number - session.batch {
                0 => (made(&session), session),
                1 => match self.is_right(state, listing.as_ref())? {
                    true => self.make(state, session, (&mut listing, &counters?)),
                    false => (Outcome::Outdated, session),
                },
                _ => return Err(put_back()),
            };
            let listing = listing.map(|listing| listing.behind(self.since.seen.at));
            let told = news(&state.head, (own, Some(session)), (self.since, listing));
            Ok((outcome, self.since.checked(told)?))
        })
    }
}

/// A batch that was made before.
fn made(session: &Session) -> Outcome {
    Outcome::Made {
        at: session.at,
        stand: BTreeMap::new(),
    }
}

impl Change<'_> {
    /// The keys of counters that move.
    fn counted(&self, space: &Space) -> Vec<Bytes> {
        let edits = self.batch.edits.iter();
        let counted = edits.filter(|(_, edit)| matches!(edit, Edit::Count(_)));
        counted.map(|(key, _)| space.data(key)).collect()
    }

    /// What was changed behind a number, as the state has it; `None` if it is too much.
    async fn listing(&self, state: &State<'_>, seen: i64) -> EngineResult<Option<Listing>> {
        let (space, head) = (state.space(), &state.head);
        let first = seen.max(head.floor) + 1;
        if first > head.sequence {
            return Ok(Some(Listing::default()));
        }
        let range = space.change(first)..space.change(head.sequence + 1);
        let rows = state.scan(range).await?;
        rows.map(|rows| Listing::read(space, rows)).transpose()
    }

    /// Whether nobody changed what the batch builds on. Fails where the history is another one.
    fn is_right(&self, state: &State<'_>, listing: Option<&Listing>) -> EngineResult<bool> {
        let (seen, head) = (self.batch.seen, &state.head);
        if head.sequence < seen.at || head.sequence == seen.at && head.tip != seen.tip {
            return Err(put_back());
        }
        let before = listing.and_then(|listing| listing.before(seen.at));
        if before.is_some_and(|before| before != seen.tip) {
            return Err(put_back());
        }
        let own = self.since.own.id;
        let grounds = &self.batch.grounds;
        Ok(head.floor <= seen.at
            && listing.is_some_and(|listing| !grounds.have(listing.of_others(own, seen.at))))
    }

    /// Makes the batch. It is listed for others, and told to its session.
    fn make(
        &self,
        state: &mut State<'_>,
        session: Session,
        (listing, counters): (&mut Option<Listing>, &Changes),
    ) -> (Outcome, Session) {
        let (batch, own) = (self.batch, self.since.own);
        let stand = self.apply(state, counters);
        let before = std::mem::replace(&mut state.head.tip, self.tip);
        state.head.sequence += 1;
        let at = state.head.sequence;
        if batch.is_told {
            let listed = Listed {
                session: own.id,
                before,
                keys: batch.edits.iter().map(|(key, _)| key.clone()).collect(),
            };
            state.put(state.space().change(at), listed.encoded());
            if let Some(listing) = listing {
                listing.add(at, listed);
            }
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
        (Outcome::Made { at, stand }, session)
    }

    /// Makes the edits; returns where counters stand.
    fn apply(&self, state: &mut State<'_>, counters: &Changes) -> BTreeMap<Bytes, i64> {
        let mut stand = BTreeMap::new();
        for (key, edit) in self.batch.edits.iter() {
            let place = state.space().data(key);
            match edit {
                Edit::Set(value) => state.put(place, value.clone()),
                Edit::Remove => state.delete(place),
                Edit::Count(count) => {
                    let value = count.of(counters.get(&place).and_then(Option::as_ref));
                    stand.insert(key.clone(), counter(Some(&value)));
                    state.put(place, value);
                }
            }
        }
        stand
    }
}
