//! One connection to the database.

use std::{collections::BTreeMap, error::Error as _, ops::Range, time::Duration};

use bytes::Bytes;
use futures_util::future;
use futures_util::future::BoxFuture;
use penstock_base::{Secret, clock, random};
use tokio::task::JoinHandle;
use tokio_postgres::{
    Client, Config, Error, Row, Statement,
    config::{SslMode, TargetSessionAttrs},
    error::SqlState,
    types::ToSql,
};

use super::{
    address::{Place, PostgresAddress, TlsMode},
    edits::{Edit, Edits, number},
    feed::{ChangedKey, News, Point, moment},
    grounds::Grounds,
    statements::Statements,
    tls::Tls,
};
use crate::engine::{EngineError, EngineResult, SessionId, SessionRecord};

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a trip may take until the connection is given up.
const TRIP_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the server may work on a statement: who gave it up by then does not find it at work.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(50);
/// A server that does not answer is dead.
const SILENCE: Duration = Duration::from_secs(15);

/// How a server says that there are no tables, or not those that are asked for.
const NO_TABLES: [SqlState; 3] = [
    SqlState::UNDEFINED_TABLE,
    SqlState::UNDEFINED_COLUMN,
    SqlState::INVALID_SCHEMA_NAME,
];
const NOT_THERE: &str = "there is no such file system in it";

/// A session, and what tells it from another one that has its number in a history which went another way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Own {
    pub(super) id: i64,
    pub(super) token: i64,
}

/// Whom to connect to.
#[derive(Clone)]
pub(super) struct Connector {
    config: Config,
    tls: Tls,
    /// Who does not go on for so long within a transaction, or with a connection, is cut off by the server.
    silence: Duration,
    pub(super) statements: Statements,
    /// As it is told.
    pub(super) place: String,
}

impl Connector {
    /// Reads the certificates that are trusted; blocks on the disk.
    pub(super) fn new(
        address: &PostgresAddress,
        password: Option<&Secret>,
        (identity, lease): (u64, Duration),
    ) -> EngineResult<Self> {
        let mut config = Config::new();
        match &address.place {
            Place::Tcp(host) => config.host(host),
            Place::Unix(directory) => config.host_path(directory),
        };
        config
            .port(address.port)
            .dbname(&address.database)
            .user(&address.user)
            .application_name("penstock")
            // A standby behind the same address is waited out.
            .target_session_attrs(TargetSessionAttrs::ReadWrite)
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_user_timeout(SILENCE)
            .keepalives_idle(SILENCE)
            .keepalives_interval(SILENCE / 3)
            .keepalives_retries(3)
            .ssl_mode(match address.tls {
                TlsMode::Disable => SslMode::Disable,
                TlsMode::Prefer => SslMode::Prefer,
                TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => SslMode::Require,
            });
        if let Some(password) = password {
            config.password(password.expose());
        }
        Ok(Self {
            config,
            silence: lease / 2,
            tls: Tls::new(address).map_err(EngineError::Database)?,
            statements: Statements::new(identity),
            place: format!("{}:{}", address.host(), address.port),
        })
    }

    /// A connection.
    pub(super) fn connect(&self) -> BoxFuture<'_, EngineResult<Session>> {
        Box::pin(self.connected())
    }

    async fn connected(&self) -> EngineResult<Session> {
        let connected = self.config.connect(self.tls.clone());
        let connected = clock::deadline(CONNECT_TIMEOUT, connected).await;
        let connected = connected.map_err(|_| self.failure("no connection within 10 s"))?;
        let (client, connection) = connected.map_err(|error| self.told(&error))?;
        let task = tokio::spawn(async move {
            // Whoever uses the connection is told.
            let _ = connection.await;
        });
        let session = Session {
            client,
            task,
            connector: self.clone(),
        };
        session.set_up().await?;
        Ok(session)
    }

    fn failure(&self, text: &str) -> EngineError {
        EngineError::Database(format!("{}: {text}", self.place))
    }

    /// What an error is to whoever uses the engine.
    fn told(&self, error: &Error) -> EngineError {
        let Some(said) = error.as_db_error() else {
            let cause = error.source().map(ToString::to_string);
            let text = cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"));
            return self.failure(&text);
        };
        let text = format!("{} ({})", said.message(), said.code().code());
        let code = said.code();
        if *code == SqlState::DISK_FULL {
            EngineError::Full(format!("{}: {text}", self.place))
        } else if *code == SqlState::DATA_CORRUPTED || *code == SqlState::INDEX_CORRUPTED {
            EngineError::Corrupt(format!("{}: {text}", self.place))
        } else if NO_TABLES.contains(code) {
            self.failure(NOT_THERE)
        } else if *code == SqlState::DUPLICATE_SCHEMA {
            EngineError::Fenced(format!("{}: there is one in it already", self.place))
        } else if is_for_good(code) {
            EngineError::Io(format!("{}: {text}", self.place))
        } else {
            self.failure(&text)
        }
    }
}

