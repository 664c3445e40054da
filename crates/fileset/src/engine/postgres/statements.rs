//! All that a database is asked for.
//!
//! | statement | when | trips |
//! |---|---|---|
//! | [`page`](Statements::page) | something is not known yet | 1 |
//! | [`news`](Statements::news) | what others changed is asked for | 1 |
//! | `BEGIN`, [`lock`](Statements::lock), [`change`](Statements::change), `COMMIT`, `news` | operations that waited are made, all at once | 1 |
//! | `BEGIN`, `lock`, [`begin`](Statements::begin) and its like, `COMMIT` | a session begins, ends, or is ended | 2 |
//! | [`beat`](Statements::beat), [`sessions`](Statements::sessions) | every 5 seconds | 1 |
//! | [`create`](Statements::create), [`drop`](Statements::drop), [`is_there`](Statements::is_there) | a file system begins and ends | 1 |
//! | `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`, then `page` | all is looked at, as by a check | 1 for each page |
//! | `SET`, `SHOW` | a connection begins | 1 |
//!
//! They are tried with PostgreSQL 15. As its documentation says, CockroachDB refuses `change`, which changes `kv` more
//! than once in a statement, and its `integer` has eight bytes; YugabyteDB needs `PRIMARY KEY (key ASC)`.
//!
//! Who changes something locks the one row of `head` first, and nobody locks a row before it that another could hold:
//! so no two transactions wait for each other in a circle. What is read behind the lock is the latest that there is, so
//! READ COMMITTED is enough, and each connection sets it: a server may be set up for another isolation, which refuses who
//! waited for a row that somebody else changed, as a beat and a change of the same session do. Who goes silent behind the lock is cut off by the server within half a lease. A batch has a number among those of its session: one that is sent again, since nobody knows
//! what became of it, finds its number taken and does nothing.
//!
//! A database can be put back, or a standby that lagged takes its place, and then goes on: what has the same number may
//! be something else. So each change has a random **tip**, which `head` and the next change name, and each session a
//! random **token**. Whoever asks says up to which number it knows the history and the tip of that, and its token.
//!
//! | table | what a row says |
//! |---|---|
//! | `kv` | a key with its value, or where its counter stands |
//! | `head` | how many changes there were and the tip of the last one, how many sessions, and which has the keys alone |
//! | `session` | who has the keys, its token, how often it was heard of, and its last batch |
//! | `feed` | a change: whose, which tip was before it, and of which keys; the last [`FEED_KEPT`] of them |

/// The version of these tables.
pub(super) const VERSION: i32 = 2;
/// Changes that are listed. Who is farther behind begins anew.
pub(super) const FEED_KEPT: i64 = 100_000;

/// The value of a counter that somebody set as bytes, the least first.
const COUNTER: &str = "CASE WHEN length(kv.value) = 8 THEN (get_byte(kv.value, 0)::bigint | get_byte(kv.value, 1)::bigint << 8 \
     | get_byte(kv.value, 2)::bigint << 16 | get_byte(kv.value, 3)::bigint << 24 \
     | get_byte(kv.value, 4)::bigint << 32 | get_byte(kv.value, 5)::bigint << 40 \
     | get_byte(kv.value, 6)::bigint << 48 | get_byte(kv.value, 7)::bigint << 56) END";

/// The farthest that a counter or a mark goes.
const MOST: i64 = i64::MAX;

/// The setting that marks a transaction which has the lock.
const LOCKED: &str = "penstock.locked";

/// What is asked of the tables of one file system.
#[derive(Debug, Clone)]
pub(super) struct Statements {
    schema: String,
}

impl Statements {
    /// Of this file system.
    pub(super) fn new(identity: u64) -> Self {
        Self {
            schema: format!("penstock_{identity:016x}"),
        }
    }