/// Whether the same would be refused again and again, whenever it is asked: what a statement is or has in it is wrong.
fn is_for_good(code: &SqlState) -> bool {
    let class = code.code().get(..2).unwrap_or_default();
    matches!(class, "22" | "23" | "42" | "54") && *code != SqlState::INSUFFICIENT_PRIVILEGE
}

/// A connection. It ends when it is dropped.
pub(super) struct Session {
    client: Client,
    task: JoinHandle<()>,
    connector: Connector,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Session {
    /// What is acknowledged is durable, whatever the server's file says; a transaction sees what is the latest when its
    /// turn comes, for a stricter isolation refuses who had to wait for another; the server cuts off who goes silent while
    /// others wait; and the planner, which knows nothing of a table that grows from nothing, does not walk over all of it,
    /// and plans a statement once: each walks one index, and a plan for each trip would cost more than the trip.
    async fn set_up(&self) -> EngineResult<()> {
        let (statement_timeout, silence) = (
            STATEMENT_TIMEOUT.as_millis(),
            self.connector.silence.as_millis(),
        );
        let needed = format!(
            "SET synchronous_commit = on; SET default_transaction_isolation = 'read committed'; \
             SET statement_timeout = {statement_timeout}; \
             SET idle_in_transaction_session_timeout = {silence}"
        );
        self.all(&needed).await?;
        let seconds = (silence / 3000).max(1);
        let wanted = [
            "SET enable_seqscan = off".to_owned(),
            "SET enable_bitmapscan = off".to_owned(),
            "SET plan_cache_mode = force_generic_plan".to_owned(),
            format!("SET tcp_user_timeout = {silence}"),
            format!("SET tcp_keepalives_idle = {seconds}"),
            format!("SET tcp_keepalives_interval = {seconds}"),
            "SET tcp_keepalives_count = 2".to_owned(),
            format!("SET client_connection_check_interval = {silence}"),
        ];
        let settings = wanted.iter().map(|set| self.client.batch_execute(set));
        let set = self.trip(async { Ok(future::join_all(settings).await) });
        for error in set.await?.into_iter().filter_map(Result::err) {
            tracing::debug!(%error, "the database has no such setting");
        }
        Ok(())
    }

    /// Whether the connection is still one.
    pub(super) fn is_alive(&self) -> bool {
        !self.client.is_closed()
    }

    async fn trip<T>(&self, work: impl Future<Output = Result<T, Error>>) -> EngineResult<T> {
        match clock::deadline(TRIP_TIMEOUT, work).await {
            Ok(done) => done.map_err(|error| self.connector.told(&error)),
            Err(_) => {
                // Nobody uses it any more.
                self.task.abort();
                Err(self.connector.failure("no answer within 60 s"))
            }
        }
    }

    /// Statements without parameters.
    pub(super) async fn all(&self, statements: &str) -> EngineResult<()> {
        self.trip(self.client.batch_execute(statements)).await
    }

    /// What a setting of the server is, if it has it.
    pub(super) async fn setting(&self, name: &str) -> Option<String> {
        let show = format!("SHOW {name}");
        let rows = self.trip(self.client.query(&show, &[])).await.ok()?;
        rows.first()?.try_get(0).ok()
    }

    async fn prepared(&self, statement: &str) -> EngineResult<Statement> {
        self.trip(self.client.prepare(statement)).await
    }

    /// Whether the tables of the file system are there.
    pub(super) async fn has_schema(&self) -> EngineResult<bool> {
        let there = self.connector.statements.is_there();
        let row = self.trip(self.client.query_opt(&there, &[])).await?;
        Ok(row.is_some())
    }

    /// One statement in a transaction, behind the lock that goes before any change. All of it is sent before the first
    /// answer, so that a machine which dies meanwhile rarely leaves the lock to be waited for.
    async fn locked(
        &self,
        statement: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> EngineResult<Vec<Row>> {
        let lock = self.connector.statements.lock();
        let client = &self.client;
        let prepared = future::try_join(client.prepare(&lock), client.prepare(statement));
        let (lock, step) = self.trip(prepared).await?;
        let trip = future::try_join4(
            client.batch_execute("BEGIN"),
            client.query_one(&lock, &[]),
            client.query(&step, params),
            client.batch_execute("COMMIT"),
        );
        let ((), _, rows, ()) = self.trip(trip).await?;
        Ok(rows)
    }

    /// Begins a session of a machine, whose earlier ones are over.
    pub(super) async fn begin(&self, machine: i64, name: &str) -> EngineResult<Own> {
        let begin = self.connector.statements.begin();
        let token = random::number().cast_signed();
        let rows = match self.locked(&begin, &[&machine, &name, &token]).await {
            Err(error)
                if error == self.connector.failure(NOT_THERE) && self.has_schema().await? =>
            {
                return Err(self.of_version(1));
            }
            begun => begun?,
        };
        let row = rows
            .first()
            .ok_or_else(|| self.connector.failure(NOT_THERE))?;
        let id: Option<i64> = row.get(1);
        let id = id.ok_or_else(|| self.of_version(row.get(0)))?;
        Ok(Own { id, token })
    }

    /// Why tables of this version are not used.
    fn of_version(&self, version: i32) -> EngineError {
        let text = format!("its tables have version {version}: use the penstock that made them");
        self.connector.failure(&text)
    }

    /// Asks to have the keys alone; returns who has, and the latest change. Fails if the session is over.
    pub(super) async fn ask(&self, own: Own) -> EngineResult<(Option<i64>, Point)> {
        let ask = self.connector.statements.ask();
        let rows = self.locked(&ask, &[&own.id, &own.token]).await?;
        let row = rows.first().ok_or_else(over)?;
        let (at, tip) = (row.get(1), row.get(2));
        Ok((row.get(0), Point { at, tip }))
    }

    /// Has the keys no longer alone.
    pub(super) async fn share(&self, own: Own) -> EngineResult<()> {
        let share = self.connector.statements.share();
        self.locked(&share, &[&own.id, &own.token]).await?;
        Ok(())
    }

    /// Says that a session is alive, and whether it was.
    pub(super) async fn beat(&self, own: Own, took_in: i64) -> EngineResult<bool> {
        let beat = self.connector.statements.beat();
        let params: [&(dyn ToSql + Sync); 3] = [&own.id, &own.token, &took_in];
        let row = self.trip(self.client.query_opt(&beat, &params)).await?;
        Ok(row.is_some())
    }

    /// All sessions, with how often they were heard of.
    pub(super) async fn sessions(&self) -> EngineResult<Vec<(SessionRecord, i64)>> {
        let sessions = self.connector.statements.sessions();
        let rows = self.trip(self.client.query(&sessions, &[])).await?;
        let record = |row: &Row| {
            let record = SessionRecord {
                id: SessionId(row.get::<_, i64>(0).cast_unsigned()),
                name: row.get(1),
                begun: row.get(2),
                heard: row.get(3),
                took_in: moment(row.get(5)),
            };
            (record, row.get(4))
        };
        Ok(rows.iter().map(record).collect())
    }

    /// Ends this session.
    pub(super) async fn end(&self, own: Own) -> EngineResult<()> {
        let gone = self.end_if(own.id, None, Some(own.token)).await;
        gone.map(drop)
    }

    /// Ends a session, if it was heard of so often; returns whether there was one.
    pub(super) async fn end_other(&self, id: i64, beat: Option<i64>) -> EngineResult<bool> {
        self.end_if(id, beat, None).await
    }

    async fn end_if(&self, id: i64, beat: Option<i64>, token: Option<i64>) -> EngineResult<bool> {
        let end = self.connector.statements.end();
        let gone = self.locked(&end, &[&id, &beat, &token]).await?;
        Ok(!gone.is_empty())
    }

    /// Removes changes from the feed that nobody needs.
    pub(super) async fn trim(&self) -> EngineResult<()> {
        let trim = self.connector.statements.trim();
        self.locked(&trim, &[]).await?;
        Ok(())
    }
}

/// Reads what [`news`](Statements::news) returned, `None` if the session is over.
fn news<'a>(rows: impl Iterator<Item = &'a Row>) -> Option<News> {
    let mut news = News::default();
    let mut is_alive = false;
    for row in rows {
        match row.get::<_, Option<&[u8]>>("key") {
            Some(key) => news.changed.push(ChangedKey {
                at: row.get("at"),
                key: Bytes::copy_from_slice(key),
                is_own: row.get("is_own"),
            }),
            None => {
                news.point.at = row.get("at");
                news.point.tip = row.get("tip");
                news.before = row.get("before");
                news.floor = row.get("floor");
                news.is_asked = row.get::<_, Option<bool>>("is_asked").unwrap_or_default();
                is_alive = row.get("is_own");
                if is_alive {
                    news.made = (row.get("batch"), row.get("made_at"));
                }
            }
        }
    }
    // In the order of their numbers, as they are remembered.
    news.changed.sort_by_key(|changed| changed.at);
    is_alive.then_some(news)
}

/// Some rows, and what others changed since, as of the same moment.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) rows: Vec<(Bytes, Bytes)>,
    pub(super) news: News,
}