    /// Takes the number from which on, the session and its token. The row without a key says the latest number and its
    /// tip, which tip the change behind the number that was asked from found, whether the session is asked for what it
    /// has alone, whether there is such a session, and its last batch with the number of that; the other rows are keys
    /// that were changed, and whether it did.
    pub(super) fn news(&self) -> String {
        let schema = &self.schema;
        format!(
            "SELECT NULL::bytea AS key, head.sequence AS at, floor, wanted AND alone = $2 AS is_asked, \
               own.id IS NOT NULL AS is_own, own.batch AS batch, own.at AS made_at, head.tip AS tip, \
               (SELECT before FROM {schema}.feed WHERE sequence = $1::bigint + 1) AS before \
             FROM {schema}.head AS head \
             LEFT JOIN {schema}.session AS own ON own.id = $2 AND own.token = $3 WHERE head.id = 1 \
             UNION ALL SELECT changed.key, feed.sequence, NULL, NULL, feed.session = $2, NULL, NULL, NULL, NULL \
             FROM {schema}.feed AS feed, unnest(feed.keys) AS changed (key) \
             WHERE feed.sequence > $1"
        )
    }

    /// Takes what `news` takes, then the first and the end of a range, and how many of its keys are wanted. The rows of
    /// `news` come with `false`; all rows are as of one moment.
    pub(super) fn page(&self) -> String {
        let schema = &self.schema;
        let news = self.news();
        format!(
            "SELECT FALSE AS is_row, key, NULL::bytea AS value, NULL::bigint AS number, \
               at, floor, is_asked, is_own, batch, made_at, tip, before FROM ({news}) AS news \
             UNION ALL SELECT TRUE, key, value, number, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL \
             FROM (SELECT key, value, number FROM {schema}.kv \
               WHERE key >= $4 AND key < $5 ORDER BY key LIMIT $6) AS page"
        )
    }

    /// What goes before any change. It leaves a mark in the transaction, by which `change` knows that it is in it, though
    /// both were sent before `BEGIN` was answered.
    pub(super) fn lock(&self) -> String {
        let schema = &self.schema;
        format!(
            "SELECT sequence, set_config('{LOCKED}', 'yes', TRUE) FROM {schema}.head WHERE id = 1 FOR UPDATE"
        )
    }

    /// Takes the session, the number of its batch, what was seen by it; the keys and the ranges that it builds on; the
    /// keys that go, those that come with their values, and counters with their floors and what is added to them; whether
    /// others are to be told, and what was taken in; the token of the session, the tip of what was seen, and the tip that
    /// comes. Each look at `kv` names its keys: a plan of when it was small would else join all of it for as long as that is kept.
    /// The first row says what became of it ([`Said`](super::session)) and
    /// its number among all changes; the others are counters and where they stand.
    pub(super) fn change(&self) -> String {
        let schema = &self.schema;
        format!(
            "WITH head AS (SELECT sequence, floor, tip FROM {schema}.head WHERE id = 1), \
             mine AS (SELECT batch, at FROM {schema}.session WHERE id = $1 AND token = $15), \
             news AS (SELECT changed.key FROM {schema}.feed AS feed, unnest(feed.keys) AS changed (key) \
               WHERE feed.sequence > $3 AND feed.session <> $1), \
             counts AS (SELECT count.key, count.floor, count.plus \
               FROM unnest($10::bytea[], $11::bigint[], $12::bigint[]) AS count (key, floor, plus)), \
             verdict AS (SELECT CASE \
               WHEN current_setting('{LOCKED}', TRUE) IS DISTINCT FROM 'yes' THEN 5 \
               WHEN NOT EXISTS (SELECT 1 FROM mine) THEN 0 \
               WHEN (SELECT batch FROM mine) = $2 THEN 1 \
               WHEN (SELECT batch FROM mine) <> $2 - 1 THEN 2 \
               WHEN EXISTS (SELECT 1 FROM head WHERE sequence < $3 OR sequence = $3 AND tip <> $16) THEN 2 \
               WHEN EXISTS (SELECT 1 FROM {schema}.feed \
                 WHERE sequence = $3::bigint + 1 AND before <> $16) THEN 2 \
               WHEN (SELECT floor FROM head) > $3 THEN 3 \
               WHEN EXISTS (SELECT 1 FROM news WHERE key = ANY($4::bytea[])) THEN 3 \
               WHEN EXISTS (SELECT 1 FROM news, unnest($5::bytea[], $6::bytea[]) AS looked (first, behind) \
                 WHERE news.key >= looked.first AND news.key < looked.behind) THEN 3 \
               ELSE 4 END AS said), \
             go AS (SELECT 1 FROM verdict WHERE said = 4), \
             next AS (UPDATE {schema}.head SET sequence = sequence + 1, tip = $17 \
               WHERE id = 1 AND EXISTS (SELECT 1 FROM go) RETURNING sequence), \
             own AS (UPDATE {schema}.session SET batch = $2, beat = beat + 1, heard = now(), \
               took_in = $14, at = (SELECT sequence FROM next) \
               WHERE id = $1 AND EXISTS (SELECT 1 FROM next) RETURNING id), \
             fed AS (INSERT INTO {schema}.feed (sequence, session, before, keys) \
               SELECT sequence, $1, (SELECT tip FROM head), $7::bytea[] || $8::bytea[] || $10::bytea[] FROM next WHERE $13 RETURNING sequence), \
             gone AS (DELETE FROM {schema}.kv \
               WHERE key = ANY($7::bytea[]) AND EXISTS (SELECT 1 FROM go) RETURNING key), \
             come AS (INSERT INTO {schema}.kv (key, value) \
               SELECT put.key, put.value FROM unnest($8::bytea[], $9::bytea[]) AS put (key, value) \
               WHERE EXISTS (SELECT 1 FROM go) \
               ON CONFLICT (key) DO UPDATE SET value = excluded.value, number = NULL RETURNING key), \
             moved AS (UPDATE {schema}.kv AS kv SET value = NULL, \
               number = GREATEST(counts.floor, LEAST({MOST}, GREATEST(-{MOST}, \
                 COALESCE(kv.number, {COUNTER}, 0)::numeric + counts.plus))::bigint) \
               FROM counts WHERE kv.key = counts.key AND kv.key = ANY($10::bytea[]) AND EXISTS (SELECT 1 FROM go) \
               RETURNING kv.key, kv.number), \
             begun AS (INSERT INTO {schema}.kv (key, number) \
               SELECT counts.key, GREATEST(counts.floor, counts.plus) FROM counts \
               WHERE EXISTS (SELECT 1 FROM go) \
               AND NOT EXISTS (SELECT 1 FROM {schema}.kv AS kv \
                 WHERE kv.key = counts.key AND kv.key = ANY($10::bytea[])) \
               RETURNING key, number) \
             SELECT NULL::bytea AS key, said::bigint AS number, \
               COALESCE((SELECT sequence FROM next), (SELECT at FROM mine)) AS at FROM verdict \
             UNION ALL SELECT key, number, NULL FROM moved \
             UNION ALL SELECT key, number, NULL FROM begun"
        )
    }

    /// Takes a machine, a name and a token; behind `lock`. Returns the version of the tables, and the number of the
    /// session, which does not begin in tables of another version. Sessions that this machine had before are over.
    pub(super) fn begin(&self) -> String {
        let schema = &self.schema;
        format!(
            "WITH gone AS (DELETE FROM {schema}.session WHERE machine = $1 \
               AND EXISTS (SELECT 1 FROM {schema}.head WHERE id = 1 AND version = {VERSION})), \
             next AS (UPDATE {schema}.head SET sessions = sessions + 1 WHERE id = 1 AND version = {VERSION} \
               RETURNING sessions, sequence), \
             begun AS (INSERT INTO {schema}.session \
               (id, machine, name, begun, heard, beat, took_in, batch, at, token) \
               SELECT sessions, $1, $2, now(), now(), 0, sequence, 0, sequence, $3 FROM next) \
             SELECT version, (SELECT sessions FROM next) FROM {schema}.head WHERE id = 1"
        )
    }