/// From which number on news are wanted, and for which session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Since {
    pub(super) seen: Point,
    /// The last batch of the session that is known to be made.
    pub(super) made: i64,
    pub(super) own: Own,
}

impl Since {
    /// Fails if the session is over, or the database knows less than it did, or something else.
    fn checked(self, news: Option<News>) -> EngineResult<News> {
        let news = news.ok_or_else(over)?;
        let is_earlier = news.point.at < self.seen.at || news.made.0 < self.made;
        let is_other = match news.point.at == self.seen.at {
            true => news.point.tip != self.seen.tip,
            // Changes of one who has the keys alone are not listed.
            false => news.before.is_some_and(|before| before != self.seen.tip),
        };
        match is_earlier || is_other {
            true => Err(put_back()),
            false => Ok(news),
        }
    }
}

fn put_back() -> EngineError {
    EngineError::Fenced("the database was put back to what it was once".to_owned())
}

/// A connection that reads.
pub(super) struct Reader {
    pub(super) session: Session,
    page: Statement,
    news: Statement,
}

impl Reader {
    pub(super) async fn connect(connector: &Connector) -> EngineResult<Self> {
        let session = connector.connect().await?;
        Ok(Self {
            page: session.prepared(&connector.statements.page()).await?,
            news: session.prepared(&connector.statements.news()).await?,
            session,
        })
    }

    /// The first keys of a range, at most `count`, in one trip.
    pub(super) async fn page(
        &self,
        since: Since,
        range: &Range<Bytes>,
        count: i64,
    ) -> EngineResult<Page> {
        let (start, end) = (&*range.start, &*range.end);
        let Own { id, token } = since.own;
        let params: [&(dyn ToSql + Sync); 6] = [&since.seen.at, &id, &token, &start, &end, &count];
        let found = self.session.client.query(&self.page, &params);
        let found = self.session.trip(found).await?;
        let is_row = |row: &&Row| row.get::<_, bool>("is_row");
        let mut rows: Vec<_> = found.iter().filter(is_row).map(key_and_value).collect();
        rows.sort_unstable();
        let news = since.checked(news(found.iter().filter(|row| !is_row(row))))?;
        Ok(Page { rows, news })
    }

    /// What others changed.
    pub(super) async fn news(&self, since: Since) -> EngineResult<News> {
        let Own { id, token } = since.own;
        let params: [&(dyn ToSql + Sync); 3] = [&since.seen.at, &id, &token];
        let found = self.session.client.query(&self.news, &params);
        let found = self.session.trip(found).await?;
        since.checked(news(found.iter()))
    }
}

/// A session that was ended, or was not heard of for too long.
pub(super) fn over() -> EngineError {
    EngineError::Fenced("this session was ended, or was not heard of for too long".to_owned())
}

fn key_and_value(row: &Row) -> (Bytes, Bytes) {
    let key = Bytes::copy_from_slice(row.get("key"));
    let value = match row.get::<_, Option<&[u8]>>("value") {
        Some(value) => Bytes::copy_from_slice(value),
        None => number(row.get::<_, Option<i64>>("number").unwrap_or_default()),
    };
    (key, value)
}

/// Changes that are made at once.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Among those of the session.
    pub(super) number: i64,
    /// What they build on is as of this point.
    pub(super) seen: Point,
    pub(super) grounds: Grounds,
    pub(super) edits: Edits,
    /// Whether others are there to be told.
    pub(super) is_told: bool,
    pub(super) took_in: i64,
}