    /// Takes a session and its token; behind `lock`. It gets the keys alone if nobody else has them; else it asks for
    /// them. Returns who has them alone, the latest number and its tip; nothing if the session is over.
    pub(super) fn ask(&self) -> String {
        let schema = &self.schema;
        format!(
            "UPDATE {schema}.head SET wanted = EXISTS (SELECT 1 FROM {schema}.session \
                 WHERE id = alone AND id <> $1), \
               alone = CASE WHEN NOT EXISTS (SELECT 1 FROM {schema}.session WHERE id <> $1) THEN $1 \
                 WHEN EXISTS (SELECT 1 FROM {schema}.session WHERE id = alone) THEN alone END \
             WHERE id = 1 AND EXISTS (SELECT 1 FROM {schema}.session WHERE id = $1 AND token = $2) \
             RETURNING alone, sequence, tip"
        )
    }

    /// Takes a session and its token, which does not want to have the keys alone any more; behind `lock`.
    pub(super) fn share(&self) -> String {
        let schema = &self.schema;
        format!(
            "UPDATE {schema}.head SET alone = NULL, wanted = FALSE WHERE id = 1 AND alone = $1 \
               AND EXISTS (SELECT 1 FROM {schema}.session WHERE id = $1 AND token = $2)"
        )
    }

    /// Takes a session, its token and what it took in: it is alive. Returns its number if that is so.
    pub(super) fn beat(&self) -> String {
        let schema = &self.schema;
        format!(
            "UPDATE {schema}.session SET beat = beat + 1, heard = now(), took_in = GREATEST(took_in, $3) \
             WHERE id = $1 AND token = $2 RETURNING id"
        )
    }

    /// All sessions, by number.
    pub(super) fn sessions(&self) -> String {
        let schema = &self.schema;
        format!("SELECT id, name, begun, heard, beat, took_in FROM {schema}.session ORDER BY id")
    }

    /// Takes a session, how often it was heard of and its token, where they matter; behind `lock`. It is over.
    pub(super) fn end(&self) -> String {
        let schema = &self.schema;
        format!(
            "DELETE FROM {schema}.session WHERE id = $1 \
               AND ($2::bigint IS NULL OR beat = $2) AND ($3::bigint IS NULL OR token = $3) RETURNING id"
        )
    }

    /// Removes changes from the feed that nobody needs; behind `lock`.
    pub(super) fn trim(&self) -> String {
        let schema = &self.schema;
        format!(
            "WITH cut AS (UPDATE {schema}.head SET floor = GREATEST(floor, sequence - {FEED_KEPT}) \
               WHERE id = 1 RETURNING floor) \
             DELETE FROM {schema}.feed WHERE sequence <= (SELECT floor FROM cut)"
        )
    }

    /// Makes the tables.
    pub(super) fn create(&self) -> String {
        let schema = &self.schema;
        format!(
            "BEGIN; \
             CREATE SCHEMA {schema}; \
             CREATE TABLE {schema}.kv (key bytea NOT NULL, value bytea, number bigint, PRIMARY KEY (key)); \
             CREATE TABLE {schema}.head (id integer PRIMARY KEY, version integer NOT NULL, \
               sequence bigint NOT NULL, tip bigint NOT NULL, floor bigint NOT NULL, sessions bigint NOT NULL, \
               alone bigint, wanted boolean NOT NULL); \
             CREATE TABLE {schema}.session (id bigint PRIMARY KEY, machine bigint NOT NULL, \
               name text NOT NULL, begun timestamptz NOT NULL, heard timestamptz NOT NULL, \
               beat bigint NOT NULL, took_in bigint NOT NULL, batch bigint NOT NULL, at bigint NOT NULL, token bigint NOT NULL); \
             CREATE TABLE {schema}.feed (sequence bigint PRIMARY KEY, session bigint NOT NULL, \
               before bigint NOT NULL, keys bytea[] NOT NULL); \
             INSERT INTO {schema}.head (id, version, sequence, tip, floor, sessions, alone, wanted) \
               VALUES (1, {VERSION}, 0, 0, 0, 0, NULL, FALSE); \
             COMMIT"
        )
    }

    /// Says whether they are there.
    pub(super) fn is_there(&self) -> String {
        let schema = &self.schema;
        format!("SELECT 1 FROM information_schema.schemata WHERE schema_name = '{schema}'")
    }

    /// Removes them.
    pub(super) fn drop(&self) -> String {
        format!("DROP SCHEMA IF EXISTS {} CASCADE", self.schema)
    }
}