/// What became of a batch.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It was made, under this number; some counters stand so then.
    Made {
        at: i64,
        stand: BTreeMap<Bytes, i64>,
    },
    /// Others changed what it builds on: nothing was made.
    Outdated,
}

/// The connection that writes.
pub(super) struct Writer {
    pub(super) session: Session,
    lock: Statement,
    change: Statement,
    news: Statement,
}

impl Writer {
    pub(super) async fn connect(connector: &Connector) -> EngineResult<Self> {
        let session = connector.connect().await?;
        Ok(Self {
            lock: session.prepared(&connector.statements.lock()).await?,
            change: session.prepared(&connector.statements.change()).await?,
            news: session.prepared(&connector.statements.news()).await?,
            session,
        })
    }

    /// Makes changes, in one trip; returns what became of it, and what others changed before it and just behind it.
    pub(super) async fn change(
        &self,
        since: Since,
        batch: &Batch,
    ) -> EngineResult<(Outcome, News)> {
        let columns = Columns::of(batch);
        let (Own { id, token }, tip) = (since.own, random::number().cast_signed());
        let params: [&(dyn ToSql + Sync); 17] = [
            &id,
            &batch.number,
            &batch.seen.at,
            &columns.grounds,
            &columns.firsts,
            &columns.ends,
            &columns.removed,
            &columns.set,
            &columns.values,
            &columns.counted,
            &columns.floors,
            &columns.plus,
            &batch.is_told,
            &batch.took_in,
            &token,
            &batch.seen.tip,
            &tip,
        ];
        let client = &self.session.client;
        let news_params: [&(dyn ToSql + Sync); 3] = [&since.seen.at, &id, &token];
        // All of it is sent before the first answer: nobody else uses this connection. Others need not wait for the news.
        let trip = future::try_join5(
            client.batch_execute("BEGIN"),
            client.query_one(&self.lock, &[]),
            client.query(&self.change, &params),
            client.batch_execute("COMMIT"),
            client.query(&self.news, &news_params),
        );
        let ((), _, changed, (), found) = self.session.trip(trip).await?;
        let outcome = outcome(&changed)?;
        Ok((outcome, since.checked(news(found.iter()))?))
    }
}

/// What a change said of itself.
fn outcome(rows: &[Row]) -> EngineResult<Outcome> {
    let mut stand = BTreeMap::new();
    let (mut said, mut at) = (None, None);
    for row in rows {
        let number: i64 = row.get("number");
        match row.get::<_, Option<&[u8]>>("key") {
            Some(key) => drop(stand.insert(Bytes::copy_from_slice(key), number)),
            None => (said, at) = (Some(number), row.get::<_, Option<i64>>("at")),
        }
    }
    match said {
        // An earlier attempt made it, whose answer was lost.
        Some(1 | 4) => Ok(Outcome::Made {
            at: at.unwrap_or_default(),
            stand,
        }),
        Some(3) => Ok(Outcome::Outdated),
        Some(2) => Err(put_back()),
        Some(5) => Err(EngineError::Database("no transaction began".to_owned())),
        _ => Err(over()),
    }
}

/// A batch as arrays.
#[derive(Default)]
struct Columns<'a> {
    grounds: Vec<&'a [u8]>,
    firsts: Vec<&'a [u8]>,
    ends: Vec<&'a [u8]>,
    removed: Vec<&'a [u8]>,
    set: Vec<&'a [u8]>,
    values: Vec<&'a [u8]>,
    counted: Vec<&'a [u8]>,
    floors: Vec<i64>,
    plus: Vec<i64>,
}

impl<'a> Columns<'a> {
    fn of(batch: &'a Batch) -> Self {
        let mut columns = Self {
            grounds: batch.grounds.keys.iter().map(|key| &**key).collect(),
            ..Self::default()
        };
        for range in &batch.grounds.ranges {
            columns.firsts.push(&range.start);
            columns.ends.push(&range.end);
        }
        for (key, edit) in batch.edits.iter() {
            match edit {
                Edit::Set(value) => {
                    columns.set.push(key);
                    columns.values.push(value);
                }
                Edit::Remove => columns.removed.push(key),
                Edit::Count(count) => {
                    columns.counted.push(key);
                    columns.floors.push(count.floor);
                    columns.plus.push(count.plus);
                }
            }
        }
        columns
    }
}
